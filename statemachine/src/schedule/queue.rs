// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who waits until a request may leave: class by class, in each by turns over payers, and of a payer by turns
//! over far ports. A thousand connections to one port are one place in the queue.

use alloc::collections::{BTreeMap, BTreeSet};

use super::claim::{Claim, Class, FarEnd};
use super::demand::Demand;
use super::window::Window;
use crate::id::{ConnId, Payer};
use crate::round_robin::entries_after;

/// What waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Waiter {
    /// A connection.
    Conn(ConnId),
    /// An association that is being closed, by its communication ID.
    Closing(u32),
}

/// What waits of one payer.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct Line {
    /// In the order of arrival.
    far_ends: BTreeMap<FarEnd, BTreeSet<(u64, Waiter)>>,
    /// The far port that was served last.
    last: Option<FarEnd>,
}

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct Lines {
    payers: BTreeMap<Payer, Line>,
    /// The payer that was served last.
    last: Option<Payer>,
}

/// Connections and associations that have something to send, and no room.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Queue {
    classes: [Lines; Class::COUNT],
    places: BTreeMap<Waiter, (Claim, u64)>,
    last_place: u64,
    demand: Demand,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How many wait of each payer and for each far port.
    pub(super) fn demand(&self) -> &Demand {
        &self.demand
    }

    /// Adds it, or moves it to where it is better placed: it keeps its age.
    pub(super) fn join(&mut self, claim: Claim, waiter: Waiter) {
        let age = match self.places.get(&waiter) {
            Some((before, _)) if before.class < claim.class || *before == claim => return,
            Some(&(_, age)) => age,
            None => {
                self.last_place += 1;
                self.last_place
            }
        };
        self.leave(waiter);
        let Claim { class, payer, far } = claim;
        let line = self.classes[class as usize]
            .payers
            .entry(payer)
            .or_default();
        line.far_ends.entry(far).or_default().insert((age, waiter));
        self.demand.add(&claim);
        self.places.insert(waiter, (claim, age));
    }

    /// It does not wait any more.
    pub(super) fn leave(&mut self, waiter: Waiter) {
        let Some((claim, age)) = self.places.remove(&waiter) else {
            return;
        };
        let Claim { class, payer, far } = claim;
        let lines = &mut self.classes[class as usize];
        if let Some(line) = lines.payers.get_mut(&payer) {
            if let Some(waiting) = line.far_ends.get_mut(&far) {
                waiting.remove(&(age, waiter));
                if waiting.is_empty() {
                    line.far_ends.remove(&far);
                }
            }
            if line.far_ends.is_empty() {
                lines.payers.remove(&payer);
            }
        }
        self.demand.remove(&claim);
    }

    /// It is served now: the next turn is another payer's, and this payer's next another far port's.
    pub(super) fn serve(&mut self, waiter: Waiter) {
        if let Some(&(Claim { class, payer, far }, _)) = self.places.get(&waiter) {
            let lines = &mut self.classes[class as usize];
            lines.last = Some(payer);
            if let Some(line) = lines.payers.get_mut(&payer) {
                line.last = Some(far);
            }
        }
        self.leave(waiter);
    }

    /// The next of a class for which there is room.
    pub(super) fn next(&self, class: Class, window: &Window) -> Option<Waiter> {
        let lines = &self.classes[class as usize];
        if lines.payers.is_empty() || !window.has_room_of_class(class) {
            return None;
        }
        let mut payers = entries_after(&lines.payers, lines.last)
            .filter(|(payer, _)| window.has_room_of_payer(class, **payer, &self.demand));
        payers.find_map(|(_, line)| {
            let mut far_ends = entries_after(&line.far_ends, line.last);
            let (_, waiting) =
                far_ends.find(|(far, _)| window.has_room_of_far_end(class, **far, &self.demand))?;
            Some(waiting.first()?.1)
        })
    }
}
