// SPDX-License-Identifier: MIT OR Apache-2.0
//! The paths of a connection that are probed.

use crate::probe::ProbePath;

/// Paths of one connection that are probed at a time: primary, alternate, one that may become the next
/// alternate, and one to which it could return.
const WATCHED_MAX: usize = 4;

/// The paths of a connection that are probed.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Watched([Option<ProbePath>; WATCHED_MAX]);

impl Watched {
    pub(super) fn has(&self, path: &ProbePath) -> bool {
        self.iter().any(|watched| watched == path)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ProbePath> {
        self.0.iter().flatten()
    }

    /// One more, if it is another and there is a place.
    pub(super) fn add(&mut self, path: Option<ProbePath>) {
        let new = path.filter(|path| !self.has(path));
        if let (Some(new), Some(place)) = (new, self.0.iter_mut().find(|place| place.is_none())) {
            *place = Some(new);
        }
    }
}
