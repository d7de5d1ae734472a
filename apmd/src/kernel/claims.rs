// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs that libraries register: those that are theirs, and those of which the module has told
//! nothing yet.

use std::collections::BTreeMap;
use std::iter;

use cm_msgs::{Guid, Qpn};
use statemachine::{ConnId, Time, Timers};

/// A device's queue pair.
pub(super) type Number = (Guid, Qpn);

/// A queue pair that is a library's to manage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) number: Number,
    /// The module knows it, or knew it until it was gone.
    pub(super) known: bool,
}

/// By queue pair and by connection.
#[derive(Debug, Default)]
pub(super) struct Claims {
    by_number: BTreeMap<Number, ConnId>,
    by_conn: BTreeMap<ConnId, Claim>,
    /// To be told of by the module at any moment.
    expected: BTreeMap<ConnId, Number>,
    patience: Timers<ConnId>,
}

impl Claims {
    /// Whose it is.
    pub(super) fn of(&self, number: Number) -> Option<ConnId> {
        self.by_number.get(&number).copied()
    }

    pub(super) fn get(&self, id: ConnId) -> Option<Claim> {
        self.by_conn.get(&id).copied()
    }

    pub(super) fn add(&mut self, claim: Claim, id: ConnId) {
        if let Some(before) = self.by_number.insert(claim.number, id) {
            self.by_conn.remove(&before);
        }
        self.by_conn.insert(id, claim);
    }

    /// What this connection was, if it was any.
    pub(super) fn remove(&mut self, id: ConnId) -> Option<Number> {
        let Claim { number, .. } = self.by_conn.remove(&id)?;
        self.by_number.remove(&number);
        Some(number)
    }

    pub(super) fn of_client(&self, client: u32) -> Vec<ConnId> {
        let all = self.by_conn.range(ConnId::of_client(client));
        all.map(|(id, _)| *id).collect()
    }

    /// The module knows this one.
    pub(super) fn set_known(&mut self, number: Number) {
        let id = self.by_number.get(&number);
        if let Some(claim) = id.and_then(|id| self.by_conn.get_mut(id)) {
            claim.known = true;
        }
    }

    /// The module is gone, and knows none.
    pub(super) fn set_unknown(&mut self) {
        for claim in self.by_conn.values_mut() {
            claim.known = false;
        }
    }

    /// The module may tell of it, until then.
    pub(super) fn expect(&mut self, id: ConnId, number: Number, until: Time) {
        self.expected.insert(id, number);
        self.patience.set(id, until);
    }

    /// The module tells of a queue pair: for whom it was waited for.
    pub(super) fn met(&mut self, number: Number) -> Vec<ConnId> {
        let met = self.expected.extract_if(.., |_, it| *it == number);
        let met: Vec<_> = met.map(|(id, _)| id).collect();
        for id in &met {
            self.patience.cancel(id);
        }
        met
    }

    /// Those that the module has not told of in time.
    pub(super) fn unmet(&mut self, now: Time) -> Vec<(ConnId, Number)> {
        let late = iter::from_fn(|| self.patience.expired(now)).collect::<Vec<_>>();
        let late = late.into_iter();
        late.filter_map(|id| Some((id, self.expected.remove(&id)?)))
            .collect()
    }

    /// The module will tell of none.
    pub(super) fn expect_none(&mut self) -> Vec<(ConnId, Number)> {
        self.patience = Timers::default();
        std::mem::take(&mut self.expected).into_iter().collect()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.patience.next()
    }
}
