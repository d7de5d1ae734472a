// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commit thread: registers connections with the daemon, carries out its orders, and watches
//! the QPs.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cm_msgs::PKey;
use cm_msgs::control::{Cause, Ending, FromLibrary, Report};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;

use crate::arrivals::Arrivals;
use crate::async_events::AsyncEvents;
use crate::commit::{Command, Commit, Deliver, Descriptor, Work};
use crate::connection::Connection;
use crate::link::Link;
use crate::peers::FarPort;
use crate::tracked::Tracked;

const FIRST_RETRY: Duration = Duration::from_millis(100);
const SLOWEST_RETRY: Duration = Duration::from_secs(5);

/// Messages to the daemon that are sent together at most.
const BATCH: usize = 32;

/// What epoll says: a small number, or a verbs context's address.
const WAKE: u64 = 0;
const SOCKET: u64 = 1;

pub(crate) struct Worker {
    commit: &'static Commit,
    deliver: Deliver,
    epoll: Epoll,
    wake: Arc<EventFd>,
    uplink: Uplink,
    /// The pause after the next failure to reach the daemon.
    wait: Duration,
    /// Questions about peers, until it is known whether the daemon takes them.
    asks: Asks,
    /// The daemon counts connections for which its answer came too late.
    counts_late: bool,
    contexts: AsyncEvents,
    arrivals: Arrivals,
    connections: HashMap<u64, Tracked>,
}

enum Uplink {
    Up(Link),
    Down { retry: Instant },
}

/// Whether the daemon can be asked for peers: one of an earlier release takes such a question for a
/// violation of the protocol.
enum Asks {
    /// It has not said yet; what waits to be asked.
    Unknown(Vec<(u64, FarPort)>),
    /// It can, and in which partition if `partitions`.
    Yes {
        partitions: bool,
    },
    No,
}

impl Default for Asks {
    fn default() -> Self {
        Self::Unknown(Vec::new())
    }
}

impl Worker {
    /// As [`Prepare`](crate::commit::Prepare) wants it.
    pub(crate) fn prepare(
        commit: &'static Commit,
        wake: Arc<EventFd>,
        deliver: Deliver,
    ) -> io::Result<Work> {
        let worker = Self::new(commit, wake, deliver)?;
        Ok(Box::new(move || worker.run()))
    }

    fn new(commit: &'static Commit, wake: Arc<EventFd>, deliver: Deliver) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        commit.note(Descriptor::Epoll, epoll.0.as_raw_fd());
        epoll.add(&*wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        Ok(Self {
            commit,
            deliver,
            epoll,
            wake,
            uplink: Uplink::Down {
                retry: Instant::now(),
            },
            wait: FIRST_RETRY,
            asks: Asks::default(),
            counts_late: false,
            contexts: AsyncEvents::default(),
            arrivals: Arrivals::default(),
            connections: HashMap::new(),
        })
    }

    /// Runs as long as the process.
    fn run(mut self) {
        let mut events = [EpollEvent::empty(); 32];
        loop {
            let ready = match self.epoll.wait(&mut events, self.timeout()) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(errno) => {
                    // Somebody closed our descriptor (daemons-to-be do that): nothing is lost but
                    // our help.
                    crate::log::warn(&format_args!("commit thread ends: {errno}"));
                    self.commit.give_up();
                    // Closing them now could close the application's.
                    std::mem::forget(self);
                    return;
                }
            };
            // The counter first: what is queued after this wakes us again.
            let _ = self.wake.read();
            // Those that come meanwhile have the next turn.
            for _ in 0..self.commit.waiting() {
                if let Some(command) = self.commit.next() {
                    self.command(command);
                }
            }
            self.serve(&events[..ready]);
            self.timers(Instant::now());
            self.send_queued();
        }
    }

    /// Ports that fail go before what the daemon has to say: every moment counts there.
    fn serve(&mut self, ready: &[EpollEvent]) {
        let mut heard = false;
        for event in ready {
            match event.data() {
                WAKE => {}
                SOCKET => heard = true,
                context => self.context_ready(context as usize),
            }
        }
        if heard {
            self.socket_ready();
        }
    }

    /// Until the next thing to do by the clock.
    fn timeout(&self) -> EpollTimeout {
        let retry = match self.uplink {
            Uplink::Down { retry } if !self.connections.is_empty() => Some(retry),
            _ => None,
        };
        let next = self
            .connections
            .values()
            .filter_map(Tracked::due)
            .chain(retry)
            .chain(self.arrivals.due())
            .min();
        next.map_or(EpollTimeout::NONE, |at| {
            // Rounded up: waking a little early would spin.
            let millis = at
                .saturating_duration_since(Instant::now())
                .as_micros()
                .div_ceil(1000);
            EpollTimeout::try_from(millis as i32).unwrap_or(EpollTimeout::MAX)
        })
    }

    fn timers(&mut self, now: Instant) {
        if let Uplink::Down { retry } = self.uplink
            && retry <= now
            && !self.connections.is_empty()
        {
            self.connect(now);
        }
        for connection in self.arrivals.take(now) {
            self.take_up(connection);
        }
        self.look_at(|tracked| tracked.due().is_some_and(|at| at <= now));
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Register(connection) => self.register(connection),
            Command::Receives(connection) => {
                self.arrivals.add_receiver(connection, Instant::now());
            }
            Command::Policy(number) => self.say_policy(number),
            Command::Close(number) => self.close(number, Ending::Gone),
            Command::Disconnect(number) => self.close(number, Ending::Disconnected),
            Command::Seen(number, cause) => self.look(number, Some(cause)),
            Command::PortFailed(context) => self.carry_out_standing_orders(context),
            Command::Linked(socket) => {
                if let Uplink::Down { .. } = self.uplink {
                    self.up(socket);
                }
            }
            Command::AskPeer(question, peer) => self.ask_peer(question, peer),
        }
    }

    fn ask_peer(&mut self, question: u64, peer: FarPort) {
        match (&self.uplink, &mut self.asks) {
            (Uplink::Up(_), Asks::Yes { partitions }) => {
                let FarPort { port: peer, pkey } = peer;
                if pkey.partition() == PKey::DEFAULT_FULL.partition() {
                    self.say(FromLibrary::AskPeer { question, peer });
                } else if *partitions {
                    self.say(FromLibrary::AskPeerIn {
                        question,
                        peer,
                        pkey,
                    });
                } else {
                    self.commit.peers.unasked(question);
                }
            }
            (Uplink::Up(_), Asks::Unknown(waiting)) => waiting.push((question, peer)),
            (Uplink::Up(_), Asks::No) | (Uplink::Down { .. }, _) => {
                self.commit.peers.unasked(question);
            }
        }
    }

    /// The daemon can be asked for peers, or cannot; what has waited for that is asked.
    fn asks(&mut self, asks: Asks) {
        if let Asks::Unknown(waiting) = std::mem::replace(&mut self.asks, asks) {
            for (question, peer) in waiting {
                self.ask_peer(question, peer);
            }
        }
    }

    fn register(&mut self, connection: Arc<Connection>) {
        let number = connection.number;
        if self.connections.contains_key(&number) {
            self.say_register(number);
        } else if !self.arrivals.contains(number) {
            self.arrivals.add(connection, Instant::now());
        }
    }

    fn take_up(&mut self, connection: Arc<Connection>) {
        let number = connection.number;
        if !self.track(connection) {
            return;
        }
        match self.uplink {
            Uplink::Up(_) => self.say_register(number),
            // A new connection is a reason to look for the daemon at once.
            Uplink::Down { .. } => self.connect(Instant::now()),
        }
    }

    fn track(&mut self, connection: Arc<Connection>) -> bool {
        // The context stays open while the QP is held.
        let watched = connection.with_qp(|_| {
            // SAFETY: a QP's context is open.
            unsafe { self.contexts.add(&self.epoll, connection.context) }
        });
        let Some(watched) = watched else {
            return false;
        };
        if let Err(errno) = watched {
            crate::log::debug(&format_args!(
                "async events of a device are not watched: {errno}"
            ));
        }
        let context = connection.context;
        let Some(tracked) = Tracked::new(connection, Instant::now()) else {
            self.contexts.remove(&self.epoll, context);
            return false;
        };
        self.connections.insert(tracked.connection.number, tracked);
        true
    }

    fn close(&mut self, number: u64, ending: Ending) {
        if self.arrivals.remove(number) {
            return;
        }
        self.judge(number);
        if let Some(tracked) = self.connections.remove(&number) {
            self.contexts
                .remove(&self.epoll, tracked.connection.context);
            crate::log::debug(&format_args!("connection {number}: {ending}"));
            self.say(FromLibrary::Close {
                conn: number,
                ending,
            });
        }
    }

    /// Looks at a QP and reports what is new.
    fn look(&mut self, number: u64, seen: Option<Cause>) {
        let Some(tracked) = self.connections.get_mut(&number) else {
            return;
        };
        let report = tracked.look(Instant::now(), seen);
        self.judge(number);
        if let Some(report) = report {
            self.report(number, report);
        }
    }

    /// What a connection tells of those to come: where the peer's program does not take part, a shorter
    /// ACK timeout would only end them sooner. Without a daemon none is protected, which tells nothing.
    fn judge(&mut self, number: u64) {
        if let Uplink::Up(_) = self.uplink
            && let Some(tracked) = self.connections.get_mut(&number)
            && let Some(protected) = tracked.verdict(Instant::now())
        {
            self.commit.peers.protects(tracked.far(), protected);
        }
    }

    /// Looks at those that are meant.
    fn look_at(&mut self, meant: impl Fn(&Tracked) -> bool) {
        let all = self.connections.iter();
        let meant = all.filter(|(_, tracked)| meant(tracked));
        for number in meant.map(|(&number, _)| number).collect::<Vec<_>>() {
            self.look(number, None);
        }
    }

    fn context_ready(&mut self, address: usize) {
        self.carry_out_standing_orders(address);
        self.look_at(|tracked| tracked.connection.context.address == address);
    }

    fn connect(&mut self, now: Instant) {
        match self.commit.open() {
            Ok(socket) => self.up(socket),
            Err(_) => self.retry_later(now),
        }
    }

    fn retry_later(&mut self, now: Instant) {
        self.uplink = Uplink::Down {
            retry: now + self.wait,
        };
        self.wait = (self.wait * 2).min(SLOWEST_RETRY);
    }

    fn up(&mut self, socket: OwnedFd) {
        let fd = socket.as_raw_fd();
        if let Err(errno) = self
            .epoll
            .add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, SOCKET))
        {
            crate::log::debug(&format_args!("socket is not watched: {errno}"));
            return self.retry_later(Instant::now());
        }
        self.commit.note(Descriptor::Socket, fd);
        self.commit.set_linked(true);
        self.uplink = Uplink::Up(Link::new(socket));
        crate::log::debug(&"daemon found");
        self.say(FromLibrary::Hello {
            command: command_name(),
        });
        let numbers: Vec<u64> = self.connections.keys().copied().collect();
        for number in numbers {
            if let Some(tracked) = self.connections.get_mut(&number) {
                // A new daemon may think otherwise; and it gets the QP as it is now.
                tracked.refused = false;
                tracked.look(Instant::now(), None);
            }
            self.say_register(number);
        }
    }

    fn down(&mut self) {
        self.commit.note(Descriptor::Socket, -1);
        self.commit.set_linked(false);
        self.retry_later(Instant::now());
        self.asks = Asks::default();
        self.counts_late = false;
        self.commit.peers.daemon_lost();
        crate::log::debug(&"daemon lost");
    }

    fn say_register(&mut self, number: u64) {
        if let Some(tracked) = self.connections.get(&number) {
            let register = tracked.registration();
            self.say(FromLibrary::Register {
                conn: number,
                register,
            });
            self.say_late(number);
        }
    }

    /// One that was made before the daemon's answer about its peer came is a loss that somebody should know of.
    fn say_late(&mut self, number: u64) {
        let tracked = self.connections.get(&number);
        if self.counts_late && tracked.is_some_and(|tracked| tracked.connection.answer_came_late) {
            self.say(FromLibrary::AnswerCameLate { conn: number });
        }
    }

    /// One that is not registered yet will be with what the application says by then.
    fn say_policy(&mut self, number: u64) {
        if let Some(tracked) = self.connections.get(&number) {
            let policy = tracked.connection.policy();
            let conn = number;
            self.say(FromLibrary::Policy { conn, policy });
        }
    }

    fn report(&mut self, number: u64, report: Report) {
        let refused = self
            .connections
            .get(&number)
            .is_none_or(|tracked| tracked.refused);
        crate::log::debug(&format_args!(
            "connection {number}: {:?}, {}, port {} -> LID {}",
            report.cause,
            report.snapshot.migration,
            report.snapshot.primary.port,
            report.snapshot.primary.dlid,
        ));
        if !refused {
            self.say(FromLibrary::Report {
                conn: number,
                report,
            });
        }
    }

    /// To be sent, if there is a daemon. Where the application's threads keep all CPUs busy, this one may
    /// lose its own with every message that wakes the daemon: so they go some at a time.
    fn say(&mut self, message: FromLibrary) {
        let Uplink::Up(link) = &mut self.uplink else {
            return;
        };
        match link.queue(message) {
            Err(_) => self.down(),
            Ok(queued) if queued % BATCH == 0 => self.send_queued(),
            Ok(_) => {}
        }
    }

    fn send_queued(&mut self) {
        let Uplink::Up(link) = &mut self.uplink else {
            return;
        };
        let watched = link.wants_write();
        let sent = link.flush();
        let wants_write = link.wants_write();
        let sent = sent.and_then(|()| {
            if watched == wants_write {
                return Ok(());
            }
            let mut interest = EpollFlags::EPOLLIN;
            interest.set(EpollFlags::EPOLLOUT, wants_write);
            let mut event = EpollEvent::new(interest, SOCKET);
            self.epoll.modify(link.as_fd(), &mut event)
        });
        if sent.is_err() {
            self.down();
        }
    }
}

/// The process's name as the kernel has it, NUL-padded.
fn command_name() -> [u8; 16] {
    let mut command = [0; 16];
    let name = std::fs::read("/proc/self/comm").unwrap_or_default();
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    let len = name.len().min(command.len() - 1);
    command[..len].copy_from_slice(&name[..len]);
    command
}

mod orders;
mod standing;

#[cfg(test)]
mod tests;
