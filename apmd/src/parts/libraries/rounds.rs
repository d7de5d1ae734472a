// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rounds over the kernel's list of queue pairs: those that died in silence, and those that no library has registered.

use std::cmp::Reverse;

use cm_msgs::control::NO_TOKEN;
use cm_msgs::{Guid, Qpn};
use statemachine::{Order, Time};

use super::Libraries;
use super::unregistered::UnregisteredQps;
use crate::observe::model::{Unregistered, UnregisteredProgram};
use crate::parts::patrol::{self, Patrol, Step};

/// Programs that operators are shown by name.
const MAX_NAMED: usize = 4;

#[derive(Debug)]
pub(super) struct Rounds {
    pub(super) patrol: Patrol,
    pub(super) unregistered: UnregisteredQps,
}

impl Rounds {
    pub(super) fn new() -> Self {
        Self {
            patrol: Patrol::new(),
            unregistered: UnregisteredQps::default(),
        }
    }
}

impl Libraries {
    /// The round goes on, if it is time. `is_protected`: a queue pair, by others than libraries.
    pub(super) fn go_on_round(&mut self, now: Time, is_protected: impl Fn((Guid, Qpn)) -> bool) {
        // No others: on kernels that parts/traps.rs warns of, each list of a device has a risk.
        let devices = || self.registrations.devices();
        match self.rounds.patrol.handle_time(now, devices) {
            Some(Step::Found(node_guid, found)) => {
                for qpn in patrol::disconnected(&found) {
                    if let Some(id) = self.registrations.holder((node_guid, qpn)) {
                        self.order(now, id, Order::Query(NO_TOKEN));
                    }
                }
                if !self.clients.any_protects_all() {
                    return;
                }
                let registrations = &self.registrations;
                let is_registered = |qpn| registrations.holder((node_guid, qpn)).is_some();
                self.rounds.unregistered.handle_found(
                    node_guid,
                    &found,
                    is_registered,
                    |qpn| is_protected((node_guid, qpn)),
                    &self.clients,
                );
            }
            Some(Step::Read(node_guid)) => {
                let waiting = self.registrations.waiting(node_guid);
                self.rounds
                    .unregistered
                    .handle_read(now, node_guid, &waiting);
            }
            Some(Step::Failed(_)) => self.rounds.unregistered.handle_failed(),
            None => {}
        }
    }

    /// Connected queue pairs that libraries have not registered.
    /// `is_protected`: by others than libraries.
    pub(crate) fn unregistered(&self, is_protected: impl Fn((Guid, Qpn)) -> bool) -> Unregistered {
        let counts = self.rounds.unregistered.overdue(is_protected);
        let mut programs: Vec<_> = counts.into_iter().collect();
        programs.sort_by_key(|(_, queue_pairs)| Reverse(*queue_pairs));
        let largest = programs.iter().take(MAX_NAMED).map(|(pid, queue_pairs)| {
            let command = self.clients.command(*pid).unwrap_or("?");
            UnregisteredProgram {
                pid: *pid,
                command: command.to_owned(),
                queue_pairs: *queue_pairs,
            }
        });
        Unregistered {
            queue_pairs: programs.iter().map(|(_, queue_pairs)| queue_pairs).sum(),
            programs: programs.len(),
            largest: largest.collect(),
        }
    }
}
