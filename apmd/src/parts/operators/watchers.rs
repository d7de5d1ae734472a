// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is told of transitions as they happen. A burst waits in one queue for all, and is told at a
//! pace that leaves the loop to the engine; what a reader does not take in time waits in the kernel's
//! buffer of its socket, and when that is full it is left out, counted, and said so.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::Serialize;
use statemachine::{ConnId, Time};

use crate::client::Client;
use crate::observe::filter::ConnectionFilter;
use crate::observe::transition::{Subject, Told, Transition};
use crate::server::{Offered, Server};

/// Transitions that wait to be told.
const QUEUE: usize = 4096;
/// Told in one go, and from one go to the next.
const TURN: usize = 64;
const PACE: Duration = Duration::from_millis(5);

/// One reader.
#[derive(Debug, Default)]
struct Watcher {
    filter: ConnectionFilter,
    left_out: u64,
}

/// All readers, and what they are to be told.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    watchers: BTreeMap<u32, Watcher>,
    queue: VecDeque<Transition>,
    next_at: Time,
    /// The programs, of which one may have gone when its connections' end is told.
    programs: BTreeMap<u32, Client>,
    /// Connections whose end is about to be told.
    leaving: BTreeMap<ConnId, Subject>,
}

impl Watchers {
    pub(crate) fn is_empty(&self) -> bool {
        self.watchers.is_empty()
    }

    pub(super) fn has(&self, key: u32) -> bool {
        self.watchers.contains_key(&key)
    }

    pub(super) fn add(&mut self, key: u32, filter: ConnectionFilter) {
        let left_out = 0;
        self.watchers.insert(key, Watcher { filter, left_out });
    }

    pub(super) fn remove(&mut self, key: u32) {
        self.watchers.remove(&key);
        if self.watchers.is_empty() {
            *self = Self::default();
        }
    }

    /// A program that may have connections.
    pub(crate) fn know(&mut self, client: u32, program: &Client) {
        if self.programs.get(&client) != Some(program) {
            self.programs.insert(client, program.clone());
        }
    }

    pub(crate) fn program(&self, client: u32) -> Option<&Client> {
        self.programs.get(&client)
    }

    /// A program has gone, and everything of it has been said.
    pub(crate) fn forget(&mut self, client: u32) {
        self.programs.remove(&client);
    }

    /// A connection that is about to be closed.
    pub(crate) fn leaves(&mut self, id: ConnId, subject: Subject) {
        self.leaving.insert(id, subject);
    }

    /// The connection, if it is one of these.
    pub(crate) fn left(&mut self, id: ConnId) -> Option<Subject> {
        self.leaving.remove(&id)
    }

    /// To be told to all whom it concerns.
    pub(crate) fn tell(&mut self, transition: Transition) {
        if self.queue.len() < QUEUE {
            return self.queue.push_back(transition);
        }
        let concerned = self.watchers.values_mut();
        concerned
            .filter(|watcher| transition.fits(&watcher.filter))
            .for_each(|watcher| watcher.left_out += 1);
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        (!self.queue.is_empty()).then_some(self.next_at)
    }

    /// Tells what is due; the readers that have gone.
    pub(super) fn handle_time(&mut self, now: Time, server: &mut Server) -> Vec<u32> {
        let mut gone = Vec::new();
        if self.queue.is_empty() || now < self.next_at {
            return gone;
        }
        self.next_at = now + PACE;
        for transition in self.queue.drain(..self.queue.len().min(TURN)) {
            let concerned = self.watchers.iter_mut();
            let concerned = concerned.filter(|(_, watcher)| transition.fits(&watcher.filter));
            // As the JSON of `Told` has it.
            let packet = packet(&transition);
            for (&key, watcher) in concerned {
                if watcher.offer(server, key, &packet) == Offered::Gone {
                    gone.push(key);
                }
            }
        }
        gone
    }

    /// A reader may have read: it is told what it has missed.
    pub(super) fn handle_room(&mut self, key: u32, server: &mut Server) -> Offered {
        match self.watchers.get_mut(&key) {
            Some(watcher) => watcher.confess(server, key),
            None => Offered::Taken,
        }
    }
}

impl Watcher {
    fn offer(&mut self, server: &mut Server, key: u32, packet: &[u8]) -> Offered {
        let offered = match self.confess(server, key) {
            Offered::Taken => server.offer(key, packet),
            other => other,
        };
        if offered == Offered::Full {
            self.left_out += 1;
        }
        offered
    }

    /// Says how many were left out, if any were.
    fn confess(&mut self, server: &mut Server, key: u32) -> Offered {
        let left_out = self.left_out;
        if left_out == 0 {
            return Offered::Taken;
        }
        let offered = server.offer(key, &packet(&Told::LeftOut { left_out }));
        if offered == Offered::Taken {
            self.left_out = 0;
        }
        offered
    }
}

pub(super) fn packet(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
