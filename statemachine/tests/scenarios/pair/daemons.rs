// SPDX-License-Identifier: MIT OR Apache-2.0
//! Daemons start and end, libraries register, operators and applications want something.

use std::ops::Range;

use cm_msgs::control::{MigrationState, PolicyOverride, QpState, Register, Snapshot};
use cm_msgs::path::Path;
use cm_msgs::{Lid, Qpn};
use statemachine::{Command, Config, ConnId, Engine, Input};

use super::{OTHER, OWNER, Pair, Qp, first_path, guid, host, random};

impl Pair {
    /// Starts a host's daemon. Its library connects to it.
    pub(crate) fn start(&mut self, host: usize) {
        self.seeds += 1;
        let config = self.config.clone();
        self.hosts[host].engine = Some(Engine::new(config, random(self.seeds)));
        for port in 1..=2 {
            self.port_input(host, port);
        }
        self.reconnect(host);
    }

    /// Ends a host's daemon, as SIGKILL does.
    pub(crate) fn kill(&mut self, host: usize) {
        self.hosts[host].engine = None;
        self.forget_client(host);
    }

    pub(super) fn forget_client(&mut self, host: usize) {
        let host = &mut self.hosts[host];
        host.client += 1;
        host.waiting.clear();
        host.told.clear();
    }

    /// The library's socket breaks and is made again.
    pub(crate) fn reconnect(&mut self, host: usize) {
        let client = self.hosts[host].client;
        self.input(host, Input::ClientGone(client));
        self.forget_client(host);
        if self.hosts[host].moves_idle {
            let client = self.hosts[host].client;
            self.input(host, Input::MovesIdle(client));
        }
        for conn in 0..self.hosts[host].qps.len() {
            if self.hosts[host].registered[conn] {
                self.say_register(host, conn);
            }
        }
    }

    /// The library registers all its connections.
    pub(crate) fn register(&mut self, host: usize) {
        self.register_some(host, 0..self.hosts[host].qps.len());
    }

    /// The library registers these of its connections.
    pub(crate) fn register_some(&mut self, host: usize, conns: Range<usize>) {
        for conn in conns {
            self.hosts[host].registered[conn] = true;
            self.say_register(host, conn);
        }
    }

    /// How a host's connections are to be protected from now on.
    pub(crate) fn set_policy(&mut self, host: usize, policy: PolicyOverride) {
        self.policies[host] = policy;
        for conn in 0..self.hosts[host].qps.len() {
            let id = self.id(host, conn);
            self.input(host, Input::Policy(id, policy));
        }
    }

    /// A host's daemon reads its configuration again.
    pub(crate) fn configure(&mut self, host: usize, config: Config) {
        if let Some(engine) = &mut self.hosts[host].engine {
            engine.set_config(config);
        }
        self.drain(host);
    }

    /// An operator wants something of a host's first connection.
    pub(crate) fn command(&mut self, host: usize, command: Command) {
        let id = self.id(host, 0);
        self.input(host, Input::Command(id, command));
    }

    /// An operator wants connections off a port, or minds them no more.
    pub(crate) fn drain_port(&mut self, host: usize, port: u8, drained: bool) {
        let id = self.hosts[host].port_id(port);
        self.input(host, Input::Drain(id, drained));
    }

    /// Another user's library registers a connection that the peer knows nothing of, and closes it.
    pub(crate) fn register_and_close(&mut self, host: usize, client: u32, conn: u32) {
        let id = ConnId { client, conn };
        let register = Register {
            qpn: Qpn(0x80_0000 + conn),
            peer_qpn: Qpn(0x90_0000 + conn),
            ..self.register_message(host, 0)
        };
        self.input(host, Input::Register(id, OTHER, register));
        self.run(1);
        self.input(host, Input::Close(id));
    }

    /// Another user's library registers a connection to where there is no host.
    pub(crate) fn register_to_nobody(&mut self, host: usize, conn: u32) {
        let id = ConnId { client: 99, conn };
        let snapshot = Snapshot {
            qp_state: QpState::Rts,
            migration: MigrationState::Migrated,
            primary: Path {
                dlid: Lid(0x999),
                dgid: Default::default(),
                ..first_path(host)
            },
            alternate: None,
        };
        let register = Register {
            qpn: Qpn(0x80_0000 + conn),
            snapshot,
            ..self.register_message(host, 0)
        };
        self.input(host, Input::Register(id, OTHER, register));
    }

    pub(super) fn say_register(&mut self, host: usize, conn: usize) {
        let register = self.register_message(host, conn);
        self.hosts[host].told.insert(conn, register.snapshot);
        let (_, input) = self.registration(host, conn);
        self.input(host, input);
    }

    /// A connection's name, and what its library says to register it.
    pub(crate) fn registration(&self, host: usize, conn: usize) -> (ConnId, Input) {
        let (id, register) = (self.id(host, conn), self.register_message(host, conn));
        (id, Input::Register(id, OWNER, register))
    }

    pub(super) fn register_message(&self, host: usize, conn: usize) -> Register {
        let snapshot = self.hosts[host].qps[conn].snapshot();
        Register {
            role: self.roles[host],
            opted_in: self.opted_in,
            node_guid: guid(host),
            qpn: self.hosts[host].qpn(conn),
            peer_qpn: host::qpn(1 - host, conn),
            policy: self.policies[host],
            snapshot,
        }
    }

    /// The application closes its connections.
    pub(crate) fn close(&mut self, host: usize) {
        self.end(host, Input::Close);
    }

    /// It disconnects them.
    pub(crate) fn disconnect(&mut self, host: usize) {
        self.end(host, Input::Disconnect);
    }

    pub(super) fn end(&mut self, host: usize, input: fn(ConnId) -> Input) {
        for conn in 0..self.hosts[host].qps.len() {
            self.hosts[host].registered[conn] = false;
            self.hosts[host].qps[conn].state = QpState::Reset;
            let id = self.id(host, conn);
            self.input(host, input(id));
        }
    }

    /// The application connects anew.
    pub(crate) fn new_connections(&mut self, host: usize) {
        for qp in &mut self.hosts[host].qps {
            *qp = Qp::new(first_path(host));
        }
    }
}
