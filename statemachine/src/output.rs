// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the engine wants done.

use cm_msgs::control::{AppEvent, Load, Migrate, Refusal, Stand};
use cm_msgs::{Gid, Lid, PKey, cm};

use crate::id::PortId;
use crate::overlap::Assess;

/// A CM message to a peer's daemon (QP1 of a port of the peer's).
#[derive(Clone, Debug)]
pub struct Transmit {
    /// The local port to send from.
    pub port: PortId,
    /// The peer port's LID.
    pub lid: Lid,
    /// The service level.
    pub sl: u8,
    /// The low bits of the local LID to send from.
    pub path_bits: u8,
    /// The partition to send in; the port may hold its key with the other membership.
    pub pkey: PKey,
    /// Lower half of the transaction ID.
    pub transaction_id: u32,
    /// The message.
    pub message: cm::Message,
}

/// A question to the path sources.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PathQuery {
    /// Names it in the answer.
    pub query: u32,
    /// The local port that the path starts from.
    pub port: PortId,
    /// Source GID.
    pub sgid: Gid,
    /// Destination GID.
    pub dgid: Gid,
    /// This source LID (of the port's 2^LMC), or any.
    pub slid: Option<Lid>,
    /// This destination LID, or any.
    pub dlid: Option<Lid>,
    /// The partition.
    pub pkey: PKey,
}

/// One order to a connection's library.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Order {
    /// Load an alternate path.
    Load(Load),
    /// Migrate now.
    Migrate(Migrate),
    /// Migrate now if it is Armed; if it waits for traffic in ReArm, make the alternate its primary in SQD.
    MoveIdle(Migrate),
    /// It may, or may no longer, migrate by itself. Nothing answers this.
    Stand(Stand),
    /// Query the QP and report; the report repeats this token.
    Query(u32),
    /// Tell it that nobody will manage the connection.
    Refuse(Refusal),
    /// Tell the application.
    Event(AppEvent, u8),
    /// The peer's application has disconnected; or, of a connection that ended so at this end, the
    /// peer's daemon has heard it.
    Disconnected,
}

/// A question, which is answered by an input with its number, or the withdrawal of one.
#[derive(Clone, PartialEq, Debug)]
pub enum Query {
    /// Which paths are there? Answered by [`Input::Paths`](crate::Input::Paths).
    Paths(PathQuery),
    /// What do paths share with a primary? Answered by [`Input::Assessed`](crate::Input::Assessed).
    Assess(Assess),
    /// The paths that were asked for under this number are not waited for any more. Nothing answers this.
    Withdraw(u32),
}
