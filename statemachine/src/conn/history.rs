// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last things that happened to a connection, for operators who come afterwards.

use alloc::vec::Vec;
use core::time::Duration;

use crate::time::Time;
use crate::view::{Past, Transition};

/// Kept of each connection; there may be 100,000 of them.
const KEPT: usize = 10;

/// A hundredth of a second, which lets 32 bits count 497 days.
const TICK: u64 = 10_000;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// In ticks, the higher half first; wraps. So it needs no padding.
    at: [u16; 2],
    what: Transition,
}

impl Entry {
    fn ticks(&self) -> u32 {
        let [high, low] = self.at.map(u32::from);
        high << 16 | low
    }
}

/// A ring of them.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct History {
    entries: [Option<Entry>; KEPT],
    /// Where the next one goes.
    next: u8,
}

impl History {
    pub(super) fn push(&mut self, now: Time, what: Transition) {
        let ticks = (now.0 / TICK) as u32;
        let at = [(ticks >> 16) as u16, ticks as u16];
        if let Some(place) = self.entries.get_mut(usize::from(self.next)) {
            *place = Some(Entry { at, what });
        }
        self.next = (self.next + 1) % KEPT as u8;
    }

    /// The latest first.
    pub(super) fn view(&self, now: Time) -> Vec<Past> {
        let (older, newer) = self.entries.split_at(usize::from(self.next).min(KEPT));
        let latest_first = older.iter().rev().chain(newer.iter().rev()).flatten();
        let past = |entry: &Entry| {
            let ticks = ((now.0 / TICK) as u32).wrapping_sub(entry.ticks());
            Past {
                ago: Duration::from_micros(u64::from(ticks) * TICK),
                what: entry.what,
            }
        };
        latest_first.map(past).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::AssociationState;

    #[test]
    fn the_last_ten_are_kept_in_little_room() {
        assert!(size_of::<History>() <= 102, "{}", size_of::<History>());
        let mut history = History::default();
        assert_eq!(history.view(Time(0)), []);
        let second = |number: u64| Time(number * 1_000_000);
        for number in 0..23u8 {
            let what = Transition::Migrated {
                from: number,
                to: 1,
                cause: crate::view::MoveCause::Hardware,
                stall: None,
            };
            history.push(second(number.into()), what);
        }
        history.push(second(23), Transition::Association(AssociationState::None));
        let past = history.view(second(24));
        assert_eq!(past.len(), KEPT);
        let ago: Vec<_> = past.iter().map(|past| past.ago.as_secs()).collect();
        assert_eq!(ago, (1..=10).collect::<Vec<_>>(), "the latest first");
        assert!(matches!(past[0].what, Transition::Association(_)));
        assert!(matches!(
            past[9].what,
            Transition::Migrated { from: 14, .. }
        ));
    }

    #[test]
    fn time_wraps_and_ages_stay_true() {
        let mut history = History::default();
        let before = Time((u64::from(u32::MAX)) * TICK);
        history.push(before, Transition::PrimaryLost);
        let after = before + Duration::from_secs(3);
        assert_eq!(history.view(after)[0].ago, Duration::from_secs(3));
    }
}
