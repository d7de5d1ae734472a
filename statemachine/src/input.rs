// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the engine is told.

use alloc::vec::Vec;
use core::time::Duration;

use cm_msgs::control::{PolicyOverride, Refusal, Register, Report};
use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, Guid, Lid, PKey, cm};
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};

use crate::id::{ConnId, Payer, PortId};
use crate::notices::Notice;
use crate::overlap::Overlap;
use crate::probe::{Answerer, Probe};

/// A local port as it is now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortStatus {
    /// Logical state Active, and nothing contradicts it.
    pub active: bool,
    /// Its base LID; 0 before the SM gave one.
    pub lid: Lid,
    /// LID mask control, 0..=7.
    pub lmc: u8,
    /// The SM's LID; 0 before there is one.
    pub sm_lid: Lid,
    /// Port GUID of the SM; 0 while that is not known. Ports whose SMs differ are in different subnets.
    pub sm_guid: Guid,
    /// GID index 0.
    pub gid: Gid,
    /// Its P_Key table, empty entries left out.
    pub pkeys: Vec<PKey>,
    /// Active MTU, IBA code.
    pub mtu: u8,
    /// What its link carries, IBA code; 0 if that is not known.
    pub rate: u8,
    /// The device claims automatic path migration.
    pub apm: bool,
    /// A QP of the device was given another primary path in SQD when this was tried.
    pub moves_idle: bool,
    /// Link layer InfiniBand.
    pub infiniband: bool,
    /// Ports of its device.
    pub device_ports: u8,
}

/// Where a MAD came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MadSource {
    /// The local port it came in by.
    pub port: PortId,
    /// Source LID: where an answer goes. What a GRH names besides is the sender's word.
    pub lid: Lid,
    /// Source QP; 1 for a daemon's.
    pub qpn: u32,
    /// Its service level, which an answer takes as well.
    pub sl: u8,
    /// The low bits of the local LID that it came to, from which an answer goes.
    pub path_bits: u8,
    /// The partition that it came in: the entry of the port's own P_Key table, so the membership is the
    /// port's and not the sender's.
    pub pkey: PKey,
    /// Lower half of its transaction ID: all that survives umad.
    pub transaction_id: u32,
}

impl MadSource {
    /// Whether it came in this partition, whichever the memberships.
    pub(crate) fn is_in(&self, pkey: PKey) -> bool {
        self.pkey.partition() != 0 && self.pkey.partition() == pkey.partition()
    }
}

/// Why a path query has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// No source answered in time.
    #[error("no path source answered")]
    Timeout,
    /// The source says that there is no such path.
    #[error("no such path")]
    NoPath,
    /// The source is overloaded.
    #[error("the path source is busy")]
    Busy,
    /// The query could not be sent.
    #[error("no path source can be reached from that port")]
    Unreachable,
    /// The source does not take this question, or its answer makes no sense.
    #[error("the path source refuses, or answers nonsense")]
    Refused,
}

/// A kind of path source.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Display,
    EnumString,
    Serialize,
    Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownOrigin, parse_err_fn = UnknownOrigin::new)]
pub enum Origin {
    /// The subnet administrator.
    Sa,
    /// An ACM service.
    Acm,
    /// Fabric data: forwarding tables and links, as SSA distributes them.
    Ssa,
    /// A file.
    Static,
}

/// A word that names no path source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no path source; there are sa, acm, ssa, static")]
pub struct UnknownOrigin;

impl UnknownOrigin {
    fn new(_: &str) -> Self {
        Self
    }
}

/// What an operator wants of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Leave the primary for the alternate, if both ends are armed within this time.
    Migrate {
        /// After that it is forgotten.
        within: Duration,
    },
    /// Look for an alternate again now, whatever was found out before.
    Rearm,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// The moment that `poll_timeout` named has come.
    Timeout,
    /// A local port is (now) like this; `None`: it is gone.
    Port(PortId, Option<PortStatus>),
    /// This library (or the kernel module) understands [`Order::MoveIdle`](crate::Order::MoveIdle).
    MovesIdle(u32),
    /// A library registers a connection.
    Register(ConnId, Payer, Register),
    /// A connection that whoever has its QP cannot give an alternate: operators and its peer are told.
    Refused(ConnId, Payer, Register, Refusal),
    /// A library reports on a connection.
    Report(ConnId, Report),
    /// How a connection is to be protected, from now on: all that is said of it in particular.
    Policy(ConnId, PolicyOverride),
    /// A library has closed a connection.
    Close(ConnId),
    /// The same, because its application disconnected: the peer's application is to hear of it.
    Disconnect(ConnId),
    /// A library's socket is gone, and every connection of it with it.
    ClientGone(u32),
    /// A CM message of a peer's daemon.
    Mad(MadSource, cm::Message),
    /// MADs come in by this local port faster than they are handled: what others send may be late.
    Crowded(PortId),
    /// The answer to a probe, by the path that it names: whoever is at its far end is there.
    Probed(Probe, Answerer),
    /// Answer to a path query.
    Paths {
        /// The query's number.
        query: u32,
        /// The records, best first.
        result: Result<Vec<PathRecord>, QueryError>,
        /// The source that answered; `None` where none did.
        origin: Option<Origin>,
    },
    /// Answer to an [`Assess`](crate::Assess).
    Assessed {
        /// Its number.
        query: u32,
        /// What each of its paths shares with the primary, in its order. `None`: nobody knows.
        overlaps: Vec<Option<Overlap>>,
    },
    /// The fabric is known, or is known to be, another than before: what paths share may have
    /// changed. All connections look again, a few at a time.
    FabricChanged,
    /// Subnet administration told a local port something by itself, as a MAD from its LID says. Paths
    /// are probed sooner and asked for again because of it; nothing else comes of it.
    Notice(PortId, Notice),
    /// An operator wants something of a connection.
    Command(ConnId, Command),
    /// An operator wants connections off a port (true), or minds them no more. Kept until the engine
    /// ends, also while the port is gone.
    Drain(PortId, bool),
}
