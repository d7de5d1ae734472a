// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was compared, and what differs.

use serde::Serialize;

/// How many differences of one state are kept in words.
const KEPT: usize = 20;

/// Counts of one state of a fabric. Its JSON is one line with these keys.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// LIDs of end ports and switches, those that are gone for now among them.
    pub lids: usize,
    /// PathRecords asked of the SA, one for each ordered pair of LIDs, that agree.
    pub records: usize,
    /// Of these, pairs for which neither has a path.
    pub unreachable: usize,
    /// Of these, paths with no way back.
    pub irreversible: usize,
    /// Of these, paths for which the SA names another service level than 0, which OpenSM's files do
    /// not tell.
    pub nonzero_sl: usize,
    /// Ways whose length, or why there is none, agrees with a walk through the files by other code
    /// than pathdb's.
    pub walks: usize,
    /// Of these, ways in circles.
    pub loops: usize,
    /// Ways whose length agrees with the hops that OpenSM counts itself.
    pub hops: usize,
    /// Links whose rate agrees with both ports' own PortInfo.
    pub links: usize,
    /// Forwarding table entries that agree with the switches' own.
    pub entries: usize,
    /// Alternates that share as little as any.
    pub alternates: usize,
    /// Of these, alternates that share nothing.
    pub disjoint: usize,
    /// LIDs that not every host reaches, reported as such.
    pub unreached: usize,
    /// Primaries and alternates of the first state, looked at again in this one.
    pub rechecked: usize,
    /// Of these, such that share more now, or do not arrive.
    pub worse: usize,
    /// Ways that are the same in the first state led here by a delta.
    pub legs: usize,
    /// How many things differ.
    pub differences: usize,
    /// The first of them, in words.
    pub first: Vec<String>,
}

impl Tally {
    /// Notes a difference.
    pub fn differ(&mut self, words: impl FnOnce() -> String) {
        self.differences += 1;
        if self.first.len() < KEPT {
            self.first.push(words());
        }
    }

    /// Adds another's counts. Its differences in words stay where they are.
    pub fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.lids, other.lids),
            (&mut self.records, other.records),
            (&mut self.unreachable, other.unreachable),
            (&mut self.irreversible, other.irreversible),
            (&mut self.nonzero_sl, other.nonzero_sl),
            (&mut self.walks, other.walks),
            (&mut self.loops, other.loops),
            (&mut self.hops, other.hops),
            (&mut self.links, other.links),
            (&mut self.entries, other.entries),
            (&mut self.alternates, other.alternates),
            (&mut self.disjoint, other.disjoint),
            (&mut self.unreached, other.unreached),
            (&mut self.rechecked, other.rechecked),
            (&mut self.worse, other.worse),
            (&mut self.legs, other.legs),
            (&mut self.differences, other.differences),
        ];
        for (sum, more) in sums {
            *sum += more;
        }
    }

    /// The columns of [`Tally::row`].
    pub const HEAD: &str = "lids  records  no path  one way  sl != 0    walks  loops     hops  links  \
        entries  alternates  disjoint  not reached  rechecked  worse     legs  differ";

    /// The counts in columns.
    pub fn row(&self) -> String {
        format!(
            "{:4}  {:7}  {:7}  {:7}  {:7}  {:7}  {:5}  {:7}  {:5}  {:7}  {:10}  {:8}  {:11}  {:9}  {:5}  {:7}  {:6}",
            self.lids,
            self.records,
            self.unreachable,
            self.irreversible,
            self.nonzero_sl,
            self.walks,
            self.loops,
            self.hops,
            self.links,
            self.entries,
            self.alternates,
            self.disjoint,
            self.unreached,
            self.rechecked,
            self.worse,
            self.legs,
            self.differences,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_differences_are_counted_and_the_first_kept() {
        let mut tally = Tally::default();
        for number in 0..KEPT + 5 {
            tally.differ(|| number.to_string());
        }
        assert_eq!((tally.differences, tally.first.len()), (KEPT + 5, KEPT));
        let mut sum = Tally::default();
        sum.add(&tally);
        assert_eq!((sum.differences, sum.first.len()), (KEPT + 5, 0));
    }

    #[test]
    fn columns_stand_under_their_heads() {
        assert_eq!(Tally::HEAD.len(), Tally::default().row().len());
    }
}
