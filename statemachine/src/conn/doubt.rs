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

/// Remote ports kept in mind as unreachable: a peer may name any number. It reports 8 at most, each perhaps unreachable
/// from each of some local ports.
const MAX_ABSENT: usize = 32;

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
        if self.absent.contains(&absent) {
            return;
        }
        if self.absent.len() == MAX_ABSENT {
            self.absent.remove(0);
        }
        self.absent.push(absent);
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

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use cm_msgs::Guid;

    use super::*;
    use crate::candidate::Score;
    use crate::id::PortId;

    fn gid(far: u8) -> Gid {
        Gid::new(1, Guid(far.into()))
    }

    /// From a local port to a far one, and by these path bits of both.
    fn path(port: u8, far: u8, bits: u16) -> Path {
        Path {
            port,
            slid: Lid(u16::from(port) << 4 | bits),
            dlid: Lid(u16::from(far) << 8 | bits),
            dgid: gid(far),
            ..Path::default()
        }
    }

    fn candidate(port: u8, far: u8, bits: Option<u16>) -> Candidate {
        let path = path(port, far, bits.unwrap_or(0));
        Candidate {
            port: PortId::new(Guid(9), port),
            sgid: Gid::default(),
            dgid: path.dgid,
            slid: bits.map(|_| path.slid),
            dlid: bits.map(|_| path.dlid),
            score: Score::BEST,
            origin: None,
        }
    }

    fn address(far: u8, up: bool) -> PortAddress {
        PortAddress {
            gid: gid(far),
            lid: Lid(u16::from(up) * 7),
        }
    }

    fn suspicions(paths: &[Path]) -> Suspicions {
        let mut suspicions = Suspicions::default();
        for (second, path) in paths.iter().enumerate() {
            suspicions.suspect(*path, Time(10 + second as u64));
        }
        suspicions
    }

    #[test]
    fn a_suspicion_is_of_one_path_until_its_time_is_over() {
        let (first, second) = (path(1, 1, 0), path(1, 1, 1));
        let mut known = suspicions(&[first, second, first]);
        assert_eq!(known.next(), Some(Time(11)), "the first is suspect again");
        let order: Vec<Path> = known.suspects().copied().collect();
        assert_eq!(order, [first, second], "the last one first");
        assert_eq!(known.of_path(&path(2, 1, 0)), Doubt::None);
        known.expire(Time(10));
        assert_eq!(known.of_path(&second), Doubt::Suspect);
        known.expire(Time(11));
        assert_eq!(known.of_path(&second), Doubt::None);
        assert_eq!(known.of_path(&first), Doubt::Suspect);
        assert!(!known.verified(|path| path.same_way(&second)));
        assert!(known.verified(|path| path.same_way(&first)));
        assert_eq!((known.of_path(&first), known.next()), (Doubt::None, None));
    }

    #[test]
    fn no_more_than_some_are_kept_and_the_oldest_goes() {
        let paths: Vec<Path> = (1..=9).map(|port| path(port, 1, 0)).collect();
        let known = suspicions(&paths);
        assert_eq!(known.of_path(&paths[0]), Doubt::None);
        assert!(
            paths[1..]
                .iter()
                .all(|path| known.of_path(path) == Doubt::Suspect)
        );
    }

    #[test]
    fn a_peer_that_names_many_ports_has_no_more_than_some_remembered() {
        let mut known = Suspicions::default();
        for far in 0..=u8::MAX {
            known.declined(gid(far));
            known.no_path(&candidate(1, far, None));
        }
        assert_eq!(known.absent.len(), MAX_ABSENT);
        assert_eq!(known.of_path(&path(1, 0, 0)), Doubt::None, "the oldest");
        assert_eq!(known.of_path(&path(1, u8::MAX, 0)), Doubt::RemoteDown);
    }

    #[test]
    fn a_candidate_without_lids_stands_for_all_paths_between_its_ports() {
        let known = suspicions(&[path(1, 2, 3)]);
        let doubt = |port, far, bits| known.of_candidate(&candidate(port, far, bits));
        assert_eq!(doubt(1, 2, None), Doubt::Suspect);
        assert_eq!(doubt(1, 2, Some(3)), Doubt::Suspect);
        assert_eq!(doubt(1, 2, Some(2)), Doubt::None);
        assert_eq!([doubt(2, 2, None), doubt(1, 3, None)], [Doubt::None; 2]);
        let one_lid = |near, far| Candidate {
            slid: Some(path(1, 2, near).slid),
            dlid: Some(path(1, 2, far).dlid),
            ..candidate(1, 2, None)
        };
        for other in [one_lid(3, 1), one_lid(1, 3)] {
            assert_eq!(known.of_candidate(&other), Doubt::None);
        }
    }

    #[test]
    fn what_explains_a_suspicion_ends_it() {
        let paths = [path(1, 1, 0), path(2, 2, 0), path(3, 3, 0)];
        let doubts = |known: &Suspicions| paths.map(|path| known.of_path(&path));
        let mut known = suspicions(&paths);
        known.local_port(1);
        assert_eq!(
            doubts(&known),
            [Doubt::None, Doubt::Suspect, Doubt::Suspect]
        );
        // The far port is out of service, most likely: that a source knows from the candidate's local port only.
        known.no_path(&candidate(2, 2, None));
        assert_eq!(
            doubts(&known),
            [Doubt::None, Doubt::RemoteDown, Doubt::Suspect]
        );
        assert_eq!(known.of_path(&path(1, 2, 0)), Doubt::None);
    }

    #[test]
    fn what_the_peer_says_of_its_ports_stands_until_it_says_something_else() {
        let (one, two) = (path(1, 1, 0), path(1, 2, 0));
        let doubts = |known: &Suspicions| [one, two].map(|path| known.of_path(&path));
        let down = |far: [bool; 2]| far.map(|is| if is { Doubt::RemoteDown } else { Doubt::None });
        let mut known = Suspicions::default();
        known.peer_ports(&[address(1, false), address(2, true)]);
        assert_eq!(doubts(&known), down([true, false]));
        assert!(!known.may_be_present(gid(1)), "the peer knows best");
        assert_eq!(doubts(&known), down([true, false]));
        known.no_path(&candidate(1, 2, None));
        known.no_path(&candidate(1, 2, None));
        assert_eq!(doubts(&known), down([true, true]));
        assert!(!known.may_be_present(gid(3)));
        assert!(known.may_be_present(gid(2)) && !known.may_be_present(gid(2)));
        assert_eq!(doubts(&known), down([true, false]));
        known.declined(gid(2));
        known.present(gid(1));
        assert_eq!(doubts(&known), down([false, true]));
        known.peer_repeats(&[address(1, false), address(2, true)]);
        assert_eq!(doubts(&known), down([true, true]));
        known.suspect(path(2, 2, 0), Time(5));
        known.forget(&[address(1, true), address(2, false)]);
        assert_eq!(doubts(&known), down([false, true]));
        assert_eq!(known.next(), None);
    }
}
