// SPDX-License-Identifier: MIT OR Apache-2.0
//! What goes wrong, from when to when.

use std::fmt;

use clap::ValueEnum;

use super::addresses::Change;
use super::fabric::{Element, Failure};
use super::queue::SECOND;

/// Kinds of faults, as a profile names them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Kind {
    /// A cable is pulled.
    Cable,
    /// A switch dies, with its links.
    Switch,
    /// A cable or switch passes nothing, and its links stay up.
    BlackHole,
    /// A cable loses one direction.
    OneWay,
    /// MADs are lost.
    MadLoss,
    /// MADs come twice.
    MadCopy,
    /// MADs are late, and overtake each other.
    MadDelay,
    /// Somebody sends MADs that nobody should believe.
    Forgery,
    /// Subnet administration is slow.
    SlowSa,
    /// Subnet administration does not answer.
    NoSa,
    /// Subnet administration answers that it is busy.
    BusySa,
    /// Subnet administration answers as before.
    StaleSa,
    /// A host's libraries stand still.
    LateLibrary,
    /// A host's libraries are stopped: their orders wait.
    MuteLibrary,
    /// A daemon is killed, and started again.
    Crash,
    /// An application closes its connection.
    Close,
    /// A subnet manager gives a port another LID, or two ports each other's, while links stay up.
    LidMove,
    /// A subnet manager comes back with another prefix.
    Prefix,
    /// A port carries nothing, and the other port of its host loses its link for a moment.
    HoleAndBlip,
    /// A peer answers each proposal with a port of its own that nobody has seen.
    Redirect,
    /// An application holds its queue pair in SQD.
    Sqd,
    /// A cable is pulled, and stays so.
    PulledForGood,
}

/// The end of what does not end.
pub const NEVER: u64 = u64::MAX;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum What {
    /// A part of the fabric fails.
    Fabric(Element, Failure),
    /// So many of a thousand MADs are lost.
    MadLoss(u32),
    /// So many of a thousand MADs come twice.
    MadCopy(u32),
    /// MADs take up to so many microseconds.
    MadDelay(u32),
    /// So many forged MADs, spread over the time.
    Forgery(u32),
    /// Answers take so many microseconds more.
    SlowSa(u32),
    /// No answers.
    NoSa,
    /// All answers are: busy.
    BusySa,
    /// The subnet manager does not look at the fabric.
    StaleSa,
    /// The libraries of a host stand still.
    LateLibrary(usize),
    /// The libraries of a host lose their orders.
    MuteLibrary(usize),
    /// The daemon of a host is not there.
    Crash(usize),
    /// One side of a connection is closed at the beginning, the other at the end.
    Close(usize, usize),
    /// A subnet manager changes addresses, and takes it back at the end.
    Addresses(Change),
    /// A host's daemon answers each LAP with a GID that is no port's.
    Redirect(usize),
    /// The queue pair at one side of a connection is in SQD.
    Sqd(usize, usize),
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fabric(element, failure) => write!(f, "{element}: {failure:?}"),
            Self::MadLoss(share) => write!(f, "{share} of 1000 MADs lost"),
            Self::MadCopy(share) => write!(f, "{share} of 1000 MADs doubled"),
            Self::MadDelay(us) => write!(f, "MADs take up to {us} us"),
            Self::Forgery(count) => write!(f, "{count} forged MADs"),
            Self::SlowSa(us) => write!(f, "SA takes {us} us more"),
            Self::NoSa => f.write_str("SA does not answer"),
            Self::BusySa => f.write_str("SA is busy"),
            Self::StaleSa => f.write_str("SM does not look at the fabric"),
            Self::LateLibrary(host) => write!(f, "libraries of host {host} stand still"),
            Self::MuteLibrary(host) => write!(f, "libraries of host {host} are stopped"),
            Self::Crash(host) => write!(f, "daemon of host {host} killed"),
            Self::Close(conn, side) => write!(f, "connection {conn} closed by side {side}"),
            Self::Addresses(change) => write!(f, "{change}"),
            Self::Redirect(host) => write!(f, "host {host} redirects each LAP to a new GID"),
            Self::Sqd(conn, side) => write!(f, "connection {conn}: QP of side {side} in SQD"),
        }
    }
}

/// Something that goes wrong, from when to when, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fault {
    /// Its number in the seed's plan.
    pub number: usize,
    /// When it begins.
    pub begin: u64,
    /// When it is over.
    pub end: u64,
    /// What it is.
    pub what: What,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |us: u64| us as f64 / SECOND as f64;
        let (begin, end) = (seconds(self.begin), seconds(self.end));
        if self.end == NEVER {
            return write!(
                f,
                "{:3}  {begin:10.6} .. never      {}",
                self.number, self.what
            );
        }
        write!(
            f,
            "{:3}  {begin:10.6} .. {end:10.6} s  {}",
            self.number, self.what
        )
    }
}
