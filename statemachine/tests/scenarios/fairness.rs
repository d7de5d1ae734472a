// SPDX-License-Identifier: MIT OR Apache-2.0
//! What others may cost a connection that has lost its alternate, or has only part of a protection: a slow
//! peer with very many connections, and a user who connects to where nobody is.

use cm_msgs::Lid;
use statemachine::{ConnId, Payer};

use super::several::{OWN, Several};

/// Named so that they come first in any order by name, as the kernel module's do.
const CROWD: u32 = 0;
const OTHERS: u32 = 1;

/// Of the hold-off of a port that is back, in milliseconds.
const SETTLING: u64 = 450;

/// Milliseconds until ten connections are armed again beside one port when their alternate's port is lost, and
/// by that port when it is back. `crowd` happens just before that.
fn rearmed(mut several: Several, crowd: impl FnOnce(&mut Several)) -> [u64; 2] {
    several.plug(OWN, 2, false);
    let lost = several.armed_by(OTHERS, 1);
    several.run(5_000);
    several.plug(OWN, 2, true);
    // Until the port is about to be used again.
    several.run(SETTLING);
    crowd(&mut several);
    [lost, SETTLING + several.armed_by(OTHERS, 2)]
}

/// Another host has so many connections, has answered late, and answers no more.
pub(crate) fn beside_a_slow_peer(connections: u32) -> [u64; 2] {
    let mut several = Several::new(3);
    several.connect(2, OTHERS, Payer(1), 10);
    several.connect(1, CROWD, Payer(1), connections);
    several.run(60_000);
    several.armed_by(CROWD, 2);
    several.armed_by(OTHERS, 2);
    several.answers_after(1, Some(300));
    several.plug(OWN, 2, false);
    several.run(20_000);
    several.plug(OWN, 2, true);
    several.run(60_000);
    several.armed_by(OTHERS, 2);
    several.answers_after(1, None);
    rearmed(several, |_| {})
}

#[test]
fn a_slow_and_then_silent_peer_delays_nobody_elses_rearming() {
    let alone = beside_a_slow_peer(0);
    for connections in [1_000, 3_000] {
        let among = beside_a_slow_peer(connections);
        assert!(
            among[0] <= 2 * alone[0] && among[1] <= 2 * alone[1],
            "{among:?} ms beside {connections}, alone {alone:?} ms"
        );
    }
}

/// Another user begins so many connections, to one LID or to one each, just before a port that is back
/// is used again.
pub(crate) fn beside_dead_lids(connections: u32, lids: u32) -> [u64; 2] {
    let mut several = Several::new(2);
    several.connect(1, OTHERS, Payer(1), 10);
    several.run(5_000);
    several.armed_by(OTHERS, 2);
    rearmed(several, |several| {
        for conn in 0..connections {
            let dlid = Lid((1_000 + conn % lids) as u16);
            let id = ConnId {
                client: CROWD,
                conn,
            };
            several.connect_to_nobody(id, Payer(2), dlid);
        }
    })
}

#[test]
fn connections_to_where_nobody_is_delay_no_others_full_protection() {
    let alone = beside_dead_lids(0, 1);
    for lids in [1, 600] {
        let among = beside_dead_lids(600, lids);
        assert!(
            among[0] <= 2 * alone[0] && among[1] <= 2 * alone[1],
            "{among:?} ms beside 600 to {lids} LIDs, alone {alone:?} ms"
        );
    }
}

/// What waits in a lower class has its floor and what is shared, and does not cap a higher class at a quarter.
#[test]
fn those_to_where_nobody_is_do_not_slow_down_the_rearming_of_many() {
    // So many that the window is the limit: their peer's answers take some milliseconds.
    let rearmed = |connections: u32| {
        let mut several = Several::new(2);
        several.connect(1, OTHERS, Payer(1), 1_500);
        several.run(20_000);
        several.armed_by(OTHERS, 2);
        several.answers_after(1, Some(5));
        several.plug(OWN, 2, false);
        several.run(20_000);
        several.plug(OWN, 2, true);
        several.run(SETTLING);
        for conn in 0..connections {
            let id = ConnId {
                client: CROWD,
                conn,
            };
            several.connect_to_nobody(id, Payer(2), Lid((1_000 + conn) as u16));
        }
        several.armed_by(OTHERS, 2)
    };
    let (alone, among) = (rearmed(0), rearmed(600));
    assert!(among <= 2 * alone, "{among} ms, alone {alone} ms");
}

/// Connections of the kernel module are client 0, whoever owns them; a port's loss is no reason to order all of those first.
#[test]
fn connections_leave_a_lost_port_by_turns_over_their_owners() {
    let mut several = Several::new(2);
    several.connect(1, OTHERS, Payer(1), 1);
    several.connect(1, CROWD, Payer(2), 300);
    several.run(20_000);
    several.armed_by(CROWD, 2);
    several.armed_by(OTHERS, 2);
    several.plug(OWN, 1, false);
    let others = several.left.iter().position(|id| id.client == OTHERS);
    let before = others.expect("it leaves");
    assert!(before <= 1, "{before} of another user's left first");
}
