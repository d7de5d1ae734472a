// SPDX-License-Identifier: MIT OR Apache-2.0
//! What paths share with a connection's primary inside the fabric.

use alloc::vec::Vec;
use core::fmt;

use cm_msgs::path::Path;
use cm_msgs::{Gid, Lid};
use serde::{Deserialize, Serialize};

use crate::id::PortId;

/// A path through the fabric by its ends: from a local port to a remote one, there and back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathEnds {
    /// The local port.
    pub port: PortId,
    /// Its GID.
    pub sgid: Gid,
    /// The remote port's GID.
    pub dgid: Gid,
    /// The local LID; `None`: any of the port's, its base LID most likely.
    pub slid: Option<Lid>,
    /// The remote LID, likewise.
    pub dlid: Option<Lid>,
}

/// The question what some paths share with a connection's primary.
#[derive(Clone, PartialEq, Debug)]
pub struct Assess {
    /// Names it in the answer.
    pub query: u32,
    /// The primary path.
    pub primary: Path,
    /// The loaded alternate, if there is one, and the candidates.
    pub paths: Vec<PathEnds>,
}

/// What a path shares with the primary though it need not: an only leaf switch, which every path
/// between the two hosts takes, is not counted. Both directions are looked at; what both share
/// counts once. No way through a fabric has more than 64 of either (IBA 14.2.1.2: so many hops).
/// Ordered from least to most.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Overlap {
    /// Switches.
    pub switches: u8,
    /// Links, those between shared switches included.
    pub links: u8,
}

impl Overlap {
    /// Whether nothing avoidable is shared.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: u8, s: &'static str| if n == 1 { "" } else { s };
        let Self { switches, links } = *self;
        match (switches, links) {
            (0, 0) => f.write_str("nothing avoidable shared"),
            (0, _) => write!(f, "{links} link{} shared", plural(links, "s")),
            (_, 0) => write!(f, "{switches} switch{} shared", plural(switches, "es")),
            _ => write!(
                f,
                "{switches} switch{} and {links} link{} shared",
                plural(switches, "es"),
                plural(links, "s")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn an_overlap_in_words() {
        let words = |switches, links| Overlap { switches, links }.to_string();
        assert_eq!(words(0, 0), "nothing avoidable shared");
        assert_eq!(words(1, 0), "1 switch shared");
        assert_eq!(words(0, 2), "2 links shared");
        assert_eq!(words(2, 1), "2 switches and 1 link shared");
    }
}
