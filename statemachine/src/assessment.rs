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
