// SPDX-License-Identifier: MIT OR Apache-2.0
//! Between the engine and the world: libraries in, orders, MADs and path queries out.

use cm_msgs::control::{FromLibrary, Refusal, Register};
use statemachine::trace::What;
use statemachine::{ConnId, Input, Level, Order, Output, Trace};

use super::token::Token;
use super::{Daemon, TURN};
use crate::control::FromClient;
use crate::io::nldev;
use crate::log_limit::Nuisance;
use crate::server::Alive;
use crate::source::{Asker, Question};

impl Daemon {
    /// Does what the engine wants, until it wants nothing more.
    pub(super) fn drain_engine(&mut self) {
        loop {
            while let Some(output) = self.engine.poll_output() {
                self.output(output);
            }
            self.drain_sources();
            let Some(answer) = self.sources.poll_answer() else {
                return;
            };
            self.path_answer(answer);
        }
    }

    fn output(&mut self, output: Output) {
        match output {
            Output::Send(send) => self.send(&send),
            Output::Query(query) => {
                let asker = Asker::Engine;
                let question = Question {
                    asker,
                    query,
                    only: None,
                };
                self.sources.ask(self.clock.now(), question);
            }
            Output::Assess(assess) => self.assess(&assess),
            Output::Order(conn, order) => self.order(conn, order),
            Output::Trace(trace) => self.trace(&trace),
        }
    }

    fn send(&mut self, send: &statemachine::Send) {
        let class = self.config.association.class;
        let mad = send.message.encode(class, send.transaction_id.into());
        tracing::trace!(
            port = send.port.port,
            lid = send.lid.0,
            message = send.message.name(),
            transaction = send.transaction_id,
            "sent"
        );
        if let Err(error) = self.devices.send_association(send.port, send.lid, &mad) {
            self.counters.unsent_mads += 1;
            if let Some(more) = self.limit.allow(self.clock.now(), Nuisance::SendFailed) {
                let message = send.message.name();
                tracing::warn!(port = send.port.port, lid = send.lid.0, message, %error, more, "not sent");
            }
        }
    }

    fn order(&mut self, conn: ConnId, order: Order) {
        if self.control.send(conn, order) == Alive::No
            && let Ok(key) = u32::try_from(conn.client)
        {
            self.lose_library(key, "does not read");
        }
    }

    fn trace(&mut self, trace: &Trace) {
        let mut more = None;
        if let What::Dropped { .. } = trace.what {
            match self.limit.allow(self.clock.now(), Nuisance::Dropped) {
                Some(swallowed) => more = Some(swallowed),
                None => return,
            }
        }
        let conn = trace
            .conn
            .map(|conn| format!("{}.{}", conn.client, conn.conn));
        let device = trace
            .port
            .and_then(|port| self.devices.by_guid(port.node_guid));
        let device = device.map(|device| device.verbs.name.as_str());
        let port = trace.port.map(|port| port.port);
        let from = trace.from().map(tracing::field::display);
        let to = trace.to().map(tracing::field::display);
        macro_rules! say {
            ($level:ident) => {
                tracing::$level!(target: "apmd::engine", conn, device, port, from, to, more, "{trace}")
            };
        }
        match trace.level() {
            Level::Debug => say!(debug),
            Level::Info => say!(info),
            Level::Warn => say!(warn),
        }
    }

    /// A library's socket has something to read, or room.
    pub(super) fn library(&mut self, key: u32) {
        if self.control.flush(key) == Alive::No {
            return self.lose_library(key, "is gone");
        }
        for _ in 0..TURN {
            match self.control.read(key) {
                FromClient::Message(message) => self.library_says(key, message),
                FromClient::Nothing => return,
                FromClient::Gone => return self.lose_library(key, "is gone"),
                FromClient::Broken(breach) => {
                    self.counters.malformed_control += 1;
                    let now = self.clock.now();
                    if let Some(more) = self.limit.allow(now, Nuisance::MalformedControl) {
                        let pid = self.control.client(key).map(|client| client.peer.pid);
                        tracing::warn!(client = key, pid, %breach, more, "library thrown out");
                    }
                    return self.lose_library(key, "broke the protocol");
                }
            }
            self.drain_engine();
        }
        self.unread.push(Token::Library(key));
    }

    fn library_says(&mut self, key: u32, message: FromLibrary) {
        let id = |conn| ConnId {
            client: key.into(),
            conn,
        };
        let input = match message {
            FromLibrary::Hello { .. } => return,
            FromLibrary::Register { conn, register } => {
                if !self.owns(key, &register) {
                    return self.order(id(conn), Order::Refuse(Refusal::NotOwner));
                }
                Input::Register(id(conn), register)
            }
            FromLibrary::Report { conn, report } => Input::Report(id(conn), report),
            FromLibrary::Close { conn } => Input::Close(id(conn)),
        };
        self.engine.handle(self.clock.now(), input);
    }

    /// Whether the kernel says that the queue pair is the library's process's. Of a device that is
    /// not looked after, the engine says so itself.
    fn owns(&mut self, key: u32, register: &Register) -> bool {
        let Some(device) = self.devices.by_guid(register.node_guid) else {
            return true;
        };
        if !self.config.control.verify_owner {
            return true;
        }
        let (name, ports) = (&device.verbs.name, device.verbs.ports);
        let pid = self.control.client(key).map_or(0, |client| client.peer.pid);
        let owner = match self.nldev.as_mut() {
            Some(nldev) => nldev.owner(name, ports, register.qpn),
            None => Err(std::io::ErrorKind::Unsupported.into()),
        };
        if owner
            .as_ref()
            .is_ok_and(|owner| nldev::is_process(*owner, pid))
        {
            return true;
        }
        self.counters.not_owner += 1;
        if let Some(more) = self.limit.allow(self.clock.now(), Nuisance::NotOwner) {
            let qpn = register.qpn;
            tracing::warn!(device = name, %qpn, pid, ?owner, more, "not the queue pair's owner");
        }
        false
    }

    /// A library is gone, or has to go.
    pub(super) fn lose_library(&mut self, key: u32, why: &'static str) {
        let name = self.control.client(key).map(ToString::to_string);
        if self.control.close(key) {
            tracing::debug!(client = key, name, "library {why}");
            self.counters.clients_gone += 1;
            self.engine
                .handle(self.clock.now(), Input::ClientGone(key.into()));
        }
    }
}
