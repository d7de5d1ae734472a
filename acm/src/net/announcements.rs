// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses that have come to an endpoint, to be announced to its group: to ask where an own address
//! is, under that address, tells all listeners where it is now, ibacm's as well (`acmp.c`,
//! `acmp_process_addr_req`).

use std::collections::HashMap;
use std::time::Duration;

use cm_msgs::acm::Address;
use statemachine::{Time, Timers};

/// Pauses after each announcement of an address before the next; after the last there is none.
const PAUSES: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(1200)];
/// At least so much time is between two announcements of an endpoint.
const PACE: Duration = Duration::from_millis(2);
/// Addresses of an endpoint that are announced at the same time.
const LIMIT: usize = 1024;

/// Announcements of one endpoint.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    /// How often each address was announced.
    sent: HashMap<Address, usize>,
    timers: Timers<Address>,
    /// Nothing is announced before.
    at: Time,
}

impl Announcements {
    /// The address is announced from now on, unless too many are.
    pub(super) fn add(&mut self, now: Time, address: Address) {
        if self.sent.len() < LIMIT || self.sent.contains_key(&address) {
            self.sent.insert(address, 0);
            self.timers.set(address, now);
        }
    }

    /// The endpoint does not have the address any more.
    pub(super) fn remove(&mut self, address: &Address) {
        self.sent.remove(address);
        self.timers.cancel(address);
    }

    /// The next address to announce now.
    pub(super) fn next(&mut self, now: Time) -> Option<Address> {
        if now < self.at {
            return None;
        }
        let address = self.timers.expired(now)?;
        let sent = self.sent.get_mut(&address)?;
        *sent += 1;
        self.at = now + PACE;
        match PAUSES.get(*sent - 1) {
            Some(pause) => self.timers.set(address, now + *pause),
            None => drop(self.sent.remove(&address)),
        }
        Some(address)
    }

    /// When [`Announcements::next`] has something.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.timers.next().map(|at| at.max(self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(number: u32) -> Address {
        Address::Ip(number.into())
    }

    /// All that is announced, and when, in milliseconds.
    fn all(announcements: &mut Announcements) -> Vec<(u64, Address)> {
        let mut told = Vec::new();
        while let Some(at) = announcements.poll_timeout() {
            assert_eq!(announcements.next(Time(at.0.saturating_sub(1))), None);
            told.extend(announcements.next(at).map(|address| (at.0 / 1000, address)));
        }
        told
    }

    #[test]
    fn each_address_is_announced_three_times_within_two_seconds() {
        let mut announcements = Announcements::default();
        announcements.add(Time(1000), ip(1));
        let expected = [1, 301, 1501].map(|at| (at, ip(1)));
        assert_eq!(all(&mut announcements), expected);
    }

    #[test]
    fn announcements_follow_each_other_with_pauses() {
        let mut announcements = Announcements::default();
        for number in 1..=3 {
            announcements.add(Time(1000), ip(number));
        }
        let told = all(&mut announcements);
        assert!(told.is_sorted_by(|a, b| a.0 + 2 <= b.0), "{told:?}");
        assert_eq!(told.len(), 9);
    }

    #[test]
    fn what_has_gone_elsewhere_is_announced_no_longer() {
        let mut announcements = Announcements::default();
        announcements.add(Time(1000), ip(1));
        assert_eq!(announcements.next(Time(1000)), Some(ip(1)));
        announcements.remove(&ip(1));
        assert_eq!(all(&mut announcements), []);
    }

    #[test]
    fn no_more_than_the_limit_is_announced() {
        let mut announcements = Announcements::default();
        for number in 0..=LIMIT as u32 {
            announcements.add(Time(1000), ip(number));
        }
        let told = all(&mut announcements);
        assert_eq!(told.len(), LIMIT * 3);
        assert!(!told.iter().any(|(_, address)| *address == ip(LIMIT as u32)));
    }
}
