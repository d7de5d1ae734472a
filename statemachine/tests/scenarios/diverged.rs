// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two queue pairs of a connection have different alternates, and both daemons were started after that.

use cm_msgs::control::MigrationState;
use cm_msgs::path::Path;
use statemachine::view::Protection;

use super::pair::{ACTIVE, PASSIVE, Pair, Weather, base_lid, gid, seeds};

/// As after a daemon that was stopped between the load at the passive end and its answer: the active end's alternate ends
/// at the passive end's second port, and the passive end's at the active end's first one.
fn diverged(seed: u64) -> Pair {
    let mut pair = Pair::new(seed);
    for (host, far_port) in [(ACTIVE, 2), (PASSIVE, 1)] {
        let far = 1 - host;
        let qp = &mut pair.hosts[host].qps[0];
        qp.migration = MigrationState::Armed;
        qp.alternate = Some(Path {
            port: 2,
            slid: base_lid((host, 2)),
            sgid: gid((host, 2)),
            dlid: base_lid((far, far_port)),
            dgid: gid((far, far_port)),
            ..qp.primary
        });
    }
    pair
}

/// Both ends are shown as armed, and their alternates are not each other's reverse.
fn pretends(pair: &Pair) -> bool {
    let armed = |host| pair.view(host).protection == Protection::Armed;
    let [left, right] = [ACTIVE, PASSIVE].map(|host| pair.qp(host).alternate);
    let same = left
        .zip(right)
        .is_some_and(|(left, right)| left.slid == right.dlid && left.dlid == right.slid);
    armed(ACTIVE) && armed(PASSIVE) && !same
}

/// What is known of a path's loss may come from other connections; here the first LAPs are lost.
#[test]
fn ends_with_different_alternates_agree_though_mads_are_lost_or_late() {
    let loss = Weather {
        loss: 350,
        ..Weather::FAIR
    };
    let late = Weather {
        delay: 300_000,
        ..Weather::FAIR
    };
    for weather in [loss, late] {
        seeds(8, |seed| {
            let mut pair = diverged(seed);
            pair.net.weather = weather;
            pair.lose.insert("LAP", usize::MAX);
            pair.begin();
            pair.run(5_000);
            pair.lose.clear();
            let mut waited = 0;
            while pretends(&pair) {
                pair.run(1_000);
                waited += 1;
                assert!(waited < 60, "armed for a minute, with different alternates");
            }
        });
    }
}
