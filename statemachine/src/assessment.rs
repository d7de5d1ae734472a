// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers to the question what paths share with a primary.

use alloc::vec::Vec;

use cm_msgs::path::Path;
use cm_msgs::{Gid, Lid};

use crate::overlap::{Overlap, PathEnds};
use crate::trace::PathLids;

/// What was said of one path, from some port of a device; `None`: nothing is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Said {
    port: u8,
    dgid: Gid,
    /// 0: any of the port's.
    slid: Lid,
    dlid: Lid,
    overlap: Option<Overlap>,
}

impl Said {
    fn new(ends: &PathEnds, overlap: Option<Overlap>) -> Self {
        let PathEnds {
            port,
            dgid,
            slid,
            dlid,
            ..
        } = *ends;
        Self {
            port: port.port,
            dgid,
            slid: slid.unwrap_or_default(),
            dlid: dlid.unwrap_or_default(),
            overlap,
        }
    }

    fn is_of(&self, ends: &PathEnds) -> bool {
        let overlap = self.overlap;
        *self == Self::new(ends, overlap)
    }
}

/// What paths share with one primary, as it was answered: the same for all connections between these ports.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Assessment {
    primary: PathLids,
    said: Vec<Said>,
}

impl Assessment {
    /// The answer to a question about these paths. What was not said, or not in time, is not known.
    pub(crate) fn new(primary: &Path, paths: &[PathEnds], overlaps: &[Option<Overlap>]) -> Self {
        let overlap = |at: usize| overlaps.get(at).copied().flatten();
        let paths = paths.iter().enumerate();
        Self {
            primary: primary.into(),
            said: paths
                .map(|(at, ends)| Said::new(ends, overlap(at)))
                .collect(),
        }
    }

    pub(crate) fn is_for(&self, primary: &Path) -> bool {
        self.primary == PathLids::from(primary)
    }

    /// Whether it was asked for all of these.
    pub(crate) fn covers(&self, paths: &[PathEnds]) -> bool {
        let was_said = |ends: &PathEnds| self.said.iter().any(|said| said.is_of(ends));
        paths.iter().all(was_said)
    }

    pub(crate) fn of(&self, ends: &PathEnds) -> Option<Overlap> {
        self.said.iter().find(|said| said.is_of(ends))?.overlap
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::PortId;
    use cm_msgs::Guid;

    fn ends(port: u8, lids: (Option<u16>, Option<u16>), guid: u64) -> PathEnds {
        PathEnds {
            port: PortId::new(Guid(1), port),
            sgid: Gid::default(),
            dgid: Gid::new(0xfe80 << 48, Guid(guid)),
            slid: lids.0.map(Lid),
            dlid: lids.1.map(Lid),
        }
    }

    #[test]
    fn an_answer_is_for_one_primary_and_the_paths_that_were_asked_about() {
        let primary = Path {
            port: 1,
            slid: Lid(1),
            dlid: Lid(2),
            ..Path::default()
        };
        let [known, unknown, late] =
            [(2, Some(3)), (2, Some(4)), (1, None)].map(|(port, dlid)| ends(port, (None, dlid), 9));
        let shared = Overlap {
            switches: 1,
            links: 0,
        };
        let paths = [known, unknown, late];
        let answer = Assessment::new(&primary, &paths, &[Some(shared), None]);
        assert!(answer.is_for(&primary));
        for other in [
            Path { port: 2, ..primary },
            Path {
                slid: Lid(7),
                ..primary
            },
            Path {
                dlid: Lid(7),
                ..primary
            },
        ] {
            assert!(!answer.is_for(&other), "{other:?}");
        }
        assert_eq!(
            paths.map(|path| answer.of(&path)),
            [Some(shared), None, None]
        );
        assert!(answer.covers(&paths) && answer.covers(&[late]) && answer.covers(&[]));
        for other in [
            ends(1, (None, Some(3)), 9),
            ends(2, (Some(5), Some(3)), 9),
            ends(2, (None, Some(5)), 9),
            ends(2, (None, Some(3)), 8),
        ] {
            assert!(!answer.covers(&[known, other]), "{other:?}");
            assert_eq!(answer.of(&other), None, "{other:?}");
        }
    }
}
