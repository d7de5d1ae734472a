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

#[cfg(test)]
mod tests {
    use cm_msgs::Lid;

    use super::*;
    use crate::subnet::SubnetLid;

    #[test]
    fn others_are_those_that_wait_now() {
        let far = |lid| Some(SubnetLid::in_subnet(1, Lid(lid)));
        let others = |demand: &Demand| {
            (1..=3)
                .map(|payer| demand.has_other_payer(Payer(payer)))
                .collect()
        };
        let elsewhere = |demand: &Demand| {
            (1..=3)
                .map(|lid| demand.has_other_far_end(far(lid)))
                .collect()
        };
        let check = |demand: &Demand, payers: [bool; 3], ends: [bool; 3]| {
            let found: [alloc::vec::Vec<bool>; 2] = [others(demand), elsewhere(demand)];
            assert_eq!(found, [payers, ends]);
        };
        let mut demand = Demand::default();
        check(&demand, [false; 3], [false; 3]);
        for _ in 0..3 {
            demand.add(Payer(1), far(1));
        }
        check(&demand, [false, true, true], [false, true, true]);
        demand.add(Payer(1), far(2));
        check(&demand, [false, true, true], [true; 3]);
        demand.add(Payer(2), far(2));
        check(&demand, [true; 3], [true; 3]);
        for _ in 0..3 {
            demand.remove(Payer(1), far(1));
        }
        check(&demand, [true; 3], [true, false, true]);
        demand.remove(Payer(1), far(2));
        check(&demand, [true, false, true], [true, false, true]);
        demand.remove(Payer(2), far(2));
        check(&demand, [false; 3], [false; 3]);
    }
}
