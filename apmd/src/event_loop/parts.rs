// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts together: what wakes them, and when they are due.

use std::sync::Arc;

use mio::{Poll, Registry, Waker};
use statemachine::{PeerPresence, Time};

use super::{DaemonError, system};
use crate::acm_thread::AcmPart;
use crate::clock::{self, Clock};
use crate::config::Config;
use crate::descriptors;
use crate::io::id_file::{IdFile, NextIds};
use crate::io::random;
use crate::observe;
use crate::parts::connections::Connections;
use crate::parts::fabric::Fabric;
use crate::parts::kernel::Kernel;
use crate::parts::libraries::{self, Libraries};
use crate::parts::neighbours::Neighbours;
use crate::parts::operators::Operators;
use crate::parts::ports::Ports;
use crate::parts::sa::Sa;
use crate::parts::sources::Sources;
use crate::registrations::Room;
use crate::server::Server;
use crate::token::Token;

/// All parts of the daemon. Only here, and where their notes are carried, does one meet another.
pub(super) struct Parts {
    pub(super) connections: Connections,
    pub(super) peers: PeerPresence,
    pub(super) ports: Ports,
    pub(super) sa: Sa,
    pub(super) sources: Sources,
    pub(super) fabric: Fabric,
    pub(super) neighbours: Neighbours,
    pub(super) libraries: Libraries,
    pub(super) kernel: Kernel,
    pub(super) operators: Operators,
    pub(super) acm: AcmPart,
    ids: IdFile,
}

impl Parts {
    /// Opens everything. Missing devices are no error.
    pub(super) fn open(config: &Config, clock: Clock, poll: &Poll) -> Result<Self, DaemonError> {
        let registry = poll.registry();
        let own_registry = || Registry::try_clone(registry).map_err(system("epoll"));
        let dir = &config.runtime_dir;
        std::fs::create_dir_all(dir).map_err(|error| DaemonError::RuntimeDir {
            path: dir.clone(),
            error,
        })?;
        // The sockets first: if another daemon has them, nothing else may be touched.
        let listen = |socket, budget, listening, token: fn(u32) -> Token| {
            let path = dir.join(socket);
            Server::listen(&path, &config.control, budget, registry, listening, token)
        };
        let budget = descriptors::libraries(&config.acm);
        let server = listen(libraries::SOCKET, budget, Token::Control, Token::Library)?;
        let room = Room::new(config.control.max_connections);
        let mut libraries = Libraries::new(server, room.clone());
        let budget = descriptors::OPERATORS;
        let server = listen(observe::SOCKET, budget, Token::Observe, Token::Operator)?;
        let operators = Operators::new(server);
        let (ids, next) = IdFile::open(dir, clock::since_1970());
        libraries.number_from(next.client);
        let mut random = random::from_kernel().map_err(system("getrandom"))?;
        let waker = Waker::new(registry, Token::Threads.into()).map_err(system("eventfd"))?;
        let waker = Arc::new(waker);
        let acm = AcmPart::new(config, clock, Arc::clone(&waker), random.split());
        let acm = acm.map_err(system("thread"))?;
        let mut sources = Sources::new(config, own_registry()?, Arc::clone(&waker));
        sources.set_own_acm_port(acm.tcp_port());
        let mut kernel = Kernel::new(config, room, registry, Arc::clone(&waker));
        kernel.number_from(next.queue_pair);
        Ok(Self {
            connections: Connections::new(config, random.split()),
            peers: PeerPresence::new(random.split()),
            ports: Ports::new(config, own_registry()?, random.split(), Arc::clone(&waker)),
            sa: Sa::new(random.split()),
            sources,
            fabric: Fabric::new(config, Arc::clone(&waker)).map_err(system("thread"))?,
            neighbours: Neighbours::new(&config.neigh, own_registry()?),
            libraries,
            kernel,
            operators,
            acm,
            ids,
        })
    }

    pub(super) fn configure(&mut self, now: Time, config: &Config) {
        self.connections.configure(config);
        self.libraries.configure(config);
        self.kernel.configure(now, config);
        self.sources.configure(now, config);
        self.fabric.configure(now, config);
        self.neighbours.configure(now, &config.neigh);
        self.ports.configure(now, config);
        self.acm.configure(now, config);
    }

    /// Whose descriptor it is.
    pub(super) fn handle_ready(&mut self, now: Time, token: Token) {
        match token {
            Token::Signals => {}
            Token::Control => self.libraries.handle_callers(now),
            Token::Observe => self.operators.handle_callers(now),
            Token::Rtnl => self.ports.handle_links(now),
            Token::Verbs(device) => self.ports.handle_device(now, device),
            Token::Umad(key) => self.ports.handle_mads(now, key),
            Token::Library(key) => self.libraries.handle_ready(now, key),
            Token::Operator(key) => self.operators.handle_ready(now, key),
            Token::Kernel => self.kernel.handle_ready(now),
            Token::Neigh => self.neighbours.handle_ready(now),
            Token::AcmClient(number) => self.sources.handle_acm(number),
            Token::Threads => {
                self.ports.handle_thread();
                self.fabric.handle_thread(now);
                self.sources.handle_thread(now);
                self.kernel.handle_thread();
                self.acm.handle_ready();
            }
        }
    }

    /// Sees to it that no ID that has been given is given again after a restart.
    pub(super) fn keep_ids(&mut self) {
        self.ids.keep(self.next_ids());
    }

    fn next_ids(&self) -> NextIds {
        NextIds {
            client: self.libraries.next_number(),
            queue_pair: self.kernel.queue_pairs().next_number(),
        }
    }

    /// Reads what one turn did not.
    pub(super) fn read_on(&mut self, now: Time) {
        self.ports.read_on(now);
    }

    pub(super) fn handle_time(&mut self, now: Time) {
        self.connections.handle_time(now);
        self.peers.handle_timeout(now);
        let has_connections = !self.connections.engine().is_empty();
        self.ports.handle_time(now, has_connections);
        self.sa.handle_time(now);
        self.fabric.handle_time(now);
        self.sources.handle_time(now);
        let kernel = &self.kernel;
        self.libraries
            .handle_time(now, |number| kernel.protects(number));
        self.kernel.handle_time(now);
        self.operators.handle_time(now);
        self.acm.handle_time(now);
        self.neighbours.handle_time(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let times = [
            self.connections.poll_timeout(),
            self.peers.poll_timeout(),
            self.ports.poll_timeout(),
            self.sa.poll_timeout(),
            self.sources.poll_timeout(),
            self.fabric.poll_timeout(),
            self.neighbours.poll_timeout(),
            self.libraries.poll_timeout(),
            self.kernel.poll_timeout(),
            self.operators.poll_timeout(),
            self.acm.poll_timeout(),
        ];
        times.into_iter().flatten().min()
    }

    /// The kernel's neighbours and the multicast groups are not managed any more, and no reports are read.
    pub(super) fn end(&mut self) {
        self.sa.end();
        self.neighbours.end();
        self.acm.end();
        self.ids.end(self.next_ids());
    }
}
