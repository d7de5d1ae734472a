// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registrations are held against what the kernel says before the engine gets them.

use std::io;
use std::iter;

use cm_msgs::control::{Cause, NO_TOKEN, Refusal, Register, Report};
use cm_msgs::path::Path;
use cm_msgs::{Guid, Qpn};
use statemachine::{ConnId, Input, Order, PortId, Time};

use super::check::{self, Holder, Objection, Ownership};
use super::clients::Connected;
use super::{Libraries, Note, primary_port};
use crate::io::apm_module::{KernelQp, Owner};
use crate::io::nldev::Maker;
use crate::io::port_tables::PortTables;
use crate::io::process::Process;
use crate::kernel::astray;
use crate::registrations::State;

impl Libraries {
    /// Asks the kernel module about a registration, or lets it wait.
    pub(super) fn consider(&mut self, now: Time, id: ConnId) {
        if let Some(number) = self.vet(now, id) {
            self.notes.push_back(Note::AskKernel { id, number });
        }
    }

    /// The queue pair of a registration that the kernel is worth asking about. Another waits, or is refused.
    pub(super) fn vet(&mut self, now: Time, id: ConnId) -> Option<(Guid, Qpn)> {
        let registration = self.registrations.get_mut(id)?;
        let register = registration.register;
        if !self.ports.status.contains_key(&primary_port(&register)) {
            // After a start libraries and ports are heard of in any order. Kept, so that the
            // library need not try again: it is asked when the port comes.
            registration.state = State::NoPort;
            let known_ports = self.device_of(&register).map(|port| port.device_ports);
            if known_ports.is_none() {
                let unknown = Note::UnknownDevice(register.node_guid);
                self.notes.push_back(unknown);
            }
            if known_ports.is_none_or(|ports| ports == 0) {
                self.order(now, id, Order::Refuse(Refusal::NoDevice));
            }
            return None;
        }
        if !self.registrations.is_its_turn(now, id) {
            return None;
        }
        // Nonsense is refused before the kernel is asked, which costs several messages.
        let port = primary_port(&register);
        let usable = check::carries_mads(port.port, self.ports.of_grh.contains(&port));
        let report = || check::report(&register.snapshot, self.device_of(&register));
        if let Err(objection) = usable.and_then(|()| report()) {
            self.registrations.count_as_short(now, id);
            self.object(now, id, &objection);
            return None;
        }
        Some((register.node_guid, register.qpn))
    }

    /// What the kernel module says of a queue pair that is registered, if it says anything. Accepts the
    /// registration, refuses it, or asks about it again.
    pub(crate) fn handle_known(
        &mut self,
        now: Time,
        id: ConnId,
        number: (Guid, Qpn),
        told: Option<&KernelQp>,
    ) {
        let Some(registration) = self.registrations.get(id) else {
            return;
        };
        let (register, state) = (registration.register, registration.state);
        let payer = registration.sharer.payer();
        if (register.node_guid, register.qpn) != number {
            return;
        }
        // Since when the library has looked again.
        let asked = match state {
            State::New => None,
            State::Asked => Some(now),
            State::Unsettled(since) => Some(since),
            State::NoPort | State::Turnover => return,
            State::Accepted(_) => return self.known_late(now, id, told),
        };
        match self.check(now, id, &register, asked, told) {
            Ok(register) => {
                if let Some(displaced) = self.registrations.accept(now, id, register) {
                    self.order(now, displaced, Order::Refuse(Refusal::NotOwner));
                }
                self.rounds.patrol.begin(now);
                self.rounds.unregistered.remove(number);
                self.notes
                    .push_back(Note::engine(Input::Register(id, payer, register)));
            }
            Err(Objection::Unsettled(at)) => {
                if let Some(registration) = self.registrations.get_mut(id) {
                    registration.state = State::Unsettled(asked.unwrap_or(now));
                    self.gids.wait(id, at);
                }
            }
            Err(objection) => {
                self.registrations.count_as_short(now, id);
                if asked.is_none() && objection.may_be_outdated() {
                    return self.ask(now, id);
                }
                self.object(now, id, &objection);
            }
        }
    }

    /// A registration that could not be judged may be judged now.
    pub(super) fn settle(&mut self, now: Time, id: ConnId) {
        let registration = self.registrations.get(id);
        if registration.is_some_and(|found| matches!(found.state, State::Unsettled(_))) {
            self.consider(now, id);
        }
    }

    /// The module has told of a queue pair that is registered already.
    fn known_late(&mut self, now: Time, id: ConnId, told: Option<&KernelQp>) {
        let Some(told) = told else { return };
        // It holds the queue pair itself; only whose that is may be new.
        let ownership = self.made_by(id, told);
        if let Err(objection) = check::owner(ownership, Holder::Same) {
            self.object(now, id, &objection);
            return self.notes.push_back(Note::engine(Input::Close(id)));
        }
        // Its path may be another than was said.
        if let Some(snapshot) = told.snapshot.filter(|it| astray(it).is_none()) {
            let cause = Cause::Changed;
            let input = Input::Report(id, Report { cause, snapshot });
            self.notes.push_back(Note::engine(input));
        }
    }

    /// Has the library look at the queue pair again; its answer is considered.
    pub(super) fn ask(&mut self, now: Time, id: ConnId) {
        if let Some(registration) = self.registrations.get_mut(id) {
            registration.state = State::Asked;
            self.order(now, id, Order::Query(NO_TOKEN));
        }
    }

    /// The registration as the kernel confirms it: its module, or nldev of what that does not know.
    /// `asked`: since when the library has looked again.
    fn check(
        &mut self,
        now: Time,
        id: ConnId,
        register: &Register,
        asked: Option<Time>,
        told: Option<&KernelQp>,
    ) -> Result<Register, Objection> {
        let said = &register.snapshot.primary;
        let Some(told) = told else {
            return self.confirmed_by_nldev(now, id, register, asked);
        };
        let ownership = self.made_by(id, told);
        check::owner(ownership, self.holder(id, register))?;
        let confirmed = check::told(register, told)?;
        // All else of its paths is the module's word; where they end is their owner's.
        self.check_source_gid(now, register.node_guid, said, asked)?;
        if let device @ Some(_) = self.device_of(register) {
            check::report(&confirmed.snapshot, device)?;
        }
        Ok(confirmed)
    }

    fn confirmed_by_nldev(
        &mut self,
        now: Time,
        id: ConnId,
        register: &Register,
        asked: Option<Time>,
    ) -> Result<Register, Objection> {
        let nldev = self.nldev.as_mut();
        let nldev = nldev.ok_or_else(|| Objection::NoAnswer("no rdma netlink".to_owned()))?;
        let found = nldev.queue_pair(register.node_guid, register.qpn);
        let found = found.map_err(|error| Objection::NoAnswer(error.to_string()))?;
        let kernel = found.ok_or(Objection::NoQueuePair)?;
        check::owner(self.ownership(id, kernel.maker), self.holder(id, register))?;
        match check::queue_pair(&register.snapshot, &kernel) {
            // The library has looked again, and the QP has changed again: then the kernel's word
            // holds.
            Err(Objection::OldSnapshot) if asked.is_some() => {}
            verdict => verdict?,
        }
        let confirmed = check::corrected(register, &kernel);
        let snapshot = &confirmed.snapshot;
        self.check_ports(&confirmed)?;
        for path in iter::once(&snapshot.primary).chain(&snapshot.alternate) {
            let port = PortId::new(register.node_guid, path.port);
            if let Some(status) = self.ports.status.get(&port) {
                check::path(path, status)?;
            }
            self.check_source_gid(now, register.node_guid, path, asked)?;
        }
        Ok(confirmed)
    }

    /// The primary's port is known; of an alternate's it is enough that the device has it, since after a
    /// start ports are heard of one by one.
    pub(super) fn check_ports(&self, register: &Register) -> Result<(), Objection> {
        check::report(&register.snapshot, self.device_of(register))?;
        let port = primary_port(register);
        match self.ports.status.contains_key(&port) {
            true => Ok(()),
            false => Err(Objection::Port(port.port)),
        }
    }

    fn check_source_gid(
        &mut self,
        now: Time,
        node_guid: Guid,
        path: &Path,
        asked: Option<Time>,
    ) -> Result<(), Objection> {
        let port = PortId::new(node_guid, path.port);
        let Some(status) = self.ports.status.get(&port) else {
            return Ok(());
        };
        let nldev = self.nldev.as_mut();
        let read = || {
            let device = nldev?.name_of(node_guid).ok()??;
            PortTables::of(&device, path.port).gids().ok()
        };
        check::source_gid(path, status, |gid| {
            self.gids.look(now, port, gid, asked, read)
        })
    }

    fn ownership(&self, id: ConnId, maker: Maker) -> Ownership {
        match maker {
            Maker::Thread(tid) => self.judged(id, |process| process.has_thread(tid)),
            Maker::Ended => Ownership::Unknown,
            Maker::Kernel => Ownership::Foreign,
        }
    }

    /// The same as the module has it, which has seen the queue pair begin: also where its maker has ended.
    fn made_by(&mut self, id: ConnId, told: &KernelQp) -> Ownership {
        match self.owned_by(id, &told.owner) {
            Ownership::Hidden { .. } if self.is_living_maker(id, told) => Ownership::Own,
            ownership => ownership,
        }
    }

    fn owned_by(&self, id: ConnId, owner: &Owner) -> Ownership {
        match owner.pid {
            Some(0) => Ownership::Unknown,
            Some(pid) => self.judged(id, |process| process.is(pid, owner.started)),
            None => Ownership::Foreign,
        }
    }

    /// Whether it is this library's process by nldev, which names threads that live: that may be seen
    /// where the process's start is not, and no earlier process of its number has any.
    fn is_living_maker(&mut self, id: ConnId, told: &KernelQp) -> bool {
        let found = self.nldev.as_mut();
        let found = found.and_then(|nldev| nldev.queue_pair(told.node_guid, told.qpn).ok()?);
        found.is_some_and(|found| self.ownership(id, found.maker) == Ownership::Own)
    }

    /// Whose it is if it is that process's of which this is asked.
    fn judged(&self, id: ConnId, is_it: impl FnOnce(&Process) -> io::Result<bool>) -> Ownership {
        let Some(Connected {
            client, process, ..
        }) = self.of(id)
        else {
            return Ownership::Foreign;
        };
        match is_it(process) {
            Ok(true) => Ownership::Own,
            Ok(false) => Ownership::Foreign,
            Err(error) => Ownership::Hidden {
                pid: client.peer.pid,
                why: error.kind(),
            },
        }
    }

    fn holder(&self, id: ConnId, register: &Register) -> Holder {
        let holder = self
            .registrations
            .holder((register.node_guid, register.qpn));
        let holder = holder.and_then(|holder| self.of(holder));
        let pid = |connected: &Connected| connected.client.peer.pid;
        match holder.filter(|holder| holder.process.is_alive()) {
            None => Holder::Nobody,
            Some(holder) if self.of(id).map(pid) == Some(pid(holder)) => Holder::Same,
            Some(_) => Holder::Other,
        }
    }

    pub(super) fn object(&mut self, now: Time, id: ConnId, objection: &Objection) {
        match objection.refusal() {
            Refusal::NotOwner => self.counters.not_owner += 1,
            // What the port is like is not the library's fault.
            Refusal::GrhRequired => {}
            _ => self.counters.contradicted += 1,
        }
        if let Some(registration) = self.registrations.get(id) {
            let Register { node_guid, qpn, .. } = registration.register;
            let peer = self.of(id).map(|connected| connected.client.peer);
            let (uid, pid) = (peer.map(|peer| peer.uid), peer.map(|peer| peer.pid));
            tracing::warn!(uid, pid, %node_guid, %qpn, "registration refused: {objection}");
        }
        self.registrations.remove(now, id);
        self.order(now, id, Order::Refuse(objection.refusal()));
    }
}
