// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast users' packets are read. Each costs the failover loop time, also one that is refused, and
//! the loop is what failover waits for: who has more to say is read later, and by its full socket
//! waits itself.

use std::collections::BTreeMap;
use std::time::Duration;

use statemachine::Time;

use crate::io::person::Person;

/// Packets that every user may send at once.
const BURST: u32 = 1000;
/// More of them for each of its connections: a failover of all has each report several times.
const BURST_PER_CONNECTION: u32 = 64;
/// In which time a burst is allowed again.
const PERIOD: Duration = Duration::from_secs(5);
/// Who has to wait waits for so long at least: the loop does not wake up for single packets.
const LEAST_WAIT: Duration = Duration::from_millis(50);

/// What users have sent.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Packets of each user that count still, and as of when.
    users: BTreeMap<Person, (f64, Time)>,
}

impl Pace {
    /// Counts a packet of a user with this number of connections. Err: it may be read at that time, not before.
    pub(super) fn read(
        &mut self,
        now: Time,
        payer: Person,
        connections: usize,
    ) -> Result<(), Time> {
        let connections = u32::try_from(connections).unwrap_or(u32::MAX);
        let burst = f64::from(BURST) + f64::from(BURST_PER_CONNECTION) * f64::from(connections);
        let rate = burst / PERIOD.as_secs_f64();
        let (count, since) = self.users.get(&payer).copied().unwrap_or((0.0, now));
        // Connections may have ended that had let it send more: nobody pays for them afterwards.
        let count = (count.min(burst) - (now - since).as_secs_f64() * rate).max(0.0);
        let more = count + 1.0;
        if more > burst {
            let wait = Duration::from_secs_f64((more - burst) / rate);
            return Err(now + wait.max(LEAST_WAIT));
        }
        self.users.insert(payer, (more, now));
        Ok(())
    }

    /// Forgets users of whom nothing counts any more.
    pub(super) fn forget(&mut self, now: Time) {
        self.users.retain(|_, (_, since)| now - *since < PERIOD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Person = Person::without_ranges(7);

    fn packets_read(connections: usize, seconds: u64) -> usize {
        let mut pace = Pace::default();
        let milliseconds = (0..seconds * 1000).map(|ms| Time(1_000_000 + ms * 1000));
        milliseconds
            .map(|now| {
                let each = std::iter::repeat_with(|| pace.read(now, USER, connections));
                each.take(100).take_while(Result::is_ok).count()
            })
            .sum()
    }

    #[test]
    fn a_flood_comes_to_the_rate_after_a_burst() {
        let read = packets_read(0, 100);
        assert!((20_900..=21_100).contains(&read), "{read}");
    }

    #[test]
    fn who_has_connections_may_report_of_each() {
        assert!(packets_read(1000, 1) >= 65_000);
    }

    #[test]
    fn who_has_lost_its_connections_is_read_as_soon_as_others() {
        let mut pace = Pace::default();
        let now = Time(5_000_000);
        while pace.read(now, USER, 10_000).is_ok() {}
        let at = pace.read(now, USER, 0).expect_err("a burst is over");
        assert!(at <= now + LEAST_WAIT, "{at:?}");
        assert_eq!(pace.read(at, USER, 0), Ok(()));
        let later = now + PERIOD;
        let read = std::iter::repeat_with(|| pace.read(later, USER, 0));
        let read = read.take(2000).take_while(Result::is_ok).count();
        assert!(read + 1 >= BURST as usize, "{read}");
    }

    #[test]
    fn who_waits_never_waits_until_now() {
        let mut pace = Pace::default();
        for now in (0..20_000).map(Time) {
            while pace.read(now, USER, 1).is_ok() {}
            assert!(
                pace.read(now, USER, 1).is_err_and(|at| at > now),
                "at {now:?}"
            );
        }
    }

    #[test]
    fn it_is_told_when_to_read_again_and_others_do_not_wait() {
        let mut pace = Pace::default();
        let now = Time(5_000_000);
        let refused = std::iter::repeat_with(|| pace.read(now, USER, 0)).find_map(Result::err);
        let at = refused.expect("a burst is bounded");
        assert!(at > now);
        assert_eq!(
            pace.read(now, Person::without_ranges(8), 0),
            Ok(()),
            "another user"
        );
        assert_eq!(pace.read(at, USER, 0), Ok(()));
        pace.forget(now + 3 * PERIOD);
        assert!(pace.users.is_empty());
    }
}
