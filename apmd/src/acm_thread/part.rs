// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACM as the failover loop has it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, TrySendError};
use std::time::{Duration, Instant};

use acm::{Interface, LocalPort};
use cm_msgs::Gid;
use cm_msgs::sa::SaMad;
use mio::Waker;
use paths::sa::{Failure, Response};
use paths::source::{Answer, Question};
use statemachine::{PortId, Random, Time};

use super::channel::{FromThread, Host, Sender, Status, ToThread, channel};
use super::counters::Counters;
use super::thread;
use crate::clock::Clock;
use crate::config::Config;
use crate::counters::AcmCounters;
use crate::observe::filter::DestinationFilter;
use crate::parts::ports::PortNews;

/// Messages of the thread taken before others have their turn.
const TURN: usize = 64;
/// How soon news for which there was no room are told again.
const RETRY: Duration = Duration::from_millis(10);
/// Operators that are shown ACM at the same time.
const SHOWN_MAX: usize = 8;
/// How long the thread has to listen when the daemon starts, which waits for it: it reads files before.
const START: Duration = Duration::from_secs(5);
/// How long the thread has to leave its groups when the daemon ends.
const END: Duration = Duration::from_secs(1);

/// What operators are shown where ACM is not served: null.
const NOT_SERVED: &[u8] = b"null";

/// What concerns others.
#[derive(Debug)]
pub(crate) enum Note {
    Ask(Question),
    /// A request to the SA about a multicast group; the answer is for [`AcmPart::handle_joined`].
    Join {
        user: u32,
        port: PortId,
        mad: Box<SaMad>,
    },
    /// An operator's request is answered, in JSON.
    Shown(u32, Vec<u8>),
    /// The TCP port at which ACM is served now.
    TcpPort(Option<u16>),
}

/// ACM's thread, as the failover loop has it: news go in, and notes come out. What finds no room is
/// not waited for: news become one later "look at everything again", and an answer is lost, so that
/// the thread asks again or gives up by its own clock.
#[derive(Debug)]
pub(crate) struct AcmPart {
    to: Option<Sender<ToThread>>,
    from: Receiver<FromThread>,
    waker: Arc<Waker>,
    counters: Arc<Counters>,
    host: Host,
    /// News for which there was no room, and when they are told again.
    behind: Option<Time>,
    status: Status,
    showing: Vec<u32>,
    notes: VecDeque<Note>,
}

impl AcmPart {
    /// If ACM is to be served, starts the thread and waits until it listens, unless that takes too long.
    ///
    /// # Errors
    /// No resources. What cannot be listened on is a problem that is shown.
    pub(crate) fn new(
        config: &Config,
        clock: Clock,
        waker: Arc<Waker>,
        random: Random,
    ) -> io::Result<Self> {
        let (outbox, from) = channel(Arc::clone(&waker));
        let host = Host {
            config: config.acm.clone(),
            reloads: 0,
            ports: Default::default(),
            interfaces: Vec::new(),
        };
        let counters = Arc::default();
        let to = match config.acm.serve {
            true => {
                let (config, counters) = (host.config.clone(), Arc::clone(&counters));
                Some(thread::start(config, clock, random, counters, outbox)?)
            }
            false => {
                drop(outbox);
                None
            }
        };
        let mut part = Self {
            to,
            waker,
            counters,
            host,
            behind: None,
            status: Status::default(),
            showing: Vec::new(),
            notes: VecDeque::new(),
            from,
        };
        part.hear_first(START);
        Ok(part)
    }

    /// What it listens at: of a thread that is late it is heard in the loop.
    fn hear_first(&mut self, patience: Duration) {
        match self.from.recv_timeout(patience) {
            Ok(said) => self.hear(said),
            Err(RecvTimeoutError::Disconnected) => {}
            Err(RecvTimeoutError::Timeout) => {
                let problem = format!(
                    "acm is not served yet: its thread has not started within {} s; if this stays, see its \
                     files (apmd.toml, [acm]), and restart apmd",
                    patience.as_secs()
                );
                tracing::warn!("{problem}");
                // Until the thread says how it is.
                self.status.problems = vec![problem];
            }
        }
    }

    pub(crate) fn tcp_port(&self) -> Option<u16> {
        self.status.tcp_port
    }

    /// What an operator should look at, in words.
    pub(crate) fn problems(&self) -> &[String] {
        &self.status.problems
    }

    pub(crate) fn counters(&self) -> AcmCounters {
        self.counters.read()
    }

    pub(crate) fn configure(&mut self, now: Time, config: &Config) {
        self.host.config = config.acm.clone();
        self.host.reloads += 1;
        self.tell_host(now);
    }

    /// A port is (now) like this.
    pub(crate) fn handle_port(&mut self, now: Time, news: &PortNews) {
        let (id, status) = (news.id, news.status.clone());
        if !status.infiniband {
            return;
        }
        let port = LocalPort {
            device: news.device.clone(),
            status,
            rate: news.rate,
            subnet_timeout: news.subnet_timeout,
            pkeys: news.pkeys.clone(),
        };
        self.host.ports.insert(id, port);
        self.tell_host(now);
    }

    pub(crate) fn handle_port_gone(&mut self, now: Time, id: PortId) {
        self.host.ports.remove(&id);
        self.tell_host(now);
    }

    /// The addresses of this host's IPoIB interfaces.
    pub(crate) fn handle_interfaces(&mut self, now: Time, interfaces: Vec<Interface>) {
        if self.host.interfaces != interfaces {
            self.host.interfaces = interfaces;
            self.tell_host(now);
        }
    }

    /// A port has another subnet manager, or the same one anew.
    pub(crate) fn handle_sm_changed(&mut self, now: Time, id: PortId) {
        self.tell(now, ToThread::SmChanged(id));
    }

    /// Forwarding tables, switches or links are different.
    pub(crate) fn handle_fabric_changed(&mut self, now: Time) {
        self.tell(now, ToThread::FabricChanged);
    }

    /// The SA reports that a link of a switch has changed.
    pub(crate) fn handle_link_report(&mut self, now: Time) {
        self.tell(now, ToThread::LinkChanged);
    }

    /// The SA reports that a port has left the fabric.
    pub(crate) fn handle_gid_gone(&mut self, now: Time, gid: Gid) {
        self.tell(now, ToThread::GidGone(gid));
    }

    /// The path sources answered.
    pub(crate) fn handle_answer(&mut self, answer: Answer) {
        let _ = self.give(ToThread::Paths {
            number: answer.query,
            origin: answer.origin,
            result: answer.result,
        });
    }

    /// The SA answered a request about a multicast group.
    pub(crate) fn handle_joined(&mut self, user: u32, reply: Result<Response, Failure>) {
        let _ = self.give(ToThread::Joined(user, reply));
    }

    /// An operator wants to see ACM's state: [`Note::Shown`] comes later, unless it is refused.
    pub(crate) fn show(&mut self, operator: u32, wanted: DestinationFilter) -> Result<(), String> {
        if self.to.is_none() {
            self.notes
                .push_back(Note::Shown(operator, NOT_SERVED.into()));
            return Ok(());
        }
        if self.showing.len() >= SHOWN_MAX || !self.give(ToThread::Show(operator, wanted)) {
            return Err("acm is busy: ask again".to_owned());
        }
        self.showing.push(operator);
        Ok(())
    }

    fn tell_host(&mut self, now: Time) {
        let host = Box::new(self.host.clone());
        self.tell(now, ToThread::Host(host));
    }

    /// Tells news, or that everything is to be looked at again as soon as there is room.
    fn tell(&mut self, now: Time, news: ToThread) {
        if !self.give(news) && self.to.is_some() {
            self.behind = Some(now + RETRY);
        }
    }

    /// Whether it was given.
    fn give(&mut self, message: ToThread) -> bool {
        let given = self.to.as_ref().map(|to| to.try_send(message));
        if let Some(Err(TrySendError::Disconnected(_))) = given {
            self.ended();
        }
        matches!(given, Some(Ok(())))
    }

    fn ended(&mut self) {
        if self.to.take().is_some() {
            let problem = "acm is no longer served: its thread has ended";
            tracing::error!("{problem}");
            self.status.problems = vec![problem.to_owned()];
            self.behind = None;
            for operator in self.showing.drain(..) {
                self.notes
                    .push_back(Note::Shown(operator, NOT_SERVED.into()));
            }
        }
    }

    /// The thread has something to say.
    pub(crate) fn handle_ready(&mut self) {
        for _ in 0..TURN {
            match self.from.try_recv() {
                Ok(said) => self.hear(said),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => return self.ended(),
            }
        }
        // Others have their turn first.
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "poll not woken");
        }
    }

    fn hear(&mut self, said: FromThread) {
        let note = match said {
            FromThread::Ask(question) => Note::Ask(question),
            FromThread::Join { user, port, mad } => Note::Join { user, port, mad },
            FromThread::Shown(operator, json) => {
                self.showing.retain(|shown| *shown != operator);
                Note::Shown(operator, json)
            }
            FromThread::Status(status) => {
                let note = Note::TcpPort(status.tcp_port);
                self.status = status;
                note
            }
        };
        self.notes.push_back(note);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.behind
    }

    pub(crate) fn handle_time(&mut self, now: Time) {
        if self.behind.is_some_and(|at| at <= now) {
            self.behind = None;
            let host = Box::new(self.host.clone());
            self.tell(now, ToThread::Everything(host));
        }
    }

    pub(crate) fn poll_note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    /// Ends the thread, which leaves its groups: the last notes are of that. Nothing else is to be
    /// done any more, so that a moment may be waited.
    pub(crate) fn end(&mut self) {
        self.give(ToThread::Stop);
        let deadline = Instant::now() + END;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.from.recv_timeout(left) {
                Ok(said) => self.hear(said),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    return tracing::warn!("acm's thread has not ended in time");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mio::Poll;

    use super::*;

    const NOW: Time = Time(1_000_000);

    /// A part, and the ends of the channels that its thread would have.
    fn part() -> (AcmPart, Receiver<ToThread>, Sender<FromThread>) {
        let poll = Poll::new().expect("epoll");
        let waker = Waker::new(poll.registry(), mio::Token(0)).expect("eventfd");
        let waker = Arc::new(waker);
        let (to, inbox) = channel(Arc::clone(&waker));
        let (outbox, from) = channel(Arc::clone(&waker));
        let host = Host {
            config: Config::default().acm,
            reloads: 0,
            ports: Default::default(),
            interfaces: Vec::new(),
        };
        let part = AcmPart {
            to: Some(to),
            from,
            waker,
            counters: Arc::default(),
            host,
            behind: None,
            status: Status::default(),
            showing: Vec::new(),
            notes: VecDeque::new(),
        };
        (part, inbox, outbox)
    }

    #[test]
    fn news_without_room_become_one_look_at_everything_and_nobody_waits() {
        let (mut part, inbox, _outbox) = part();
        for _ in 0..10_000 {
            part.handle_fabric_changed(NOW);
        }
        let again = part.poll_timeout().expect("some found no room");
        let refused = part.show(1, DestinationFilter::default());
        assert!(refused.is_err_and(|why| why.contains("busy")));
        // Still none: it is tried once more, later.
        part.handle_time(again);
        let again = part.poll_timeout().expect("still no room");
        assert!(inbox.try_iter().count() < 10_000);
        part.handle_time(again);
        let told: Vec<_> = inbox.try_iter().collect();
        assert!(matches!(told[..], [ToThread::Everything(_)]), "{told:?}");
        assert_eq!(part.poll_timeout(), None);
    }

    #[test]
    fn a_thread_that_is_late_is_heard_later() {
        let (mut part, _inbox, outbox) = part();
        part.hear_first(Duration::ZERO);
        assert!(part.poll_note().is_none());
        assert!(part.problems()[0].contains("not served yet"));
        let tcp_port = Some(6125);
        let status = Status {
            tcp_port,
            problems: Vec::new(),
        };
        let sent = outbox.try_send(FromThread::Status(status));
        sent.expect("room");
        part.handle_ready();
        assert!(matches!(part.poll_note(), Some(Note::TcpPort(port)) if port == tcp_port));
        assert_eq!(part.tcp_port(), tcp_port);
        assert!(part.problems().is_empty());
    }

    #[test]
    fn a_thread_that_has_ended_is_a_problem_and_keeps_no_operator_waiting() {
        let (mut part, inbox, outbox) = part();
        part.show(1, DestinationFilter::default()).expect("room");
        drop((inbox, outbox));
        part.handle_ready();
        assert!(part.problems()[0].contains("no longer served"));
        assert!(matches!(part.poll_note(), Some(Note::Shown(1, _))));
        part.handle_fabric_changed(NOW);
        assert_eq!(part.poll_timeout(), None, "nobody is there to be told");
    }
}
