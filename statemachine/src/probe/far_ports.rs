// SPDX-License-Identifier: MIT OR Apache-2.0
//! The far ports that probed paths lead to, and how often a path to each is probed.
//!
//! One far port has as many paths as there are pairs of LIDs, service levels and partitions. If all paths were probed
//! equally often, its peer could make the probes of all others rare.

use alloc::collections::BTreeMap;
use core::time::Duration;

use cm_msgs::Lid;

use super::{ProbePath, pace};
use crate::id::PortId;

/// A port that a local port's paths lead to, by its first LID. Over another local port it counts again: equal LIDs may
/// be of two subnets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct FarPort {
    local: PortId,
    base: Lid,
}

/// A rate of one probe each `verify`, as shares of it are counted.
const WHOLE: u64 = 1 << 20;

/// The far ports of all paths that are probed.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct FarPorts {
    /// The LMC of each local port: all ports of its subnet have as many LIDs.
    lmcs: BTreeMap<PortId, u8>,
    /// How many paths lead to each far port.
    paths: BTreeMap<FarPort, u32>,
    /// How many far ports have that many paths.
    sizes: BTreeMap<u32, u32>,
    /// All paths.
    total: u32,
}

impl FarPorts {
    /// Sets a local port's LMC, or forgets it. None of its paths may be counted: they lead to other far ports then.
    pub(super) fn set_lmc(&mut self, port: PortId, lmc: Option<u8>) {
        match lmc {
            Some(lmc) => self.lmcs.insert(port, lmc),
            None => self.lmcs.remove(&port),
        };
    }

    /// Returns the LMC of a local port and its subnet.
    pub(super) fn lmc(&self, port: PortId) -> u8 {
        self.lmcs.get(&port).copied().unwrap_or(0)
    }

    /// Returns the port that a path leads to.
    pub(super) fn of(&self, path: &ProbePath) -> FarPort {
        FarPort {
            local: path.port,
            base: path.dlid.base(self.lmc(path.port)),
        }
    }

    /// Counts a path that is probed from now on.
    pub(super) fn add(&mut self, path: &ProbePath) {
        self.resize(path, |paths| paths + 1);
        self.total += 1;
    }

    /// A path is not probed any more.
    pub(super) fn remove(&mut self, path: &ProbePath) {
        self.resize(path, |paths| paths - 1);
        self.total -= 1;
    }

    fn resize(&mut self, path: &ProbePath, to: impl FnOnce(u32) -> u32) {
        let far = self.of(path);
        let paths = self.paths.entry(far).or_default();
        let before = *paths;
        *paths = to(before);
        let after = *paths;
        if after == 0 {
            self.paths.remove(&far);
        } else {
            *self.sizes.entry(after).or_default() += 1;
        }
        if let Some(ports) = self.sizes.get_mut(&before) {
            *ports -= 1;
            if *ports == 0 {
                self.sizes.remove(&before);
            }
        }
    }

    /// Returns the time from one probe of the path to the next: `verify`, or longer where there are too many paths
    /// to probe all as often. Then half of what may leave is for all paths alike. The other half is for far ports
    /// alike, whatever number of paths they have; what one of them does not need is for the others.
    pub(super) fn interval(&self, path: &ProbePath, verify: Duration) -> Duration {
        if pace::round(self.total) <= verify || verify.is_zero() {
            return verify;
        }
        let ratio = WHOLE * verify.as_micros() as u64 / pace::round(1).as_micros() as u64;
        let by_paths = ratio / 2 / u64::from(self.total);
        let size = u64::from(self.paths.get(&self.of(path)).copied().unwrap_or(1));
        let missing = WHOLE - by_paths;
        match self.level(ratio / 2, missing) {
            Some(level) if missing * size > level => {
                let rate = by_paths + level / size;
                Duration::from_micros(verify.as_micros() as u64 * WHOLE / rate.max(1))
            }
            _ => verify,
        }
    }

    /// Returns how much each far port gets at most if `all` is spread over them and each path can use up to `missing`.
    /// None: there is enough for all.
    fn level(&self, all: u64, missing: u64) -> Option<u64> {
        let mut left = all;
        let mut ports = self.paths.len() as u64;
        for (&size, &count) in &self.sizes {
            let need = missing * u64::from(size);
            let level = left / ports;
            if need > level {
                return Some(level);
            }
            left -= need * u64::from(count);
            ports -= u64::from(count);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use cm_msgs::Guid;

    use super::*;
    use crate::probe::tests::path_to as path;

    const VERIFY: Duration = Duration::from_secs(1);

    /// Far ports with these numbers of paths, and the intervals of their probes in milliseconds.
    fn intervals(sizes: &[u16]) -> Vec<u128> {
        let mut ports = FarPorts::default();
        let fars = || sizes.iter().zip(1..);
        for (&size, far) in fars() {
            (0..size).for_each(|number| ports.add(&path(far, number)));
        }
        let each: Vec<Duration> = fars()
            .map(|(_, far)| ports.interval(&path(far, 0), VERIFY))
            .collect();
        let rates =
            fars().map(|(&size, far)| f64::from(size) / each[far as usize - 1].as_secs_f64());
        let rate: f64 = rates.sum();
        assert!(rate <= 140.1, "{rate} probes a second");
        let total: u16 = sizes.iter().sum();
        assert!(
            total <= 140 || rate >= 139.0,
            "{rate} probes a second of {total} paths"
        );
        for (&size, far) in fars() {
            (0..size).for_each(|number| ports.remove(&path(far, number)));
        }
        assert!(ports.paths.is_empty() && ports.sizes.is_empty() && ports.total == 0);
        each.iter().map(Duration::as_millis).collect()
    }

    #[test]
    fn each_path_is_probed_every_second_while_there_is_enough() {
        assert_eq!(intervals(&[100, 1, 39]), [1_000; 3]);
        assert_eq!(intervals(&[]), []);
    }

    #[test]
    fn far_ports_with_as_many_paths_have_equal_intervals() {
        assert!(intervals(&[1; 400]).iter().all(|&ms| ms == 2_856));
        assert_eq!(intervals(&[200; 2]), [2_856; 2]);
    }

    #[test]
    fn one_far_port_with_many_paths_does_not_make_others_wait() {
        assert_eq!(intervals(&[1, 1, 512]), [1_000, 1_000, 3_709]);
        // 68 of what is for far ports are for the 68, and the 512 have 138 - 68.
        let each = intervals(&[[1; 68].as_slice(), &[512]].concat());
        assert_eq!((each[0], each[67]), (1_000, 1_000));
    }

    /// A server may have as many paths as its host has clients.
    #[test]
    fn a_far_port_with_many_paths_among_many_has_half_as_much_as_by_paths_alone() {
        let each = intervals(&[[1; 500].as_slice(), &[64]].concat());
        let by_paths = pace::round(564).as_millis();
        assert!(each[0] <= by_paths && each[500] <= 2 * by_paths, "{each:?}");
    }

    #[test]
    fn paths_to_all_lids_of_a_port_lead_to_one_far_port() {
        let mut ports = FarPorts::default();
        assert_ne!(ports.of(&path(8, 1)), ports.of(&path(11, 2)));
        ports.set_lmc(path(8, 1).port, Some(2));
        assert_eq!(ports.of(&path(8, 1)), ports.of(&path(11, 2)));
        let other = ProbePath {
            port: PortId::new(Guid(1), 2),
            ..path(8, 1)
        };
        assert_ne!(ports.of(&path(8, 1)), ports.of(&other));
    }
}
