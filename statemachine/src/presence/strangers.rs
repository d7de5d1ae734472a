// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions of ports that no connection leads to: how many are answered.

use alloc::collections::BTreeMap;

use cm_msgs::Lid;

use crate::id::PortId;
use crate::time::Time;
use crate::token_bucket::TokenBucket;

/// Questions of one port that are answered at once, and one more after each interval: what a host asks before it
/// connects, and probes of some paths that are about to be used.
const SENDER_BURST: u32 = 32;
const SENDER_INTERVAL_US: u64 = 50_000;

/// The same for all strangers together.
const BURST: u32 = 256;
const INTERVAL_US: u64 = 4_000;

/// Ports that are told from each other. Those beyond count as one: forged LIDs must not take memory.
const SENDERS_MAX: usize = 1_024;

/// A port of another host with all its LIDs, and the local port that hears it.
type Sender = (PortId, Lid);

/// What strangers have used.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    senders: BTreeMap<Sender, TokenBucket<SENDER_BURST, SENDER_INTERVAL_US>>,
    all: TokenBucket<BURST, INTERVAL_US>,
}

impl Strangers {
    /// Whether a question is to be answered, of the port that has this LID where ports have 2^`lmc`.
    pub(super) fn admits(&mut self, now: Time, port: PortId, lid: Lid, lmc: u8) -> bool {
        let sender = (port, lid.base(lmc));
        if !self.senders.contains_key(&sender) && self.senders.len() >= SENDERS_MAX {
            self.senders.retain(|_, bucket| !bucket.is_full(now));
        }
        let sender = match self.senders.len() < SENDERS_MAX {
            true => sender,
            false => (port, Lid(0)),
        };
        let bucket = self.senders.entry(sender).or_default();
        let admitted = bucket.has_token(now) && self.all.has_token(now);
        if admitted {
            bucket.take(now);
            self.all.take(now);
        }
        admitted
    }
}
