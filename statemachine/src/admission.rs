// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast new connections may cost others something.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound;
use core::time::Duration;

use crate::id::ConnId;
use crate::time::Time;

/// Connections of one client that may have an association opened for them at once.
const CLIENT_BURST: u32 = 256;
/// One more for each client after this.
const CLIENT_INTERVAL: Duration = Duration::from_millis(20);
/// The same for all clients together.
const HOST_BURST: u32 = 1024;
const HOST_INTERVAL: Duration = Duration::from_millis(2);

/// Which of the connections that clients register may have an association opened for them now.
///
/// That takes MADs and, later, path queries. A client that registers and closes in a loop would
/// take as many as it likes; so it pays for each with a token, and so do all together. A token is
/// given back when the association is open: a thousand connections that are there to stay are
/// taken up as fast as their peers answer. Whoever waits is served in turn, client by client.
/// Connections that are taken up already never wait here.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Admission {
    host: TokenBucket,
    clients: BTreeMap<u32, TokenBucket>,
    /// The connections that wait, of each client that has some.
    waiting: BTreeMap<u32, BTreeSet<ConnId>>,
    /// The client that was served last.
    last: u32,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            host: TokenBucket::new(HOST_BURST, HOST_INTERVAL),
            clients: BTreeMap::new(),
            waiting: BTreeMap::new(),
            last: 0,
        }
    }
}

impl Admission {
    /// A connection wants an association.
    pub(crate) fn enqueue(&mut self, id: ConnId) {
        self.bucket(id.client);
        self.waiting.entry(id.client).or_default().insert(id);
    }

    /// The next connection that may have one.
    pub(crate) fn next(&mut self, now: Time) -> Option<ConnId> {
        // Client by client: one that registers a thousand does not stand before one that registers
        // its first.
        let later = (Bound::Excluded(self.last), Bound::Unbounded);
        let turns = self.waiting.range(later);
        let mut turns = turns.chain(self.waiting.range(..=self.last));
        let may = |client| self.clients.get(client).is_some_and(|b| b.has_token(now));
        if !self.host.has_token(now) {
            return None;
        }
        let (&client, ids) = turns.find(|(client, _)| may(client))?;
        let id = *ids.first()?;
        self.remove(id);
        self.host.take(now);
        self.bucket(client).take(now);
        self.last = client;
        Some(id)
    }

    /// When there will be a token for somebody who waits.
    pub(crate) fn next_token(&self) -> Option<Time> {
        let clients = self.waiting.keys();
        let buckets = clients.filter_map(|client| self.clients.get(client));
        let at = buckets.map(TokenBucket::next_token).min()?;
        Some(at.max(self.host.next_token()))
    }

    /// Its association is open.
    pub(crate) fn opened(&mut self, id: ConnId) {
        self.bucket(id.client).give_back();
        self.host.give_back();
    }

    /// It closed a short time after its association was opened.
    pub(crate) fn closed_early(&mut self, now: Time, id: ConnId) {
        self.bucket(id.client).take(now);
        self.host.take(now);
    }

    /// It does not want one any more.
    pub(crate) fn remove(&mut self, id: ConnId) {
        if let Some(ids) = self.waiting.get_mut(&id.client) {
            ids.remove(&id);
            if ids.is_empty() {
                self.waiting.remove(&id.client);
            }
        }
    }

    /// The client has gone. What it spent of the host's tokens is spent.
    pub(crate) fn client_gone(&mut self, client: u32) {
        self.clients.remove(&client);
        self.waiting.remove(&client);
    }

    fn bucket(&mut self, client: u32) -> &mut TokenBucket {
        let new = || TokenBucket::new(CLIENT_BURST, CLIENT_INTERVAL);
        self.clients.entry(client).or_insert_with(new)
    }
}

/// Tokens: a new one comes in every interval until there are `size` of them.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct TokenBucket {
    size: u32,
    interval: Duration,
    /// When it will be full: an interval later for each token that is missing.
    full_at: Time,
}

impl TokenBucket {
    fn new(size: u32, interval: Duration) -> Self {
        Self {
            size,
            interval,
            full_at: Time(0),
        }
    }

    /// When it has a token.
    fn next_token(&self) -> Time {
        let missing = self.interval * (self.size - 1);
        Time(0) + (self.full_at - Time(0)).saturating_sub(missing)
    }

    fn has_token(&self, now: Time) -> bool {
        self.next_token() <= now
    }

    /// Takes a token, if there is one.
    fn take(&mut self, now: Time) {
        let empty = now + self.interval * self.size;
        self.full_at = (self.full_at.max(now) + self.interval).min(empty);
    }

    fn give_back(&mut self) {
        self.full_at = Time(0) + (self.full_at - Time(0)).saturating_sub(self.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(client: u32, conn: u32) -> ConnId {
        ConnId { client, conn }
    }

    fn admitted(admission: &mut Admission, now: Time) -> usize {
        core::iter::from_fn(|| admission.next(now)).count()
    }

    #[test]
    fn a_client_has_its_burst_and_then_one_for_each_interval() {
        let mut admission = Admission::default();
        let now = Time(1_000_000);
        (0..1000).for_each(|conn| admission.enqueue(id(1, conn)));
        assert_eq!(admitted(&mut admission, now), CLIENT_BURST as usize);
        assert_eq!(admission.next_token(), Some(now + CLIENT_INTERVAL));
        let later = now + CLIENT_INTERVAL * 10;
        assert_eq!(admitted(&mut admission, later), 10);
        (0..1000).for_each(|conn| admission.remove(id(1, conn)));
        assert_eq!(admission.next_token(), None);
    }

    #[test]
    fn open_associations_cost_nothing_and_short_ones_do() {
        let mut admission = Admission::default();
        let now = Time(1_000_000);
        for conn in 0..10_000 {
            admission.enqueue(id(1, conn));
            assert_eq!(admission.next(now), Some(id(1, conn)));
            admission.opened(id(1, conn));
        }
        (0..10_000).for_each(|conn| admission.closed_early(now, id(1, conn)));
        (0..100).for_each(|conn| admission.enqueue(id(1, conn)));
        assert_eq!(admitted(&mut admission, now), 0);
        let later = now + CLIENT_INTERVAL * 10;
        assert_eq!(admitted(&mut admission, later), 10, "and there is no debt");
    }

    #[test]
    fn clients_take_turns() {
        let mut admission = Admission::default();
        for conn in 0..100 {
            admission.enqueue(id(1, conn));
        }
        admission.enqueue(id(2, 0));
        admission.enqueue(id(3, 0));
        let first: [_; 4] = core::array::from_fn(|_| admission.next(Time(0)).map(|id| id.client));
        assert_eq!(first, [1, 2, 3, 1].map(Some));
    }

    #[test]
    fn many_clients_share_the_hosts_burst() {
        let mut admission = Admission::default();
        for client in 0..100 {
            (0..100).for_each(|conn| admission.enqueue(id(client, conn)));
        }
        assert_eq!(admitted(&mut admission, Time(0)), HOST_BURST as usize);
        for client in 0..100 {
            admission.client_gone(client);
        }
        admission.enqueue(id(100, 0));
        assert_eq!(admission.next(Time(0)), None, "spent is spent");
        assert_eq!(admission.next(Time(0) + HOST_INTERVAL), Some(id(100, 0)));
    }
}
