// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operators' questions.

use paths::source::Member;
use statemachine::{ConnId, ConnectionView, Input, Origin, PortId, Time, Trace};

use super::changes::Ordering;
use super::configuration::Configuration;
use super::log;
use super::parts::Parts;
use crate::client::Client;
use crate::clock;
use crate::counters::{DaemonCounters, PortCounters};
use crate::observe::connections::{self, ConnectionPage, Connections};
use crate::observe::filter::{ConnectionFilter, owner};
use crate::observe::model::{ConnSums, Counters, DaemonProcess, Source, Status};
use crate::observe::problems::{self, Problems};
use crate::observe::queue_pairs::QueuePairPage;
use crate::observe::request::{Asked, Refused, Request, Show};
use crate::observe::transition::{self, Subject, Transition};
use crate::observe::{fabric, json, ports, queue_pairs, sources};
use crate::parts::operators::{Caller, Note};

impl Parts {
    pub(super) fn answer_operator(&mut self, now: Time, configuration: &Configuration, note: Note) {
        let Note { caller, asked } = note;
        let answer = match &asked {
            Asked::Show(request) => self.show(now, configuration, &caller, request),
            Asked::Change(change) => {
                let (parts, caller) = (&mut *self, &caller);
                Some(Ordering { now, caller, parts }.change(change))
            }
        };
        if let Some(json) = answer {
            self.operators.answer(now, caller.key, &json);
        }
    }

    /// The answer, unless it comes later.
    fn show(
        &mut self,
        now: Time,
        configuration: &Configuration,
        caller: &Caller,
        request: &Request,
    ) -> Option<Vec<u8>> {
        Some(match request.show {
            Show::Conn => match self.page(now, caller, &request.connections, request.history) {
                Ok(page) => json(&page),
                Err(refused) => json(&refused),
            },
            Show::Transitions => return self.watch(now, caller, &request.connections),
            Show::Qp => match self.queue_pairs(now, request.after.as_deref()) {
                Ok(page) => json(&page),
                Err(refused) => json(&refused),
            },
            Show::Port => {
                let ports = self.connections.engine().ports();
                json(&ports::show(
                    self.ports.devices(),
                    &ports,
                    self.ports.rtnl(),
                ))
            }
            Show::Source => json(&self.show_sources(now)),
            Show::Acm => {
                let error = self
                    .acm
                    .show(caller.key, request.destinations.clone())
                    .err()?;
                json(&Refused { error })
            }
            Show::Status => json(&self.status(now, configuration)),
            Show::Counters => json(&Counters {
                engine: self.connections.engine().counters(),
                daemon: self.counters(configuration),
            }),
        })
    }

    pub(super) fn page(
        &self,
        now: Time,
        caller: &Caller,
        filter: &ConnectionFilter,
        history: bool,
    ) -> Result<ConnectionPage, Refused> {
        self.shown(now, caller, history, |conns| conns.page(filter))
    }

    fn queue_pairs(&self, now: Time, after: Option<&str>) -> Result<QueuePairPage, Refused> {
        let engine = self.connections.engine();
        let (presence, all) = (self.kernel.presence(), self.kernel.queue_pairs());
        queue_pairs::page(now, presence, all, engine, self.ports.devices(), after)
    }

    /// Whose connection it is.
    fn client(&self, id: ConnId) -> Option<&Client> {
        let known = self.kernel.client(id);
        known.or_else(|| self.libraries.client(id.client))
    }

    pub(super) fn shown<T>(
        &self,
        now: Time,
        caller: &Caller,
        history: bool,
        show: impl FnOnce(&Connections<'_>) -> T,
    ) -> T {
        show(&Connections {
            now,
            engine: self.connections.engine(),
            devices: self.ports.devices(),
            client: &|id| self.client(id),
            warnings: &|id| {
                let late = self.libraries.warning(id);
                late.into_iter().chain(self.kernel.traps(id)).collect()
            },
            ssa: self.fabric.ssa(),
            names: self.sa.names(),
            peer_daemons: self.connections.peer_daemons(),
            observer: caller.peer,
            history,
        })
    }

    /// Begins to tell an operator what happens, or says why not: what is not there cannot be watched.
    fn watch(&mut self, now: Time, caller: &Caller, filter: &ConnectionFilter) -> Option<Vec<u8>> {
        if let Err(refused) = self.page(now, caller, filter, false) {
            return Some(json(&refused));
        }
        if self.operators.watchers().is_empty() {
            for (key, client) in self.libraries.clients() {
                self.operators.watchers().know(key, client);
            }
        }
        self.operators.watch(now, caller.key, filter.clone());
        None
    }

    /// What happened, in the log.
    pub(super) fn log(&self, trace: &Trace) {
        let engine = self.connections.engine();
        let conn = trace.conn;
        let conn = conn.and_then(|id| engine.identities_in(id..=id).next());
        let of_port = trace.port.map(|port| port.node_guid);
        let of_conn = || Some(conn?.node_guid);
        let device = self.ports.devices();
        let device = { of_port.or_else(of_conn) }.and_then(|guid| device.by_guid(guid));
        let peer = conn.and_then(|conn| {
            let port = PortId::new(conn.node_guid, conn.port);
            self.sa.names().name(port, conn.dlid)
        });
        let client = trace.conn.and_then(|id| self.client(id));
        let program = client.map(|client| {
            let command = client.command.as_deref().unwrap_or("?");
            owner(command, client.peer.pid)
        });
        let device = device.map(|device| device.name.as_str());
        log::say(trace, program, device, peer);
    }

    /// What happened to a connection.
    pub(super) fn tell_watchers(&mut self, now: Time, trace: &Trace) {
        if self.operators.watchers().is_empty() {
            return;
        }
        let (Some(id), Some(event)) = (trace.conn, transition::event(trace)) else {
            return;
        };
        let view = self
            .connections
            .engine()
            .connections_in(now, id..=id)
            .next();
        let left = self.operators.watchers().left(id);
        let subject = match (left, &view) {
            (Some(left), _) => left,
            (None, Some(view)) => self.subject(view),
            (None, None) => Subject {
                id: connections::name(id),
                ..Subject::default()
            },
        };
        let protection = view.map(|view| view.protection.to_string());
        let time = clock::since_1970().as_millis() as f64 / 1e3;
        let transition = Transition::new(time, subject, event, trace, protection);
        self.operators.watchers().tell(transition);
    }

    /// Who watches is told of connections that end what they were.
    pub(super) fn remember_leaving(&mut self, now: Time, input: &Input) {
        if self.operators.watchers().is_empty() {
            return;
        }
        let range = match *input {
            Input::Close(id) | Input::Disconnect(id) => id..=id,
            Input::ClientGone(client) => ConnId::of_client(client),
            _ => return,
        };
        let views: Vec<_> = self
            .connections
            .engine()
            .connections_in(now, range)
            .collect();
        for view in views {
            let subject = self.subject(&view);
            self.operators.watchers().leaves(view.id, subject);
        }
    }

    fn subject(&mut self, view: &ConnectionView) -> Subject {
        let client = view.id.client;
        let watchers = self.operators.watchers();
        if let Some(program) = self.libraries.client(client) {
            watchers.know(client, program);
        }
        let owner = self.kernel.client(view.id);
        let program = owner.or_else(|| watchers.program(client));
        let device = self.ports.devices().by_guid(view.node_guid);
        Subject {
            id: connections::name(view.id),
            device: device.map(|device| device.name.clone()).unwrap_or_default(),
            qpn: view.qpn.0,
            peer_qpn: view.peer_qpn.0,
            pid: program.map_or(0, |program| program.peer.pid),
            command: program
                .and_then(|program| program.command.clone())
                .unwrap_or_default(),
        }
    }

    fn show_sources(&self, now: Time) -> Vec<Source> {
        let (list, devices) = (self.sources.list(), self.ports.devices());
        let fabric = fabric::fabric(now, self.fabric.ssa());
        let detail = |member: &Member| match member.origin() {
            Origin::Ssa => Some(fabric::words(fabric.as_ref(), self.fabric.ssa())),
            _ => self.sources.detail(member),
        };
        let mut shown = sources::sources(now, list, devices, detail);
        let ssa = Origin::Ssa.to_string();
        if let Some(source) = shown.iter_mut().find(|source| source.source == ssa) {
            source.fabric = fabric;
        }
        let sa = Origin::Sa.to_string();
        if let Some(source) = shown.iter_mut().find(|source| source.source == sa) {
            source.load.windows = sources::windows(self.sa.windows(), devices);
        }
        shown
    }

    fn counters(&self, configuration: &Configuration) -> DaemonCounters {
        let ports = self.ports.counters();
        DaemonCounters {
            ports: PortCounters {
                malformed_mads: ports.malformed_mads + self.sa.malformed(),
                ..ports
            },
            libraries: self.libraries.counters(),
            peers: self.peers.counters(),
            malformed_requests: self.operators.malformed(),
            acm: self.acm.counters(),
            configuration: configuration.counters,
        }
    }

    fn status(&self, now: Time, configuration: &Configuration) -> Status {
        let config = &configuration.config;
        let views = self.connections.engine().ports();
        let connections = ConnSums {
            armed_same_port_60_seconds: self.connections.without_redundancy(now),
            ..connections::sums(self.connections.engine().protections(now))
        };
        let devices: Vec<_> = self
            .ports
            .devices()
            .iter()
            .map(|d| d.name.clone())
            .collect();
        let ports = ports::show(self.ports.devices(), &views, self.ports.rtnl());
        let Problems {
            mut degraded,
            others,
        } = Problems::find(
            config,
            &configuration.reload,
            &devices,
            self.ports.devices().unopened(),
            &ports,
            &connections,
        );
        degraded.extend(self.sources.all_fail());
        let left_out = self
            .kernel
            .queue_pairs()
            .left_out(now, config.devices.is_empty());
        let presence = self.kernel.presence();
        degraded.extend(problems::of_kernel(&config.kernel, presence, left_out));
        degraded.extend(self.kernel.problems());
        let others = others.into_iter().chain(self.sources.problem());
        let others = others.chain(self.fabric.problem());
        let others = others.chain(self.acm.problems().iter().cloned());
        let others = others.chain(self.kernel.warnings());
        let paths_to_silent_apmd = self.connections.peer_daemons().silent(now);
        let others = others.chain(problems::silent_peers(paths_to_silent_apmd));
        let others = others.chain(self.libraries.problem());
        let is_modules = |number| self.kernel.protects(number);
        let unregistered = self.libraries.unregistered(is_modules);
        let others = others.chain(problems::unregistered(&unregistered));
        // Both sockets were given to the group, or neither: one process has made them.
        let others = others.chain(problems::of_sockets(self.operators.not_given()));
        Status {
            daemon: DaemonProcess {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
                uptime_seconds: now.0 / 1_000_000,
                class: config.association.class,
            },
            ports: ports::sums(&views, paths_to_silent_apmd),
            libraries: self.libraries.len(),
            unregistered,
            kernel: queue_pairs::module(
                self.kernel.presence(),
                self.kernel.queue_pairs(),
                self.kernel.named_peers(),
                &config.kernel,
            ),
            connections,
            problems: degraded.iter().cloned().chain(others).collect(),
            degraded,
            devices,
            ignored: ports::ignored(self.ports.devices()),
        }
    }
}
