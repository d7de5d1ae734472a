// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many questions of other ports are answered.

use alloc::collections::BTreeMap;

use crate::sender::Sender;
use crate::time::Time;
use crate::token_bucket::TokenBucket;

/// Of ports that no connection leads to. 32 at once are what a host asks before it connects, and probes of some paths
/// that are about to be used; then 20 a second. All together 256, then 250 a second.
pub(super) type Strangers = Quota<32, 50_000, 256, 4_000>;

/// Of ports that connections lead to: 512 at once, then 500 a second. A daemon sends no more than 195 probes and 200
/// questions a second to all hosts together. All together 8,192, then 20,000 a second: a server's clients probe it at
/// the same time when one of its ports fails.
pub(super) type Peers = Quota<512, 2_000, 8_192, 50>;

/// Questions of one port that are answered at once (`BURST`), and one more after each interval; the same for all ports
/// together (`ALL`).
#[derive(Debug, Default)]
pub(super) struct Quota<
    const BURST: u32,
    const INTERVAL_US: u64,
    const ALL: u32,
    const ALL_INTERVAL_US: u64,
> {
    senders: BTreeMap<Sender, TokenBucket<BURST, INTERVAL_US>>,
    all: TokenBucket<ALL, ALL_INTERVAL_US>,
}

impl<const BURST: u32, const INTERVAL_US: u64, const ALL: u32, const ALL_INTERVAL_US: u64>
    Quota<BURST, INTERVAL_US, ALL, ALL_INTERVAL_US>
{
    /// Senders that are remembered: forged LIDs must not take memory. More than the tokens that come in while an empty
    /// bucket of one sender fills, so that there is always a place once those with full buckets are forgotten.
    const SENDERS_MAX: usize = {
        let refill_us = BURST as u64 * INTERVAL_US;
        let tokens = ALL as u64 + refill_us / ALL_INTERVAL_US;
        (tokens as usize).next_power_of_two()
    };

    /// Whether a question of this port is to be answered.
    pub(super) fn admits(&mut self, now: Time, sender: Sender) -> bool {
        if !self.senders.contains_key(&sender) && self.senders.len() >= Self::SENDERS_MAX {
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
    use crate::id::PortId;
    use crate::port::Ports;
    use crate::sender::local_ports;
    use cm_msgs::{Guid, Lid};

    const MAX: usize = 1_024;

    /// The port with a LID, as a local port that is not known or port 1 hears it.
    fn sender(ports: &Ports, local: u8, lid: u16) -> Sender {
        Sender::new(ports, PortId::new(Guid(1), local), Lid(lid))
    }

    #[test]
    fn places_are_enough_for_all_that_are_short_of_tokens() {
        assert_eq!(Strangers::SENDERS_MAX, MAX);
        assert_eq!(Peers::SENDERS_MAX, 32_768);
    }

    #[test]
    fn forged_lids_take_little_memory() {
        let ports = Ports::default();
        let mut strangers = Strangers::default();
        for question in 0..1_000_000_u64 {
            let now = Time(question * 100);
            let (number, lid) = ((question % 3) as u8, 1 + (question % 48_000) as u16);
            strangers.admits(now, sender(&ports, number, lid));
            assert!(strangers.senders.len() <= MAX);
        }
    }

    /// Those with full buckets are forgotten only where a place is needed: to look for them takes a while.
    #[test]
    fn senders_are_remembered_while_the_table_has_room() {
        let ports = local_ports(0);
        let mut strangers = Strangers::default();
        let late = Time(60_000_000);
        for lid in 1..=MAX as u16 {
            strangers.admits(Time(0), sender(&ports, 1, lid));
        }
        strangers.admits(late, sender(&ports, 1, 1));
        assert_eq!(strangers.senders.len(), MAX);
        strangers.admits(late, sender(&ports, 1, 0xbfff));
        assert_eq!(
            strangers.senders.len(),
            2,
            "and the one that has just asked"
        );
    }

    #[test]
    fn a_known_sender_keeps_its_share_when_forged_lids_fill_the_table() {
        let ports = local_ports(0);
        let mut strangers = Strangers::default();
        for lid in 1..=MAX as u16 {
            strangers.admits(Time(0), sender(&ports, 1, lid));
        }
        let now = Time(2_000_000);
        for lid in [1, 2] {
            let sender = sender(&ports, 1, lid);
            let answered = (0..100).filter(|_| strangers.admits(now, sender)).count();
            assert_eq!(answered, 32, "LID {lid}");
        }
    }
}
