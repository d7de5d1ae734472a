// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was lost of paths that are not used at the moment: associations are opened again just when much is lost.

use alloc::collections::BTreeMap;

use super::ProbePath;
use super::far_ports::FarPorts;
use super::loss::LossRate;

/// Paths that are remembered.
pub(super) const MAX_PATHS: usize = 1_024;

/// Paths that are not used, and of which many probes were lost.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct LossyPaths(BTreeMap<ProbePath, LossRate>);

impl LossyPaths {
    /// Takes out what is remembered of a path. To forget that would be to expect that nothing is lost any more.
    pub(super) fn take(&mut self, path: &ProbePath) -> LossRate {
        self.0.remove(path).unwrap_or_default()
    }

    /// Remembers what a path lost, if that was much.
    pub(super) fn insert(&mut self, path: ProbePath, loss: LossRate, far_ports: &FarPorts) {
        if loss.is_high() {
            self.0.insert(path, loss);
            self.limit(far_ports);
        }
    }

    /// If there are too many, forgets one of the far port that has most: no peer makes those of others forgotten.
    fn limit(&mut self, far_ports: &FarPorts) {
        if self.0.len() <= MAX_PATHS {
            return;
        }
        let mut counts = BTreeMap::new();
        for path in self.0.keys() {
            *counts.entry(far_ports.of(path)).or_insert(0) += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        let is_of_most = |path: &&ProbePath| most.is_some_and(|(far, _)| far == far_ports.of(path));
        if let Some(&path) = self.0.keys().find(is_of_most) {
            self.0.remove(&path);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[cfg(test)]
    pub(super) fn contains(&self, path: &ProbePath) -> bool {
        self.0.contains_key(path)
    }
}
