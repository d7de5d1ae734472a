// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client that was served last, which mostly asks next.
//!
//! It is waited for beside the poll, by poll(2): a socket that wakes a sleeper of poll(2) tells the
//! scheduler that its writer is about to sleep itself, so that the sleeper need not be moved to
//! another processor; epoll does not pass that on. While nobody else asks, the poll no longer looks
//! for its requests at all, so that nothing has to be fetched from there for each of them.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use acm::{Buffers, Clients, Ended};
use mio::unix::SourceFd;
use mio::{Interest, Registry};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::looks::Looks;
use super::token::Token;
use crate::io::stream::Stream;

/// Turns without another client's, after which the poll no longer looks for a client's requests. To
/// look for them again costs two system calls, and each turn without them saves one.
const ALONE: u8 = 8;

/// What there is to do after a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Woken {
    /// The poll may have something to say.
    pub(super) poll: bool,
    /// The client that has, of which the poll says nothing, and how much of its stream has ended.
    pub(super) client: Option<(u32, Ended)>,
}

#[derive(Debug, Default)]
pub(super) struct Latest {
    /// It may have gone.
    key: u32,
    /// Its turns since another client's.
    turns: u8,
    /// The poll does not look for its requests.
    beside: bool,
    looks: Looks,
}

/// What the poll looks for at a client: room is asked for only where it is missing.
pub(super) fn interest(buffers: &Buffers) -> Interest {
    match buffers.unsent().is_empty() {
        true => Interest::READABLE,
        false => Interest::READABLE | Interest::WRITABLE,
    }
}

impl Latest {
    /// A client has its turn.
    pub(super) fn served(&mut self, key: u32, clients: &mut Clients<Stream>, registry: &Registry) {
        self.looks.served();
        if key == self.key {
            self.turns = self.turns.saturating_add(1);
            return;
        }
        self.back(clients, registry);
        self.key = key;
    }

    /// Waits for the poll, and for this client where it may ask at any time.
    ///
    /// # Errors
    /// As poll(2); a signal is none.
    pub(super) fn sleep(
        &mut self,
        clients: &mut Clients<Stream>,
        registry: &Registry,
        timeout: PollTimeout,
    ) -> io::Result<Woken> {
        // What is readable of a client that is owed something stays so for long: to wait for it
        // would be to spin. The poll tells of changes only.
        if !clients
            .get(self.key)
            .is_some_and(|it| it.buffers.is_quiet())
        {
            self.back(clients, registry);
            return self.wait(registry, timeout);
        }
        let Some(served) = clients.get(self.key) else {
            return self.wait(registry, timeout);
        };
        if !self.beside && self.turns >= ALONE {
            // The poll still tells when the client has gone.
            self.beside = look_for(self.key, &served.stream, Interest::PRIORITY, registry).is_ok();
        }
        let mut fds = [readable(registry), readable(&served.stream)];
        if !self.poll_until(&mut fds, timeout)? {
            return Ok(Woken::default());
        }
        let [all, client] = fds.map(|fd| fd.revents().unwrap_or(PollFlags::POLLIN));
        Ok(Woken {
            poll: !self.beside || !all.is_empty(),
            client: (self.beside && !client.is_empty()).then(|| (self.key, ended(client))),
        })
    }

    /// Waits for the poll alone.
    fn wait(&mut self, registry: &Registry, timeout: PollTimeout) -> io::Result<Woken> {
        if timeout != PollTimeout::ZERO {
            self.poll_until(&mut [readable(registry)], timeout)?;
        }
        Ok(Woken {
            poll: true,
            client: None,
        })
    }

    /// As poll(2), after a look, and whether it ended by itself, not by a signal.
    fn poll_until(&mut self, fds: &mut [PollFd<'_>], timeout: PollTimeout) -> io::Result<bool> {
        let there = || Ok(poll(fds, PollTimeout::ZERO)? > 0);
        if timeout != PollTimeout::ZERO && self.looks.look(self.beside, there)? {
            return Ok(true);
        }
        match poll(fds, timeout) {
            Ok(_) => Ok(true),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The poll looks for its requests again. What it has said meanwhile is told as if it were new.
    fn back(&mut self, clients: &mut Clients<Stream>, registry: &Registry) {
        if std::mem::take(&mut self.beside)
            && let Some(served) = clients.get(self.key)
        {
            let interest = interest(&served.buffers);
            if let Err(error) = look_for(self.key, &served.stream, interest, registry) {
                tracing::warn!(client = self.key, %error, "client of acm is no longer heard");
            }
        }
        self.turns = 0;
    }
}

pub(super) fn look_for(
    key: u32,
    stream: &Stream,
    interest: Interest,
    registry: &Registry,
) -> io::Result<()> {
    let fd = stream.as_raw_fd();
    registry.reregister(&mut SourceFd(&fd), Token::Client(key).into(), interest)
}

fn readable(fd: &impl AsFd) -> PollFd<'_> {
    PollFd::new(fd.as_fd(), PollFlags::POLLIN)
}

/// What poll(2) tells of the end of a stream: the end of speech shows when it is read.
fn ended(flags: PollFlags) -> Ended {
    match flags.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) {
        true => Ended::Everything,
        false => Ended::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use acm::User;
    use mio::{Events, Poll};

    use super::*;

    /// A poll, and clients of it.
    struct World {
        poll: Poll,
        clients: Clients<Stream>,
        latest: Latest,
    }

    impl World {
        fn new() -> Self {
            Self {
                poll: Poll::new().unwrap(),
                clients: Clients::new(100),
                latest: Latest::default(),
            }
        }

        fn client(&mut self) -> (UnixStream, u32) {
            let (client, served) = UnixStream::pair().unwrap();
            served.set_nonblocking(true).unwrap();
            let fd = served.as_raw_fd();
            let key = self.clients.add(User::Local(1), Stream::Unix(served));
            let key = key.unwrap();
            let token = Token::Client(key).into();
            let registry = self.poll.registry();
            registry
                .register(&mut SourceFd(&fd), token, Interest::READABLE)
                .unwrap();
            (client, key)
        }

        fn served(&mut self, key: u32) {
            let registry = self.poll.registry();
            self.latest.served(key, &mut self.clients, registry);
        }

        /// What wakes a sleeper now, and of which clients the poll tells.
        fn wakes(&mut self) -> (Option<(u32, Ended)>, Vec<u32>) {
            let registry = self.poll.registry();
            let woken = self
                .latest
                .sleep(&mut self.clients, registry, PollTimeout::ZERO)
                .unwrap();
            let mut events = Events::with_capacity(8);
            if woken.poll {
                self.poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
            }
            let keys = events
                .iter()
                .filter_map(|it| match Token::from_mio(it.token()) {
                    Some(Token::Client(key)) => Some(key),
                    _ => None,
                });
            (woken.client, keys.collect())
        }

        /// A client that asks alone, long enough to be beside the poll.
        fn alone(&mut self) -> (UnixStream, u32) {
            let (client, key) = self.client();
            for _ in 0..=ALONE {
                self.served(key);
            }
            assert_eq!(self.wakes(), (None, vec![]));
            assert!(self.latest.beside);
            (client, key)
        }

        fn read(&mut self, key: u32) {
            let stream = &mut self.clients.get(key).unwrap().stream;
            stream.read(&mut [0; 100]).unwrap();
        }
    }

    #[test]
    fn who_asks_alone_is_heard_without_the_poll_and_others_by_it() {
        let mut world = World::new();
        let (mut other, second) = world.client();
        let (mut client, first) = world.alone();
        client.write_all(b"x").unwrap();
        assert_eq!(world.wakes(), (Some((first, Ended::Nothing)), vec![]));
        other.write_all(b"x").unwrap();
        assert_eq!(world.wakes(), (Some((first, Ended::Nothing)), vec![second]));
        world.read(first);
        assert_eq!(world.wakes(), (None, vec![]), "nothing twice");
    }

    #[test]
    fn what_was_said_meanwhile_is_not_lost_when_another_has_its_turn() {
        let mut world = World::new();
        let (_other, second) = world.client();
        let (mut client, first) = world.alone();
        client.write_all(b"x").unwrap();
        world.served(second);
        assert!(!world.latest.beside);
        assert_eq!(world.wakes(), (None, vec![first]));
    }

    #[test]
    fn who_is_owed_an_answer_does_not_keep_a_sleeper_awake() {
        let mut world = World::new();
        let (mut client, first) = world.alone();
        world.clients.get(first).unwrap().buffers.expect_answers(1);
        client.write_all(b"x").unwrap();
        assert_eq!(world.wakes(), (None, vec![first]), "told once");
        assert_eq!(world.wakes(), (None, vec![]), "and not again");
    }

    #[test]
    fn the_end_of_a_stream_is_seen() {
        let mut world = World::new();
        let (client, first) = world.alone();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(world.wakes().0, Some((first, Ended::Nothing)));
        drop(client);
        let (woken, told) = world.wakes();
        assert_eq!(woken, Some((first, Ended::Everything)));
        assert_eq!(told, [first], "by the poll as well");
        world.clients.remove(first);
        assert_eq!(world.wakes(), (None, vec![]));
    }
}
