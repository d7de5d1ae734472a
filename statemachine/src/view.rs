// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator may see: plain values, made when asked for.

use alloc::vec::Vec;
use core::fmt;

use cm_msgs::association;
use cm_msgs::cm::{ApStatus, RejReason};
use cm_msgs::control::{MigrationState, QpState, Refusal, Role};
use cm_msgs::path::{Path, PortAddress};
use cm_msgs::{Gid, Guid, Lid, Qpn};
use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};

use crate::candidate::Candidate;
use crate::id::{ConnId, PortId};
use crate::input::{Origin, QueryError};
use crate::overlap::Overlap;
pub use crate::port::PortState;
use crate::time::Time;

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
    /// Why it would not; `None` exactly when `protection` is `Armed`.
    pub reason: Option<Reason>,
    /// The candidate that is loaded or being negotiated.
    pub chosen: Option<Candidate>,
    /// The one that was ranked after it.
    pub runner_up: Option<Candidate>,
    /// The two daemons' shared state.
    pub association: AssociationView,
    /// What happened so far.
    pub counters: ConnectionCounters,
    /// When protection last changed.
    pub changed: Time,
}

/// Whether a connection would survive the loss of its primary path; the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Display, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Protection {
    /// It would.
    Armed,
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
    /// No: this daemon does not look after it.
    Refused,
    /// No: the QP has left RTS.
    Broken,
}

/// Why a connection is not armed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// This daemon refused it.
    Refused(Refusal),
    /// The QP is in this state.
    Qp(QpState),
    /// Its client registered so many connections that it has to wait for its turn.
    Queued,
    /// The peer's daemon has not answered yet.
    Opening,
    /// The peer's daemon waits for its application to register.
    PeerNotRegistered,
    /// No daemon answers at the peer.
    PeerNoApmd,
    /// The peer's daemon refuses the connection; its reason, when it gave one.
    PeerRefused(Option<association::Refusal>),
    /// The peer's daemon turned the association down.
    Rejected(RejReason),
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
    /// A second port is up, but for so short a time that it is not trusted yet.
    PortSettling,
    /// A path source was asked.
    WaitingForPath,
    /// No candidate has a path; the last answer.
    NoPath(QueryError),
    /// Paths were found, but none that fits (MTU, P_Key, other way than the primary).
    NoFittingPath,
    /// LAP sent.
    WaitingForApr,
    /// The peer did not answer the LAP.
    NoApr,
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
    /// The primary's local port is down, and no alternate was armed.
    PrimaryPortDown,
    /// The connection migrated; a new alternate has not been chosen yet.
    JustMigrated,
}

/// Why, and what to do about it where an operator can do something.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused(refusal) => return write!(f, "{refusal}"),
            Self::Qp(state) => return write!(f, "the QP is in state {state}"),
            Self::Queued => "its program registers many connections, and this one waits its turn",
            Self::Opening => "waiting for the peer's apmd",
            Self::PeerNotRegistered => {
                "the peer's program has not registered the connection; \
                 run it under 'apmctl run' on the peer's host"
            }
            Self::PeerNoApmd => "peer: no apmd; start apmd on the peer's host",
            Self::PeerRefused(None) => "the peer's apmd refuses; see 'apmctl conn' on its host",
            Self::PeerRefused(Some(refusal)) => {
                return write!(f, "the peer's apmd refuses: {refusal}");
            }
            // An apmd of version 1 does not know the second.
            Self::Rejected(RejReason::InvalidClassVersion | RejReason::Unsupported) => {
                "the peer runs another version of apmd; install the same one on both hosts"
            }
            Self::Rejected(reason) => return write!(f, "the peer's apmd rejects: {reason}"),
            Self::PeerClosed => {
                "the peer's program has closed the connection, or does not run under 'apmctl run' \
                 any more"
            }
            Self::WaitingForReq => {
                "the peer's apmd has not asked for the connection; start apmd on the peer's host \
                 and run its program under 'apmctl run'"
            }
            Self::WaitingForLap => {
                "the peer's apmd has not proposed a path; see 'apmctl conn' on its host"
            }
            Self::NoSecondPort => "no second port is up on this host; see 'apmctl port'",
            Self::NoSecondPortAtPeer => {
                "no second port is up at the peer; see 'apmctl port' on its host"
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
            Self::WaitingForApr => "waiting for the peer's APR",
            Self::NoApr => "the peer's apmd did not answer the LAP",
            Self::Apr(status) => return write!(f, "the peer answered the LAP: {status}"),
            Self::AprSent(status) => return write!(f, "the peer's LAP was answered: {status}"),
            Self::WaitingForLibrary => "waiting for the program's library",
            Self::LibrarySilent => "the program's library did not answer; is its process stopped?",
            Self::Stale => "the QP changed meanwhile",
            Self::LoadFailed(errno) => {
                return write!(f, "loading the alternate failed: errno {errno}");
            }
            Self::MigrateFailed(errno) => return write!(f, "migrating failed: errno {errno}"),
            Self::WaitingForTraffic => "alternate loaded, waiting for inbound traffic",
            Self::AlternatePortDown => "the alternate's port is down",
            Self::AlternatePortDownAtPeer => {
                "the alternate's port at the peer is down; see 'apmctl port' on its host"
            }
            Self::PrimaryPortDown => {
                "the primary's port is down and no alternate was armed; bring it up"
            }
            Self::JustMigrated => "migrated, next alternate not chosen yet",
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
    pub migrations: u64,
    /// Of these, ordered by this daemon.
    pub ordered_migrations: u64,
    /// Times it became armed.
    pub rearms: u64,
    /// LAPs sent, copies not counted.
    pub laps_sent: u64,
    /// LAPs received, copies not counted.
    pub laps_received: u64,
    /// Path queries made.
    pub queries: u64,
    /// Alternates loaded.
    pub loads: u64,
    /// Orders that came too late.
    pub stale_loads: u64,
    /// Orders that failed.
    pub failed_orders: u64,
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
    /// Connections whose primary path uses it.
    pub primaries: usize,
    /// Connections whose alternate path uses it.
    pub alternates: usize,
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
    /// Local ports lost.
    pub ports_lost: u64,
    /// Associations opened.
    pub associations: u64,
}
