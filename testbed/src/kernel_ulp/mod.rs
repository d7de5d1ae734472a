// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own users of RC connections: four, and the scripts of `testbed/programs/kernel` that set
//! them up.
//!
//! - [`stream`]: a target and a client that verifies what it reads.

pub mod stream;

use crate::world::Kind;

/// A kernel consumer.
#[derive(Debug)]
pub struct Ulp {
    /// Its name in reports.
    pub name: &'static str,
    /// Where it runs.
    pub world: Kind,
    /// Its script, and what that calls the side that listens, and the other.
    pub script: [&'static str; 3],
    /// What the script does at the end, on the host that listens; empty if nothing.
    pub forget: &'static str,
    /// The program that verifies, where it is a child of the script and not what that becomes.
    pub verifier: Option<&'static str>,
    /// Connections between the two hosts.
    pub connections: usize,
    /// Those that carry the stream. One that is idle stays in ReArm until something is sent over it.
    pub busy: usize,
    /// Words by which its lines in the kernel's log are known, and those of what rests on it.
    pub speaks_as: &'static [&'static str],
}

/// Those that need no network namespaces.
pub const FLAT: [&Ulp; 3] = [&SRP, &NVME, &RDS];

/// A SCSI disk: one channel for each CPU of the VM.
pub const SRP: Ulp = Ulp {
    name: "srp",
    speaks_as: &["ib_srp", "scsi", "I/O error"],
    world: Kind::Flat,
    script: ["srp", "target", "initiator"],
    forget: "forget",
    verifier: Some("block_writer"),
    connections: 2,
    busy: 1,
};

/// An NVMe disk: the queue of administration, and one for I/O.
pub const NVME: Ulp = Ulp {
    name: "nvme",
    speaks_as: &["nvme", "I/O error"],
    world: Kind::Flat,
    script: ["nvme-rdma", "target", "host"],
    forget: "forget",
    verifier: Some("block_writer"),
    connections: 2,
    busy: 1,
};

/// Files: one connection.
pub const NFS: Ulp = Ulp {
    name: "nfs",
    speaks_as: &["rpcrdma", "svcrdma", "nfs"],
    world: Kind::Netns,
    script: ["nfs-rdma", "server", "client"],
    forget: "stop",
    verifier: Some("block_writer"),
    connections: 1,
    busy: 1,
};

/// Messages: one connection.
pub const RDS: Ulp = Ulp {
    name: "rds",
    speaks_as: &["RDS"],
    world: Kind::Flat,
    script: ["rds", "server", "client"],
    forget: "forget",
    verifier: None,
    connections: 1,
    busy: 1,
};
