// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast new connections may cost others something.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use crate::id::{ConnId, Payer};
use crate::round_robin::entries_after;
use crate::time::Time;
use crate::token_bucket::TokenBucket;

/// Connections of one payer that may have an association opened for them at once.
const PAYER_BURST: u32 = 256;
/// One more for each payer after this.
const PAYER_INTERVAL_US: u64 = 20_000;
/// The same for all payers together.
const HOST_BURST: u32 = 1024;
const HOST_INTERVAL_US: u64 = 2_000;

type PayerTokens = TokenBucket<PAYER_BURST, PAYER_INTERVAL_US>;
type HostTokens = TokenBucket<HOST_BURST, HOST_INTERVAL_US>;

/// How often those are forgotten who have all their tokens again.
const FORGET_INTERVAL: Duration = Duration::from_secs(5);

/// Which of the connections that are registered may have an association opened for them now.
///
/// That takes MADs and, later, path queries. Whoever registers and closes in a loop would take as
/// many as it likes, and so would a thousand connections to where nobody answers; so their owner pays
/// for each with a token, and so do all together. A token is given back when the association is open:
/// a thousand connections that are there to stay are taken up as fast as their peers answer. Whoever
/// waits is served in turn, payer by payer: with more programs nobody gets more, and the kernel's
/// connections, which all are one client's, do not stand behind each other's.
/// Connections that are taken up already never wait here.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Admission {
    host: HostTokens,
    /// Of those who have spent some. Others have all their tokens.
    payers: BTreeMap<Payer, PayerTokens>,
    /// The connections that wait, of each payer that has some.
    waiting: BTreeMap<Payer, BTreeSet<ConnId>>,
    /// The payer that was served last.
    last: Option<Payer>,
    forget_at: Time,
}

impl Admission {
    /// A connection wants an association.
    pub(crate) fn enqueue(&mut self, payer: Payer, id: ConnId) {
        self.waiting.entry(payer).or_default().insert(id);
    }

    /// The next connection that may have one.
    pub(crate) fn next(&mut self, now: Time) -> Option<ConnId> {
        self.forget(now);
        // Payer by payer: one that registers a thousand does not stand before one that registers
        // its first.
        if !self.host.has_token(now) {
            return None;
        }
        let (payer, id) = {
            let mut turns = entries_after(&self.waiting, self.last);
            let (&payer, ids) = turns.find(|(payer, _)| self.next_token_of(payer) <= now)?;
            (payer, *ids.first()?)
        };
        self.remove(payer, id);
        self.pay(now, payer);
        self.last = Some(payer);
        Some(id)
    }

    /// When there will be a token for somebody who waits.
    pub(crate) fn next_token(&self) -> Option<Time> {
        let payers = self.waiting.keys();
        let at = payers.map(|payer| self.next_token_of(payer)).min()?;
        Some(at.max(self.host.next_token()))
    }

    fn next_token_of(&self, payer: &Payer) -> Time {
        let bucket = self.payers.get(payer);
        bucket.map_or(Time(0), PayerTokens::next_token)
    }

    fn pay(&mut self, now: Time, payer: Payer) {
        self.payers.entry(payer).or_default().take(now);
        self.host.take(now);
    }

    /// The association of one of its connections is open.
    pub(crate) fn opened(&mut self, payer: Payer) {
        if let Some(bucket) = self.payers.get_mut(&payer) {
            bucket.give_back();
        }
        self.host.give_back();
    }

    /// One of its connections closed a short time after its association was opened.
    pub(crate) fn closed_early(&mut self, now: Time, payer: Payer) {
        self.pay(now, payer);
    }

    /// It does not want one any more.
    pub(crate) fn remove(&mut self, payer: Payer, id: ConnId) {
        if let Some(ids) = self.waiting.get_mut(&payer) {
            ids.remove(&id);
            if ids.is_empty() {
                self.waiting.remove(&payer);
            }
        }
    }

    /// What a payer has spent outlives its connections, or to begin anew would cost nothing. So this, and
    /// no connection's end, is what bounds how many are known: those who paid lately.
    fn forget(&mut self, now: Time) {
        if self.forget_at <= now {
            self.forget_at = now + FORGET_INTERVAL;
            self.payers.retain(|_, bucket| !bucket.is_full(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Payer = Payer(1);

    fn id(conn: u32) -> ConnId {
        ConnId { client: 0, conn }
    }

    fn enqueue(admission: &mut Admission, payer: u64, count: u32) {
        // All are one client's, as the kernel module's are, and no two the same.
        let first = payer as u32 * 10_000;
        (first..first + count).for_each(|conn| admission.enqueue(Payer(payer), id(conn)));
    }

    fn admitted(admission: &mut Admission, now: Time) -> usize {
        core::iter::from_fn(|| admission.next(now)).count()
    }

    #[test]
    fn a_payer_has_its_burst_and_then_one_for_each_interval() {
        let mut admission = Admission::default();
        let now = Time(1_000_000);
        (0..1000).for_each(|conn| admission.enqueue(ONE, id(conn)));
        assert_eq!(admitted(&mut admission, now), PAYER_BURST as usize);
        assert_eq!(admission.next_token(), Some(now + PayerTokens::INTERVAL));
        let later = now + PayerTokens::INTERVAL * 10;
        assert_eq!(admitted(&mut admission, later), 10);
        (0..1000).for_each(|conn| admission.remove(ONE, id(conn)));
        assert_eq!(admission.next_token(), None);
    }

    #[test]
    fn open_associations_cost_nothing_and_short_ones_do() {
        let mut admission = Admission::default();
        let now = Time(1_000_000);
        for conn in 0..10_000 {
            admission.enqueue(ONE, id(conn));
            assert_eq!(admission.next(now), Some(id(conn)));
            admission.opened(ONE);
        }
        (0..10_000).for_each(|_| admission.closed_early(now, ONE));
        (0..100).for_each(|conn| admission.enqueue(ONE, id(conn)));
        assert_eq!(admitted(&mut admission, now), 0);
        let later = now + PayerTokens::INTERVAL * 10;
        assert_eq!(admitted(&mut admission, later), 10, "and there is no debt");
    }

    #[test]
    fn payers_take_turns_and_of_each_the_lowest_comes_first() {
        let mut admission = Admission::default();
        enqueue(&mut admission, 1, 100);
        enqueue(&mut admission, 2, 1);
        enqueue(&mut admission, 3, 1);
        let first: [_; 4] = core::array::from_fn(|_| admission.next(Time(0)).map(|id| id.conn));
        assert_eq!(first, [10_000, 20_000, 30_000, 10_001].map(Some));
    }

    /// As with a user's queue pairs that lead to where nobody answers, and a kernel ULP's that does not.
    #[test]
    fn who_has_spent_all_holds_up_nobody_else_of_the_same_client() {
        let mut admission = Admission::default();
        let now = Time(1_000_000);
        (0..7000).for_each(|conn| admission.enqueue(ONE, id(conn)));
        assert_eq!(admitted(&mut admission, now), PAYER_BURST as usize);
        admission.enqueue(Payer(2), id(7000));
        assert_eq!(admission.next(now), Some(id(7000)));
    }

    #[test]
    fn many_payers_share_the_hosts_burst() {
        let mut admission = Admission::default();
        (0..100).for_each(|payer| enqueue(&mut admission, payer, 100));
        assert_eq!(admitted(&mut admission, Time(0)), HOST_BURST as usize);
        admission.waiting.clear();
        enqueue(&mut admission, 100, 1);
        assert_eq!(admission.next(Time(0)), None, "spent is spent");
        let later = Time(0) + HostTokens::INTERVAL;
        assert_eq!(admission.next(later), Some(id(1_000_000)));
    }

    #[test]
    fn what_was_spent_is_remembered_until_it_has_come_again_and_no_longer() {
        let mut admission = Admission::default();
        let mut now = Time(1_000_000);
        for payer in 0..10_000 {
            now = now + HostTokens::INTERVAL;
            enqueue(&mut admission, payer, 1);
            assert_eq!(admitted(&mut admission, now), 1);
        }
        let lately = (2 * FORGET_INTERVAL).as_millis() / HostTokens::INTERVAL.as_millis();
        assert!(admission.payers.len() as u128 <= lately);
        enqueue(&mut admission, 1, 1000);
        assert_eq!(admitted(&mut admission, now), PAYER_BURST as usize);
        // Its connections have all gone; what they cost is not forgotten with them.
        admission.waiting.clear();
        now = now + FORGET_INTERVAL;
        enqueue(&mut admission, 1, 1000);
        assert!(admitted(&mut admission, now) < PAYER_BURST as usize);
        now = now + PayerTokens::INTERVAL * PAYER_BURST + FORGET_INTERVAL;
        admission.waiting.clear();
        assert_eq!(admission.next(now), None);
        assert!(admission.payers.is_empty());
    }
}
