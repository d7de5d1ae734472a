// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lost, repeated and late messages.

use super::association::assert_open;
use super::pair::{ACTIVE, PASSIVE, Pair, Weather, seeds};

#[test]
fn any_message_may_be_lost() {
    for name in ["REQ", "REP", "RTU", "LAP", "APR"] {
        for copies in 1..=4 {
            let mut pair = Pair::new(1);
            pair.lose.insert(name, copies);
            pair.begin();
            pair.run(10_000);
            pair.assert_armed();
            assert_open(&pair);
            pair.assert_asleep(ACTIVE);
            pair.assert_asleep(PASSIVE);
        }
    }
}

#[test]
fn a_lost_mra_costs_one_retry() {
    let mut pair = Pair::new(1);
    pair.lose.insert("MRA", 1);
    pair.start(ACTIVE);
    pair.start(PASSIVE);
    pair.register(ACTIVE);
    pair.run(3_000);
    assert_eq!(pair.hosts[ACTIVE].sent("REQ"), 2);
    assert_eq!(pair.hosts[PASSIVE].sent("MRA"), 2);
}

#[test]
fn when_all_aprs_are_lost_the_association_is_opened_again() {
    let mut pair = Pair::new(7);
    pair.lose.insert("APR", 6);
    pair.begin();
    pair.run(20_000);
    pair.assert_armed();
    assert_open(&pair);
    assert_eq!(pair.hosts[ACTIVE].sent("REP"), 0);
    assert_eq!(pair.hosts[PASSIVE].sent("REP"), 2);
    // The alternate was loaded before, and is not loaded again.
    assert_eq!(pair.view(PASSIVE).counters.loads, 1);
}

#[test]
fn foul_weather_only_delays() {
    seeds(16, |seed| {
        let mut pair = Pair::new(seed);
        pair.net.weather = Weather::FOUL;
        for host in [ACTIVE, PASSIVE] {
            pair.start(host);
            pair.register(host);
        }
        pair.set_traffic(true);
        pair.run(60_000);
        // Such weather makes paths suspect now and then.
        pair.run_until_armed(5_000);
        assert_open(&pair);
        pair.pull(ACTIVE, 1);
        pair.run(60_000);
        pair.plug(ACTIVE, 1);
        pair.run(120_000);
        pair.run_until_armed(5_000);
        assert_open(&pair);
    });
}

#[test]
fn everything_twice_changes_nothing() {
    let mut pair = Pair::new(8);
    pair.net.weather = Weather {
        loss: 0,
        duplication: 1000,
        delay: 50_000,
    };
    pair.begin();
    pair.run(5_000);
    pair.assert_armed();
    assert_open(&pair);
    assert_eq!([0, 1].map(|host| pair.view(host).counters.loads), [1, 1]);
    assert_eq!(
        [0, 1].map(|host| pair.view(host).counters.laps_received),
        [0, 1]
    );
    pair.assert_asleep(ACTIVE);
    pair.assert_asleep(PASSIVE);
}
