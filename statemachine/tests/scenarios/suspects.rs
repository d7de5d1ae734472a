// SPDX-License-Identifier: MIT OR Apache-2.0
//! Suspect paths that carry packets again: which of them is probed, and what comes of the answer.

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
