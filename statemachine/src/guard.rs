// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the crate's model checker leaves out, one at a time, to show that it notices each.
//!
//! `guard!(Name, condition)` is the condition, and nothing else, in every build but that of the crate's
//! own tests. `guard!(Name, false)` is what must not happen.

#[cfg(not(test))]
macro_rules! guard {
    ($guard:ident, $holds:expr) => {
        $holds
    };
}

#[cfg(test)]
macro_rules! guard {
    ($guard:ident, $holds:expr) => {
        $holds || crate::guard::is_removed(crate::guard::Guard::$guard)
    };
}

pub(crate) use guard;

#[cfg(test)]
pub(crate) use self::removal::{Guard, is_removed, without};

#[cfg(test)]
mod removal {
    extern crate std;

    use core::cell::Cell;

    /// The checks that can be left out.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum Guard {
        /// A state that is older than one heard already changes nothing.
        OldState,
        /// An APR counts for the LAP whose transaction ID it has.
        AnswerToThisLap,
        /// One order to a library at a time.
        OneOrder,
        /// An overdue order is not an ended one.
        OverdueOrder,
        /// Communication IDs go to where the QP leads, and to proven ports.
        WhereTheQpLeads,
        /// A REQ changes nothing before its handshake is complete.
        HandshakeFirst,
        /// Only an armed QP is migrated.
        OnlyArmed,
        /// An idle connection is moved first at one end only if the peer can follow.
        IdlePeer,
        /// An idle QP is moved only if its device and its library can do it.
        IdleDevice,
        /// Nobody is sent to an alternate whose own port is down.
        AlternateUp,
        /// An alternate begins at a port that is up: for who chooses it, and for who is asked.
        AlternatePortUp,
        /// One SAP outstanding.
        OneSap,
    }

    std::thread_local! {
        static REMOVED: Cell<Option<Guard>> = const { Cell::new(None) };
    }

    pub(crate) fn is_removed(guard: Guard) -> bool {
        REMOVED.get() == Some(guard)
    }

    /// Runs something in this thread as if that check were not there.
    pub(crate) fn without<T>(guard: Option<Guard>, run: impl FnOnce() -> T) -> T {
        let before = REMOVED.replace(guard);
        let result = run();
        REMOVED.set(before);
        result
    }
}
