// SPDX-License-Identifier: MIT OR Apache-2.0
//! What speaks against paths that look fine from here.

use cm_msgs::path::{Path, PortAddress};
use cm_msgs::{Gid, Lid};

use thin_vec::ThinVec;

use crate::candidate::{Candidate, Doubt};
use crate::time::Time;

/// A path that hardware left without a visible cause.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    path: Path,
    until: Time,
}

impl Suspect {
    /// For a connection whose peer does not speak this is all that ends a suspicion.
    fn is_over(&self, now: Time) -> bool {
        self.until <= now
    }
}

/// A remote port that cannot be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Absent {
    gid: Gid,
    /// From this local port; from all, if the peer itself says so.
    from: Option<u8>,
}

impl Absent {
    fn covers(&self, port: u8, gid: Gid) -> bool {
        self.gid == gid && self.from.is_none_or(|from| from == port)
    }
}

/// What a connection knows against paths.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Suspicions {
    suspects: ThinVec<Suspect>,
    /// Remote ports that were out of service when last heard of.
    absent: ThinVec<Absent>,
}

/// Suspects kept in mind. More paths than this do not fail in one hold-off while the connection lives.
const MAX_SUSPECTS: usize = 8;

impl Suspicions {
    /// An operator wants all of it tried again, but what the peer says of its ports stands.
    pub(super) fn forget(&mut self, ports: &[PortAddress]) {
        self.suspects.clear();
        self.peer_ports(ports);
    }

    /// What the peer said about its ports replaces what was known.
    pub(super) fn peer_ports(&mut self, ports: &[PortAddress]) {
        self.absent = ports
            .iter()
            .filter(|port| port.lid == Lid(0))
            .map(|port| Absent {
                gid: port.gid,
                from: None,
            })
            .collect();
    }

    /// What it says of ports that are out of service still stands.
    pub(super) fn peer_repeats(&mut self, ports: &[PortAddress]) {
        for port in ports.iter().filter(|port| port.lid == Lid(0)) {
            self.declined(port.gid);
        }
    }

    pub(super) fn suspect(&mut self, path: Path, until: Time) {
        self.suspects
            .retain(|suspect| !suspect.path.same_way(&path));
        if self.suspects.len() == MAX_SUSPECTS {
            self.suspects.remove(0);
        }
        self.suspects.push(Suspect { path, until });
    }

    /// The paths that are suspect, the last one first.
    pub(super) fn suspects(&self) -> impl Iterator<Item = &Path> {
        self.suspects.iter().rev().map(|suspect| &suspect.path)
    }

    /// A probe of these paths has come back. Whether any was suspect.
    pub(super) fn verified(&mut self, is_it: impl Fn(&Path) -> bool) -> bool {
        let before = self.suspects.len();
        self.suspects.retain(|suspect| !is_it(&suspect.path));
        self.suspects.len() < before
    }

    /// Something was heard of a local port: what happened to paths over it is explained.
    pub(super) fn local_port(&mut self, port: u8) {
        self.suspects.retain(|suspect| suspect.path.port != port);
    }

    /// The suspicions that are over.
    pub(super) fn expire(&mut self, now: Time) {
        self.suspects.retain(|suspect| !suspect.is_over(now));
    }

    /// When the next suspicion is over.
    pub(super) fn next(&self) -> Option<Time> {
        self.suspects.iter().map(|suspect| suspect.until).min()
    }

    /// A path source knows no path: most likely the remote port is out of service, and that
    /// explains suspicions against paths to it.
    pub(super) fn no_path(&mut self, candidate: &Candidate) {
        let (port, gid) = (candidate.port.port, candidate.dgid);
        self.suspects.retain(|suspect| suspect.path.dgid != gid);
        self.add(Absent {
            gid,
            from: Some(port),
        });
    }

    /// The peer says that the port is no good.
    pub(super) fn declined(&mut self, gid: Gid) {
        self.add(Absent { gid, from: None });
    }

    fn add(&mut self, absent: Absent) {
        if !self.absent.contains(&absent) {
            self.absent.push(absent);
        }
    }

    /// The port is in service.
    pub(super) fn present(&mut self, gid: Gid) {
        self.absent.retain(|absent| absent.gid != gid);
    }

    /// The port is said to be in service: where a path source knew no path to it, it may know one now.
    /// What the peer itself says of it stands. Whether there was such a doubt.
    pub(super) fn may_be_present(&mut self, gid: Gid) -> bool {
        let before = self.absent.len();
        let by_source = |absent: &Absent| absent.gid == gid && absent.from.is_some();
        self.absent.retain(|absent| !by_source(absent));
        self.absent.len() < before
    }

    pub(super) fn of_path(&self, path: &Path) -> Doubt {
        let is_it = |suspect: &Suspect| suspect.path.same_way(path);
        self.doubt(path.port, path.dgid, is_it)
    }

    /// Suspicions against a candidate; one without LIDs stands for all paths between its ports.
    pub(super) fn of_candidate(&self, candidate: &Candidate) -> Doubt {
        let covers = |suspect: &Suspect| {
            let path = &suspect.path;
            path.port == candidate.port.port
                && path.dgid == candidate.dgid
                && candidate.slid.is_none_or(|lid| lid == path.slid)
                && candidate.dlid.is_none_or(|lid| lid == path.dlid)
        };
        self.doubt(candidate.port.port, candidate.dgid, covers)
    }

    fn doubt(&self, port: u8, dgid: Gid, suspected: impl FnMut(&Suspect) -> bool) -> Doubt {
        let mut absent = self.absent.iter();
        if self.suspects.iter().any(suspected) {
            Doubt::Suspect
        } else if absent.any(|absent| absent.covers(port, dgid)) {
            Doubt::RemoteDown
        } else {
            Doubt::None
        }
    }
}
