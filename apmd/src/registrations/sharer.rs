// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose share of what is bounded a connection has.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use cm_msgs::Lid;
use statemachine::Payer;

use crate::io::person::Person;

/// Who shares with others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Sharer {
    /// A user's programs.
    User(Person),
    /// A kernel ULP, with one port of another host. All ULPs are the kernel's, so a user says nothing of
    /// them; and how often others connect to a target is theirs to choose.
    Ulp {
        /// Its module's.
        name: Rc<str>,
        /// The far port.
        peer: UlpPeer,
    },
}

/// A port of another host that a kernel ULP is connected with, with all its LIDs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct UlpPeer {
    /// Of its subnet's GIDs: in another subnet that LID is another port's.
    pub(crate) prefix: u64,
    /// Its base LID.
    pub(crate) lid: Lid,
}

impl Sharer {
    /// The far port of a kernel ULP's.
    pub(crate) fn peer(&self) -> Option<UlpPeer> {
        match self {
            Self::User(_) => None,
            Self::Ulp { peer, .. } => Some(*peer),
        }
    }

    /// As the engine knows its owner: a user with all programs, a ULP with all peers. The numbers are made
    /// of what they stand for, so that nobody has to remember them.
    pub(crate) fn payer(&self) -> Payer {
        match self {
            Self::User(user) => Payer(user.uid().into()),
            Self::Ulp { name, .. } => {
                let mut hasher = DefaultHasher::new();
                name.hash(&mut hasher);
                // No user's, and in 63 bits no two modules' names meet.
                Payer(hasher.finish() | 1 << 63)
            }
        }
    }
}

impl fmt::Display for Sharer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => write!(f, "user {user}"),
            Self::Ulp { name, peer } => write!(f, "{name}, with LID {}", peer.lid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_ulps_pay_for_themselves_and_nobody_for_another() {
        let ulp = |name: &str, peer| Sharer::Ulp {
            name: Rc::from(name),
            peer: UlpPeer {
                prefix: 0xfe80 << 48,
                lid: Lid(peer),
            },
        };
        let payers = [
            Sharer::User(Person::without_ranges(0)),
            Sharer::User(Person::without_ranges(1000)),
            Sharer::User(Person::without_ranges(u32::MAX)),
            ulp("ib_srp", 9),
            ulp("nvme_rdma", 9),
        ]
        .map(|sharer| sharer.payer());
        for (place, payer) in payers.iter().enumerate() {
            assert!(!payers[..place].contains(payer), "{payers:?}");
        }
        assert_eq!(ulp("ib_srp", 9).payer(), ulp("ib_srp", 10).payer());
    }
}
