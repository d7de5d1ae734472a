// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator wants of a connection whose primary works.

use alloc::boxed::Box;
use core::time::Duration;

use crate::backoff::Backoff;
use crate::time::Time;

/// Pauses after answers that the peer's end is not armed. There may be many thousands of idle
/// connections.
const NOT_ARMED: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));

/// An order to leave the primary, and how often the peer was asked for it.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Departure(Option<Box<Wish>>);

/// What there is to know of one that is wanted. Nearly always none is.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct Wish {
    /// It is to migrate, if that is possible until then.
    until: Option<Time>,
    /// Answers in a row that the peer's end is not armed.
    failures: u32,
    /// When the peer is asked again.
    asks_at: Option<Time>,
}

impl Departure {
    /// One that an operator has ordered now.
    pub(super) fn ordered(until: Time) -> Self {
        Self(Some(Box::new(Wish {
            until: Some(until),
            ..Wish::default()
        })))
    }

    /// Whether an operator has ordered it, and not too long ago.
    pub(super) fn is_ordered(&self, now: Time) -> bool {
        self.until().is_some_and(|until| now < until)
    }

    /// Whether an operator has ordered it, however long ago.
    pub(super) fn was_ordered(&self) -> bool {
        self.until().is_some()
    }

    /// The order of an operator, if there is one, is not carried out.
    pub(super) fn give_up(&mut self) {
        if let Some(wish) = &mut self.0 {
            wish.until = None;
        }
    }

    /// The peer's end is not armed: it is asked again after a pause, which `jitter` changes a little.
    pub(super) fn pause(&mut self, now: Time, jitter: impl FnOnce(Duration) -> Duration) {
        let wish = self.0.get_or_insert_default();
        if wish.asks_at.is_none() {
            wish.asks_at = Some(now + jitter(NOT_ARMED.after(wish.failures)));
            wish.failures += 1;
        }
    }

    /// Ends the pause before the peer is asked again, if its time is over. Returns whether it did.
    pub(super) fn take_expired_pause(&mut self, now: Time) -> bool {
        let wish = self.0.as_mut();
        wish.is_some_and(|wish| wish.asks_at.take_if(|at| *at <= now).is_some())
    }

    /// When the next pause or the order ends.
    pub(super) fn next_change(&self, now: Time) -> Option<Time> {
        let wish = self.0.as_ref()?;
        let until = wish.until.filter(|&until| now < until);
        wish.asks_at.into_iter().chain(until).min()
    }

    fn until(&self) -> Option<Time> {
        self.0.as_ref()?.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_change_is_the_end_of_a_pause_or_of_the_order_whichever_comes_first() {
        let mut departure = Departure::ordered(Time(1_000_000));
        assert_eq!(departure.next_change(Time(5)), Some(Time(1_000_000)));
        departure.pause(Time(5), |pause| pause);
        assert_eq!(departure.next_change(Time(5)), Some(Time(100_005)));
        assert!(!departure.take_expired_pause(Time(100_004)));
        assert!(departure.take_expired_pause(Time(100_005)));
        assert_eq!(departure.next_change(Time(100_005)), Some(Time(1_000_000)));
        assert_eq!(departure.next_change(Time(1_000_000)), None, "it is over");
    }
}
