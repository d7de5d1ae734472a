// SPDX-License-Identifier: MIT OR Apache-2.0
//! GIDs of far ends, which a queue pair's attributes show only if its packets have a GRH.

use cm_msgs::Guid;

use super::pair::{ACTIVE, PASSIVE, Pair, gid, gid_in};

const PREFIX: u64 = 0xfec0_0000_0000_0007;

#[test]
fn what_was_registered_is_known_though_reports_do_not_show_it() {
    let mut pair = Pair::new(1);
    pair.start(ACTIVE);
    pair.register(ACTIVE);
    pair.report_changed(ACTIVE);
    pair.run(100);
    assert_eq!(pair.view(ACTIVE).primary.dgid, gid((PASSIVE, 1)));
}

/// With a GRH the packets go on to the GID that they were made with.
#[test]
fn a_new_prefix_is_that_of_paths_without_a_grh_only() {
    for global in [false, true] {
        let mut pair = Pair::new(2);
        for host in [ACTIVE, PASSIVE] {
            pair.hosts[host].qps[0].primary.global = global;
        }
        pair.begin();
        pair.run(2_000);
        pair.change_prefix(PREFIX);
        pair.run(5_000);
        let old = gid((PASSIVE, 1));
        let now = pair.view(ACTIVE).primary.dgid;
        assert_eq!(now == old, global, "{now}");
        assert_eq!(now == gid_in(PREFIX, (PASSIVE, 1)), !global, "{now}");
        assert_ne!(now.interface_id(), Guid(0));
    }
}

/// The peer's LAPs are lost, so that its answer is the first to say so.
#[test]
fn a_new_prefix_that_an_spr_reports_is_that_of_the_path_at_once() {
    let mut pair = Pair::armed(3);
    pair.run(2_000);
    pair.lose.insert("LAP", usize::MAX);
    pair.lose.insert("SAP", usize::MAX);
    pair.change_prefix(PREFIX);
    pair.run(20);
    assert_eq!(pair.view(PASSIVE).primary.dgid, gid((ACTIVE, 1)));
    let answered = pair.hosts[ACTIVE].sent("SPR");
    pair.lose.remove("SAP");
    while pair.hosts[ACTIVE].sent("SPR") == answered {
        pair.run_us(20);
    }
    pair.run_us(130);
    assert_eq!(pair.hosts[ACTIVE].sent("SPR"), answered + 1);
    let now = pair.view(PASSIVE).primary.dgid;
    assert_eq!(now, gid_in(PREFIX, (ACTIVE, 1)));
}
