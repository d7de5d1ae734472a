// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many wait until a request may leave, by payer and by far port.

use alloc::collections::BTreeMap;

use super::claim::FarEnd;
use crate::id::Payer;

/// What waits.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Demand {
    payers: BTreeMap<Payer, usize>,
    far_ends: BTreeMap<FarEnd, usize>,
}

impl Demand {
    /// Whether something of another payer waits.
    pub(super) fn has_other_payer(&self, payer: Payer) -> bool {
        self.payers.len() > usize::from(self.payers.contains_key(&payer))
    }

    /// Whether something to another far port waits.
    pub(super) fn has_other_far_end(&self, far: FarEnd) -> bool {
        self.far_ends.len() > usize::from(self.far_ends.contains_key(&far))
    }

    /// One more waits.
    pub(super) fn add(&mut self, payer: Payer, far: FarEnd) {
        *self.payers.entry(payer).or_default() += 1;
        *self.far_ends.entry(far).or_default() += 1;
    }

    /// One less.
    pub(super) fn remove(&mut self, payer: Payer, far: FarEnd) {
        count_down(&mut self.payers, payer);
        count_down(&mut self.far_ends, far);
    }
}

fn count_down<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
