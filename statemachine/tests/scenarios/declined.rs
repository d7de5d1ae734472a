// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the active side makes of a peer that does not agree.

use cm_msgs::cm::{ApStatus, Message};
use statemachine::Command;
use statemachine::view::Protection;

use super::pair::{ACTIVE, Pair};

/// Hardware could not go there.
#[test]
fn an_armed_alternate_that_the_peer_does_not_know_is_no_protection() {
    for status in [ApStatus::InvalidGid, ApStatus::InvalidLid] {
        let mut pair = Pair::armed(1);
        pair.run(2_000);
        pair.sa_dead = true;
        pair.twist(move |message| {
            if let Message::Apr(apr) = message {
                apr.ar_status = status.into();
            }
        });
        pair.command(ACTIVE, Command::Rearm);
        pair.run(20);
        assert_ne!(pair.view(ACTIVE).protection, Protection::Armed);
    }
}

/// Its daemon was started again, and says so in this way.
#[test]
fn a_peer_that_knows_no_such_association_is_asked_for_a_new_one_at_once() {
    let mut pair = Pair::armed(2);
    pair.run(2_000);
    let asked = pair.hosts[ACTIVE].sent("REQ");
    let mut left = 1;
    pair.twist(move |message| {
        if let Message::Apr(apr) = message
            && left > 0
        {
            left -= 1;
            apr.ar_status = ApStatus::InvalidCommId.into();
        }
    });
    pair.command(ACTIVE, Command::Rearm);
    pair.run(20);
    assert_eq!(pair.hosts[ACTIVE].sent("REQ"), asked + 1);
    pair.run(1_000);
    pair.assert_armed();
}
