// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the engine says about its work: typed, so that a caller can make structured log events.

use core::fmt;
use core::time::Duration;

use cm_msgs::Lid;
use cm_msgs::cm::{ApStatus, SpStatus};
use cm_msgs::control::{AppEvent, Refusal, Role};
use cm_msgs::path::{Path, PortAddress};
use strum::Display;

use crate::candidate::Candidate;
use crate::id::{ConnId, PortId};
use crate::input::QueryError;
use crate::view::{AssociationState, Grade, MoveCause, PortState, Protection, Reason, Stall, Why};

/// How much it matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// For someone who follows every message.
    Debug,
    /// The life of ports and connections.
    Info,
    /// An operator should look.
    Warn,
}

/// One thing worth saying.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Trace {
    /// The connection that it is about.
    pub conn: Option<ConnId>,
    /// The local port that it is about.
    pub port: Option<PortId>,
    /// What it is.
    pub what: What,
}

/// A path's ends: enough to recognise it in a log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PathLids {
    /// The local port's number.
    pub port: u8,
    /// The local LID.
    pub slid: Lid,
    /// The remote LID.
    pub dlid: Lid,
}

impl From<&Path> for PathLids {
    fn from(path: &Path) -> Self {
        Self {
            port: path.port,
            slid: path.slid,
            dlid: path.dlid,
        }
    }
}

impl fmt::Display for PathLids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "port {} lid {} to lid {}",
            self.port, self.slid, self.dlid
        )
    }
}

/// Who moved a connection to its alternate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display)]
pub enum MigratedBy {
    /// Its library, because we ordered it.
    #[strum(to_string = "as ordered")]
    Order,
    /// Its library by itself, which we had allowed.
    #[strum(to_string = "by standing order")]
    StandingOrder,
    /// Its library, because we ordered it, though it waited for traffic.
    #[strum(to_string = "as ordered, while idle")]
    IdleMove,
    /// The HCA, its retries used up; or the peer's packets.
    #[strum(to_string = "by hardware")]
    Hardware,
}

/// What a [`Trace`] says.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum What {
    /// A connection was registered.
    Registered,
    /// A connection is gone.
    Closed,
    /// A connection was refused.
    Refused(Refusal),
    /// Both ends took themselves for the active side, or both for the passive: this end is this now.
    Role(Role),
    /// It has been unprotected for a while, and will be told of once.
    Unprotected {
        /// For how long.
        since: Duration,
        /// Why, and what to do about it.
        reason: Reason,
        /// The peer's end of its primary path.
        peer: PortAddress,
    },
    /// It is protected again after [`What::Unprotected`].
    ProtectedAgain,
    /// Protection changed.
    Protection {
        /// What it was.
        from: Protection,
        /// What it is.
        to: Protection,
        /// Why, unless armed.
        reason: Option<Reason>,
        /// What it covers, if armed.
        grade: Option<Grade>,
    },
    /// The association changed.
    Association {
        /// What it was.
        from: AssociationState,
        /// What it is.
        to: AssociationState,
    },
    /// A local port changed.
    Port {
        /// What it was good for.
        from: PortState,
        /// What it is good for.
        to: PortState,
    },
    /// An operator wants connections off a local port, or minds them no more.
    Drained(bool),
    /// The connection is on another path now.
    Migrated {
        /// The path it left.
        from: PathLids,
        /// The path it is on.
        to: PathLids,
        /// Who moved it.
        by: MigratedBy,
        /// Why.
        cause: MoveCause,
        /// The path it left was abandoned by hardware, and no local port tells why.
        suspect: bool,
        /// For how long it had stalled, if that is known.
        stall: Option<Stall>,
    },
    /// Probes of a path do not come back.
    PathSuspect {
        /// The path.
        path: PathLids,
        /// Connections that use it.
        connections: usize,
    },
    /// They come back again.
    PathAnswers {
        /// The path.
        path: PathLids,
        /// Connections that use it.
        connections: usize,
    },
    /// What an armed connection's protection covers.
    Grade(Grade),
    /// Its primary's port went down while no alternate was armed.
    PrimaryLost,
    /// A candidate was chosen and a path is asked for.
    Candidate(Candidate),
    /// A path source had no path.
    NoPath(Candidate, QueryError),
    /// LAP sent.
    LapSent(PathLids),
    /// LAP received.
    LapReceived(PathLids),
    /// APR sent.
    AprSent(ApStatus),
    /// APR received.
    AprReceived(ApStatus),
    /// SAP sent: how this end is, and whether it names a port for the alternate.
    SapSent {
        /// It does.
        suggests: bool,
    },
    /// SAP received, and answered with this.
    SapReceived(SpStatus),
    /// SPR received.
    SprReceived(SpStatus),
    /// The library was ordered to load this path.
    Load(PathLids),
    /// It goes to this local port, as its policy says.
    GoesTo(u8),
    /// The library was ordered to migrate away from this path.
    Migrate(PathLids),
    /// It is to leave this path though it waits for traffic.
    MoveIdle(PathLids),
    /// It has been ordered from one path to the other and back so often that it stays.
    ToAndFro,
    /// An order came too late: the QP was not as it expected.
    Stale,
    /// An order failed.
    OrderFailed {
        /// A positive errno.
        errno: u8,
    },
    /// An order was not answered: by the library, or by the kernel module for a queue pair of its own.
    LibrarySilent,
    /// The application was told.
    Event(AppEvent),
    /// A MAD was dropped.
    Dropped {
        /// Its name.
        message: &'static str,
        /// Its source LID.
        lid: Lid,
        /// Why.
        why: Drop,
    },
}

/// Why a MAD was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display)]
pub enum Drop {
    /// It does not come from a port that the association knows.
    #[strum(to_string = "from a port that the association does not know")]
    Stranger,
    /// It did not come in the connection's own partition.
    #[strum(to_string = "not in the connection's own partition")]
    Partition,
    /// It is for no association, or not for the state of it: a late copy, mostly.
    #[strum(to_string = "for no association, or late")]
    OutOfPlace,
    /// Its private data is not ours.
    #[strum(to_string = "private data is not apmd's")]
    Malformed,
    /// As many REQs as are allowed are parked.
    #[strum(to_string = "too many REQs are waiting")]
    Overflow,
}

impl Trace {
    /// How much it matters.
    pub fn level(&self) -> Level {
        match self.what {
            What::ProtectedAgain
            | What::GoesTo(_)
            | What::Port { .. }
            | What::PathAnswers { .. }
            | What::Drained(_)
            | What::Migrated { suspect: false, .. } => Level::Info,
            What::Unprotected { .. }
            | What::PathSuspect { .. }
            | What::Migrated { suspect: true, .. }
            | What::PrimaryLost
            | What::OrderFailed { .. }
            | What::LibrarySilent => Level::Warn,
            // Some programs make and drop hundreds of connections: as such they are no news.
            _ => Level::Debug,
        }
    }

    /// The state that was left and the one that was entered, for a log's fields `from` and `to`.
    pub fn change(&self) -> Option<(&dyn fmt::Display, &dyn fmt::Display)> {
        match &self.what {
            What::Protection { from, to, .. } => Some((from, to)),
            What::Association { from, to } => Some((from, to)),
            What::Port { from, to } => Some((from, to)),
            What::Migrated { from, to, .. } => Some((from, to)),
            _ => None,
        }
    }
}

/// One line, without connection, port, from and to: those are fields of their own.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Registered => f.write_str("connection registered"),
            What::Role(role) => write!(f, "peer has the same role: this end is {role} now"),
            What::Closed => f.write_str("connection closed"),
            What::Unprotected {
                since,
                reason,
                peer,
            } => write!(
                f,
                "connection unprotected for {} s: {reason} (peer: lid {}, gid {})",
                since.as_secs(),
                peer.lid,
                peer.gid
            ),
            What::ProtectedAgain => f.write_str("connection protected again"),
            What::Refused(refusal) => write!(f, "connection refused: {refusal}"),
            What::Protection {
                reason: None,
                grade: Some(grade),
                ..
            }
            | What::Grade(grade) => write!(f, "connection {}", grade.armed()),
            What::Protection {
                to, reason: None, ..
            } => write!(f, "connection {to}"),
            What::Protection {
                to,
                reason: Some(reason),
                ..
            } => {
                write!(f, "connection {to}: {reason}")
            }
            What::Association { to, .. } => write!(f, "association {to}"),
            What::Port { to, .. } => write!(f, "port {to}"),
            What::Drained(true) => f.write_str("port drained: connections leave it"),
            What::Drained(false) => f.write_str("port no longer drained"),
            What::Migrated {
                by, cause, stall, ..
            } => write!(f, "migrated {by}: {}", Why(*cause, *stall)),
            What::PathSuspect { path, connections } => write!(
                f,
                "path suspect, its probes do not come back: {path} (used by {connections} connections)"
            ),
            What::PathAnswers { path, connections } => write!(
                f,
                "path answers again: {path} (used by {connections} connections)"
            ),
            What::PrimaryLost => f.write_str("primary lost its port while not armed"),
            What::Candidate(candidate) => write!(f, "asking for a path: {candidate}"),
            What::NoPath(candidate, error) => write!(f, "no path: {candidate}: {error}"),
            What::LapSent(path) => write!(f, "LAP sent: {path}"),
            What::LapReceived(path) => write!(f, "LAP received: {path}"),
            What::AprSent(status) => write!(f, "APR sent: {status}"),
            What::AprReceived(status) => write!(f, "APR received: {status}"),
            What::SapSent { suggests: true } => {
                f.write_str("SAP sent, with a port for the alternate")
            }
            What::SapSent { suggests: false } => f.write_str("SAP sent"),
            What::SapReceived(status) => write!(f, "SAP received, SPR sent: {status}"),
            What::SprReceived(status) => write!(f, "SPR received: {status}"),
            What::Load(path) => write!(f, "loading alternate: {path}"),
            What::GoesTo(port) => write!(f, "going to port {port}, as its policy says"),
            What::Migrate(path) => write!(f, "migrating away from {path}"),
            What::MoveIdle(path) => write!(f, "moving away from {path} while idle"),
            What::ToAndFro => f.write_str(
                "moved three times within a minute between the same two paths, or eight times in all, without a \
                 port's loss; staying until a port changes",
            ),
            What::Stale => f.write_str("order was stale, QP not modified"),
            What::OrderFailed { errno } => write!(f, "order failed: errno {errno}"),
            What::LibrarySilent => f.write_str("order not answered by the library or the kernel module"),
            What::Event(event) => write!(f, "event to the application: {event}"),
            What::Dropped { message, lid, why } => {
                write!(f, "{message} from lid {lid} dropped: {why}")
            }
        }
    }
}
