// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path queries that wait, by turns over payers.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::id::Payer;
use crate::round_robin::entries_after;

/// One line for each payer. A query that several payers wait for is in the line of each.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Lines {
    payers: BTreeMap<Payer, BTreeSet<u32>>,
    /// In whose lines a query is.
    of: BTreeMap<u32, BTreeSet<Payer>>,
    /// The payer that was served last.
    last: Option<Payer>,
}

impl Lines {
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        self.of.contains_key(&number)
    }

    /// A payer waits for a query. Lines are in the order of the numbers, which is that of asking.
    pub(super) fn join(&mut self, payer: Payer, number: u32) {
        self.payers.entry(payer).or_default().insert(number);
        self.of.entry(number).or_default().insert(payer);
    }

    /// A query does not wait any more.
    pub(super) fn remove(&mut self, number: u32) {
        for payer in self.of.remove(&number).into_iter().flatten() {
            if let Some(line) = self.payers.get_mut(&payer) {
                line.remove(&number);
                if line.is_empty() {
                    self.payers.remove(&payer);
                }
            }
        }
    }

    /// The next one, which does not wait any more.
    pub(super) fn next(&mut self) -> Option<u32> {
        let (&payer, line) = entries_after(&self.payers, self.last).next()?;
        let number = *line.first()?;
        self.last = Some(payer);
        self.remove(number);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_over_payers_and_a_query_of_several_is_served_once() {
        let mut lines = Lines::default();
        for number in 1..=100 {
            lines.join(Payer(1), number);
        }
        // The other waits for one that is far behind in the first one's line, too.
        lines.join(Payer(2), 100);
        lines.join(Payer(2), 101);
        assert!(!lines.is_empty());
        let order = [1, 100, 2, 101, 3, 4];
        assert_eq!(order.map(|_| lines.next()), order.map(Some));
        (5..=99).for_each(|number| lines.remove(number));
        assert!(lines.is_empty() && lines.payers.is_empty() && !lines.contains(100));
        assert_eq!(lines.next(), None);
    }
}
