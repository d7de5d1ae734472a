// SPDX-License-Identifier: MIT OR Apache-2.0
//! Room for connections, and who has how much of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use statemachine::FairShare;

use super::{Sharer, UlpPeer};
use crate::io::person::Person;

/// Room for connections, of which a user or a kernel ULP has a share, and of this each far port of a ULP's
/// one: so no host takes what is another's by connecting. One room for those of libraries and those of the
/// kernel module together, since what both register is the engine's.
#[derive(Clone, Debug)]
pub(crate) struct Room(Rc<RefCell<Shares>>);

/// Who has a share of the whole.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Holder {
    User(Person),
    Ulp(Rc<str>),
}

#[derive(Debug)]
struct Shares {
    all: FairShare<Holder>,
    /// Of ULPs that hold something, by their names.
    peers: BTreeMap<Rc<str>, FairShare<UlpPeer>>,
    /// How often there may have come to be more room.
    changes: u64,
}

impl Room {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Rc::new(RefCell::new(Shares {
            all: FairShare::new(limit, 0),
            peers: BTreeMap::new(),
            changes: 0,
        })))
    }

    pub(crate) fn set_limit(&self, limit: usize) {
        let mut shares = self.0.borrow_mut();
        shares.all.set_limit(limit);
        shares.changes += 1;
    }

    pub(super) fn take(&self, sharer: &Sharer) -> bool {
        let mut shares = self.0.borrow_mut();
        match sharer {
            // Root has no quota.
            Sharer::User(user) => shares.all.take(Holder::User(*user), 1, user.is_root()),
            Sharer::Ulp { name, peer } => shares.take_for_ulp(name, *peer),
        }
    }

    pub(super) fn give_back(&self, sharer: &Sharer) {
        let mut shares = self.0.borrow_mut();
        match sharer {
            Sharer::User(user) => shares.all.give_back(Holder::User(*user), 1),
            Sharer::Ulp { name, peer } => shares.give_back_of_ulp(name, *peer),
        }
        shares.changes += 1;
    }

    /// A number that is another whenever who found no room may find some.
    pub(super) fn changes(&self) -> u64 {
        self.0.borrow().changes
    }

    #[cfg(test)]
    pub(super) fn total(&self) -> usize {
        self.0.borrow().all.total()
    }
}

impl Shares {
    fn take_for_ulp(&mut self, name: &Rc<str>, peer: UlpPeer) -> bool {
        let ulp = || Holder::Ulp(Rc::clone(name));
        let share = self.all.within_reach(&ulp());
        if !self.all.take(ulp(), 1, false) {
            return false;
        }
        let peers = self.peers.entry(Rc::clone(name));
        let peers = peers.or_insert_with(|| FairShare::new(0, 0));
        peers.set_limit(share);
        let taken = peers.take(peer, 1, false);
        if !taken {
            self.all.give_back(ulp(), 1);
        }
        taken
    }

    fn give_back_of_ulp(&mut self, name: &Rc<str>, peer: UlpPeer) {
        self.all.give_back(Holder::Ulp(Rc::clone(name)), 1);
        if let Some(peers) = self.peers.get_mut(name) {
            peers.give_back(peer, 1);
            if peers.total() == 0 {
                self.peers.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cm_msgs::Lid;

    use super::*;

    fn ulp(name: &str, peer: u16) -> Sharer {
        Sharer::Ulp {
            name: Rc::from(name),
            peer: UlpPeer {
                prefix: 0xfe80 << 48,
                lid: Lid(peer),
            },
        }
    }

    fn fill(room: &Room, sharer: &Sharer) -> usize {
        let taken = std::iter::repeat_with(|| room.take(sharer));
        taken.take_while(|taken| *taken).count()
    }

    #[test]
    fn one_host_that_connects_to_a_target_leaves_room_for_all_others() {
        let room = Room::new(10_000);
        assert_eq!(fill(&room, &ulp("nvmet_rdma", 9)), 5625, "9/16");
        assert_eq!(
            fill(&room, &ulp("nvmet_rdma", 10)),
            1407,
            "three quarters of what the target's first peer left of its share"
        );
        assert!(fill(&room, &ulp("ib_srpt", 9)) > 1000, "another ULP");
        assert!(
            fill(&room, &Sharer::User(Person::without_ranges(1000))) > 100,
            "a user"
        );
        assert!(
            fill(&room, &Sharer::User(Person::without_ranges(0))) > 100,
            "root"
        );
    }

    /// Two rails with equal LIDs: the port with that LID on the other rail is another host's.
    #[test]
    fn a_lid_of_another_subnet_has_a_share_of_its_own() {
        let room = Room::new(10_000);
        assert_eq!(fill(&room, &ulp("nvmet_rdma", 9)), 5625);
        let other_rail = Sharer::Ulp {
            name: Rc::from("nvmet_rdma"),
            peer: UlpPeer {
                prefix: 7,
                lid: Lid(9),
            },
        };
        assert!(fill(&room, &other_rail) > 1000);
    }

    /// It has more ports than a ULP's share can be divided by.
    #[test]
    fn a_host_with_many_ports_takes_a_ulps_share_and_no_more() {
        let room = Room::new(10_000);
        let taken = (1..=128).map(|peer| fill(&room, &ulp("ib_srpt", peer)));
        assert_eq!(taken.sum::<usize>(), 7500);
        assert!(fill(&room, &ulp("rpcrdma", 1)) > 1000, "another ULP");
        assert!(
            fill(&room, &Sharer::User(Person::without_ranges(1000))) > 100,
            "a user"
        );
        let left = 10_000 - room.total();
        assert_eq!(
            fill(&room, &Sharer::User(Person::without_ranges(0))),
            left,
            "root"
        );
    }

    #[test]
    fn what_comes_back_can_be_taken_again_and_is_noticed() {
        let room = Room::new(1);
        let (one, other) = (ulp("rds_rdma", 9), ulp("rds_rdma", 10));
        assert!(room.take(&one) && !room.take(&other));
        let before = room.changes();
        room.give_back(&one);
        assert!(room.changes() > before && room.0.borrow().peers.is_empty());
        assert!(room.take(&other));
        let before = room.changes();
        room.set_limit(2);
        assert!(room.changes() > before && room.take(&Sharer::User(Person::without_ranges(7))));
        assert_eq!(room.total(), 2);
    }
}
