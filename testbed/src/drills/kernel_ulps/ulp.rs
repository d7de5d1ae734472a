// SPDX-License-Identifier: MIT OR Apache-2.0
//! The four, and the scripts of `testbed/programs/kernel` that set them up.

use crate::world::Kind;

/// A kernel consumer.
pub(super) struct Ulp {
    /// Its name in reports.
    pub(super) name: &'static str,
    /// Where it runs.
    pub(super) world: Kind,
    /// Its script, and what that calls the side that listens, and the other.
    pub(super) script: [&'static str; 3],
    /// What the script does at the end, on the host that listens; empty if nothing.
    pub(super) forget: &'static str,
    /// The program that verifies, where it is a child of the script and not what that becomes.
    pub(super) verifier: Option<&'static str>,
    /// Connections between the two hosts.
    pub(super) connections: usize,
    /// Those that carry the stream. One that is idle stays in ReArm until something is sent over it.
    pub(super) busy: usize,
}

/// Those that need no network namespaces.
pub(super) const FLAT: [&Ulp; 3] = [&SRP, &NVME, &RDS];

/// One channel for each CPU of the VM.
pub(super) const SRP: Ulp = Ulp {
    name: "srp",
    world: Kind::Flat,
    script: ["srp", "target", "initiator"],
    forget: "forget",
    verifier: Some("block_writer"),
    connections: 2,
    busy: 1,
};

/// The queue of administration, and one for I/O.
pub(super) const NVME: Ulp = Ulp {
    name: "nvme",
    world: Kind::Flat,
    script: ["nvme-rdma", "target", "host"],
    forget: "forget",
    verifier: Some("block_writer"),
    connections: 2,
    busy: 1,
};

pub(super) const NFS: Ulp = Ulp {
    name: "nfs",
    world: Kind::Netns,
    script: ["nfs-rdma", "server", "client"],
    forget: "stop",
    verifier: Some("block_writer"),
    connections: 1,
    busy: 1,
};

pub(super) const RDS: Ulp = Ulp {
    name: "rds",
    world: Kind::Flat,
    script: ["rds", "server", "client"],
    forget: "forget",
    verifier: None,
    connections: 1,
    busy: 1,
};
