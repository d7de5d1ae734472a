// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many wait until a request may leave, by payer and by far port.

use alloc::collections::BTreeMap;

use super::claim::{Claim, Class, FarEnd};
use crate::id::Payer;

/// What waits.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Demand([OfClass; Class::COUNT]);

/// What waits of one class.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct OfClass {
    payers: BTreeMap<Payer, usize>,
    far_ends: BTreeMap<FarEnd, usize>,
}

impl Demand {
    /// Whether something of another payer waits in this class or a more urgent one. Less urgent classes have their floors,
    /// and do not limit this one.
    pub(super) fn has_other_payer(&self, class: Class, payer: Payer) -> bool {
        self.as_urgent(class)
            .any(|of| of.payers.len() > usize::from(of.payers.contains_key(&payer)))
    }

    /// Whether something to another far port waits in this class or a more urgent one.
    pub(super) fn has_other_far_end(&self, class: Class, far: FarEnd) -> bool {
        self.as_urgent(class)
            .any(|of| of.far_ends.len() > usize::from(of.far_ends.contains_key(&far)))
    }

    fn as_urgent(&self, class: Class) -> impl Iterator<Item = &OfClass> {
        self.0[..=class as usize].iter()
    }

    /// One more waits.
    pub(super) fn add(&mut self, claim: &Claim) {
        let of = &mut self.0[claim.class as usize];
        *of.payers.entry(claim.payer).or_default() += 1;
        *of.far_ends.entry(claim.far).or_default() += 1;
    }

    /// One less.
    pub(super) fn remove(&mut self, claim: &Claim) {
        let of = &mut self.0[claim.class as usize];
        count_down(&mut of.payers, claim.payer);
        count_down(&mut of.far_ends, claim.far);
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

    fn claim(class: Class, payer: u64, lid: u16) -> Claim {
        Claim {
            class,
            payer: Payer(payer),
            far: Some(SubnetLid::in_subnet(1, Lid(lid))),
        }
    }

    /// Whether others than payers 1 to 3, and than far ports 1 to 3, wait.
    fn others(demand: &Demand, class: Class) -> [[bool; 3]; 2] {
        let claims = [1, 2, 3].map(|number| claim(class, number, number as u16));
        [
            claims.map(|claim| demand.has_other_payer(class, claim.payer)),
            claims.map(|claim| demand.has_other_far_end(class, claim.far)),
        ]
    }

    #[test]
    fn others_are_those_that_wait_now() {
        let of = |payer, lid| claim(Class::Rearm, payer, lid);
        let check = |demand: &Demand, payers: [bool; 3], ends: [bool; 3]| {
            assert_eq!(others(demand, Class::Rearm), [payers, ends]);
        };
        let mut demand = Demand::default();
        check(&demand, [false; 3], [false; 3]);
        for _ in 0..3 {
            demand.add(&of(1, 1));
        }
        check(&demand, [false, true, true], [false, true, true]);
        demand.add(&of(1, 2));
        check(&demand, [false, true, true], [true; 3]);
        demand.add(&of(2, 2));
        check(&demand, [true; 3], [true; 3]);
        for _ in 0..3 {
            demand.remove(&of(1, 1));
        }
        check(&demand, [true; 3], [true, false, true]);
        demand.remove(&of(1, 2));
        check(&demand, [true, false, true], [true, false, true]);
        demand.remove(&of(2, 2));
        check(&demand, [false; 3], [false; 3]);
    }

    #[test]
    fn what_is_less_urgent_does_not_count() {
        let mut demand = Demand::default();
        demand.add(&claim(Class::Initial, 9, 9));
        assert_eq!(others(&demand, Class::Rearm), [[false; 3]; 2]);
        assert_eq!(others(&demand, Class::SamePort), [[false; 3]; 2]);
        assert_eq!(others(&demand, Class::Initial), [[true; 3]; 2]);
        assert_eq!(others(&demand, Class::Improve), [[true; 3]; 2]);
    }
}
