// SPDX-License-Identifier: MIT OR Apache-2.0
//! The failover loop: one thread, one poll. What wakes it goes to the part whose descriptor it is,
//! what is due to the parts whose time has come, and their notes from part to part until none is
//! left; then it sleeps until the next deadline.

mod changes;
mod configuration;
mod log;
mod operators;
mod parts;
mod route;
mod signals;

use std::io;
use std::path::PathBuf;

use mio::{Events, Poll};
use statemachine::Time;

use crate::clock::{Clock, sleep};
use crate::config::{Config, ConfigError};
use crate::descriptors;
use crate::io::seqpacket::ListenError;
use crate::logging::LogHandle;
use crate::notify::{State, notify};
use crate::token::Token;
use configuration::Configuration;
use parts::Parts;
use signals::{Request, Signals};

/// Why the daemon does not start or does not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DaemonError {
    /// The configuration is no good.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A socket cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The runtime directory cannot be made.
    #[error("{}: {error}", path.display())]
    RuntimeDir {
        /// The directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The system says no.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        error: io::Error,
    },
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> DaemonError {
    move |error| DaemonError::System { what, error }
}

/// The daemon.
pub(crate) struct Daemon {
    poll: Poll,
    clock: Clock,
    configuration: Configuration,
    parts: Parts,
    signals: Signals,
    stopping: bool,
}

impl Daemon {
    /// Opens everything.
    ///
    /// # Errors
    /// Another daemon has the sockets, or the system says no. Missing devices are no error.
    pub(crate) fn start(
        config: Config,
        config_path: Option<PathBuf>,
        log: LogHandle,
    ) -> Result<Self, DaemonError> {
        descriptors::raise_limit();
        let poll = Poll::new().map_err(system("epoll"))?;
        let clock = Clock::start();
        Ok(Self {
            parts: Parts::open(&config, clock, &poll)?,
            signals: Signals::listen(poll.registry()).map_err(system("signals"))?,
            configuration: Configuration::new(config, config_path, log),
            clock,
            poll,
            stopping: false,
        })
    }

    /// Runs until a signal ends it. Connections stay armed, and their libraries wait for the next
    /// daemon: nobody's association is closed.
    ///
    /// # Errors
    /// The poll fails.
    pub(crate) fn run(mut self) -> Result<(), DaemonError> {
        let mut events = Events::with_capacity(256);
        self.handle_time();
        let config = &self.configuration.config;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            runtime_dir = %config.runtime_dir.display(),
            class = config.association.class,
            "ready"
        );
        notify(State::Ready);
        while !self.stopping {
            let now = self.clock.now();
            let log = self.configuration.log.poll_timeout(now);
            let timeout = sleep(now, [self.parts.poll_timeout(), log]);
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled.map_err(system("poll"))?,
            }
            // Notes are carried after each: what a lost port calls for does not wait for whatever
            // else has become ready.
            for token in events.iter().filter_map(|e| Token::from_mio(e.token())) {
                let now = self.clock.now();
                match token {
                    Token::Signals => self.signalled(now),
                    token => self.parts.handle_ready(now, token),
                }
                self.parts.route(now, &self.configuration);
            }
            self.handle_time();
        }
        notify(State::Stopping);
        self.parts.end();
        self.parts.route(self.clock.now(), &self.configuration);
        tracing::info!("ended; connections stay as they are");
        Ok(())
    }

    fn handle_time(&mut self) {
        let now = self.clock.now();
        self.configuration.log.handle_time();
        // What has come in counts before anybody's silence does.
        self.parts.read_on(now);
        self.parts.route(now, &self.configuration);
        self.parts.handle_time(now);
        self.parts.route(now, &self.configuration);
        self.parts.keep_ids();
    }

    fn signalled(&mut self, now: Time) {
        for request in self.signals.take() {
            match request {
                Request::Stop => self.stopping = true,
                Request::Reload => {
                    notify(State::Reloading);
                    if self.configuration.read_again() {
                        self.parts.configure(now, &self.configuration.config);
                    }
                    notify(State::Ready);
                }
            }
        }
    }
}
