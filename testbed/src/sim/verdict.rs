// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must not happen.

use std::fmt;

use clap::ValueEnum;

use super::queue::SECOND;

/// What is judged, as a profile names it. The numbers are those of the protocol's invariants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Rule {
    /// 1: while the network is calm, both ends that are Armed soon have reversed alternates.
    Reversed,
    /// 2: no alternate is the primary, or on a port that the engine knows to be down.
    Alternate,
    /// 3: no modify is ordered that IBA forbids in the state the engine was told.
    Legal,
    /// 3: one order at a time.
    OneOrder,
    /// 4: after the last fault both ends become Armed, and stay it.
    Liveness,
    /// After the last fault a connection goes to the port that its active side prefers.
    Failback,
    /// 5: a host's MADs in a second are bounded.
    Traffic,
    /// 6: no connection dies that had an armed and live alternate.
    ArmedDeath,
    /// 6: no connection dies of one fault after a calm that a correct protocol could have saved.
    CalmDeath,
    /// 5: between two ends LAPs, SAPs and path queries follow each other only so often.
    Rounds,
    /// 6: no connection is moved to a path that is known to carry nothing, and dies of it.
    KnownHole,
    /// 9: without a fault nothing migrates.
    Unprovoked,
    /// 7: closed connections leave nothing behind.
    Leak,
}

/// A rule that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// When, in microseconds.
    pub at: u64,
    /// How.
    pub words: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.at as f64 / SECOND as f64;
        write!(
            f,
            "{:?} broken at {seconds:.6} s: {}",
            self.rule, self.words
        )
    }
}
