// SPDX-License-Identifier: MIT OR Apache-2.0
//! When each open association is verified next.
//!
//! Apart from the other timers: each connection has this one at all times, there may be 100,000 of them, and a
//! second more or less does not matter. So it takes a third of the memory.

use alloc::collections::BTreeSet;
use core::num::NonZeroU32;

use crate::id::ConnId;
use crate::time::Time;

const SECOND: u64 = 1_000_000;

/// What a connection knows of its own: the second when it is due.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VerifyAt(Option<NonZeroU32>);

/// Which connections are due when.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Verifications {
    queue: BTreeSet<(NonZeroU32, ConnId)>,
}

impl Verifications {
    /// Sets a connection's time, and forgets the one that it had.
    pub(crate) fn set(&mut self, id: ConnId, own: &mut VerifyAt, at: Time) {
        self.cancel(id, own);
        let seconds = u32::try_from(at.0.div_ceil(SECOND)).unwrap_or(u32::MAX);
        let seconds = NonZeroU32::new(seconds).unwrap_or(NonZeroU32::MIN);
        self.queue.insert((seconds, id));
        *own = VerifyAt(Some(seconds));
    }

    /// Forgets a connection's time.
    pub(crate) fn cancel(&mut self, id: ConnId, own: &mut VerifyAt) {
        if let Some(seconds) = own.0.take() {
            self.queue.remove(&(seconds, id));
        }
    }

    /// When the first is due.
    pub(crate) fn next(&self) -> Option<Time> {
        let &(seconds, _) = self.queue.first()?;
        Some(Time(u64::from(seconds.get()) * SECOND))
    }

    /// Takes out the first connection that is due.
    pub(crate) fn expired(&mut self, now: Time) -> Option<ConnId> {
        if self.next()? > now {
            return None;
        }
        let (_, id) = self.queue.pop_first()?;
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_is_due_once_and_not_too_early() {
        let id = |conn| ConnId { client: 1, conn };
        let mut due = Verifications::default();
        let mut own = [VerifyAt::default(); 3];
        for (at, (conn, own)) in [2_500_000, 1, 2_000_000]
            .into_iter()
            .zip((0..).zip(&mut own))
        {
            due.set(id(conn), own, Time(at));
        }
        due.set(id(1), &mut own[1], Time(4_000_000));
        assert_eq!(due.next(), Some(Time(2_000_000)));
        assert_eq!(due.expired(Time(1_999_999)), None);
        assert_eq!(due.expired(Time(2_999_999)), Some(id(2)));
        assert_eq!(due.expired(Time(2_999_999)), None, "rounded up");
        due.cancel(id(0), &mut own[0]);
        // It is out already: to set it again forgets nothing of another.
        due.set(id(2), &mut own[2], Time(5_000_000));
        assert_eq!(due.expired(Time(9_000_000)), Some(id(1)));
        assert_eq!(due.expired(Time(9_000_000)), Some(id(2)));
        assert_eq!(due.next(), None);
    }
}
