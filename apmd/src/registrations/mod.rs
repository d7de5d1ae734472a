// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that libraries, or the kernel module, want managed: what the engine knows of, and what
//! waits. No I/O here.

mod room;
mod sharer;
#[cfg(test)]
mod tests;
mod turnover;

pub(crate) use room::Room;
pub(crate) use sharer::{Sharer, UlpPeer};

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use cm_msgs::control::Register;
use cm_msgs::{Guid, Qpn};
use statemachine::{ConnId, Payer, Time};

use turnover::Turnover;

/// How long the port of a registration may take to be known, as after a start, before that is no matter of
/// course.
const FOR_PORT: Duration = Duration::from_secs(5);
/// How long it may wait for its turn, likewise: longer than what was before it can cost by itself.
const FOR_TURN: Duration = turnover::LONGEST_WAIT;

/// How far a registration has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// As it came.
    New,
    /// Its port is not known, or not yet.
    NoPort,
    /// Its sharer's connections come and go too fast.
    Turnover,
    /// The library was asked how the queue pair is now.
    Asked,
    /// It has said so, and what contradicts it may be older than that: it is judged again in a moment.
    Unsettled(Time),
    /// The engine has it, since then.
    Accepted(Time),
}

#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) sharer: Sharer,
    pub(crate) register: Register,
    pub(crate) state: State,
    /// It was made before its library had an answer about its peer.
    pub(crate) answer_came_late: bool,
    /// When it came.
    since: Time,
}

/// Registrations that have waited for longer than they should.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Overdue {
    /// For their port.
    pub(crate) port: usize,
    /// For their turn.
    pub(crate) turn: usize,
}

/// All registrations.
#[derive(Debug)]
pub(crate) struct Registrations {
    table: BTreeMap<ConnId, Registration>,
    /// Those that the engine has.
    by_qp: BTreeMap<(Guid, Qpn), ConnId>,
    room: Room,
    /// How many of a sharer's the engine has.
    accepted: BTreeMap<Sharer, usize>,
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
    pub(crate) fn add(
        &mut self,
        now: Time,
        id: ConnId,
        sharer: Sharer,
        register: Register,
    ) -> bool {
        if !self.room.take(&sharer) {
            return false;
        }
        let registration = Registration {
            sharer,
            register,
            state: State::New,
            answer_came_late: false,
            since: now,
        };
        self.table.insert(id, registration);
        true
    }

    /// A number that is another whenever who found no room may find some.
    pub(crate) fn room_changes(&self) -> u64 {
        self.room.changes()
    }

    /// How many were made before their library had an answer about their peer.
    pub(crate) fn late_answers(&self) -> usize {
        let all = self.table.values();
        all.filter(|registration| registration.answer_came_late)
            .count()
    }

    pub(crate) fn get(&self, id: ConnId) -> Option<&Registration> {
        self.table.get(&id)
    }

    /// Who pays for what it costs others.
    pub(crate) fn payer(&self, id: ConnId) -> Option<Payer> {
        self.get(id).map(|found| found.sharer.payer())
    }

    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Registration> {
        self.table.get_mut(&id)
    }

    /// How many of a sharer's the engine has.
    pub(crate) fn accepted(&self, sharer: &Sharer) -> usize {
        self.accepted.get(sharer).copied().unwrap_or(0)
    }

    /// How many the engine has.
    pub(crate) fn accepted_in_all(&self) -> usize {
        self.accepted.values().sum()
    }

    /// Whose registration of this queue pair the engine has.
    pub(crate) fn holder(&self, qp: (Guid, Qpn)) -> Option<ConnId> {
        self.by_qp.get(&qp).copied()
    }

    /// Queue pairs of a device with registrations that wait.
    pub(crate) fn waiting(&self, node_guid: Guid) -> BTreeSet<Qpn> {
        let all = self.table.values();
        let waiting = all.filter(|registration| {
            !matches!(registration.state, State::Accepted(_))
                && registration.register.node_guid == node_guid
        });
        waiting.map(|found| found.register.qpn).collect()
    }

    /// Devices with queue pairs that the engine has.
    pub(crate) fn devices(&self) -> VecDeque<Guid> {
        let mut devices: VecDeque<Guid> = self.by_qp.keys().map(|(guid, _)| *guid).collect();
        // The keys are in order.
        let mut last = None;
        devices.retain(|guid| last.replace(*guid) != Some(*guid));
        devices
    }

    /// Whether the sharer's turn has come; if not, the registration waits for it.
    pub(crate) fn is_its_turn(&mut self, now: Time, id: ConnId) -> bool {
        let Some(registration) = self.table.get_mut(&id) else {
            return false;
        };
        let Some(at) = self.turnover.wait(now, &registration.sharer) else {
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
            let sharer = registration.sharer.clone();
            *self.accepted.entry(sharer).or_default() += 1;
        }
        registration.state = State::Accepted(now);
        let old = self.by_qp.insert((register.node_guid, register.qpn), id);
        let displaced = old.filter(|old| *old != id)?;
        self.remove(now, displaced);
        Some(displaced)
    }

    /// A registration that contradicts the kernel costs its sharer as much as a short connection: to
    /// find out takes several questions to the kernel.
    pub(crate) fn count_as_short(&mut self, now: Time, id: ConnId) {
        if let Some(registration) = self.table.get(&id) {
            self.turnover.closed(now, &registration.sharer, now);
        }
    }

    /// Forgets a registration. Whether the engine had it.
    pub(crate) fn remove(&mut self, now: Time, id: ConnId) -> bool {
        let Some(Registration {
            sharer,
            register,
            state,
            ..
        }) = self.table.remove(&id)
        else {
            return false;
        };
        self.room.give_back(&sharer);
        let State::Accepted(since) = state else {
            return false;
        };
        if let Some(accepted) = self.accepted.get_mut(&sharer) {
            *accepted -= 1;
            if *accepted == 0 {
                self.accepted.remove(&sharer);
            }
        }
        self.turnover.closed(now, &sharer, since);
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

    /// Those that wait for what should have come. `counts`: whether those of a device are to have a port.
    pub(crate) fn overdue(&self, now: Time, counts: impl Fn(Guid) -> bool) -> Overdue {
        let mut overdue = Overdue::default();
        for Registration {
            register,
            state,
            since,
            ..
        } in self.table.values()
        {
            match state {
                State::NoPort if now - *since > FOR_PORT && counts(register.node_guid) => {
                    overdue.port += 1;
                }
                State::Turnover if now - *since > FOR_TURN => overdue.turn += 1,
                _ => {}
            }
        }
        overdue
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
