// SPDX-License-Identifier: MIT OR Apache-2.0
//! MADs that are repeated until they are answered, and how soon.

use core::num::NonZeroU16;
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

/// The longest first wait after exchanges that ended without an answer: with six copies, 2.5 s in all.
const LONGEST_WAIT_IF_UNANSWERED: Duration = Duration::from_millis(40);

/// How long one peer takes to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RoundTrip {
    /// Smoothed over answers to requests that went out once.
    smoothed: Option<Ticks>,
    /// An answer may take as long, as the exchanges since the last such answer show: waits are not shorter.
    /// (RFC 6298, section 5.7, keeps the longer timer as well: otherwise a peer that became slower than all the
    /// copies together is never measured, since no answer is to a first copy.)
    at_least: Option<Ticks>,
}

/// A time in steps of 8 us, up to 0.52 s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Ticks(NonZeroU16);

impl Ticks {
    const MICROSECONDS: u32 = 8;

    fn new(time: Duration) -> Self {
        let ticks = time.as_micros() / u128::from(Self::MICROSECONDS);
        let ticks = u16::try_from(ticks).unwrap_or(u16::MAX);
        Self(NonZeroU16::new(ticks).unwrap_or(NonZeroU16::MIN))
    }

    fn time(self) -> Duration {
        Duration::from_micros((u32::from(self.0.get()) * Self::MICROSECONDS).into())
    }
}

impl RoundTrip {
    /// An answer to the only copy came after that time.
    fn seen(&mut self, took: Duration) {
        // As TCP smooths its own (RFC 6298). What was measured before several copies were needed may be outdated.
        let before = self.smoothed.filter(|_| self.at_least.is_none());
        let smoothed = before.map_or(took, |before| (before.time() * 7 + took) / 8);
        self.smoothed = Some(Ticks::new(smoothed));
        self.at_least = None;
    }

    /// An answer to one of several copies came, that time after the first. The next may be a little later.
    fn seen_at_most(&mut self, took: Duration) {
        self.at_least = self.at_least.max(Some(Ticks::new(took + took / 4)));
    }

    /// No copy was answered. A peer that never answered is not waited for any longer.
    pub(crate) fn unanswered(&mut self, cx: &Context) {
        let doubled = self.first_wait(cx) * 2;
        if self.smoothed.is_some() && doubled <= LONGEST_WAIT_IF_UNANSWERED {
            self.at_least = Some(Ticks::new(doubled));
        }
    }

    /// How long to wait for an answer to the first copy.
    fn first_wait(self, cx: &Context) -> Duration {
        let wait = match self.smoothed {
            Some(smoothed) => (smoothed.time() * ROUND_TRIPS).max(SHORTEST_WAIT),
            None => cx.config.retry_first,
        };
        match self.at_least {
            Some(at_least) => wait.max(at_least.time()),
            None => wait,
        }
        .min(LONGEST_WAIT.max(cx.config.retry_first))
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
    /// It waited for something other than an answer: how long it took tells no round trip.
    paused: bool,
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
            paused: false,
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
        self.paused |= self.yielded;
        self.yielded
    }

    /// The peer is there and needs longer: nothing is in flight until the next copy.
    pub(crate) fn put_off(&mut self) {
        self.yielded = true;
        self.paused = true;
    }

    pub(crate) fn has_yielded(&self) -> bool {
        self.yielded
    }

    /// An answer has come.
    pub(crate) fn answered(&self, cx: &Context, round_trip: &mut RoundTrip) {
        let took = cx.now - self.began;
        match self.tries {
            _ if self.paused => {}
            1 => round_trip.seen(took),
            // Of several copies, nobody knows which one it is to (Karn).
            _ => round_trip.seen_at_most(took),
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
            sl: 0,
            path_bits: 0,
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
            assert_eq!(round_trip.smoothed.is_some(), copies == 1);
        }
    }

    /// Answers take that long, and the second of `lost` first copies gets lost. The copies of each exchange.
    fn copies_of_exchanges(round_trip: &mut RoundTrip, took: Duration, lost: bool) -> [u8; 4] {
        let mut cx = context();
        [(); 4].map(|()| {
            let mut exchange = Exchange::new(7, 0);
            let began = cx.now;
            let answered = loop {
                let Some((_, wait)) = send(&mut cx, &mut exchange, *round_trip) else {
                    round_trip.unanswered(&cx);
                    return exchange.tries();
                };
                let first = if lost && exchange.tries() == 1 {
                    cx.now + wait
                } else {
                    began
                };
                if first + took <= cx.now + wait && (!lost || exchange.tries() > 1) {
                    break first + took;
                }
                cx.now = cx.now + wait;
            };
            cx.now = answered;
            exchange.answered(&cx, round_trip);
            exchange.tries()
        })
    }

    /// From 1 ms to 0.2 s: the first answer comes to one of several copies, and later ones to the only copy.
    #[test]
    fn an_answer_to_one_of_several_copies_makes_later_ones_wait_for_it() {
        let mut round_trip = RoundTrip::default();
        round_trip.seen(Duration::from_millis(1));
        let copies = copies_of_exchanges(&mut round_trip, Duration::from_millis(200), false);
        assert_eq!(copies, [6, 1, 1, 1]);
        assert_eq!(round_trip.at_least, None);
    }

    /// All copies together are waited for 315 ms at first.
    #[test]
    fn exchanges_without_an_answer_are_longer_each_time_up_to_a_limit() {
        let mut round_trip = RoundTrip::default();
        round_trip.seen(Duration::from_millis(1));
        let copies = copies_of_exchanges(&mut round_trip, Duration::from_millis(500), false);
        assert_eq!(copies, [6, 6, 1, 1]);
        let mut round_trip = RoundTrip::default();
        round_trip.seen(Duration::from_millis(1));
        copies_of_exchanges(&mut round_trip, Duration::from_secs(100), false);
        assert_eq!(round_trip.first_wait(&context()).as_millis(), 40);
    }

    /// As where every other copy takes a route that has failed.
    #[test]
    fn lost_first_copies_do_not_make_waits_grow() {
        let mut round_trip = RoundTrip::default();
        round_trip.seen(Duration::from_micros(100));
        for _ in 0..10 {
            let copies = copies_of_exchanges(&mut round_trip, Duration::from_micros(100), true);
            assert_eq!(copies, [2, 2, 2, 2]);
        }
        let wait = round_trip.first_wait(&context());
        assert!(wait < SHORTEST_WAIT * 2, "{wait:?}");
    }

    /// A slow library at the peer, or a request that yielded to others, makes no long round trip.
    #[test]
    fn what_was_put_off_tells_no_round_trip() {
        for copies in [1, 2] {
            let mut cx = context();
            let mut exchange = Exchange::new(7, 0);
            for _ in 0..copies {
                assert!(send(&mut cx, &mut exchange, RoundTrip::default()).is_some());
            }
            exchange.put_off();
            cx.now = cx.now + Duration::from_secs(5);
            let mut round_trip = RoundTrip::default();
            exchange.answered(&cx, &mut round_trip);
            assert_eq!(round_trip, RoundTrip::default());
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

    /// The peer may have answered the second copy long before the third was sent.
    #[test]
    fn what_yielded_before_its_last_copy_tells_no_round_trip() {
        let mut cx = context();
        crowd(&mut cx);
        let mut exchange = Exchange::new(7, 0);
        for _ in 0..3 {
            send(&mut cx, &mut exchange, RoundTrip::default());
        }
        assert!(exchange.has_yielded());
        cx.schedule.leave(Waiter::Closing(1));
        cx.schedule = Default::default();
        send(&mut cx, &mut exchange, RoundTrip::default());
        assert_eq!((exchange.has_yielded(), exchange.tries()), (false, 3));
        cx.now = cx.now + Duration::from_millis(8);
        let mut round_trip = RoundTrip::default();
        exchange.answered(&cx, &mut round_trip);
        assert_eq!(round_trip, RoundTrip::default());
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
