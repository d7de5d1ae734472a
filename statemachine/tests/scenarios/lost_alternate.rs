// SPDX-License-Identifier: MIT OR Apache-2.0
//! The port of an armed alternate goes down. It may be back before the primary fails, and hardware migrates to what is
//! loaded: so it is replaced by what carries packets, or while the primary does, and then at once.

use statemachine::Input;
use statemachine::trace::What;

use super::pair::{ACTIVE, Cable, PASSIVE, Pair, PortOf, Weather, base_lid};

/// Paths that do not cross from rail to rail.
const RAILS: [(PortOf, PortOf); 2] = [((ACTIVE, 1), (PASSIVE, 1)), ((ACTIVE, 2), (PASSIVE, 2))];

/// Connections over different pairs of LIDs of the first ports, so that probes of each are known.
fn with_each_path(seed: u64, lmc: u8, connections: u16) -> Pair {
    let mut pair = Pair::with(seed, lmc, connections.into());
    for conn in 0..connections {
        let lids = 1 << lmc;
        let bits = [conn % lids, conn / lids % lids];
        for host in [ACTIVE, PASSIVE] {
            let primary = &mut pair.hosts[host].qps[usize::from(conn)].primary;
            primary.slid.0 |= bits[host];
            primary.dlid.0 |= bits[1 - host];
        }
    }
    pair.begin();
    pair.run(20_000);
    pair.assert_armed();
    pair
}

fn assert_all_live(pair: &Pair, what: &str) {
    for end in [ACTIVE, PASSIVE] {
        assert!(pair.is_alive(end), "{what}");
    }
}

/// The cable is in its socket again, and the host knows it.
fn back(pair: &mut Pair, (host, port): PortOf) {
    *pair.net.cable((host, port)) = Cable::Plugged;
    pair.hosts[host].ports[usize::from(port) - 1].active = true;
    pair.port_input(host, port);
}

/// The simulation's seed 1795860649948830: the primary had become a hole, which no probe had shown yet, and the
/// alternate's port was down for a moment. By the time the hardware gave the primary up, the alternate carried packets, but
/// one between the primary's own ports had been loaded in its place.
#[test]
fn one_whose_port_is_down_stays_while_the_primary_is_silent() {
    for host in [ACTIVE, PASSIVE] {
        for failed_before in [1, 20, 100, 180] {
            let mut pair = with_each_path(3, 1, 4);
            pair.black_hole(ACTIVE, 1);
            pair.run(failed_before);
            pair.pull(host, 2);
            pair.run(7);
            pair.plug(host, 2);
            pair.run(1_000);
            assert_all_live(&pair, &format!("host {host}, {failed_before} ms"));
        }
    }
}

/// It protects nothing while its port is down: where the primary answers, the next one is loaded at once.
#[test]
fn one_whose_port_is_down_is_replaced_as_soon_as_the_primary_answers() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = with_each_path(3, 1, 4);
        pair.pull(host, 2);
        pair.run(10);
        for end in [ACTIVE, PASSIVE] {
            let alternate = pair.qp(end).alternate.expect("loaded");
            let expected = if end == host { 1 } else { 2 };
            assert_eq!(
                alternate.port, expected,
                "host {host} is without its port 2"
            );
        }
        pair.assert_armed();
    }
}

/// The primary is known to carry nothing, and the alternate's port stays down: a path that answers is all that is left.
#[test]
fn one_whose_port_is_down_is_replaced_by_what_answers_when_the_primary_is_suspect() {
    let mut pair = with_each_path(3, 1, 4);
    // So that the primary ends nothing.
    pair.set_traffic(false);
    pair.sa_dead = true;
    pair.pull(ACTIVE, 2);
    pair.black_hole(PASSIVE, 1);
    pair.run(2_500);
    let loads = pair.view(ACTIVE).counters.loads;
    pair.sa_dead = false;
    pair.run(60_000);
    assert!(pair.view(ACTIVE).counters.loads > loads);
    let alternate = pair.qp(ACTIVE).alternate.expect("loaded");
    assert_eq!(Pair::rails(&alternate), (1, (PASSIVE, 2)));
}

/// The primary is suspect, and the path that was found answered probes until the same cable failed.
#[test]
fn one_whose_port_is_down_stays_while_neither_the_primary_nor_the_path_found_answers() {
    for failed_before in [313, 329, 345] {
        let mut pair = with_each_path(3, 1, 4);
        pair.sa_knows_only(RAILS.to_vec());
        pair.black_hole(ACTIVE, 1);
        pair.run(failed_before);
        pair.pull(PASSIVE, 2);
        pair.run(60);
        pair.plug(PASSIVE, 2);
        pair.run(1_000);
        assert_all_live(&pair, &format!("{failed_before} ms"));
    }
}

/// Probes of that many paths wait for their turn: an answer of the path that was found is enough.
#[test]
fn those_of_sixty_four_paths_are_replaced_in_a_tenth_of_a_second() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = with_each_path(3, 3, 64);
        pair.pull(host, 2);
        pair.run(100);
        let lost = base_lid((host, 2)).0;
        for qp in &pair.hosts[ACTIVE].qps {
            let path = qp.alternate.expect("armed");
            let ends = [path.slid.0 & !7, path.dlid.0 & !7];
            assert!(!ends.contains(&lost), "host {host}");
        }
    }
}

#[test]
fn a_second_lost_port_ends_no_connection_of_sixty_four_paths() {
    for (first, second) in [(ACTIVE, PASSIVE), (PASSIVE, ACTIVE)] {
        for is_hole in [false, true] {
            let mut pair = with_each_path(3, 3, 64);
            pair.pull(first, 2);
            pair.run(100);
            match is_hole {
                true => pair.black_hole(second, 1),
                false => pair.pull(second, 1),
            }
            pair.run(5_000);
            assert_all_live(&pair, &format!("host {first}, then {second}"));
        }
    }
}

#[test]
fn one_whose_port_is_down_stays_while_the_primary_is_silent_and_mads_are_late() {
    for delay in [150_000, 300_000] {
        for host in [ACTIVE, PASSIVE] {
            for seed in 0..4 {
                let mut pair = with_late_mads(seed, delay);
                pair.black_hole(ACTIVE, 1);
                pair.run(20);
                pair.pull(host, 2);
                pair.run(7);
                back(&mut pair, (host, 2));
                pair.run(2_000);
                assert_all_live(&pair, &format!("{delay} us, host {host}, seed {seed}"));
            }
        }
    }
}

/// An answer that comes late tells how a path was when it was asked.
#[test]
fn one_whose_port_is_down_stays_though_a_probe_of_before_comes_back() {
    for seed in [0, 2] {
        let mut pair = with_late_mads(seed, 300_000);
        pair.pull(ACTIVE, 2);
        pair.run(200);
        pair.black_hole(ACTIVE, 1);
        pair.run(100);
        back(&mut pair, (ACTIVE, 2));
        pair.run(2_000);
        assert_all_live(&pair, &format!("seed {seed}"));
    }
}

/// Four connections over all paths between the first ports; MADs take `delay` microseconds.
fn with_late_mads(seed: u64, delay: u64) -> Pair {
    let mut pair = with_each_path(seed, 1, 4);
    pair.sa_knows_only(RAILS.to_vec());
    pair.net.weather = Weather {
        delay,
        ..Weather::FAIR
    };
    pair.run(3_000 + seed * 71);
    pair
}

/// The port sends no probe in time, so that nothing is known of the path that was found.
#[test]
fn one_whose_port_is_down_is_not_replaced_by_a_path_that_no_probe_could_be_sent_on() {
    let mut pair = Pair::with(3, 1, 1);
    pair.sa_knows_only(RAILS.to_vec());
    for host in [ACTIVE, PASSIVE] {
        pair.hosts[host].qps[0].retries = 45;
    }
    pair.begin();
    pair.run(5_000);
    pair.assert_armed();
    *pair.net.cable((ACTIVE, 1)) = Cable::Mute;
    let id = pair.hosts[ACTIVE].port_id(1);
    for ms in (0..2_000).step_by(10) {
        match ms {
            20 => pair.pull(PASSIVE, 2),
            600 => pair.plug(PASSIVE, 2),
            _ => {}
        }
        if ms % 50 == 0 {
            pair.tell(ACTIVE, Input::Crowded(id));
        }
        pair.run(10);
    }
    assert_all_live(&pair, "a crowded port");
}

/// The alternate's port is down for a moment, and another alternate is proposed, when the primary fails: the ends must not
/// be left with different ones. Both paths of the old pair are good again before the retries are used up.
fn blinks_while_mads_are_late(seed: u64, host: usize, hole_after: u64) -> Option<bool> {
    let mut pair = Pair::with(seed, 1, 1);
    pair.begin();
    pair.run(2_500);
    pair.net.weather = Weather {
        delay: 200_000,
        ..Weather::FAIR
    };
    pair.run(3_000);
    if !pair.is_armed() || pair.qp(ACTIVE).primary.port != 1 {
        return None;
    }
    pair.forget_traces();
    pair.pull(host, 2);
    let is_sent = |pair: &Pair| {
        let mut traces = pair.traces(ACTIVE);
        traces.any(|trace| matches!(trace.what, What::LapSent(_)))
    };
    for _ in 0..4_000 {
        if is_sent(&pair) {
            break;
        }
        pair.run_us(100);
    }
    pair.run(hole_after);
    pair.black_hole(host, 1);
    pair.run(300);
    pair.plug(host, 2);
    pair.run(1_500);
    Some([ACTIVE, PASSIVE].iter().all(|&host| pair.is_alive(host)))
}

#[test]
fn an_alternate_whose_port_blinks_is_rarely_replaced_while_mads_are_late() {
    for host in [ACTIVE, PASSIVE] {
        let runs = (0..40).filter_map(|seed| blinks_while_mads_are_late(seed, host, 50));
        let runs: Vec<bool> = runs.collect();
        let dead = runs.iter().filter(|alive| !**alive).count();
        assert!(
            runs.len() > 20 && dead * 2 < runs.len(),
            "{dead} of {}",
            runs.len()
        );
    }
}

/// What is not armed protects nothing that could be lost.
#[test]
fn one_that_waits_for_traffic_gets_another_alternate_at_once_though_mads_are_late() {
    for seed in 0..10 {
        let mut pair = Pair::with(seed, 1, 1);
        for host in [PASSIVE, ACTIVE] {
            pair.start(host);
            pair.register(host);
        }
        pair.run(2_500);
        pair.net.weather = Weather {
            delay: 200_000,
            ..Weather::FAIR
        };
        pair.run(3_000);
        assert!(!pair.is_armed() && pair.qp(PASSIVE).alternate.is_some());
        pair.forget_traces();
        pair.pull(PASSIVE, 2);
        let has = |pair: &Pair, is_it: fn(&What) -> bool| {
            pair.traces(PASSIVE).any(|trace| is_it(&trace.what))
        };
        for _ in 0..20_000 {
            if has(&pair, |what| matches!(what, What::LapReceived(_))) {
                break;
            }
            pair.run_us(100);
        }
        pair.run(1);
        assert!(
            has(&pair, |what| matches!(what, What::Load(_))),
            "seed {seed}"
        );
    }
}
