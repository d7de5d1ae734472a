// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operators' socket: one packet asks, packets of JSON answer, and the socket is closed; or it
//! stays, for who watches connections.

pub(crate) mod watchers;

use std::collections::VecDeque;
use std::time::Duration;

use statemachine::Time;

use crate::io::seqpacket::{NotGiven, Peer, Receive};
use crate::observe::CHUNK;
use crate::observe::filter::ConnectionFilter;
use crate::observe::request::{Asked, Refused};
use crate::observe::transition::Told;
use crate::server::{Alive, Offered, Server};
use watchers::Watchers;

/// A request is no longer than this.
const REQUEST_MAX: usize = 1024;

/// From one answer to the next: writing one takes up to a millisecond, in which no port's loss is
/// heard of, and a user may have dozens of requests waiting.
const PACE: Duration = Duration::from_millis(5);

/// An operator's request: answer it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Note {
    pub(crate) caller: Caller,
    /// What is asked.
    pub(crate) asked: Asked,
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    /// Whom to answer.
    pub(crate) key: u32,
    pub(crate) peer: Peer,
    /// It may have things done.
    pub(crate) may_change: bool,
}

/// The operators' socket.
#[derive(Debug)]
pub(crate) struct Operators {
    server: Server,
    /// Not answered yet; of each caller one at most.
    notes: VecDeque<Note>,
    /// When the next may be answered.
    next_at: Time,
    malformed: u64,
    watchers: Watchers,
}

impl Operators {
    /// Serves whom `server` lets in.
    pub(crate) fn new(server: Server) -> Self {
        Self {
            server,
            notes: VecDeque::new(),
            next_at: Time(0),
            malformed: 0,
            watchers: Watchers::default(),
        }
    }

    /// Who is told of transitions.
    pub(crate) fn watchers(&mut self) -> &mut Watchers {
        &mut self.watchers
    }

    /// From now on the operator is told of these connections' transitions.
    pub(crate) fn watch(&mut self, now: Time, key: u32, filter: ConnectionFilter) {
        let first = watchers::packet(&Told::Watching { watching: true });
        match self.server.send(now, key, &first) {
            Alive::Yes => self.watchers.add(key, filter),
            Alive::No => self.close(key),
        }
    }

    /// Packets that were no request.
    pub(crate) fn malformed(&self) -> u64 {
        self.malformed
    }

    /// The group that was to be let in, and is not.
    pub(crate) fn not_given(&self) -> Option<&NotGiven> {
        self.server.not_given()
    }

    /// The listener is ready.
    pub(crate) fn handle_callers(&mut self, now: Time) {
        self.server.accept(now);
    }

    /// An operator's socket is ready.
    pub(crate) fn handle_ready(&mut self, now: Time, key: u32) {
        let alive = match self.server.flush(now, key) {
            Alive::Yes => self.read(now, key),
            Alive::No => Alive::No,
        };
        let alive = match self.watchers.handle_room(key, &mut self.server) {
            Offered::Gone => Alive::No,
            Offered::Taken | Offered::Full => alive,
        };
        if alive == Alive::No {
            self.close(key);
        }
    }

    /// Nothing is written for who has gone.
    fn close(&mut self, key: u32) {
        self.notes.retain(|note| note.caller.key != key);
        self.watchers.remove(key);
        self.server.close(key);
    }

    fn read(&mut self, now: Time, key: u32) -> Alive {
        let mut buffer = [0; REQUEST_MAX];
        let len = match self.server.receive(key, &mut buffer) {
            Receive::Packet(len) => len,
            Receive::Nothing => return Alive::Yes,
            Receive::End => return Alive::No,
        };
        let Some(peer) = self.server.peer(key) else {
            return Alive::No;
        };
        self.server.greeted(key);
        if self.watchers.has(key) || self.notes.iter().any(|note| note.caller.key == key) {
            return Alive::No;
        }
        let request = buffer
            .get(..len)
            .ok_or_else(|| "request is too long".to_owned());
        let asked =
            request.and_then(|bytes| Asked::parse(bytes).map_err(|error| error.to_string()));
        match asked {
            Ok(asked) => {
                let may_change = self.server.may_change(key);
                let caller = Caller {
                    key,
                    peer,
                    may_change,
                };
                self.notes.push_back(Note { caller, asked });
                Alive::Yes
            }
            Err(error) => {
                self.malformed += 1;
                tracing::warn!(uid = peer.uid, error, "request not understood");
                let refused = serde_json::to_vec(&Refused { error });
                self.send(now, key, &refused.unwrap_or_default())
            }
        }
    }

    /// Answers and is done with the operator.
    pub(crate) fn answer(&mut self, now: Time, key: u32, json: &[u8]) {
        if self.send(now, key, json) == Alive::No {
            self.close(key);
        }
    }

    fn send(&mut self, now: Time, key: u32, json: &[u8]) -> Alive {
        for piece in json.chunks(CHUNK) {
            if self.server.send(now, key, piece) == Alive::No {
                return Alive::No;
            }
        }
        self.server.finish(now, key)
    }

    /// What is due.
    pub(crate) fn handle_time(&mut self, now: Time) {
        if self.server.accept_is_due(now) {
            self.handle_callers(now);
        }
        while let Some(key) = self.server.expired(now) {
            self.close(key);
        }
    }

    /// When to call [`Self::handle_time`].
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let answer = (!self.notes.is_empty()).then_some(self.next_at);
        let times = [
            self.server.poll_timeout(),
            self.watchers.poll_timeout(),
            answer,
        ];
        times.into_iter().flatten().min()
    }

    /// The next request, if it is time for it; and who watches is told what is due.
    pub(crate) fn poll_note(&mut self, now: Time) -> Option<Note> {
        for gone in self.watchers.handle_time(now, &mut self.server) {
            self.close(gone);
        }
        if now < self.next_at {
            return None;
        }
        let note = self.notes.pop_front()?;
        self.next_at = now + PACE;
        Some(note)
    }
}

#[cfg(test)]
mod tests {
    use mio::{Events, Poll};

    use super::*;
    use crate::config;
    use crate::descriptors::OPERATORS;
    use crate::io::seqpacket::Packets;
    use crate::observe::SOCKET;
    use crate::observe::transition::{Subject, Transition};
    use crate::token::Token;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Operators' sockets in a directory of their own, and a poll for them.
    struct Bench {
        poll: Poll,
        operators: Operators,
        directory: std::path::PathBuf,
    }

    impl Bench {
        fn new(name: &str) -> Self {
            let directory = format!("apmd-operators-{}-{name}", std::process::id());
            let directory = std::env::temp_dir().join(directory);
            std::fs::create_dir(&directory).expect("a new directory");
            let poll = Poll::new().expect("a poll");
            let (config, registry) = (config::Control::default(), poll.registry());
            let path = directory.join(SOCKET);
            let (listening, token) = (Token::Observe, Token::Operator);
            let server = Server::listen(&path, &config, OPERATORS, registry, listening, token);
            Self {
                operators: Operators::new(server.expect("a new socket")),
                poll,
                directory,
            }
        }

        fn ask(&self, request: &[u8], patience: Duration) -> Packets {
            let path = self.directory.join(SOCKET);
            let packets = Packets::connect(&path, patience).expect("it listens");
            packets.send(request).expect("room");
            packets
        }

        /// One who watches, from `now` on; asks one after the other, at the pace of answers.
        fn watch(&mut self, now: Time, filter: ConnectionFilter) -> Packets {
            let patience = Duration::from_millis(1);
            let caller = self.ask(br#"{"show":"transitions"}"#, patience);
            self.work(now);
            let note = self.operators.poll_note(now).expect("it has asked");
            self.operators.watch(now, note.caller.key, filter);
            caller
        }

        /// Takes in whatever has come.
        fn work(&mut self, now: Time) {
            let mut events = Events::with_capacity(64);
            loop {
                let none = Some(Duration::ZERO);
                self.poll.poll(&mut events, none).expect("it polls");
                if events.is_empty() {
                    return;
                }
                for event in &events {
                    match Token::from_mio(event.token()) {
                        Some(Token::Observe) => self.operators.handle_callers(now),
                        Some(Token::Operator(key)) => self.operators.handle_ready(now, key),
                        token => panic!("{token:?} is nobody's"),
                    }
                }
            }
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }

    #[test]
    fn answers_are_paced_and_none_is_for_who_has_gone() {
        let mut bench = Bench::new("paced");
        let request = br#"{"show":"conn"}"#;
        let [first, second, third] = [(); 3].map(|()| bench.ask(request, PATIENCE));
        let now = Time(1_000_000);
        bench.work(now);
        assert!(bench.operators.poll_note(now).is_some());
        assert!(
            bench.operators.poll_note(now).is_none(),
            "the loop has other work"
        );
        let next = now + PACE;
        assert_eq!(bench.operators.poll_timeout(), Some(next));
        drop(second);
        bench.work(now);
        assert!(bench.operators.poll_note(next).is_some(), "the third's");
        assert!(bench.operators.poll_note(next + PACE).is_none());
        drop((first, third));
    }

    #[test]
    fn who_asks_twice_before_the_answer_is_closed() {
        let mut bench = Bench::new("twice");
        let caller = bench.ask(br#"{"show":"conn"}"#, PATIENCE);
        let now = Time(1_000_000);
        bench.work(now);
        caller.send(br#"{"show":"conn"}"#).expect("room");
        bench.work(now);
        assert!(bench.operators.poll_note(now).is_none());
        let mut buffer = [0; 64];
        assert!(matches!(caller.receive(&mut buffer), Ok(Receive::End)));
    }

    fn transition(number: u32) -> Transition {
        Transition {
            time: 0.0,
            subject: Subject {
                id: format!("1.{number}"),
                pid: (number % 2).cast_signed(),
                ..Subject::default()
            },
            event: "protection".to_owned(),
            from: None,
            to: None,
            reason: None,
            cause: None,
            stall_ms: None,
            protection: String::new(),
            grade: None,
            text: "connection armed".to_owned(),
        }
    }

    /// Everything that waits for a caller.
    fn read(caller: &Packets) -> Vec<Told> {
        let mut buffer = [0; 2048];
        let mut all = Vec::new();
        while let Ok(Receive::Packet(len)) = caller.receive(&mut buffer) {
            all.push(serde_json::from_slice(&buffer[..len]).expect("told"));
        }
        all
    }

    #[test]
    fn a_slow_reader_is_told_how_much_it_missed_and_a_fast_one_misses_nothing() {
        const SUM: u32 = 4_000;
        let mut bench = Bench::new("slow");
        let mut now = Time(1_000_000);
        let slow = bench.watch(now, ConnectionFilter::default());
        now = now + PACE;
        let odd = ConnectionFilter {
            pid: Some(1),
            ..ConnectionFilter::default()
        };
        let fast = bench.watch(now, odd);
        for number in 0..SUM {
            bench.operators.watchers().tell(transition(number));
        }
        let (mut slowly, mut fastly) = (Vec::new(), Vec::new());
        while let Some(next) = bench.operators.watchers().poll_timeout() {
            now = now.max(next);
            assert!(bench.operators.poll_note(now).is_none());
            fastly.extend(read(&fast));
        }
        let want: Vec<_> = (1..SUM).step_by(2).map(transition).collect();
        let first = Told::Watching { watching: true };
        let told = want.into_iter().map(|is| Told::Transition(is.into()));
        assert_eq!(fastly, [first].into_iter().chain(told).collect::<Vec<_>>());

        slowly.extend(read(&slow));
        bench.work(now);
        slowly.extend(read(&slow));
        let Some(Told::LeftOut { left_out }) = slowly.pop() else {
            panic!("not told of what it missed: {:?}", slowly.last());
        };
        let told = slowly.len() as u64 - 1;
        assert!(told > 10 && left_out > 10, "{told} and {left_out}");
        assert_eq!(told + left_out, u64::from(SUM));
        bench.operators.watchers().tell(transition(SUM));
        assert!(bench.operators.poll_note(now + PACE).is_none());
        assert_eq!(read(&slow), [Told::Transition(transition(SUM).into())]);
    }

    #[test]
    fn bursts_beyond_the_queue_are_left_out_and_who_has_gone_is_told_nothing() {
        let mut bench = Bench::new("burst");
        let mut now = Time(1_000_000);
        let caller = bench.watch(now, ConnectionFilter::default());
        for number in 0..10_000 {
            bench.operators.watchers().tell(transition(number));
        }
        let mut told = Vec::new();
        while let Some(next) = bench.operators.watchers().poll_timeout() {
            now = now.max(next);
            assert!(bench.operators.poll_note(now).is_none());
            told.extend(read(&caller));
        }
        let sum: u64 = told
            .iter()
            .map(|told| match told {
                Told::Transition(_) => 1,
                Told::LeftOut { left_out } => *left_out,
                Told::Watching { .. } => 0,
            })
            .sum();
        assert_eq!(sum, 10_000);
        drop(caller);
        bench.operators.watchers().tell(transition(1));
        assert!(bench.operators.poll_note(now + PACE).is_none());
        assert!(bench.operators.watchers().is_empty());
    }
}
