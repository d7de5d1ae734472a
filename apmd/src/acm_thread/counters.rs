// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happened to ACM's clients, for the failover loop to read at any time.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::AcmCounters;

#[derive(Default, Debug)]
pub(crate) struct Counters {
    pub(super) clients: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) malformed: AtomicU64,
}

impl Counters {
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> AcmCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AcmCounters {
            acm_clients: read(&self.clients),
            acm_clients_refused: read(&self.refused),
            malformed_acm: read(&self.malformed),
        }
    }
}
