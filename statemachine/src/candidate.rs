// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thinkable alternates of a connection, and which of them is best.

use core::fmt;

use cm_msgs::{Gid, Lid};

use crate::input::PortId;

/// A thinkable alternate path. No path record has been asked for yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The local port.
    pub port: PortId,
    /// Its GID.
    pub sgid: Gid,
    /// The remote port's GID.
    pub dgid: Gid,
    /// The local LID, where the port has several.
    pub slid: Option<Lid>,
    /// The remote LID, where the port has several.
    pub dlid: Option<Lid>,
    /// How good it is.
    pub score: Score,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "port {} to {} ({})",
            self.port.port, self.dgid, self.score
        )
    }
}

/// How good a candidate is: the least is the best.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Score {
    /// What speaks against its working at all.
    pub doubt: Doubt,
    /// What it shares with the primary.
    pub shared: Shared,
    /// Spreads connections over equal candidates.
    pub tie: u32,
}

impl Score {
    /// Whether it is better by more than the tie-break.
    pub fn beats(self, other: Self) -> bool {
        (self.doubt, self.shared) < (other.doubt, other.shared)
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.shared)?;
        match self.doubt {
            Doubt::None => Ok(()),
            doubt => write!(f, ", {doubt}"),
        }
    }
}

/// What a candidate shares with the primary, from least to most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Shared {
    /// Another local and another remote port.
    Neither,
    /// Another port on one side only.
    OnePort,
    /// The same two ports, by another LID.
    BothPorts,
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Neither => "other ports on both sides",
            Self::OnePort => "other port on one side",
            Self::BothPorts => "same ports, other LID",
        })
    }
}

/// What speaks against a candidate's working at all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Doubt {
    /// Nothing.
    None,
    /// The peer or a path source said that its remote port is out of service.
    RemoteDown,
    /// Hardware gave it up a short time ago, without a visible cause.
    Suspect,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no doubt",
            Self::RemoteDown => "remote port was out of service",
            Self::Suspect => "suspect",
        })
    }
}
