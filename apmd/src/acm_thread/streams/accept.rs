// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who calls is taken in, so many at a time.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use acm::User;
use ipnet::IpNet;

use super::Streams;
use crate::acm_thread::opened::Opened;
use crate::acm_thread::token::Token;
use crate::io::watched;

/// Callers of a listener, taken in or not, before others have their turn.
const TURN: usize = 64;

/// Whether somebody waits at a listener after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(in crate::acm_thread) enum Waiting {
    Nobody,
    /// Or nobody. It has to be looked at again: the poll tells of those who come, not of those who wait.
    Somebody,
}

/// Why a client is not taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(in crate::acm_thread) enum Refusal {
    #[error("its user has too many connections, or all have")]
    TooMany(User),
    #[error("it is in none of tcp_networks")]
    Stranger(User),
    #[error("it has gone")]
    Gone,
}

impl Refusal {
    /// Who is refused, as far as that is known.
    pub(in crate::acm_thread) fn user(self) -> Option<User> {
        match self {
            Self::TooMany(user) | Self::Stranger(user) => Some(user),
            Self::Gone => None,
        }
    }
}

impl Streams {
    /// Takes in who waits at a listener; `taken` hears what became of each.
    ///
    /// # Errors
    /// As accept(2); mostly no descriptor is left.
    pub(in crate::acm_thread) fn accept(
        &mut self,
        place: u32,
        mut taken: impl FnMut(Result<(), Refusal>),
    ) -> io::Result<Waiting> {
        for _ in 0..TURN {
            match self.accept_next(place)? {
                Some(outcome) => taken(outcome),
                None => return Ok(Waiting::Nobody),
            }
        }
        Ok(Waiting::Somebody)
    }

    /// What became of the next client of a listener; `None` when nobody waits.
    fn accept_next(&mut self, place: u32) -> io::Result<Option<Result<(), Refusal>>> {
        let listener = self.listeners.get(place as usize);
        let Some(listener) = listener.and_then(Opened::get) else {
            return Ok(None);
        };
        let Some(stream) = listener.accept()? else {
            return Ok(None);
        };
        let Ok(user) = stream.user() else {
            return Ok(Some(Err(Refusal::Gone)));
        };
        if let User::Remote(_) = user {
            let Some(address) = stream.address() else {
                return Ok(Some(Err(Refusal::Gone)));
            };
            if !lets_in(&self.networks, address) {
                return Ok(Some(Err(Refusal::Stranger(user))));
            }
        }
        let fd = stream.as_raw_fd();
        let Some(key) = self.clients.add(user, stream) else {
            return Ok(Some(Err(Refusal::TooMany(user))));
        };
        let registered = watched(fd, &self.exchange.registry, Token::Client(key));
        registered.inspect_err(|_| drop(self.clients.remove(key)))?;
        Ok(Some(Ok(())))
    }
}

/// Whether another host is let in.
fn lets_in(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use mio::Poll;

    use super::*;
    use crate::config;

    #[test]
    fn hosts_of_other_networks_are_not_let_in() {
        let networks = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap());
        let lets_in = |address: &str| lets_in(&networks, address.parse().unwrap());
        assert!(lets_in("10.255.0.1") && lets_in("fd12::1"));
        assert!(!lets_in("11.0.0.1") && !lets_in("fe80::1"));
    }

    #[test]
    fn however_many_call_others_have_their_turn() {
        let directory = format!("apmd-acm-accept-{}", std::process::id());
        let directory = std::env::temp_dir().join(directory);
        std::fs::create_dir(&directory).unwrap();
        let config = config::Acm {
            directory: directory.clone(),
            ..config::Acm::default()
        };
        let poll = Poll::new().unwrap();
        let mut streams = Streams::open(&config, poll.registry().try_clone().unwrap());
        let call = |_| UnixStream::connect(config.socket()).unwrap();
        let _calling: Vec<_> = (0..TURN + 1).map(call).collect();
        let mut turn = |place| {
            let mut taken = 0;
            let waiting = streams.accept(place, |outcome| taken += usize::from(outcome.is_ok()));
            (waiting.unwrap(), taken)
        };
        assert_eq!(turn(1), (Waiting::Nobody, 0), "it does not listen");
        assert_eq!(turn(0), (Waiting::Somebody, TURN));
        assert_eq!(turn(0), (Waiting::Nobody, 1));
        assert_eq!(turn(0), (Waiting::Nobody, 0));
        drop(streams);
        std::fs::remove_dir(&directory).unwrap();
    }
}
