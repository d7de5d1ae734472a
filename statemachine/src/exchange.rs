// SPDX-License-Identifier: MIT OR Apache-2.0
//! MADs that are repeated until they are answered, and how soon.

use core::num::NonZeroU32;
use core::time::Duration;

use cm_msgs::cm;

use crate::backoff::Backoff;
use crate::context::{Context, Route};
use crate::schedule::Claim;
use crate::time::Time;

/// The shortest wait before a copy: below that it is the hosts' own delays that are measured.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);

/// And the longest wait before the second copy: a peer that was slow once is not slow for ever.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// The wait before a copy, in round trips.
const ROUND_TRIPS: u32 = 4;

/// Copies that a request sends, whoever waits for its place.
const PATIENT_TRIES: u8 = 2;

/// And the longest wait after each of these while others wait for its place.
const CROWDED_WAIT: Duration = Duration::from_millis(100);

/// How long answers of one peer take, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RoundTrip(Option<NonZeroU32>);

impl RoundTrip {
    /// An answer came after so long.
    fn seen(&mut self, took: Duration) {
        let took = u32::try_from(took.as_micros()).unwrap_or(u32::MAX).max(1);
        // As TCP smooths its own (RFC 6298).
        let smooth =
            |before: NonZeroU32| ((u64::from(before.get()) * 7 + u64::from(took)) / 8) as u32;
        self.0 = NonZeroU32::new(self.0.map_or(took, smooth).max(1));
    }

    /// How long to wait for an answer to the first copy.
    fn first_wait(self, cx: &Context) -> Duration {
        self.0.map_or(cx.config.retry_first, |smoothed| {
            let smoothed = Duration::from_micros(smoothed.get().into());
            (smoothed * ROUND_TRIPS).clamp(SHORTEST_WAIT, LONGEST_WAIT)
        })
    }
}

/// A MAD that is repeated, each time by another route, until it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exchange {
    pub(crate) transaction: u32,
    tries: u8,
    /// It does not count among the messages in flight: the peer is silent and others wait, or it needs
    /// longer.
    yielded: bool,
    route: u8,
    /// Where the last copy went.
    last: Option<Route>,
    /// When the first copy went.
    began: Time,
}

impl Exchange {
    pub(crate) fn new(transaction: u32, first_route: u8) -> Self {
        Self {
            transaction,
            tries: 0,
            yielded: false,
            route: first_route,
            last: None,
            began: Time::default(),
        }
    }

    /// Sends the next copy over the next of `routes` (if there is one now) and says how long to
    /// wait for an answer. `None`: there were enough copies. `claim`: what it is charged to.
    pub(crate) fn next(
        &mut self,
        cx: &mut Context,
        claim: &Claim,
        routes: &[Route],
        round_trip: RoundTrip,
        message: impl FnOnce() -> cm::Message,
    ) -> Option<Duration> {
        if self.yields(cx, claim) {
            return Some(self.wait(cx, round_trip));
        }
        // A copy that still waits for its port is replaced by this one, and was no try.
        if !self.take_back(cx) {
            if self.tries >= cx.config.tries {
                return None;
            }
            cx.counters.mads_resent += u64::from(self.tries > 0);
            self.tries += 1;
            if self.tries == 1 {
                self.began = cx.now;
            }
        }
        self.last = routes
            .get(usize::from(self.route) % routes.len().max(1))
            .copied();
        if let Some(route) = self.last {
            cx.send(route, self.transaction, message());
        }
        // The copy may have taken the very path that has failed.
        self.route = self.route.wrapping_add(1);
        let wait = self.wait(cx, round_trip);
        // A slow peer is not waited for at the cost of others: its slot is free again soon.
        let hurries = self.tries <= PATIENT_TRIES && cx.schedule.has_queue();
        Some(if hurries {
            wait.min(CROWDED_WAIT)
        } else {
            wait
        })
    }

    fn wait(&self, cx: &mut Context, round_trip: RoundTrip) -> Duration {
        let backoff = Backoff::new(round_trip.first_wait(cx), Duration::MAX);
        let wait = backoff.after(u32::from(self.tries).saturating_sub(1));
        let jitter = cx.config.jitter_percent;
        cx.random.jitter(wait, jitter)
    }

    /// Peers that are silent do not keep the room that others wait for: the next copy is for later.
    fn yields(&mut self, cx: &Context, claim: &Claim) -> bool {
        self.yielded = self.tries >= PATIENT_TRIES
            && match self.yielded {
                true => !cx.schedule.has_room(claim),
                false => cx.schedule.is_crowded(claim),
            };
        self.yielded
    }

    /// The peer is there and needs longer: nothing is in flight until the next copy.
    pub(crate) fn put_off(&mut self) {
        self.yielded = true;
    }

    pub(crate) fn has_yielded(&self) -> bool {
        self.yielded
    }

    /// An answer has come.
    pub(crate) fn answered(&self, cx: &Context, round_trip: &mut RoundTrip) {
        // Of several copies, nobody knows which one it is to (Karn).
        if self.tries == 1 {
            round_trip.seen(cx.now - self.began);
        }
    }

    /// Takes the last copy back, if it still waits for its port.
    pub(crate) fn take_back(&self, cx: &mut Context) -> bool {
        self.last
            .is_some_and(|Route { port, lid, .. }| cx.outbox.take_back(port, lid, self.transaction))
    }

    /// Copies that were sent.
    pub(crate) fn tries(&self) -> u8 {
        self.tries
    }

    /// Where the next exchange should begin.
    pub(crate) fn next_route(&self) -> u8 {
        self.route
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::id::{Payer, PortId};
    use crate::random::Random;
    use crate::schedule::{Class, Waiter};
    use cm_msgs::cm::Drep;
    use cm_msgs::{Guid, Lid, PKey};

    const CLAIM: Claim = Claim {
        class: Class::Rearm,
        payer: Payer(1),
        far: None,
    };

    fn route(port: u8) -> Route {
        Route {
            port: PortId::new(Guid(1), port),
            lid: Lid(9),
            pkey: PKey::DEFAULT_FULL,
        }
    }

    /// Waits are exact.
    fn context() -> Context {
        let config = Config {
            jitter_percent: 0,
            ..Config::default()
        };
        Context::new(config, Random::new([1; 32]))
    }

    /// Sends the next copy by one of three ports. By which it left, and how long its answer is waited for.
    fn send(
        cx: &mut Context,
        exchange: &mut Exchange,
        round_trip: RoundTrip,
    ) -> Option<(Option<u8>, Duration)> {
        let routes = [1, 2, 3].map(route);
        let wait = exchange.next(cx, &CLAIM, &routes, round_trip, || Drep::default().into())?;
        let left = cx.outbox.next_mad(|_| true);
        Some((left.map(|mad| mad.port.port), wait))
    }

    fn waits_for(times: &[u64]) -> Duration {
        let mut round_trip = RoundTrip::default();
        for &ms in times {
            round_trip.seen(Duration::from_millis(ms));
        }
        round_trip.first_wait(&context())
    }

    #[test]
    fn an_answer_is_waited_for_four_smoothed_round_trips_within_limits() {
        assert_eq!(waits_for(&[]), context().config.retry_first);
        assert_eq!(waits_for(&[8]), Duration::from_millis(32));
        assert_eq!(waits_for(&[8, 16]), Duration::from_millis(36));
        assert_eq!(waits_for(&[0]), SHORTEST_WAIT);
        assert_eq!(waits_for(&[10_000]), LONGEST_WAIT);
    }

    #[test]
    fn only_the_answer_to_a_first_copy_tells_the_round_trip() {
        for copies in [1, 2] {
            let mut cx = context();
            let mut exchange = Exchange::new(7, 0);
            cx.now = Time(5_000);
            for _ in 0..copies {
                send(&mut cx, &mut exchange, RoundTrip::default());
                cx.now = cx.now + Duration::from_millis(8);
            }
            let mut round_trip = RoundTrip::default();
            exchange.answered(&cx, &mut round_trip);
            let wait = round_trip.first_wait(&cx);
            let measured = Duration::from_millis(32);
            let known = cx.config.retry_first;
            assert_eq!(wait, if copies == 1 { measured } else { known });
        }
    }

    #[test]
    fn each_copy_takes_the_next_route_and_waits_twice_as_long() {
        let mut cx = context();
        let mut exchange = Exchange::new(7, 2);
        let first = cx.config.retry_first;
        for (copy, port) in (0..cx.config.tries).zip([3, 1, 2].into_iter().cycle()) {
            let sent = send(&mut cx, &mut exchange, RoundTrip::default());
            assert_eq!(sent, Some((Some(port), first * (1 << copy))));
            assert_eq!(exchange.tries(), copy + 1);
            assert_eq!(exchange.next_route(), copy + 3);
            assert_eq!(cx.counters.mads_resent, u64::from(copy));
        }
        assert_eq!(send(&mut cx, &mut exchange, RoundTrip::default()), None);
    }

    #[test]
    fn a_copy_that_still_waits_for_its_port_is_replaced_and_was_no_try() {
        let mut cx = context();
        let mut exchange = Exchange::new(7, 0);
        for _ in 0..10 {
            let message = || Drep::default().into();
            let wait = exchange.next(&mut cx, &CLAIM, &[route(1)], RoundTrip::default(), message);
            assert_eq!(wait, Some(cx.config.retry_first));
        }
        assert_eq!((exchange.tries(), cx.counters.mads_resent), (1, 0));
        assert!(exchange.take_back(&mut cx));
        assert!(!exchange.take_back(&mut cx));
    }

    #[test]
    fn while_others_wait_two_copies_are_waited_for_a_short_time() {
        let mut cx = context();
        cx.config.retry_first = Duration::from_secs(1);
        cx.schedule.wait(CLAIM, Waiter::Closing(1));
        let mut exchange = Exchange::new(7, 0);
        let waits = [(); 3].map(|()| {
            let sent = send(&mut cx, &mut exchange, RoundTrip::default());
            sent.map(|(_, wait)| wait.as_millis())
        });
        assert_eq!(waits, [Some(100), Some(100), Some(4_000)]);
    }

    /// Fills what is there for one far port, and has another request wait for it.
    fn crowd(cx: &mut Context) {
        while cx.schedule.has_room(&CLAIM) {
            cx.schedule.in_flight(&mut None, CLAIM, 1);
        }
        cx.schedule.wait(CLAIM, Waiter::Closing(1));
    }

    #[test]
    fn a_silent_peers_third_copy_is_put_off_while_others_wait_for_its_place() {
        let mut cx = context();
        crowd(&mut cx);
        let mut exchange = Exchange::new(7, 0);
        for yielded in [false, false, true, true] {
            let sent = send(&mut cx, &mut exchange, RoundTrip::default());
            let left = sent.expect("there are copies left").0;
            assert_eq!((left.is_none(), exchange.has_yielded()), (yielded, yielded));
        }
        cx.schedule.leave(Waiter::Closing(1));
        assert!(!cx.schedule.has_room(&CLAIM));
        assert_eq!(
            send(&mut cx, &mut exchange, RoundTrip::default()).map(|sent| sent.0),
            Some(None)
        );
        assert_eq!(exchange.tries(), 2);
    }

    #[test]
    fn one_that_was_put_off_goes_on_when_there_is_room() {
        let mut cx = context();
        let mut exchange = Exchange::new(7, 0);
        for _ in 0..2 {
            send(&mut cx, &mut exchange, RoundTrip::default());
        }
        exchange.put_off();
        assert!(exchange.has_yielded());
        let sent = send(&mut cx, &mut exchange, RoundTrip::default());
        assert_eq!(sent.map(|(port, _)| port), Some(Some(3)));
        assert!(!exchange.has_yielded());
    }
}
