// SPDX-License-Identifier: MIT OR Apache-2.0
//! What speaks against paths that look fine from here.

use alloc::vec::Vec;

use cm_msgs::association::PortAddress;
use cm_msgs::path::Path;
use cm_msgs::{Gid, Lid};

use crate::candidate::{Candidate, Doubt};
use crate::time::Time;

/// A path that hardware left without a visible cause.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    path: Path,
    until: Time,
}

/// What a connection knows against paths.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    suspects: Vec<Suspect>,
    /// Remote ports that were out of service when last heard of.
    absent: Vec<Gid>,
}

/// Suspects kept. More paths than this do not fail in one hold-off while the connection lives.
const MAX_SUSPECTS: usize = 8;

impl Doubts {
    /// What the peer said about its ports replaces what was known.
    pub(super) fn peer_ports(&mut self, ports: &[PortAddress]) {
        self.absent = ports
            .iter()
            .filter(|port| port.lid == Lid(0))
            .map(|port| port.gid)
            .collect();
    }

    pub(super) fn suspect(&mut self, path: Path, until: Time) {
        self.suspects
            .retain(|suspect| !suspect.path.same_way(&path));
        if self.suspects.len() == MAX_SUSPECTS {
            self.suspects.remove(0);
        }
        self.suspects.push(Suspect { path, until });
    }

    /// Something was heard of a local port: what happened to paths over it is explained.
    pub(super) fn local_port(&mut self, port: u8) {
        self.suspects.retain(|suspect| suspect.path.port != port);
    }

    /// The suspicions that are over.
    pub(super) fn expire(&mut self, now: Time) {
        self.suspects.retain(|suspect| suspect.until > now);
    }

    /// When the next suspicion is over.
    pub(super) fn next(&self) -> Option<Time> {
        self.suspects.iter().map(|suspect| suspect.until).min()
    }

    /// A path source knows no path to the port: that explains suspicions against it.
    pub(super) fn absent(&mut self, gid: Gid) {
        self.suspects.retain(|suspect| suspect.path.dgid != gid);
        if !self.absent.contains(&gid) {
            self.absent.push(gid);
        }
    }

    /// The port is in service.
    pub(super) fn present(&mut self, gid: Gid) {
        self.absent.retain(|&absent| absent != gid);
    }

    pub(super) fn of_path(&self, path: &Path) -> Doubt {
        if self
            .suspects
            .iter()
            .any(|suspect| suspect.path.same_way(path))
        {
            Doubt::Suspect
        } else if self.absent.contains(&path.dgid) {
            Doubt::RemoteDown
        } else {
            Doubt::None
        }
    }

    /// Doubts against a candidate; one without LIDs stands for all paths between its ports.
    pub(super) fn of_candidate(&self, candidate: &Candidate) -> Doubt {
        let covers = |suspect: &Suspect| {
            let path = &suspect.path;
            path.port == candidate.port.port
                && path.dgid == candidate.dgid
                && candidate.slid.is_none_or(|lid| lid == path.slid)
                && candidate.dlid.is_none_or(|lid| lid == path.dlid)
        };
        if self.suspects.iter().any(covers) {
            Doubt::Suspect
        } else if self.absent.contains(&candidate.dgid) {
            Doubt::RemoteDown
        } else {
            Doubt::None
        }
    }
}
