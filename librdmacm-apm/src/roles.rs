// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who opens the association where no CM has said who connected.

use cm_msgs::Qpn;
use cm_msgs::control::Role;
use cm_msgs::path::Path;

/// The end with the lower LID, or with equal ones the lower QP number, is active. Both ends know
/// both; path bits do not matter, since no two ports' LIDs overlap.
pub(crate) fn by_address(primary: &Path, own: Qpn, peers: Qpn) -> Role {
    if (primary.slid, own) < (primary.dlid, peers) {
        Role::Active
    } else {
        Role::Passive
    }
}

#[cfg(test)]
mod tests {
    use cm_msgs::Lid;

    use super::*;

    #[test]
    fn the_two_ends_agree() {
        let path = |from, to| Path {
            slid: Lid(from),
            dlid: Lid(to),
            ..Path::default()
        };
        for (a, b) in [((4, 9), (5, 7)), ((4, 7), (4, 9))] {
            let from_a = by_address(&path(a.0, b.0), Qpn(a.1), Qpn(b.1));
            let from_b = by_address(&path(b.0, a.0), Qpn(b.1), Qpn(a.1));
            assert_eq!((from_a, from_b), (Role::Active, Role::Passive));
        }
    }
}
