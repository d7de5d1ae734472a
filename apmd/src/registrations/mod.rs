// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that libraries, or the kernel module, want looked after: what the engine knows of, and what
//! waits. No I/O here.

#[cfg(test)]
mod tests;
mod turnover;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use cm_msgs::control::Register;
use cm_msgs::{Guid, Qpn};
use statemachine::{ConnId, FairShare, Time};

use turnover::Turnover;

/// How far a registration has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
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
pub(crate) struct Registration {
    pub(crate) uid: u32,
    pub(crate) register: Register,
    pub(crate) state: State,
}

/// Room for connections, of which a user has a share: one for those of libraries and those of the kernel
/// module together, since what both register is the engine's.
#[derive(Clone, Debug)]
pub(crate) struct Room(Rc<RefCell<FairShare<u32>>>);

impl Room {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Rc::new(RefCell::new(FairShare::new(limit, 0))))
    }

    pub(crate) fn set_limit(&self, limit: usize) {
        self.0.borrow_mut().set_limit(limit);
    }

    fn take(&self, uid: u32) -> bool {
        self.0.borrow_mut().take(uid, 1, uid == 0)
    }

    fn give_back(&self, uid: u32) {
        self.0.borrow_mut().give_back(uid, 1);
    }
}

/// All registrations.
#[derive(Debug)]
pub(crate) struct Registrations {
    table: BTreeMap<ConnId, Registration>,
    /// Those that the engine has.
    by_qp: BTreeMap<(Guid, Qpn), ConnId>,
    room: Room,
    /// How many of a user's the engine has.
    accepted: BTreeMap<u32, usize>,
    turnover: Turnover,
    /// When to look at those that wait for their turn.
    turn_at: Option<Time>,
}

impl Registrations {
    /// None.
    pub(crate) fn new(room: Room) -> Self {
        Self {
            table: BTreeMap::new(),
            by_qp: BTreeMap::new(),
            room,
            accepted: BTreeMap::new(),
            turnover: Turnover::default(),
            turn_at: None,
        }
    }

    /// Of the room, which others may share.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.room.set_limit(limit);
    }

    /// Takes in a new registration. Whether there is room.
    #[must_use]
    pub(crate) fn add(&mut self, id: ConnId, uid: u32, register: Register) -> bool {
        if !self.room.take(uid) {
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

    pub(crate) fn get(&self, id: ConnId) -> Option<&Registration> {
        self.table.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Registration> {
        self.table.get_mut(&id)
    }

    /// How many of a user's the engine has.
    pub(crate) fn accepted(&self, uid: u32) -> usize {
        self.accepted.get(&uid).copied().unwrap_or(0)
    }

    /// How many the engine has.
    pub(crate) fn accepted_in_all(&self) -> usize {
        self.accepted.values().sum()
    }

    /// Whose registration of this queue pair the engine has.
    pub(crate) fn holder(&self, qp: (Guid, Qpn)) -> Option<ConnId> {
        self.by_qp.get(&qp).copied()
    }

    /// Devices with queue pairs that the engine has.
    pub(crate) fn devices(&self) -> VecDeque<Guid> {
        let mut devices: VecDeque<Guid> = self.by_qp.keys().map(|(guid, _)| *guid).collect();
        // The keys are in order.
        let mut last = None;
        devices.retain(|guid| last.replace(*guid) != Some(*guid));
        devices
    }

    /// Whether the user's turn has come; if not, the registration waits for it.
    pub(crate) fn is_its_turn(&mut self, now: Time, id: ConnId) -> bool {
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
    pub(crate) fn accept(&mut self, now: Time, id: ConnId, register: Register) -> Option<ConnId> {
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
    pub(crate) fn count_as_short(&mut self, now: Time, id: ConnId) {
        if let Some(registration) = self.table.get(&id) {
            self.turnover.closed(now, registration.uid, now);
        }
    }

    /// Forgets a registration. Whether the engine had it.
    pub(crate) fn remove(&mut self, now: Time, id: ConnId) -> bool {
        let Some(Registration {
            uid,
            register,
            state,
        }) = self.table.remove(&id)
        else {
            return false;
        };
        self.room.give_back(uid);
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
    pub(crate) fn remove_client(&mut self, now: Time, client: u32) {
        let table = self.table.range(ConnId::of_client(client));
        for id in table.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.remove(now, id);
        }
    }

    /// Those that wait for a port of this device.
    pub(crate) fn without_port(&self, node_guid: Guid) -> Vec<ConnId> {
        self.matching(|registration| {
            registration.state == State::NoPort && registration.register.node_guid == node_guid
        })
    }

    /// Those whose turn may have come.
    pub(crate) fn due(&mut self, now: Time) -> Vec<ConnId> {
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
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.turn_at
    }
}
