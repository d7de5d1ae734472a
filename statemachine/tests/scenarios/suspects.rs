// SPDX-License-Identifier: MIT OR Apache-2.0
//! Suspect paths that carry packets again: which of them is probed, and what comes of the answer.

use cm_msgs::Lid;
use cm_msgs::control::{Mode, PolicyOverride};
use cm_msgs::path::Path;

use super::pair::{ACTIVE, Cable, PASSIVE, Pair, PortOf, base_lid};

fn rails(pairs: &[(u8, u8)]) -> Vec<(PortOf, PortOf)> {
    let ends = |&(near, far): &(u8, u8)| ((ACTIVE, near), (PASSIVE, far));
    pairs.iter().map(ends).collect()
}

/// The alternate's local port, and whether it ends at the peer's first port.
fn alternate(pair: &Pair) -> Option<(u8, bool)> {
    let path = pair.qp(ACTIVE).alternate?;
    Some((path.port, path.dlid == base_lid((PASSIVE, 1))))
}

/// What comes by this port is not lost any more, though its link was up all the time.
fn heal(pair: &mut Pair, port: PortOf) {
    *pair.net.cable(port) = Cable::Plugged;
}

/// Both paths by the second port were silent, and so were both to the peer's second one.
#[test]
fn a_suspect_path_is_probed_besides_the_suspect_alternate() {
    let mut pair = Pair::new(1);
    pair.sa_knows_only(rails(&[(1, 1), (2, 2), (2, 1)]));
    pair.begin();
    pair.run(2_000);
    pair.assert_armed();
    assert_eq!(alternate(&pair), Some((2, false)));
    pair.black_hole(ACTIVE, 2);
    pair.black_hole(PASSIVE, 2);
    pair.run(20_000);
    heal(&mut pair, (ACTIVE, 2));
    pair.run(3_000);
    assert_eq!(alternate(&pair), Some((2, true)));
    pair.assert_armed();
}

/// Its suspicion was over before, and the pauses between searches have grown.
#[test]
fn an_alternate_that_carries_packets_again_has_a_better_one_looked_for_at_once() {
    let mut pair = Pair::new(3);
    pair.sa_knows_only(rails(&[(1, 1), (2, 1)]));
    pair.begin();
    pair.run(2_000);
    pair.assert_armed();
    pair.sa_dead = true;
    pair.black_hole(ACTIVE, 2);
    pair.run(70_000);
    pair.sa_dead = false;
    pair.sa_knows_only(rails(&[(1, 1), (2, 1), (2, 2)]));
    heal(&mut pair, (ACTIVE, 2));
    pair.run(5_000);
    let alternate = pair.qp(ACTIVE).alternate.expect("armed");
    assert_eq!(alternate.dlid, base_lid((PASSIVE, 2)));
    pair.assert_armed();
}

/// Nothing arrives at this LID any more, and what becomes of it is waited for.
fn lose(pair: &mut Pair, lid: Lid) {
    pair.net.holes.push(lid);
    pair.run(3_000);
}

/// The applications of both ends migrate.
fn migrate(pair: &mut Pair) {
    for host in [ACTIVE, PASSIVE] {
        pair.hosts[host].qps[0].order_migration();
        pair.report_changed(host);
    }
    pair.run(100);
}

/// The primary is one that was suspect as an alternate, and is probed as the primary. It does not stand in the way of the
/// one that could be the next alternate.
#[test]
fn a_suspect_path_is_probed_besides_the_suspect_primary() {
    let mut pair = Pair::with(4, 1, 1);
    pair.sa_knows_only(rails(&[(1, 1), (2, 2)]));
    pair.begin();
    pair.run(3_000);
    pair.assert_armed();
    pair.set_traffic(false);
    let loaded = |pair: &Pair| -> Path { pair.qp(ACTIVE).alternate.expect("loaded") };
    let first = loaded(&pair);
    lose(&mut pair, first.dlid);
    let second = loaded(&pair);
    assert_ne!((second.slid, second.dlid), (first.slid, first.dlid));
    assert_eq!(second.port, 2);
    pair.sa_dead = true;
    lose(&mut pair, second.dlid);
    // What the peer says would have a path looked for at once.
    pair.lose.insert("SAP", usize::MAX);
    migrate(&mut pair);
    assert!(pair.qp(ACTIVE).primary.same_way(&second));
    let lids = PolicyOverride {
        mode: Some(Mode::Lid),
        ..PolicyOverride::default()
    };
    pair.set_policy(ACTIVE, lids);
    // The pauses between searches grow.
    pair.run(10_000);
    pair.sa_dead = false;
    pair.net.holes.retain(|&lid| lid != first.dlid);
    pair.run(2_000);
    assert_eq!(loaded(&pair).dlid, first.dlid);
}
