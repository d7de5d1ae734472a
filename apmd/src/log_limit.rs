// SPDX-License-Identifier: MIT OR Apache-2.0
//! One log line of a kind a while, however often it happens.

use std::time::Duration;

use statemachine::Time;

/// What outsiders can make happen as often as they like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nuisance {
    /// A MAD that does not decode.
    MalformedMad,
    /// A packet on the library socket that does not decode.
    MalformedControl,
    /// A packet on the operator socket that is no request.
    MalformedRequest,
    /// Bytes of a client of ACM that are no request.
    MalformedAcm,
    /// A client that cannot be taken in.
    Client,
    /// A registration of somebody else's queue pair.
    NotOwner,
    /// A MAD that could not be sent.
    SendFailed,
    /// A MAD dropped by the engine.
    Dropped,
}

impl Nuisance {
    const COUNT: usize = Self::Dropped as usize + 1;
}

/// Lines of a kind that are let through in one window.
const BURST: u32 = 5;
const WINDOW: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Default)]
struct Bucket {
    since: Time,
    said: u32,
    swallowed: u64,
}

/// Lets through a few lines of each kind in each window and counts the rest.
#[derive(Default)]
pub struct LogLimit {
    buckets: [Bucket; Nuisance::COUNT],
}

impl LogLimit {
    /// Whether to write a line of this kind now; if so, how many were swallowed since the last.
    pub fn allow(&mut self, now: Time, kind: Nuisance) -> Option<u64> {
        let bucket = &mut self.buckets[kind as usize];
        if now - bucket.since >= WINDOW {
            bucket.since = now;
            bucket.said = 0;
        }
        if bucket.said == BURST {
            bucket.swallowed += 1;
            return None;
        }
        bucket.said += 1;
        Some(std::mem::take(&mut bucket.swallowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_few_lines_and_a_count() {
        let mut limit = LogLimit::default();
        let at = |seconds: u64| Time(seconds * 1_000_000);
        let said = (0..1000)
            .filter(|_| limit.allow(at(100), Nuisance::MalformedMad).is_some())
            .count();
        assert_eq!(said, 5);
        assert_eq!(
            limit.allow(at(100), Nuisance::Client),
            Some(0),
            "kinds are apart"
        );
        assert_eq!(limit.allow(at(109), Nuisance::MalformedMad), None);
        assert_eq!(limit.allow(at(110), Nuisance::MalformedMad), Some(996));
        assert_eq!(limit.allow(at(110), Nuisance::MalformedMad), Some(0));
    }
}
