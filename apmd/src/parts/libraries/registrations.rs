// SPDX-License-Identifier: MIT OR Apache-2.0
//! What libraries have registered: what the engine knows of, and what waits. No I/O here.

use std::collections::{BTreeMap, VecDeque};

use cm_msgs::control::Register;
use cm_msgs::{Guid, Qpn};
use statemachine::{ConnId, FairShare, Time};

use super::turnover::Turnover;

/// How far a registration has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// As it came.
    New,
    /// Its port is not known, or not yet.
    NoPort,
    /// Its user's connections come and go too fast.
    Turnover,
    /// The library was asked how the queue pair is now.
    Asked,
    /// The engine has it, since then.
    Accepted(Time),
}

#[derive(Debug)]
pub(super) struct Registration {
    pub(super) uid: u32,
    pub(super) register: Register,
    pub(super) state: State,
}

/// All registrations.
#[derive(Debug)]
pub(super) struct Registrations {
    table: BTreeMap<ConnId, Registration>,
    /// Those that the engine has.
    by_qp: BTreeMap<(Guid, Qpn), ConnId>,
    share: FairShare<u32>,
    /// How many of a user's the engine has.
    accepted: BTreeMap<u32, usize>,
    turnover: Turnover,
    /// When to look at those that wait for their turn.
    turn_at: Option<Time>,
}

impl Registrations {
    /// At most `limit`.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            table: BTreeMap::new(),
            by_qp: BTreeMap::new(),
            share: FairShare::new(limit, 0),
            accepted: BTreeMap::new(),
            turnover: Turnover::default(),
            turn_at: None,
        }
    }

    pub(super) fn set_limit(&mut self, limit: usize) {
        self.share.set_limit(limit);
    }

    /// Takes in a new registration. Whether there is room.
    #[must_use]
    pub(super) fn add(&mut self, id: ConnId, uid: u32, register: Register) -> bool {
        if !self.share.take(uid, 1, uid == 0) {
            return false;
        }
        let state = State::New;
        let registration = Registration {
            uid,
            register,
            state,
        };
        self.table.insert(id, registration);
        true
    }

    pub(super) fn get(&self, id: ConnId) -> Option<&Registration> {
        self.table.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Registration> {
        self.table.get_mut(&id)
    }

    /// How many of a user's the engine has.
    pub(super) fn accepted(&self, uid: u32) -> usize {
        self.accepted.get(&uid).copied().unwrap_or(0)
    }

    /// Whose registration of this queue pair the engine has.
    pub(super) fn holder(&self, qp: (Guid, Qpn)) -> Option<ConnId> {
        self.by_qp.get(&qp).copied()
    }

    /// Devices with queue pairs that the engine has.
    pub(super) fn devices(&self) -> VecDeque<Guid> {
        let mut devices: VecDeque<Guid> = self.by_qp.keys().map(|(guid, _)| *guid).collect();
        // The keys are in order.
        let mut last = None;
        devices.retain(|guid| last.replace(*guid) != Some(*guid));
        devices
    }

    /// Whether the user's turn has come; if not, the registration waits for it.
    pub(super) fn is_its_turn(&mut self, now: Time, id: ConnId) -> bool {
        let Some(registration) = self.table.get_mut(&id) else {
            return false;
        };
        let Some(at) = self.turnover.wait(now, registration.uid) else {
            return true;
        };
        registration.state = State::Turnover;
        self.turn_at = Some(self.turn_at.map_or(at, |old| old.min(at)));
        false
    }

    /// The engine gets it. Whose registration it displaces.
    pub(super) fn accept(&mut self, now: Time, id: ConnId, register: Register) -> Option<ConnId> {
        let registration = self.table.get_mut(&id)?;
        registration.register = register;
        if !matches!(registration.state, State::Accepted(_)) {
            *self.accepted.entry(registration.uid).or_default() += 1;
        }
        registration.state = State::Accepted(now);
        let old = self.by_qp.insert((register.node_guid, register.qpn), id);
        let displaced = old.filter(|old| *old != id)?;
        self.remove(now, displaced);
        Some(displaced)
    }

    /// A registration that contradicts the kernel costs its user as much as a short connection: to
    /// find out takes several questions to the kernel.
    pub(super) fn count_as_short(&mut self, now: Time, id: ConnId) {
        if let Some(registration) = self.table.get(&id) {
            self.turnover.closed(now, registration.uid, now);
        }
    }

    /// Forgets a registration. Whether the engine had it.
    pub(super) fn remove(&mut self, now: Time, id: ConnId) -> bool {
        let Some(Registration {
            uid,
            register,
            state,
        }) = self.table.remove(&id)
        else {
            return false;
        };
        self.share.give_back(uid, 1);
        let State::Accepted(since) = state else {
            return false;
        };
        if let Some(accepted) = self.accepted.get_mut(&uid) {
            *accepted -= 1;
            if *accepted == 0 {
                self.accepted.remove(&uid);
            }
        }
        self.turnover.closed(now, uid, since);
        let qp = (register.node_guid, register.qpn);
        // A later registration of the same queue pair may have displaced it.
        if self.by_qp.get(&qp) == Some(&id) {
            self.by_qp.remove(&qp);
        }
        true
    }

    /// Forgets a client's registrations.
    pub(super) fn remove_client(&mut self, now: Time, client: u32) {
        let table = self.table.range(ConnId::of_client(client));
        for id in table.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.remove(now, id);
        }
    }

    /// Those that wait for a port of this device.
    pub(super) fn without_port(&self, node_guid: Guid) -> Vec<ConnId> {
        self.matching(|registration| {
            registration.state == State::NoPort && registration.register.node_guid == node_guid
        })
    }

    /// Those whose turn may have come.
    pub(super) fn due(&mut self, now: Time) -> Vec<ConnId> {
        if self.turn_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.turn_at = None;
        self.matching(|registration| registration.state == State::Turnover)
    }

    fn matching(&self, wanted: impl Fn(&Registration) -> bool) -> Vec<ConnId> {
        let found = self.table.iter().filter(|(_, found)| wanted(found));
        found.map(|(id, _)| *id).collect()
    }

    /// When to ask for [`Self::due`].
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.turn_at
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::register;
    use super::*;

    fn id(client: u32, conn: u32) -> ConnId {
        ConnId { client, conn }
    }

    const QP: (Guid, Qpn) = (Guid(1), Qpn(0x11));

    #[test]
    fn a_users_registrations_are_bounded_and_end_with_the_client() {
        let mut all = Registrations::new(100);
        let taken = (0..200).take_while(|conn| all.add(id(1, *conn), 7, register()));
        assert_eq!(taken.count(), 75);
        assert!(all.add(id(2, 0), 8, register()), "another user's");
        all.remove_client(Time(0), 1);
        assert!(all.get(id(1, 0)).is_none() && all.get(id(2, 0)).is_some());
        assert_eq!(all.share.total(), 1);
    }

    #[test]
    fn one_registration_holds_a_queue_pair() {
        let mut all = Registrations::new(100);
        assert!(all.add(id(1, 5), 7, register()));
        assert_eq!(all.holder(QP), None, "it was not accepted yet");
        assert_eq!(all.accept(Time(0), id(1, 5), register()), None);
        assert!(all.add(id(2, 9), 8, register()));
        assert_eq!(all.holder(QP), Some(id(1, 5)));
        assert_eq!((all.accepted(7), all.accepted(8)), (1, 0));
        assert_eq!(all.accept(Time(0), id(2, 9), register()), Some(id(1, 5)));
        assert_eq!((all.accepted(7), all.accepted(8)), (0, 1));
        assert!(!all.remove(Time(0), id(1, 5)), "gone already");
        assert_eq!(all.holder(QP), Some(id(2, 9)));
        assert!(all.remove(Time(0), id(2, 9)));
        assert_eq!(all.holder(QP), None);
    }

    #[test]
    fn a_loop_of_false_registrations_waits() {
        let mut all = Registrations::new(100);
        let now = Time(1_000_000);
        let checked = (0..1000).filter(|_| {
            assert!(all.add(id(1, 1), 7, register()));
            let checked = all.is_its_turn(now, id(1, 1));
            if checked {
                all.count_as_short(now, id(1, 1));
            }
            all.remove(now, id(1, 1));
            checked
        });
        assert_eq!(checked.count(), 101);
    }

    #[test]
    fn a_loop_of_registrations_waits() {
        let mut all = Registrations::new(100);
        let now = Time(1_000_000);
        let mut accepted = 0;
        for _ in 0..1000 {
            all.remove(now, id(1, 1));
            assert!(all.add(id(1, 1), 7, register()));
            if all.is_its_turn(now, id(1, 1)) {
                all.accept(now, id(1, 1), register());
                accepted += 1;
            }
        }
        assert_eq!(accepted, 101);
        let at = all.poll_timeout().expect("it is waited for");
        assert!(all.due(now).is_empty());
        assert_eq!(all.due(at), [id(1, 1)]);
        assert!(all.is_its_turn(at, id(1, 1)));
    }
}
