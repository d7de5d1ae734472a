// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random schedules of faults. Every step is checked against the invariants (the pair does that);
//! when the faults are over and a path is there, both ends must be armed.

use proptest::prelude::*;

use super::pair::{Cable, Fabric, Pair, Weather};

#[derive(Clone, Copy, Debug)]
enum Fault {
    Pull(usize, u8),
    Plug(usize, u8),
    BlackHole(usize, u8),
    Kill(usize),
    Reconnect(usize),
    Wait(u64),
    Foul,
    Fair,
    SaGone,
    Reroute(u64),
    FabricGone,
    Idle,
}

fn fault() -> impl Strategy<Value = Fault> {
    let port = || (0..2_usize, 1..=2_u8);
    prop_oneof![
        4 => port().prop_map(|(host, port)| Fault::Pull(host, port)),
        6 => port().prop_map(|(host, port)| Fault::Plug(host, port)),
        1 => port().prop_map(|(host, port)| Fault::BlackHole(host, port)),
        1 => (0..2_usize).prop_map(Fault::Kill),
        1 => (0..2_usize).prop_map(Fault::Reconnect),
        8 => (0..4_000_u64).prop_map(Fault::Wait),
        4 => (0..40_u64).prop_map(Fault::Wait),
        1 => Just(Fault::Foul),
        1 => Just(Fault::Fair),
        1 => Just(Fault::SaGone),
        2 => any::<u64>().prop_map(Fault::Reroute),
        1 => Just(Fault::FabricGone),
        1 => Just(Fault::Idle),
    ]
}

fn apply(pair: &mut Pair, fault: Fault) {
    match fault {
        Fault::Pull(host, port) => pair.pull(host, port),
        Fault::Plug(host, port) => pair.plug(host, port),
        Fault::BlackHole(host, port) => pair.black_hole(host, port),
        Fault::Kill(host) => {
            pair.kill(host);
            pair.run(50);
            pair.start(host);
        }
        Fault::Reconnect(host) => pair.reconnect(host),
        Fault::Wait(ms) => pair.run(ms),
        Fault::Foul => pair.net.weather = Weather::FOUL,
        Fault::Fair => pair.net.weather = Weather::FAIR,
        Fault::SaGone => pair.sa_dead = !pair.sa_dead,
        Fault::Reroute(seed) => pair.reroute(Fabric::random(seed)),
        Fault::FabricGone => pair.reroute(Fabric::unknown()),
        Fault::Idle => pair.set_traffic(!pair.traffic),
    }
}

/// Everything works again.
fn heal(pair: &mut Pair) {
    pair.net.weather = Weather::FAIR;
    pair.sa_dead = false;
    for host in 0..2 {
        for port in 1..=2 {
            if *pair.net.cable((host, port)) != Cable::Plugged {
                pair.plug(host, port);
            }
        }
    }
    pair.set_traffic(true);
}

/// `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok();
    let cases = cases.and_then(|cases| cases.parse().ok()).unwrap_or(40);
    ProptestConfig {
        cases,
        ..ProptestConfig::default()
    }
}

/// One fault at a time, and what else happens while it lasts.
#[derive(Clone, Copy, Debug)]
struct Single {
    port: (usize, u8),
    black_hole: bool,
    foul: bool,
    restart: Option<usize>,
    idle: bool,
    lasts: u64,
}

fn single() -> impl Strategy<Value = Single> {
    let port = (0..2_usize, 1..=2_u8);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let restart = proptest::option::weighted(0.2, 0..2_usize);
    (port, flags, restart, 0..5_000_u64).prop_map(
        |(port, (black_hole, foul, idle), restart, lasts)| Single {
            port,
            black_hole,
            foul,
            restart,
            idle,
            lasts,
        },
    )
}

proptest! {
    #![proptest_config(config())]

    /// The promise: whatever single port fails while both ends are armed, the connection lives.
    #[test]
    fn no_single_fault_breaks_an_armed_connection(
        seed in any::<u64>(),
        faults in proptest::collection::vec(single(), 1..10),
    ) {
        let mut pair = Pair::armed(seed);
        for fault in faults {
            let (host, port) = fault.port;
            if fault.foul {
                pair.net.weather = Weather::FOUL;
            }
            pair.set_traffic(!fault.idle);
            if fault.black_hole {
                pair.black_hole(host, port);
            } else {
                pair.pull(host, port);
            }
            if let Some(host) = fault.restart {
                pair.kill(host);
                pair.run(20);
                pair.start(host);
            }
            pair.run(fault.lasts);
            pair.set_traffic(true);
            pair.reroute(Fabric::random(fault.lasts));
            pair.run(2_000);
            prop_assert!(pair.is_alive(0) && pair.is_alive(1), "{fault:?}: {:#?}", pair.view(0));
            pair.net.weather = Weather::FAIR;
            pair.plug(host, port);
            pair.run(100_000);
            pair.assert_armed();
        }
    }

    #[test]
    fn faults_end_and_both_ends_are_armed(
        seed in any::<u64>(),
        lmc in prop_oneof![4 => Just(0_u8), 1 => Just(2)],
        faults in proptest::collection::vec(fault(), 1..24),
    ) {
        let mut pair = Pair::with(seed, lmc, 1);
        for host in [0, 1] {
            pair.start(host);
            pair.register(host);
        }
        pair.set_traffic(true);
        for fault in faults {
            apply(&mut pair, fault);
        }
        heal(&mut pair);
        pair.reroute(Fabric::random(seed));
        pair.run(180_000);
        let alive = (0..2).all(|host| pair.is_alive(host));
        if alive {
            pair.assert_armed();
            pair.assert_best_alternates();
            let sent: usize = (0..2).map(|host| pair.all_sent(host)).sum();
            pair.set_traffic(false);
            pair.run(300_000);
            pair.assert_armed();
            pair.assert_best_alternates();
            let later: usize = (0..2).map(|host| pair.all_sent(host)).sum();
            prop_assert!(later - sent <= 40, "{} MADs in five quiet minutes", later - sent);
        }
        for host in [0, 1] {
            pair.close(host);
        }
        pair.run(60_000);
        for host in [0, 1] {
            pair.assert_asleep(host);
        }
    }
}

/// While probes of the primary are lost, no other alternate is loaded: hardware may migrate each end at
/// any moment, and only to what both have.
#[test]
fn a_hole_in_foul_weather_does_not_drive_the_ends_apart() {
    let mut pair = Pair::armed(7_259_297_236_815_963_837);
    pair.net.weather = Weather::FOUL;
    pair.set_traffic(false);
    pair.black_hole(1, 1);
    pair.run(4_813);
    pair.set_traffic(true);
    pair.reroute(Fabric::random(4_813));
    pair.run(2_000);
    assert!(pair.is_alive(0) && pair.is_alive(1));
}

/// A SAP of a passive side without protection names a port; when that wish is over, the best alternate is
/// looked for again.
#[test]
fn a_peers_wish_does_not_keep_the_best_alternate_away_for_ever() {
    let seed = 1_913_650_205_611_910_247;
    let mut pair = Pair::running(seed);
    for fault in [
        Fault::Wait(4),
        Fault::Foul,
        Fault::Wait(3_286),
        Fault::Reroute(210_716_871_100_933_522),
        Fault::Wait(1_343),
        Fault::Reroute(0),
        Fault::Wait(2_933),
    ] {
        apply(&mut pair, fault);
    }
    heal(&mut pair);
    pair.reroute(Fabric::random(seed));
    pair.run(60_000);
    pair.assert_armed();
    pair.assert_best_alternates();
}

/// Lost probes are no reason to leave while the peer may not have the same alternate.
#[test]
fn foul_weather_alone_has_nobody_leave_for_where_the_peer_is_not() {
    let mut pair = Pair::armed(17_657_202_858_998_023_810);
    pair.net.weather = Weather::FOUL;
    pair.pull(1, 2);
    pair.run(129);
    pair.reroute(Fabric::random(129));
    pair.run(2_000);
    assert!(pair.is_alive(0) && pair.is_alive(1));
}
