// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many pairs of devices: what joins their paths though the cables lead around it.

use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;

use super::Device;
use super::connectivity::Connectivity;
use crate::disjoint::{Alternate, Finder, Path, Sharing};
use crate::fabric::{Element, Fabric, PortId};

/// How many examples are kept.
const EXAMPLES: usize = 3;

/// How many pairs are looked at from one word of progress to the next.
const STRIDE: u64 = 1 << 16;

/// A primary and the best alternate beside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Example {
    /// The primary.
    pub primary: Path,
    /// The best alternate, if there is any.
    pub alternate: Option<Path>,
}

/// Something that joins the paths of devices though the cables lead around it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Needless {
    /// What it is.
    pub element: Element,
    /// How many pairs of devices it joins.
    pub pairs: u64,
    /// Some of them.
    pub examples: Vec<Example>,
}

/// What was found about pairs of devices with several ports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Survey {
    /// How many pairs there are.
    pub pairs: u64,
    /// How many of them were looked at, evenly spread.
    pub looked_at: u64,
    /// Pairs of which no primary has an alternate that shares as little as the cables allow.
    pub joined: u64,
    /// What joins them, the most harmful first.
    pub needless: Vec<Needless>,
    /// Pairs of which no primary has an alternate at all, though one works.
    pub alone: u64,
    /// Some of them.
    pub alone_examples: Vec<Example>,
}

/// Looks at pairs of devices, at most `most` of them. Of all paths between base LIDs that is taken for
/// the primary which has the best alternate: what even that shares is the fabric's fault, not a
/// choice of ports. `progress` is told how many of how many were looked at.
pub fn survey(fabric: &Fabric, most: u64, progress: &mut dyn FnMut(u64, u64)) -> Survey {
    let devices = fabric.multi_port_devices();
    let pairs = Pairs::new(devices.len() as u64, most);
    let connectivity = Connectivity::new(fabric);
    let looker = Looker {
        fabric,
        finder: Finder::new(fabric),
        connectivity: &connectivity,
    };
    let mut sums = Sums::default();
    for part in pairs.parts(progress) {
        let part = part.into_par_iter().fold_with(
            (Sums::default(), looker.clone()),
            |(mut sums, mut looker), at| {
                let (a, b) = pairs.get(at);
                looker.look(&devices[a], &devices[b], &mut sums);
                (sums, looker)
            },
        );
        let part = part
            .map(|(sums, _)| sums)
            .reduce(Sums::default, Sums::merge);
        sums = sums.merge(part);
    }
    sums.finish(pairs)
}

/// Pairs of so many hosts, or some of them, evenly spread.
#[derive(Clone, Copy)]
pub(super) struct Pairs {
    hosts: u64,
    pub(super) all: u64,
    pub(super) chosen: u64,
}

impl Pairs {
    pub(super) fn new(hosts: u64, most: u64) -> Self {
        let all = hosts * hosts.saturating_sub(1) / 2;
        Self {
            hosts,
            all,
            chosen: all.min(most),
        }
    }

    /// The positions of the chosen in parts, one after the other; before each, and after the last, a
    /// word of progress.
    pub(super) fn parts<'p>(
        self,
        progress: &'p mut dyn FnMut(u64, u64),
    ) -> impl Iterator<Item = Range<u64>> + 'p {
        let starts =
            (0..=self.chosen.div_ceil(STRIDE)).map(move |part| self.chosen.min(part * STRIDE));
        starts.filter_map(move |start| {
            progress(start, self.chosen);
            let part = start..self.chosen.min(start + STRIDE);
            (!part.is_empty()).then_some(part)
        })
    }

    /// The pair of this position among the chosen, the lesser host first.
    pub(super) fn get(self, at: u64) -> (usize, usize) {
        let at = u128::from(at) * u128::from(self.all) / u128::from(self.chosen);
        let at = at as u64;
        // The pairs of devices from `a` on, all before `at`, is the greatest such `a`.
        let before = |a: u64| a * (2 * self.hosts - a - 1) / 2;
        let (mut low, mut high) = (0, self.hosts - 1);
        while low + 1 < high {
            let middle = low.midpoint(high);
            match before(middle) <= at {
                true => low = middle,
                false => high = middle,
            }
        }
        (low as usize, (low + 1 + at - before(low)) as usize)
    }
}

#[derive(Clone, Default)]
struct Sums {
    joined: u64,
    needless: BTreeMap<Element, (u64, Vec<Example>)>,
    alone: u64,
    alone_examples: Vec<Example>,
}

impl Sums {
    fn merge(mut self, other: Self) -> Self {
        self.joined += other.joined;
        self.alone += other.alone;
        keep(&mut self.alone_examples, &other.alone_examples);
        for (element, (pairs, examples)) in other.needless {
            let own = self.needless.entry(element).or_default();
            own.0 += pairs;
            keep(&mut own.1, &examples);
        }
        self
    }

    fn finish(self, pairs: Pairs) -> Survey {
        let needless = self.needless.into_iter();
        let mut needless: Vec<Needless> = needless
            .map(|(element, (pairs, examples))| Needless {
                element,
                pairs,
                examples,
            })
            .collect();
        needless.sort_by_key(|needless| std::cmp::Reverse(needless.pairs));
        Survey {
            pairs: pairs.all,
            looked_at: pairs.chosen,
            joined: self.joined,
            needless,
            alone: self.alone,
            alone_examples: self.alone_examples,
        }
    }
}

/// Keeps the least examples, so that the same are kept however the work was shared.
pub(super) fn keep(examples: &mut Vec<Example>, more: &[Example]) {
    examples.extend(more);
    examples.sort_unstable();
    examples.truncate(EXAMPLES);
}

/// Looks at one pair after the other.
#[derive(Clone)]
struct Looker<'a> {
    fabric: &'a Fabric,
    finder: Finder<'a>,
    connectivity: &'a Connectivity<'a>,
}

impl Looker<'_> {
    fn look(&mut self, a: &Device, b: &Device, sums: &mut Sums) {
        // What does not work at all is found elsewhere.
        let Some((primary, best)) = least(&mut self.finder, self.fabric, a, b) else {
            return;
        };
        let example = Example {
            primary,
            alternate: best.map(|best| best.path),
        };
        let Some(best) = best else {
            sums.alone += 1;
            keep(&mut sums.alone_examples, &[example]);
            return;
        };
        let shared = match best.shared == Sharing::default() {
            true => Vec::new(),
            false => self.finder.common(primary, &best, &a.ports, &b.ports),
        };
        let mut joined = false;
        for (element, avoided) in shared {
            if avoided || self.connectivity.leads_around(element, a, b) {
                let own = sums.needless.entry(element).or_default();
                own.0 += 1;
                keep(&mut own.1, &[example]);
                joined = true;
            }
        }
        sums.joined += u64::from(joined);
    }
}

/// Of all paths between base LIDs of two devices, the one that shares least with its best alternate;
/// if none has an alternate, the first that works.
pub(super) fn least(
    finder: &mut Finder<'_>,
    fabric: &Fabric,
    a: &Device,
    b: &Device,
) -> Option<(Path, Option<Alternate>)> {
    let mut least: Option<(Path, Option<Alternate>)> = None;
    let rank =
        |best: Option<Alternate>| best.map_or((true, Sharing::default()), |b| (false, b.shared));
    for primary in primaries(fabric, a, b) {
        let Ok(best) = finder.best(primary, &a.ports, &b.ports) else {
            continue;
        };
        if least.is_none_or(|(_, least)| rank(best) < rank(least)) {
            least = Some((primary, best));
        }
        if rank(best) == (false, Sharing::default()) {
            break;
        }
    }
    least
}

/// Every path between base LIDs of two devices.
fn primaries(fabric: &Fabric, a: &Device, b: &Device) -> impl Iterator<Item = Path> {
    let base = |port: PortId| fabric.port(port).lids.map(|lids| lids.base());
    let locals = a
        .ports
        .iter()
        .filter_map(move |&port| Some((port, base(port)?)));
    locals.flat_map(move |(local, slid)| {
        let remotes = b
            .ports
            .iter()
            .filter(move |&&port| fabric.share_partition(local, port));
        remotes.filter_map(move |&port| {
            Some(Path {
                slid,
                dlid: base(port)?,
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_chosen_once_and_some_are_spread() {
        for hosts in 0..9 {
            let pairs = Pairs::new(hosts, u64::MAX);
            let chosen: Vec<_> = (0..pairs.chosen).map(|at| pairs.get(at)).collect();
            let hosts = hosts as usize;
            let all = (0..hosts).flat_map(|a| (a + 1..hosts).map(move |b| (a, b)));
            assert_eq!(chosen, all.collect::<Vec<_>>());
        }
        let pairs = Pairs::new(1000, 10);
        let chosen: Vec<_> = (0..pairs.chosen).map(|at| pairs.get(at)).collect();
        assert_eq!(chosen.len(), 10);
        assert!(
            chosen.windows(2).all(|two| two[0].0 < two[1].0),
            "{chosen:?}"
        );
        let most = Pairs::new(40_000, u64::MAX);
        assert_eq!(most.get(most.all - 1), (39_998, 39_999));
    }
}
