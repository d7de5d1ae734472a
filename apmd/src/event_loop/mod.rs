// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon: one thread, one poll. What wakes it becomes input for the engine, what the engine
//! wants is done, and the loop sleeps until the next deadline.

mod acm_client_io;
mod acm_files;
mod acm_io;
mod acm_net_io;
mod acm_streams;
mod descriptors;
mod engine_io;
mod fabric_io;
mod fabric_worker;
mod hurry;
mod ls_io;
mod neigh_io;
mod opened;
mod operators;
mod port_io;
mod routes_io;
mod sa_io;
pub mod signals;
mod source_io;
pub mod timers;
pub mod token;

use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll};
use statemachine::{Engine, Input, Time};

use crate::config::{Config, ConfigError};
use crate::control::Control;
use crate::counters::DaemonCounters;
use crate::devices::Devices;
use crate::io::nldev::Nldev;
use crate::io::rtnl::Rtnl;
use crate::io::seqpacket::ListenError;
use crate::log_limit::{LogLimit, Nuisance};
use crate::logging::LogHandle;
use crate::notify::{State, notify};
use crate::observe::Observe;
use crate::sa::{Reports, SaClient};
use crate::server::Server;
use crate::source::{Sources, Ssa, Static};
use crate::{control, observe};
use acm_client_io::AcmLinks;
use fabric_worker::FabricWorker;
use hurry::Turn;
use signals::{Request, Signals};
use timers::{Clock, sleep};
use token::Token;

/// Packets or MADs taken from one caller or port before the others have their turn.
const TURN: usize = 64;
/// Pause before what failed for want of resources is tried again, and first pause of a new scan.
const RETRY: Duration = Duration::from_secs(1);
/// The longest pause between scans for devices that are missing.
const SCAN_MAX: Duration = Duration::from_secs(60);

/// Why the daemon does not start or does not go on.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
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
pub struct Daemon {
    poll: Poll,
    clock: Clock,
    config: Config,
    /// Where the configuration came from, as named on the command line.
    config_path: Option<PathBuf>,
    log: LogHandle,
    engine: Engine,
    devices: Devices,
    sources: Sources,
    sa: SaClient,
    fixed: Static,
    acm_client: AcmLinks,
    reports: Reports,
    ssa: Ssa,
    fabric_worker: Option<FabricWorker>,
    rtnl: Option<Rtnl>,
    nldev: Option<Nldev>,
    neigh: neigh_io::Neigh,
    control: Control,
    observe: Observe,
    acm: Option<acm_io::Acm>,
    acm_net: acm_net_io::AcmNet,
    signals: Signals,
    limit: LogLimit,
    counters: DaemonCounters,
    /// Who has more to read than one turn takes.
    unread: Vec<Token>,
    /// When a client of ACM got an answer last.
    answered_at: Time,
    /// When callers that could not be taken in are tried again.
    accept_at: Option<Time>,
    /// When missing devices are looked for again, and the pause after that.
    scan_at: Option<Time>,
    scan_pause: Duration,
    stopping: bool,
}

impl Daemon {
    /// Opens everything.
    ///
    /// # Errors
    /// Another daemon has the sockets, or the system says no. Missing devices are no error.
    pub fn start(
        config: Config,
        config_path: Option<PathBuf>,
        log: LogHandle,
    ) -> Result<Self, DaemonError> {
        descriptors::raise_limit();
        descriptors::warn_of_too_few(&config.acm);
        let poll = Poll::new().map_err(system("epoll"))?;
        let registry = poll.registry();
        let dir = &config.runtime_dir;
        std::fs::create_dir_all(dir).map_err(|error| DaemonError::RuntimeDir {
            path: dir.clone(),
            error,
        })?;
        let (listen, token) = (Token::Control, Token::Library);
        let path = dir.join(control::SOCKET);
        let control = Server::listen(&path, &config.control, registry, listen, token)?;
        let path = dir.join(observe::SOCKET);
        let (listen, token) = (Token::Observe, Token::Operator);
        let observe = Server::listen(&path, &config.control, registry, listen, token)?;
        let signals = Signals::listen(registry).map_err(system("signals"))?;
        let rtnl = Rtnl::open().and_then(|rtnl| {
            let fd = rtnl.as_raw_fd();
            registry.register(&mut SourceFd(&fd), Token::Rtnl.into(), Interest::READABLE)?;
            Ok(rtnl)
        });
        let rtnl = rtnl
            .inspect_err(|error| tracing::warn!(%error, "no rtnetlink"))
            .ok();
        let nldev = Nldev::open().inspect_err(|error| tracing::warn!(%error, "no rdma netlink"));
        let seed = random_seed().map_err(system("/dev/urandom"))?;
        let acm = acm_io::Acm::open(&config, registry, seed);
        let own_port = acm.as_ref().and_then(acm_io::Acm::tcp_port);
        Ok(Self {
            acm,
            acm_net: acm_net_io::AcmNet::new(seed.rotate_left(17)),
            engine: Engine::new(config.engine(), seed),
            sources: Sources::new(config.sources()),
            ssa: Ssa::new(config.ssa.clone()),
            fabric_worker: Some(fabric_io::start(registry).map_err(system("thread"))?),
            sa: SaClient::new(config.sa.limits(), (seed >> 32) as u32),
            acm_client: AcmLinks::new(&config.acm_client, own_port),
            fixed: Static::new(config.fixed.file.clone()),
            reports: Reports::default(),
            clock: Clock::start(),
            config_path,
            log,
            devices: Devices::default(),
            rtnl,
            nldev: nldev.ok(),
            neigh: neigh_io::Neigh::open(&config.neigh, registry),
            control: Control::new(control),
            observe: Observe::new(observe),
            signals,
            limit: LogLimit::default(),
            counters: DaemonCounters::default(),
            unread: Vec::new(),
            answered_at: Time(0),
            accept_at: None,
            scan_at: Some(Time(0)),
            scan_pause: RETRY,
            stopping: false,
            poll,
            config,
        })
    }

    /// Runs until a signal ends it. Connections stay armed, and their libraries wait for the next
    /// daemon: nobody's association is closed.
    ///
    /// # Errors
    /// The poll fails.
    pub fn run(mut self) -> Result<(), DaemonError> {
        let mut events = Events::with_capacity(256);
        self.read_path_file();
        self.configure_acm_net();
        self.work();
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            runtime_dir = %self.config.runtime_dir.display(),
            class = self.config.association.class,
            "ready"
        );
        notify(State::Ready);
        while !self.stopping {
            let timeout = self.timeout();
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(DaemonError::System {
                        what: "poll",
                        error,
                    });
                }
                Err(_) => continue,
                Ok(()) => {}
            }
            self.serve_events(&mut events).map_err(system("poll"))?;
            self.work();
        }
        notify(State::Stopping);
        self.end_neighbours();
        self.end_acm_net();
        tracing::info!("ended; connections stay as they are");
        Ok(())
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.unread.is_empty() {
            return Some(Duration::ZERO);
        }
        sleep(
            self.clock.now(),
            [
                self.engine.poll_timeout(),
                self.sources.poll_timeout(),
                self.acm_client.client.poll_timeout(),
                self.sa.poll_timeout(),
                self.reports.poll_timeout(),
                self.ssa.poll_timeout(),
                self.accept_at,
                self.scan_at,
                self.ports_timeout(),
                self.acm_timeout(),
                self.neigh.poll_timeout(),
                self.acm_net.net.poll_timeout(),
            ],
        )
    }

    fn dispatch(&mut self, now: Time, event: &Event) -> Turn {
        let turn = match Token::from_mio(event.token()) {
            Some(Token::AcmCaller(key)) => self.acm_caller(now, key, acm_streams::ended(event)),
            Some(token) => {
                self.serve(token);
                Turn::Other
            }
            None => Turn::Other,
        };
        if turn == Turn::Other {
            self.drain_engine();
        }
        turn
    }

    fn serve(&mut self, token: Token) {
        match token {
            Token::Signals => self.signalled(),
            Token::Control => self.accept_libraries(),
            Token::Observe => self.accept_operators(),
            Token::Rtnl => self.links_changed(),
            Token::Library(key) => self.library(key),
            Token::Operator(key) => self.operator(key),
            Token::Verbs(key) => self.device_events(key),
            Token::Umad(key) => self.receive_mads(key),
            Token::Neigh => self.neighbours_changed(),
            Token::AcmNet(key) => self.acm_net_receive(key),
            Token::AcmClient(number) => self.acm_ready(number),
            Token::Fabric => self.hear_of_fabric(),
            Token::AcmListener(place) => self.accept_acm(place),
            Token::AcmCaller(key) => self.acm_caller_again(key),
            Token::AcmRoutes => self.routes_changed(),
            Token::Ls => self.kernel_requests(),
        }
    }

    /// What is due, and what is left over from the last round.
    fn work(&mut self) {
        let now = self.clock.now();
        for token in std::mem::take(&mut self.unread) {
            self.serve(token);
        }
        if self.accept_at.is_some_and(|at| at <= now) {
            self.accept_at = None;
            self.accept_libraries();
            self.accept_operators();
            self.accept_acm_again();
        }
        if self.scan_at.is_some_and(|at| at <= now) {
            self.scan();
        }
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle(now, Input::Timeout);
        }
        self.sa.handle_time(now);
        self.reports.handle_time(now);
        self.acm_client.client.handle_time(now);
        self.work_on_fabric(now);
        self.sources.handle_time(now);
        self.check_ports(now);
        self.acm_time();
        self.acm_net_time(now);
        self.neighbours_time(now);
        self.drain_engine();
    }

    fn signalled(&mut self) {
        for request in self.signals.take() {
            match request {
                Request::Stop => self.stopping = true,
                Request::Reload => self.reload(),
            }
        }
    }

    /// Takes over the configuration file as it is now, or keeps the old if it is no good.
    fn reload(&mut self) {
        notify(State::Reloading);
        match Config::load(self.config_path.as_deref()) {
            Ok(config) => {
                self.counters.reloads += 1;
                self.engine.set_config(config.engine());
                self.sa.set_limits(config.sa.limits());
                self.ssa.set_config(self.clock.now(), config.ssa.clone());
                self.log.reload(&config.log);
                self.config = config.with_fixed_of(&self.config);
                self.reload_sources();
                self.reload_acm();
                self.reload_neighbours();
                self.look_at_all_ports();
                descriptors::warn_of_too_few(&self.config.acm);
                tracing::info!("configuration read again");
            }
            Err(error) => {
                self.counters.failed_reloads += 1;
                tracing::error!(%error, "configuration not taken, the old one stays");
            }
        }
        notify(State::Ready);
    }

    fn accept_libraries(&mut self) {
        loop {
            match self.control.accept(self.poll.registry()) {
                Ok(Some(_)) => self.counters.clients += 1,
                Ok(None) => return,
                Err(error) => return self.accept_later(&error),
            }
        }
    }

    fn accept_operators(&mut self) {
        loop {
            match self.observe.accept(self.poll.registry()) {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(error) => return self.accept_later(&error),
            }
        }
    }

    fn accept_later(&mut self, error: &io::Error) {
        let now = self.clock.now();
        self.accept_at = Some(now + RETRY);
        if let Some(more) = self.limit.allow(now, Nuisance::Client) {
            tracing::warn!(%error, more, "caller not taken in");
        }
    }
}

fn random_seed() -> io::Result<u64> {
    use std::io::Read;
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
