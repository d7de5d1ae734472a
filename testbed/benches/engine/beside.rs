// SPDX-License-Identifier: MIT OR Apache-2.0
//! What others cost a connection that is to be armed again, in the simulated time of the engine's own scenarios.

use super::Figure;
use super::fairness::{beside_a_slow_peer, beside_dead_lids};

pub(crate) fn figures(scale: u32) -> Vec<Figure> {
    let connections = 3_000 / scale;
    let quiet = beside_a_slow_peer(0);
    let slow = beside_a_slow_peer(connections);
    let alone = beside_dead_lids(0, 1);
    let dead = 600 / scale;
    let rows = [
        (
            format!("{connections} of a slow, then silent peer"),
            quiet,
            slow,
        ),
        (
            format!("{dead} to one dead LID"),
            alone,
            beside_dead_lids(dead, 1),
        ),
        (
            format!("{dead} to a dead LID each"),
            alone,
            beside_dead_lids(dead, dead),
        ),
    ];
    let figure = |(beside, alone, among): (String, [u64; 2], [u64; 2])| Figure {
        name: format!("armed again beside {beside}, against alone"),
        value: worst(alone, among),
        unit: "times",
        goal: 2.0,
        is_time: false,
    };
    rows.map(figure).into()
}

/// How many times as long it took, after a port's loss or after its return.
fn worst(alone: [u64; 2], among: [u64; 2]) -> f64 {
    let ratio = |at: usize| among[at] as f64 / alone[at].max(1) as f64;
    ratio(0).max(ratio(1))
}
