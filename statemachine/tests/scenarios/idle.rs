// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections without traffic: their alternates are loaded, and become armed with the next packets.

use cm_msgs::control::MigrationState;

use super::pair::{ACTIVE, PASSIVE, Pair};

/// Traffic may be all that is missing, or the peer's end was never loaded.
#[test]
fn the_peer_is_asked_ever_more_rarely_whether_it_has_the_alternate() {
    let mut pair = Pair::new(1);
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
        pair.register(host);
    }
    pair.run(500);
    assert_eq!(pair.qp(ACTIVE).migration, MigrationState::Rearm);
    let start = pair.now;
    let mut laps = Vec::new();
    while pair.now - start < 400_000_000 {
        let before = pair.hosts[ACTIVE].sent("LAP");
        pair.run(100);
        if pair.hosts[ACTIVE].sent("LAP") > before {
            laps.push((pair.now - start) / 1_000_000);
        }
    }
    // After 10 s, 20 s more, and so on; every minute in the end.
    let pauses = laps.windows(2).map(|at| at[1] - at[0]);
    let pauses: Vec<u64> = laps[..1].iter().copied().chain(pauses).collect();
    let longest = [10, 20, 30, 60, 60, 60, 60, 60];
    assert!(pauses.len() >= longest.len(), "{pauses:?}");
    for (pause, expected) in pauses.iter().zip(longest) {
        assert!(pause.abs_diff(expected) <= 2, "{pauses:?}");
    }
}

#[test]
fn an_end_that_was_never_loaded_is_found_though_nobody_sends() {
    let mut pair = Pair::new(2);
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
        pair.register(host);
    }
    pair.run(500);
    // Its library loaded what it was told to, and lost it: it says so, but the peer's daemon does not hear of it.
    pair.lose.insert("SAP", usize::MAX);
    pair.hosts[PASSIVE].qps[0].migration = MigrationState::Migrated;
    pair.hosts[PASSIVE].qps[0].alternate = None;
    pair.report_changed(PASSIVE);
    pair.run(15_000);
    assert_eq!(pair.qp(PASSIVE).migration, MigrationState::Rearm);
    pair.set_traffic(true);
    pair.run(1_000);
    pair.assert_armed();
}
