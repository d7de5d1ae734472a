// SPDX-License-Identifier: MIT OR Apache-2.0
//! A packet socket and its callers: what the library's and the operator's sockets have in common.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use mio::unix::SourceFd;
use mio::{Interest, Registry};

use crate::config;
use crate::event_loop::token::Token;
use crate::io::seqpacket::{ListenError, Listener, Packets, Peer, Receive};

/// Packets kept for a caller that does not read. More is a caller that is broken.
const QUEUE_LIMIT: usize = 4096;

#[derive(Debug)]
struct Caller {
    packets: Packets,
    queue: VecDeque<Box<[u8]>>,
    closing: bool,
}

/// Whether a caller is still there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Alive {
    /// It is.
    Yes,
    /// It is gone, or is to go: close it.
    No,
}

/// A listening socket and its callers.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    token: fn(u32) -> Token,
    callers: BTreeMap<u32, Caller>,
    next_key: u32,
}

impl Server {
    /// Listens on `path`. `listening` is the listener's token and `token` makes the callers'.
    ///
    /// # Errors
    /// Somebody listens there already, or the system says no.
    pub fn listen(
        path: &Path,
        config: &config::Control,
        registry: &Registry,
        listening: Token,
        token: fn(u32) -> Token,
    ) -> Result<Self, ListenError> {
        let listener = Listener::bind(path, config.mode, &config.group)?;
        registry
            .register(
                &mut SourceFd(&listener.as_raw_fd()),
                listening.into(),
                Interest::READABLE,
            )
            .map_err(|error| ListenError::Io {
                path: path.to_owned(),
                error,
            })?;
        Ok(Self {
            listener,
            token,
            callers: BTreeMap::new(),
            next_key: 1,
        })
    }

    /// Takes in the next caller; `None` when nobody waits.
    ///
    /// # Errors
    /// No resources: try again later.
    pub fn accept(&mut self, registry: &Registry) -> io::Result<Option<(u32, Peer)>> {
        let Some((packets, peer)) = self.listener.accept()? else {
            return Ok(None);
        };
        let key = self.next_key;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = (self.token)(key).into();
        registry.register(&mut SourceFd(&packets.as_raw_fd()), token, interest)?;
        self.next_key = self.next_key.wrapping_add(1);
        let caller = Caller {
            packets,
            queue: VecDeque::new(),
            closing: false,
        };
        self.callers.insert(key, caller);
        Ok(Some((key, peer)))
    }

    /// Closes the sockets of the first callers until only the last `limit` are left.
    pub fn keep_last(&mut self, limit: usize) {
        while self.callers.len() > limit {
            self.callers.pop_first();
        }
    }

    /// The next packet of a caller, in `buffer`.
    pub fn receive(&self, key: u32, buffer: &mut [u8]) -> Receive {
        match self.callers.get(&key) {
            Some(caller) if !caller.closing => {
                caller.packets.receive(buffer).unwrap_or(Receive::End)
            }
            Some(_) => Receive::Nothing,
            None => Receive::End,
        }
    }

    /// Sends a packet, or keeps it until there is room.
    pub fn send(&mut self, key: u32, packet: &[u8]) -> Alive {
        let Some(caller) = self.callers.get_mut(&key) else {
            return Alive::No;
        };
        if caller.queue.len() == QUEUE_LIMIT {
            return Alive::No;
        }
        caller.queue.push_back(packet.into());
        self.flush(key)
    }

    /// Sends what was kept, as far as there is room.
    pub fn flush(&mut self, key: u32) -> Alive {
        let Some(caller) = self.callers.get_mut(&key) else {
            return Alive::No;
        };
        while let Some(packet) = caller.queue.front() {
            match caller.packets.send(packet) {
                Ok(true) => {
                    caller.queue.pop_front();
                }
                Ok(false) => return Alive::Yes,
                Err(_) => return Alive::No,
            }
        }
        if caller.closing {
            Alive::No
        } else {
            Alive::Yes
        }
    }

    /// Sends what was kept and is done with the caller then.
    pub fn finish(&mut self, key: u32) -> Alive {
        if let Some(caller) = self.callers.get_mut(&key) {
            caller.closing = true;
        }
        self.flush(key)
    }

    /// Closes a caller's socket. Whether there was one.
    pub fn close(&mut self, key: u32) -> bool {
        self.callers.remove(&key).is_some()
    }
}
