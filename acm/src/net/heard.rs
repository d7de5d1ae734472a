// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was heard of others: who asks tells all listeners its own address.

use std::collections::HashMap;

use cm_msgs::acm::Address;
use cm_msgs::acm::resolve::Groups;
use cm_msgs::{Gid, Lid};
use statemachine::Time;

/// Addresses that are kept.
const LIMIT: usize = 4096;

/// What a port said of itself when it asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Announced {
    /// GID of the port.
    pub gid: Gid,
    /// Its LID.
    pub lid: Lid,
    /// Groups that it is in.
    pub groups: Groups,
}

/// Addresses heard of, for a while.
#[derive(Debug, Default)]
pub(super) struct Heard {
    announced: HashMap<Address, (Announced, Time)>,
}

impl Heard {
    /// Keeps what was announced until `until`, in the stead of an older one.
    pub(super) fn insert(
        &mut self,
        now: Time,
        until: Time,
        address: Address,
        announced: Announced,
    ) {
        if self.announced.len() >= LIMIT && !self.announced.contains_key(&address) {
            self.make_room(now);
        }
        self.announced.insert(address, (announced, until));
    }

    /// What was announced of an address, if it was lately, and until when it is kept.
    pub(super) fn get(&self, now: Time, address: &Address) -> Option<(Announced, Time)> {
        let found = self.announced.get(address).copied();
        found.filter(|(_, until)| *until > now)
    }

    /// Forgets what was announced of an address.
    pub(super) fn remove(&mut self, address: &Address) {
        self.announced.remove(address);
    }

    /// Forgets everything: the fabric may have become another one.
    pub(super) fn clear(&mut self) {
        self.announced.clear();
    }

    fn make_room(&mut self, now: Time) {
        self.announced.retain(|_, (_, until)| *until > now);
        if self.announced.len() < LIMIT {
            return;
        }
        let oldest = self.announced.iter().min_by_key(|(_, (_, until))| *until);
        if let Some(oldest) = oldest.map(|(address, _)| *address) {
            self.announced.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(lid: u16) -> Announced {
        Announced {
            gid: Gid([1; 16]),
            lid: Lid(lid),
            groups: Groups::default(),
        }
    }

    #[test]
    fn announcements_are_forgotten_in_time_and_the_oldest_first() {
        let mut heard = Heard::default();
        let address = |number: u32| Address::Ip(number.into());
        for number in 0..LIMIT as u32 {
            heard.insert(
                Time(0),
                Time(u64::from(number) + 10),
                address(number),
                announced(1),
            );
        }
        assert_eq!(heard.get(Time(10), &address(0)), None);
        assert_eq!(
            heard.get(Time(9), &address(0)),
            Some((announced(1), Time(10)))
        );
        heard.insert(Time(5), Time(99), address(1 << 20), announced(2));
        assert_eq!(heard.get(Time(5), &address(0)), None, "made room");
        assert_eq!(
            heard.get(Time(5), &address(1)),
            Some((announced(1), Time(11)))
        );
        assert_eq!(heard.announced.len(), LIMIT);
        heard.insert(Time(5), Time(99), address(1), announced(3));
        assert_eq!(
            heard.get(Time(98), &address(1)),
            Some((announced(3), Time(99))),
            "moved"
        );
        heard.clear();
        assert_eq!(heard.get(Time(5), &address(1)), None);
    }
}
