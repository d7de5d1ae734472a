// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looking again at pairs of primary and alternate after the fabric has changed.

use rayon::prelude::*;

use super::affected::Affected;
use super::{Elements, Path, Sharing};
use crate::fabric::{Delta, Fabric};
use crate::walk::Fault;

/// A primary with its alternate, and what they shared when they were chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair {
    /// The primary.
    pub primary: Path,
    /// The alternate.
    pub alternate: Path,
    /// What they shared.
    pub shared: Sharing,
}

/// What has become of a pair, if it is worse than it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// They share more than they did.
    SharesMore(Sharing),
    /// The primary does not work any more.
    PrimaryFails(Fault),
    /// The alternate does not, and the primary does.
    AlternateFails(Fault),
}

/// How many pairs a thread looks at in one go.
const SHARE: usize = 1024;

/// Those of `pairs`, by position and ascending, that are worse than they were.
pub fn recheck(fabric: &Fabric, pairs: &[Pair]) -> Vec<(usize, Verdict)> {
    worse(fabric, pairs, |_| true)
}

/// The same after `delta` has been applied to the fabric, for pairs that were not worse before:
/// looks only at those that the delta can have changed.
pub fn recheck_after(fabric: &Fabric, delta: &Delta, pairs: &[Pair]) -> Vec<(usize, Verdict)> {
    let affected = Affected::by(fabric, delta);
    worse(fabric, pairs, |pair| {
        affected.has(pair.primary) || affected.has(pair.alternate)
    })
}

fn worse(
    fabric: &Fabric,
    pairs: &[Pair],
    in_question: impl Fn(&Pair) -> bool + Sync,
) -> Vec<(usize, Verdict)> {
    let shares = pairs.par_chunks(SHARE).enumerate();
    let worse = shares.flat_map_iter(|(share, pairs)| {
        let (mut primary, mut alternate) = (Elements::default(), Elements::default());
        let mut worse = Vec::new();
        for (at, pair) in pairs.iter().enumerate() {
            if in_question(pair) {
                let verdict = look(fabric, pair, &mut primary, &mut alternate);
                worse.extend(verdict.map(|verdict| (share * SHARE + at, verdict)));
            }
        }
        worse
    });
    worse.collect()
}

fn look(
    fabric: &Fabric,
    pair: &Pair,
    primary: &mut Elements,
    alternate: &mut Elements,
) -> Option<Verdict> {
    if let Err(fault) = primary.follow(fabric, pair.primary) {
        return Some(Verdict::PrimaryFails(fault));
    }
    if let Err(fault) = alternate.follow(fabric, pair.alternate) {
        return Some(Verdict::AlternateFails(fault));
    }
    let shared = primary.shared(alternate);
    (shared > pair.shared).then_some(Verdict::SharesMore(shared))
}
