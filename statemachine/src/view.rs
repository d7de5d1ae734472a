// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator may see: plain values, made when asked for.

mod moves;

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use cm_msgs::association;
use cm_msgs::cm::{ApStatus, RejReason};
use cm_msgs::control::{MigrationState, Mode, Policy, PolicyOverride, QpState, Refusal, Role};
use cm_msgs::path::{Path, PortAddress};
use cm_msgs::{Gid, Guid, Lid, PKey, Qpn};
use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};

pub(crate) use self::moves::Why;
pub use self::moves::{MoveCause, MoveCounts, Stall};
use crate::candidate::Candidate;
use crate::id::{ConnId, PortId};
use crate::input::{Origin, QueryError};
use crate::overlap::Overlap;
pub use crate::port::PortState;
use crate::probe::PathHealth;
use crate::time::Time;

/// What a connection is known by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its name.
    pub id: ConnId,
    /// Node GUID of its device.
    pub node_guid: Guid,
    /// Its QP.
    pub qpn: Qpn,
    /// The local port that its primary path leaves from.
    pub port: u8,
    /// The LID that the primary path leads to.
    pub dlid: Lid,
}

/// A connection as it is now.
#[derive(Clone, PartialEq, Debug)]
pub struct ConnectionView {
    /// Its name.
    pub id: ConnId,
    /// Which side its application is.
    pub role: Role,
    /// The application asked for APM itself.
    pub opted_in: bool,
    /// Node GUID of its device.
    pub node_guid: Guid,
    /// Its QP.
    pub qpn: Qpn,
    /// The peer's QP.
    pub peer_qpn: Qpn,
    /// How it is to be protected.
    pub policy: Policy,
    /// What of that was said of it in particular.
    pub policy_override: PolicyOverride,
    /// State of its QP.
    pub qp_state: QpState,
    /// Path migration state of its QP.
    pub migration: MigrationState,
    /// The primary path.
    pub primary: Path,
    /// The alternate path, when one is loaded.
    pub alternate: Option<Path>,
    /// Where the alternate's path record came from; `None`: not from here (passive side, or loaded
    /// before this daemon's time).
    pub alternate_origin: Option<Origin>,
    /// What the alternate shares with the primary inside the fabric, where the active side knows.
    pub overlap: Option<Overlap>,
    /// Whether it would survive the loss of its primary path.
    pub protection: Protection,
    /// What that covers; `None` unless it is armed.
    pub grade: Option<Grade>,
    /// What probes say of the primary.
    pub primary_probe: ProbeView,
    /// What probes say of the alternate.
    pub alternate_probe: ProbeView,
    /// Why it would not; `None` exactly when `protection` is `Armed`.
    pub reason: Option<Reason>,
    /// Its library may migrate it by itself when the primary's local port fails.
    pub standing_order: bool,
    /// The candidate that is loaded or being negotiated.
    pub chosen: Option<Candidate>,
    /// The best one besides it.
    pub runner_up: Option<Candidate>,
    /// The two daemons' shared state.
    pub association: AssociationView,
    /// What happened so far.
    pub counters: ConnectionCounters,
    /// When protection last changed.
    pub changed: Time,
    /// Why it has not left its primary, if an operator wants that, or the peer or probes would have it.
    pub held: Option<Held>,
    /// What would keep it from leaving its primary now, before the peer is asked, if an operator wanted that.
    pub obstacle: Option<Held>,
    /// What happened to it, the latest first.
    pub history: Vec<Past>,
}

/// What keeps a connection from leaving a primary that works.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Display)]
pub enum Held {
    /// Nothing: the order is on its way.
    #[strum(to_string = "it is migrating")]
    Migrating,
    /// This end has no armed alternate; the connection's `reason` says why.
    #[strum(to_string = "it is not armed")]
    NotArmed,
    /// The alternate is over a port that is drained itself.
    #[strum(
        to_string = "its alternate is over a drained port, here or at the peer, and it has no other"
    )]
    AlternateDrained,
    /// An order failed a moment ago.
    #[strum(to_string = "its program's library failed to migrate it, and is asked again soon")]
    OrderFailed,
    /// The two ends may be about to have different alternates.
    #[strum(to_string = "its alternate is being agreed on with the peer")]
    Negotiating,
    /// Nothing shows that its alternate carries packets.
    #[strum(to_string = "no probe of its alternate has come back yet")]
    Unverified,
    /// The peer has not answered that this end leaves.
    #[strum(to_string = "the peer's apmd has not answered yet")]
    PeerSilent,
    /// It was ordered from one of its paths to the other three times within a minute, or over whichever paths eight
    /// times, though no port had changed.
    #[strum(
        to_string = "it was moved three times within a minute between its two paths, or eight times in all, without a \
                     port's loss; it stays until a port changes or the minute is over"
    )]
    ToAndFro,
    /// The peer's QP would not follow.
    #[strum(to_string = "the peer's end is not armed: it waits for traffic")]
    PeerNotArmed,
}

/// Something that happened to a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Past {
    /// How long ago, to a hundredth of a second.
    pub ago: Duration,
    /// What it was.
    pub what: Transition,
}

/// What can happen to a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transition {
    /// Its protection is another.
    Protection {
        /// What it is.
        to: Protection,
        /// Why, unless armed.
        reason: Option<Reason>,
    },
    /// Its association is another.
    Association(AssociationState),
    /// It is on another path.
    Migrated {
        /// The local port that it left.
        from: u8,
        /// The local port that it is on.
        to: u8,
        /// Why.
        cause: MoveCause,
        /// For how long it had stalled; unknown where no port was lost and its path was not probed, or if it left a
        /// path that worked.
        stall: Option<Stall>,
    },
    /// Its primary's port went down while no alternate was armed.
    PrimaryLost,
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protection { to, reason: None } => write!(f, "{to}"),
            Self::Protection {
                to,
                reason: Some(reason),
            } => write!(f, "{to}: {reason}"),
            Self::Association(state) => write!(f, "association {state}"),
            Self::Migrated {
                from,
                to,
                cause,
                stall,
            } => {
                let why = Why(*cause, *stall);
                write!(f, "migrated from port {from} to port {to}: {why}")
            }
            Self::PrimaryLost => f.write_str("its primary's port went down while it was not armed"),
        }
    }
}

/// Whether a connection would survive the loss of its primary path; the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Display, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Protection {
    /// It would.
    Armed,
    /// An alternate is loaded, and the connection is idle. If its primary is lost both ends are moved to the alternate in
    /// SQD, and the HCA sends again what was sent meanwhile.
    #[strum(to_string = "idle (movable)")]
    IdleMovable,
    /// An alternate is loaded; the QP waits for inbound traffic to arm (IBA 17.2.8.1).
    Rearming,
    /// The same, for so long that the connection is idle.
    #[strum(to_string = "rearming (idle)")]
    RearmingIdle,
    /// Its library was ordered to load an alternate.
    Loading,
    /// Its library was ordered to migrate.
    Migrating,
    /// A path is looked for, or talked about with the peer.
    Negotiating,
    /// No, and nothing is under way at this moment.
    Unprotected,
    /// No: this daemon does not manage it.
    Refused,
    /// No: the QP has left RTS.
    Broken,
}

/// What the protection of an armed connection covers; the best first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Grade {
    /// Other ports on both ends, and no switch known that both paths could do without and share.
    Full,
    /// Both paths take the same switches or links, so many, though they need not.
    SameSwitch(Overlap),
    /// Both paths take the same port on one end or on both.
    SamePort,
    /// No probe of the alternate has come back yet, or nobody probes it.
    Unverified,
}

impl Grade {
    /// "armed", and what that does not cover.
    pub fn armed(self) -> impl fmt::Display {
        fmt::from_fn(move |f| match self {
            Self::Full => f.write_str("armed"),
            _ => write!(f, "armed ({self})"),
        })
    }
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full"),
            Self::SameSwitch(overlap) => write!(f, "{overlap}"),
            Self::SamePort => f.write_str("same port"),
            Self::Unverified => f.write_str("unverified"),
        }
    }
}

/// What probes say of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProbeView {
    /// What is known.
    pub health: PathHealth,
    /// Since the last one came back.
    pub age: Option<Duration>,
}

/// Why a connection is not armed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// This daemon refused it.
    Refused(Refusal),
    /// The QP is in this state.
    Qp(QpState),
    /// So many connections begin, of its owner's or in all, that it has to wait for its turn.
    Queued,
    /// The peer's daemon has not answered yet.
    Opening,
    /// The peer's daemon waits for its application to register.
    PeerNotRegistered,
    /// No daemon answers at the peer.
    PeerNoApmd,
    /// The peer's daemon refuses the connection; its reason, when it gave one.
    PeerRefused(Option<association::Refusal>),
    /// The peer's daemon turned the association down, with this code ([`RejReason`]). There are ten reasons in each
    /// connection's history, so their size counts.
    Rejected(u16),
    /// The peer's daemon closed the association.
    PeerClosed,
    /// Passive side: the peer's daemon has not asked yet.
    WaitingForReq,
    /// Passive side: the peer's daemon proposes the alternate, and has not yet.
    WaitingForLap,
    /// No second port is up on this host.
    NoSecondPort,
    /// No second port is up at the peer.
    NoSecondPortAtPeer,
    /// This local port would do, but it is not in the connection's partition, whose P_Key this is.
    NotInPartition(u8, PKey),
    /// The same of all ports of the peer's that would do, as far as path sources tell.
    NoPathInPartition(PKey),
    /// A second port is up, but for so short a time that it is not trusted yet.
    PortSettling,
    /// A path source was asked.
    WaitingForPath,
    /// No candidate has a path; the last answer.
    NoPath(QueryError),
    /// Paths were found, but none that fits (MTU, P_Key, other way than the primary).
    NoFittingPath,
    /// The path that was found leads to another LID than the peer's port has, as the peer says.
    OtherLid,
    /// The peer names a port that is this host's, or another's as far as is known.
    PortOfAnother,
    /// LAP sent.
    WaitingForApr,
    /// The peer did not answer the LAP.
    NoApr,
    /// The peer asked for more time for the LAP, again and again.
    PeerLibrarySilent,
    /// The peer answered the LAP with this status.
    Apr(ApStatus),
    /// Passive side: the peer's last LAP was answered with this status.
    AprSent(ApStatus),
    /// The library was given an order.
    WaitingForLibrary,
    /// The library did not answer an order.
    LibrarySilent,
    /// The QP was not as the order expected.
    Stale,
    /// Loading failed; errno.
    LoadFailed(u8),
    /// Migrating failed; errno.
    MigrateFailed(u8),
    /// The alternate is loaded; the QP arms on inbound traffic.
    WaitingForTraffic,
    /// The QP is armed, but with an alternate on a local port that is down.
    AlternatePortDown,
    /// The QP is armed, but the peer says that its port of the alternate is out of service.
    AlternatePortDownAtPeer,
    /// The QP is armed, but probes of the alternate do not come back.
    AlternateSuspect,
    /// The QP is armed, but its HCA or the peer has refused the alternate.
    AlternateRefused,
    /// Active: a path was found, and probes of it do not come back.
    PathSuspect,
    /// Active: a path was found, and is probed.
    WaitingForProbe,
    /// The primary's local port is down, and no alternate was armed.
    PrimaryPortDown,
    /// The connection migrated; a new alternate has not been chosen yet.
    JustMigrated,
    /// The connection's policy allows none of the paths that there are.
    Policy(Mode),
    /// The peer's policy does not, as far as its answers tell.
    PeerPolicy(Mode),
}

/// The kernel module's answer to orders for a QP that is not in its care.
const NOT_PERMITTED: u8 = 1;
/// The answer where the other port's table of P_Keys lacks one, the library's as well as the module's. The
/// module's also for a QP that is gone, of which nothing is shown for long.
const NO_ENTRY: u8 = 2;

/// Why, and what to do about it where an operator can do something.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused(refusal) => return write!(f, "{refusal}"),
            Self::Qp(state) => return write!(f, "the QP is in state {state}"),
            Self::Queued => {
                "its user, or its kernel ULP, begins many connections, and this one waits its turn"
            }
            Self::Opening => "waiting for the peer's apmd",
            Self::PeerNotRegistered => {
                "the peer's program has not registered the connection; \
                 run it under 'apmctl run' on the peer's host, or load the kernel module apm there"
            }
            Self::PeerNoApmd => "peer: no apmd; start apmd on the peer's host",
            Self::PeerRefused(None) => "the peer's apmd refuses; see 'apmctl conn' on its host",
            Self::PeerRefused(Some(refusal)) => {
                return write!(f, "the peer's apmd refuses: {refusal}");
            }
            // An apmd of version 1 does not know the second.
            Self::Rejected(code) => match RejReason::from(*code) {
                RejReason::InvalidClassVersion | RejReason::Unsupported => {
                    "the peer runs another version of apmd; install the same one on both hosts"
                }
                reason => return write!(f, "the peer's apmd rejects: {reason}"),
            },
            Self::PeerClosed => {
                "the peer's program has closed the connection, or neither runs under 'apmctl run' \
                 any more nor is in the care of the kernel module apm there"
            }
            Self::WaitingForReq => {
                "the peer's apmd has not asked for the connection; start apmd on the peer's host \
                 and run its program under 'apmctl run', or load the kernel module apm there"
            }
            Self::WaitingForLap => {
                "the peer's apmd has not proposed a path; see 'apmctl conn' on its host"
            }
            Self::NoSecondPort => "no second port is up on this host; see 'apmctl port'",
            Self::NoSecondPortAtPeer => {
                "no second port is up at the peer; see 'apmctl port' on its host"
            }
            Self::NotInPartition(port, pkey) => {
                return write!(
                    f,
                    "port {port} is not in the connection's partition, P_Key {pkey}; have the \
                     subnet manager put it there"
                );
            }
            Self::NoPathInPartition(pkey) => {
                return write!(
                    f,
                    "no path to a second port of the peer's in the connection's partition, P_Key \
                     {pkey}; have the subnet manager put that port there"
                );
            }
            Self::PortSettling => "the second port came up just now",
            Self::WaitingForPath => "waiting for a path record",
            Self::NoPath(QueryError::NoPath) => {
                "no path to a second port of the peer's; see 'apmctl port' on its host"
            }
            Self::NoPath(error) => return write!(f, "{error}; see 'apmctl source'"),
            Self::NoFittingPath => {
                "no path fits the connection: its MTU and P_Key must be the second ports' as well"
            }
            Self::OtherLid => {
                "the path source and the peer's apmd name different LIDs of its second port; see 'apmctl source', and \
                 'apmctl port' on the peer's host"
            }
            Self::PortOfAnother => {
                "the peer's apmd names a port that is this host's or another host's; see 'apmctl port' on its host"
            }
            Self::WaitingForApr => "waiting for the peer's APR",
            Self::NoApr => "the peer's apmd did not answer the LAP",
            Self::PeerLibrarySilent => {
                "the program's library or the kernel module on the peer's host did not answer its apmd: check \
                 that the process there is not stopped"
            }
            Self::Apr(status) => return write!(f, "the peer answered the LAP: {status}"),
            Self::AprSent(status) => return write!(f, "the peer's LAP was answered: {status}"),
            Self::WaitingForLibrary => "its queue pair is being modified",
            Self::LibrarySilent => {
                "the program's library or the kernel module did not answer: check that the process \
                 is not stopped"
            }
            Self::Stale => "the QP changed meanwhile",
            Self::LoadFailed(NO_ENTRY) => {
                "loading the alternate failed: the connection's P_Key is not on the other port; have \
                 the subnet manager put it there"
            }
            Self::LoadFailed(NOT_PERMITTED) => {
                "loading the alternate failed: the kernel module leaves the QP alone; see 'apmctl qp'"
            }
            Self::LoadFailed(errno) => {
                return write!(f, "loading the alternate failed: errno {errno}");
            }
            Self::MigrateFailed(NOT_PERMITTED) => {
                "migrating failed: the kernel module leaves the QP alone; see 'apmctl qp'"
            }
            Self::MigrateFailed(errno) => return write!(f, "migrating failed: errno {errno}"),
            Self::WaitingForTraffic => "alternate loaded, waiting for inbound traffic",
            Self::AlternatePortDown => "the alternate's port is down",
            Self::AlternatePortDownAtPeer => {
                "the alternate's port at the peer is down; see 'apmctl port' on its host"
            }
            Self::AlternateSuspect => {
                "probes of the alternate do not come back: something between the hosts drops packets"
            }
            Self::AlternateRefused => {
                "the two ends do not have the same alternate; the peer's apmd is asked to agree on one again"
            }
            Self::PathSuspect => {
                "a path was found, but its probes do not come back: something between the hosts \
                 drops packets"
            }
            Self::WaitingForProbe => "waiting for a probe of the path",
            Self::PrimaryPortDown => {
                "the primary's port is down and no alternate was armed; bring it up"
            }
            Self::JustMigrated => "migrated, next alternate not chosen yet",
            Self::Policy(mode) => {
                return write!(
                    f,
                    "its policy, mode {mode}, allows none of the paths there are; see 'apmctl conn set'"
                );
            }
            Self::PeerPolicy(mode) => {
                return write!(
                    f,
                    "its policy at the peer, mode {mode}, allows none of the paths there are; \
                     see 'apmctl conn set' on its host"
                );
            }
        })
    }
}

/// The state that two daemons share on one connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssociationView {
    /// Where it stands.
    pub state: AssociationState,
    /// Our name for it.
    pub local_comm_id: Option<u32>,
    /// The peer's name for it.
    pub remote_comm_id: Option<u32>,
    /// The peer's ports, as far as known; LID 0 for those out of service when it told us.
    pub peer_ports: Vec<PortAddress>,
    /// Those of them that the peer's operator wants connections off.
    pub drained_peer_ports: Vec<Gid>,
    /// When the peer's daemon said something last in an open association with this device, this connection's or
    /// another's.
    pub heard: Option<Time>,
}

/// Where an association stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display)]
#[strum(serialize_all = "lowercase")]
pub enum AssociationState {
    /// Nothing was sent or heard yet.
    None,
    /// Active: REQ sent. Passive: REP sent.
    Opening,
    /// Active: the peer parked our REQ.
    Parked,
    /// Open.
    Established,
    /// Given up for now; asked again after a pause.
    Pausing,
    /// One side refuses.
    Refused,
}

/// What happened to a connection so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ConnectionCounters {
    /// Migrations, by hardware or ordered.
    pub migrations: u32,
    /// Of these, ordered by this daemon.
    pub ordered_migrations: u32,
    /// Of these, by a standing order: the library did not wait for the daemon.
    pub standing_migrations: u32,
    /// Of the ordered ones, without traffic: the QP waited for it, and got its alternate as primary in SQD.
    pub idle_moves: u32,
    /// Times it became armed.
    pub rearms: u32,
    /// LAPs sent, copies not counted.
    pub laps_sent: u32,
    /// LAPs received, copies not counted.
    pub laps_received: u32,
    /// Path queries made.
    pub queries: u32,
    /// Alternates loaded.
    pub loads: u32,
    /// Orders that came too late.
    pub stale_loads: u32,
    /// Orders that failed.
    pub failed_orders: u32,
}

/// A local port as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortView {
    /// Its name.
    pub id: PortId,
    /// What it is good for.
    pub state: PortState,
    /// Base LID.
    pub lid: Lid,
    /// LID mask control.
    pub lmc: u8,
    /// The SM's LID.
    pub sm_lid: Lid,
    /// GID index 0.
    pub gid: Gid,
    /// Active MTU, IBA code.
    pub mtu: u8,
    /// An operator wants connections off it.
    pub drained: bool,
    /// Connections whose primary path uses it.
    pub primaries: usize,
    /// Connections whose alternate path uses it.
    pub alternates: usize,
    /// How many ports its device has.
    pub device_ports: u8,
}

/// What happened to an engine so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Counters {
    /// MADs sent, copies included.
    pub mads_sent: u64,
    /// Of these, copies.
    pub mads_resent: u64,
    /// MADs received.
    pub mads_received: u64,
    /// Received, but not from a port that the association knows.
    pub mads_from_strangers: u64,
    /// Received, but not in the connection's own partition.
    #[serde(default)]
    pub mads_of_other_partitions: u64,
    /// Received, but for no association or not in its state: late copies, mostly.
    pub mads_out_of_place: u64,
    /// Received, with private data that is not ours.
    pub mads_malformed: u64,
    /// REQs turned away, because as many as are allowed are parked.
    pub parked_overflow: u64,
    /// Path queries made.
    pub queries: u64,
    /// Of these, without a path in answer.
    pub queries_failed: u64,
    /// Orders to libraries, events not counted.
    pub orders: u64,
    /// Reports for connections or orders that do not exist.
    pub reports_out_of_place: u64,
    /// Migrations.
    pub migrations: u64,
    /// The same, by cause.
    #[serde(flatten)]
    pub moves: MoveCounts,
    /// Local ports lost.
    pub ports_lost: u64,
    /// Associations opened.
    pub associations: u64,
    /// Notices of subnet administration.
    #[serde(default)]
    pub notices: u64,
    /// Of these, forgotten, because as many as are allowed wait.
    #[serde(default)]
    pub notices_dropped: u64,
    /// Probes of paths sent.
    #[serde(default)]
    pub probes_sent: u64,
    /// Probes that came back.
    #[serde(default)]
    pub probes_answered: u64,
    /// Times that a path became suspect.
    #[serde(default)]
    pub paths_suspected: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_orders_fail_with_is_said_in_words_where_it_has_but_one_meaning() {
        let failed = |reason: Reason| alloc::format!("{reason}");
        assert!(failed(Reason::LoadFailed(2)).contains("P_Key is not on the other port"));
        for reason in [Reason::LoadFailed(1), Reason::MigrateFailed(1)] {
            assert!(failed(reason).contains("the kernel module leaves the QP alone"));
        }
        // Of migrating, a QP that is gone.
        assert!(failed(Reason::MigrateFailed(2)).ends_with("errno 2"));
        assert!(failed(Reason::LoadFailed(22)).ends_with("errno 22"));
    }
}
