// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests without an answer: how many there may be, and which part of them one may have.

use alloc::collections::BTreeMap;

use super::claim::{Claim, Class, FarEnd};
use super::demand::Demand;
use crate::id::Payer;

/// Requests of ours without an answer, for all connections together.
const MAX_IN_FLIGHT: usize = 64;

/// Requests that a class may always have, whatever the others do: migrations send none, re-arming needs most.
const FLOORS: [usize; Class::COUNT] = [0, 12, 4, 4, 4];

/// What is left of the window for whichever class comes first.
const SHARED: usize = MAX_IN_FLIGHT - (FLOORS[0] + FLOORS[1] + FLOORS[2] + FLOORS[3] + FLOORS[4]);

/// Requests of one class that one payer, or one far port, may have while others wait.
const QUARTER: usize = MAX_IN_FLIGHT / 4;

/// Numbers of requests, by class.
type Counts = [usize; Class::COUNT];

/// Requests without an answer.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Window {
    all: Counts,
    payers: Tally<Payer>,
    far_ends: Tally<FarEnd>,
}

impl Window {
    /// So many requests begin to wait for their answers.
    pub(super) fn add(&mut self, claim: &Claim, requests: usize) {
        let class = claim.class as usize;
        self.all[class] += requests;
        self.payers
            .change(claim.payer, class, |held| held + requests);
        self.far_ends
            .change(claim.far, class, |held| held + requests);
    }

    /// So many do not wait any more.
    pub(super) fn remove(&mut self, claim: &Claim, requests: usize) {
        let class = claim.class as usize;
        self.all[class] -= requests;
        self.payers
            .change(claim.payer, class, |held| held - requests);
        self.far_ends
            .change(claim.far, class, |held| held - requests);
    }

    /// Whether one more request may leave, while these wait for that.
    pub(super) fn has_room(&self, claim: &Claim, demand: &Demand) -> bool {
        self.has_room_of_class(claim.class)
            && self.has_room_of_payer(claim.class, claim.payer, demand)
            && self.has_room_of_far_end(claim.class, claim.far, demand)
    }

    /// Whether a request of the class may leave, if its payer and its far port have few.
    pub(super) fn has_room_of_class(&self, class: Class) -> bool {
        let least = |class: usize| self.payers.capped[class].min(self.far_ends.capped[class]);
        fits(class, &core::array::from_fn(least))
    }

    /// Whether a request of the payer may leave, if its far port has few.
    pub(super) fn has_room_of_payer(&self, class: Class, payer: Payer, demand: &Demand) -> bool {
        match self.payers.of(&payer, class) < QUARTER {
            true => self.has_room_of_class(class),
            false => !demand.has_other_payer(class, payer) && fits(class, &self.far_ends.capped),
        }
    }

    /// Whether a request to this far port may leave, if its payer has few. One that is alone may use all that
    /// its class has. What it has above a quarter does not count for the others: to them its slots are free.
    pub(super) fn has_room_of_far_end(&self, class: Class, far: FarEnd, demand: &Demand) -> bool {
        self.far_ends.of(&far, class) < QUARTER
            || (!demand.has_other_far_end(class, far) && fits(class, &self.all))
    }
}

/// Whether one more of the class fits where so many are: within its floor, or what is shared.
fn fits(class: Class, held: &Counts) -> bool {
    let above = |(held, floor): (&usize, &usize)| held.saturating_sub(*floor);
    let shared: usize = held.iter().zip(&FLOORS).map(above).sum();
    let class = class as usize;
    held[class] < FLOORS[class] || shared < SHARED
}

/// Requests of each payer or far port.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Tally<Key> {
    each: BTreeMap<Key, Counts>,
    /// All of them, each with a quarter of the window at most.
    capped: Counts,
}

impl<Key> Default for Tally<Key> {
    fn default() -> Self {
        Self {
            each: BTreeMap::new(),
            capped: Counts::default(),
        }
    }
}

impl<Key: Ord + Copy> Tally<Key> {
    fn of(&self, key: &Key, class: Class) -> usize {
        self.each.get(key).map_or(0, |held| held[class as usize])
    }

    fn change(&mut self, key: Key, class: usize, to: impl FnOnce(usize) -> usize) {
        let counts = self.each.entry(key).or_default();
        let before = counts[class];
        counts[class] = to(before);
        let capped = self.capped[class] - before.min(QUARTER);
        self.capped[class] = capped + counts[class].min(QUARTER);
        if *counts == Counts::default() {
            self.each.remove(&key);
        }
    }
}
