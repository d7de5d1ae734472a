// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose share of what is bounded a connection has.

use std::fmt;
use std::rc::Rc;

use cm_msgs::Lid;

/// Who shares with others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Sharer {
    /// A user's programs.
    User(u32),
    /// A kernel ULP, with one port of another host. All ULPs are the kernel's, so a user says nothing of
    /// them; and how often others connect to a target is theirs to choose.
    Ulp {
        /// Its module's.
        name: Rc<str>,
        /// The far port's first LID.
        peer: Lid,
    },
}

impl Sharer {
    /// The far port of a kernel ULP's.
    pub(crate) fn peer(&self) -> Option<Lid> {
        match self {
            Self::User(_) => None,
            Self::Ulp { peer, .. } => Some(*peer),
        }
    }
}

impl fmt::Display for Sharer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Ulp { name, peer } => write!(f, "{name}, with LID {peer}"),
        }
    }
}
