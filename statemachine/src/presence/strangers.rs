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

/// Senders that are remembered: forged LIDs must not take memory. More than the tokens that come in while an empty
/// bucket of one sender fills (656), so that there is always a place once those with full buckets are forgotten.
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
        let bucket = self.senders.entry(sender).or_default();
        let admitted = bucket.has_token(now) && self.all.has_token(now);
        if admitted {
            bucket.take(now);
            self.all.take(now);
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::Guid;

    fn port(number: u8) -> PortId {
        PortId::new(Guid(1), number)
    }

    /// How many of `questions` from one LID are answered.
    fn answered(strangers: &mut Strangers, now: Time, lid: u16, questions: usize) -> usize {
        let mut admits = || strangers.admits(now, port(1), Lid(lid), 0);
        (0..questions).filter(|_| admits()).count()
    }

    #[test]
    fn forged_lids_take_little_memory() {
        let mut strangers = Strangers::default();
        for question in 0..1_000_000_u64 {
            let now = Time(question * 100);
            let (number, lid) = ((question % 3) as u8, 1 + (question % 48_000) as u16);
            strangers.admits(now, port(number), Lid(lid), 0);
            assert!(strangers.senders.len() <= SENDERS_MAX);
        }
    }

    /// Those with full buckets are forgotten only where a place is needed: to look for them takes a while.
    #[test]
    fn senders_are_remembered_while_the_table_has_room() {
        let mut strangers = Strangers::default();
        let late = Time(60_000_000);
        for lid in 1..=SENDERS_MAX as u16 {
            strangers.admits(Time(0), port(1), Lid(lid), 0);
        }
        strangers.admits(late, port(1), Lid(1), 0);
        assert_eq!(strangers.senders.len(), SENDERS_MAX);
        strangers.admits(late, port(1), Lid(0xbfff), 0);
        assert_eq!(strangers.senders.len(), 2, "and who has just asked");
    }

    #[test]
    fn a_known_sender_keeps_its_share_when_forged_lids_fill_the_table() {
        let mut strangers = Strangers::default();
        for lid in 1..=SENDERS_MAX as u16 {
            strangers.admits(Time(0), port(1), Lid(lid), 0);
        }
        let now = Time(2_000_000);
        for lid in [1, 2] {
            let answered = answered(&mut strangers, now, lid, 100);
            assert_eq!(answered, SENDER_BURST as usize, "LID {lid}");
        }
    }
}
