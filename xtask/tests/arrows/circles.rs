// SPDX-License-Identifier: MIT OR Apache-2.0
//! Circles between modules. Those of one parent are held against each other, each with all that is
//! below it; a module and its own parent are one thing, and may name each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::resolve::{Target, resolve};
use crate::source::Crate;

/// Modules of one parent of which each leads to each.
#[derive(Debug)]
pub(crate) struct Circle {
    /// Their names, `apmd::io`, in order.
    pub(crate) modules: Vec<String>,
    /// Who uses whom within it, and where that is written.
    pub(crate) uses: Vec<String>,
}

/// Who uses whom, with one place where that is written.
type Uses = BTreeMap<usize, BTreeMap<usize, String>>;

/// All circles of a crate.
pub(crate) fn circles(krate: &Crate) -> Vec<Circle> {
    let uses = uses(krate);
    let mut seen = BTreeSet::new();
    let mut circles = Vec::new();
    for start in uses.keys() {
        if seen.contains(start) {
            continue;
        }
        let round: BTreeSet<_> = reached(&uses, *start)
            .into_iter()
            .filter(|other| reached(&uses, *other).contains(start))
            .collect();
        if !round.contains(start) {
            continue;
        }
        circles.push(Circle {
            modules: round.iter().map(|module| krate.title(*module)).collect(),
            uses: describe(krate, &uses, &round),
        });
        seen.extend(round);
    }
    circles
}

fn uses(krate: &Crate) -> Uses {
    let mut uses = Uses::new();
    for (from, module) in krate.modules.iter().enumerate() {
        for written in &module.written {
            let resolved = resolve(krate, from, &written.segments);
            let target = match resolved.target {
                Target::Inside(target) => Some(target),
                _ => None,
            };
            for to in resolved.through.into_iter().chain(target) {
                let Some((user, used)) = siblings(krate, from, to) else {
                    continue;
                };
                let place = || {
                    format!(
                        "{}:{} {}",
                        module.file.display(),
                        written.line,
                        written.segments.join("::")
                    )
                };
                let of_user = uses.entry(user).or_default();
                of_user.entry(used).or_insert_with(place);
            }
        }
    }
    uses
}

/// The modules of one parent above `from` and `to`, unless one of these is above the other.
fn siblings(krate: &Crate, from: usize, to: usize) -> Option<(usize, usize)> {
    let [above_from, above_to] = [from, to].map(|module| above(krate, module));
    let mut pairs = above_from.into_iter().zip(above_to);
    pairs.find(|(a, b)| a != b)
}

/// A module and those above it, the root first.
fn above(krate: &Crate, module: usize) -> Vec<usize> {
    let mut above: Vec<_> =
        std::iter::successors(Some(module), |module| krate.modules[*module].parent).collect();
    above.reverse();
    above
}

fn reached(uses: &Uses, start: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut next = vec![start];
    while let Some(module) = next.pop() {
        let used = uses.get(&module).into_iter().flat_map(BTreeMap::keys);
        next.extend(used.filter(|used| reached.insert(**used)));
    }
    reached
}

fn describe(krate: &Crate, uses: &Uses, round: &BTreeSet<usize>) -> Vec<String> {
    let within = |user: &usize| {
        let used = uses.get(user).into_iter().flatten();
        let used = used.filter(|(used, _)| round.contains(used));
        let lines = used.map(|(used, place)| {
            let [user, used] = [*user, *used].map(|module| krate.title(module));
            format!("{user} uses {used}: {place}")
        });
        lines.collect::<Vec<_>>()
    };
    round.iter().flat_map(within).collect()
}
