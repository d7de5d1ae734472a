// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operators' socket: one packet asks, packets of JSON answer, and the socket is closed.

use std::collections::VecDeque;
use std::time::Duration;

use statemachine::Time;

use crate::io::seqpacket::{Peer, Receive};
use crate::observe::CHUNK;
use crate::observe::request::{Refused, Request};
use crate::server::{Alive, Server};

/// A request is no longer than this.
const REQUEST_MAX: usize = 1024;

/// From one answer to the next: writing one takes up to a millisecond, in which no port's loss is
/// heard of, and a user may have dozens of requests waiting.
const PACE: Duration = Duration::from_millis(5);

/// An operator's request: answer it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Note {
    /// Whom to answer.
    pub(crate) key: u32,
    /// Who asks.
    pub(crate) peer: Peer,
    /// What is asked.
    pub(crate) request: Request,
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
}

impl Operators {
    /// Serves whom `server` lets in.
    pub(crate) fn new(server: Server) -> Self {
        Self {
            server,
            notes: VecDeque::new(),
            next_at: Time(0),
            malformed: 0,
        }
    }

    /// Packets that were no request.
    pub(crate) fn malformed(&self) -> u64 {
        self.malformed
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
        if alive == Alive::No {
            self.close(key);
        }
    }

    /// Nothing is written for who has gone.
    fn close(&mut self, key: u32) {
        self.notes.retain(|note| note.key != key);
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
        if self.notes.iter().any(|note| note.key == key) {
            return Alive::No;
        }
        let request = buffer
            .get(..len)
            .ok_or_else(|| "request is too long".to_owned());
        let request = request
            .and_then(|bytes| serde_json::from_slice(bytes).map_err(|error| error.to_string()));
        match request {
            Ok(request) => {
                self.notes.push_back(Note { key, peer, request });
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
        self.server.poll_timeout().into_iter().chain(answer).min()
    }

    /// The next request, if it is time for it.
    pub(crate) fn poll_note(&mut self, now: Time) -> Option<Note> {
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
    use crate::token::Token;

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

        fn ask(&self, request: &[u8]) -> Packets {
            let path = self.directory.join(SOCKET);
            let packets = Packets::connect(&path, Duration::from_secs(10)).expect("it listens");
            packets.send(request).expect("room");
            packets
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
        let (first, second, third) = (bench.ask(request), bench.ask(request), bench.ask(request));
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
        let caller = bench.ask(br#"{"show":"conn"}"#);
        let now = Time(1_000_000);
        bench.work(now);
        caller.send(br#"{"show":"conn"}"#).expect("room");
        bench.work(now);
        assert!(bench.operators.poll_note(now).is_none());
        let mut buffer = [0; 64];
        assert!(matches!(caller.receive(&mut buffer), Ok(Receive::End)));
    }
}
