// SPDX-License-Identifier: MIT OR Apache-2.0
//! An armed alternate is replaced by another. The passive side loads the new one first, and until the active side has
//! loaded it too, the ends have different ones: if the primary fails meanwhile, hardware moves them apart.

use std::cell::Cell;

use cm_msgs::Lid;
use cm_msgs::association::State;
use cm_msgs::cm::{ApStatus, Lap, Message};
use cm_msgs::control::MigrationState;
use cm_msgs::path::Path;

use statemachine::MadSource;
use statemachine::trace::What;

use super::pair::{ACTIVE, PASSIVE, Pair, Weather, base_lid, gid, seeds};

/// An armed pair with two LIDs a port, and the LAP that led to it with the other LIDs of the same ports.
fn armed() -> (Pair, MadSource, Lap) {
    let mut pair = Pair::with(1, 1, 1);
    pair.record("LAP");
    pair.begin();
    pair.run(2_500);
    pair.assert_armed();
    let proposed = |message: &Message| match message {
        Message::Lap(lap) => Some(lap.clone()).filter(|lap| lap.alternate.local_port_lid != Lid(0)),
        _ => None,
    };
    let recorded = pair.recorded().iter().rev();
    let mut laps = recorded.filter_map(|(_, source, message)| Some((*source, proposed(message)?)));
    let (source, mut lap) = laps.next().expect("a LAP");
    lap.alternate.local_port_lid.0 ^= 1;
    lap.alternate.remote_port_lid.0 ^= 1;
    pair.record("APR");
    (pair, source, lap)
}

/// The peer proposes that.
fn propose(pair: &mut Pair, mut source: MadSource, lap: &Lap) {
    source.transaction_id = pair.last_transaction("LAP").wrapping_add(1);
    pair.forge_later(PASSIVE, source, lap, 1);
}

/// The proposal, as what its sender has said last.
fn newest(lap: &Lap) -> Lap {
    let mut state = State::decode(&lap.private_data).expect("a state");
    state.sequence += 1_000;
    state.migration = MigrationState::Armed;
    let mut lap = lap.clone();
    lap.private_data = state.encode();
    lap
}

/// What the passive side has answered to LAPs.
fn answers(pair: &Pair) -> Vec<ApStatus> {
    let recorded = pair.recorded().iter();
    let statuses = recorded.filter_map(|(_, _, message)| match message {
        Message::Apr(apr) => Some(apr.status()),
        _ => None,
    });
    statuses.collect()
}

#[test]
fn it_is_replaced_as_soon_as_the_primary_answers() {
    let (mut pair, source, lap) = armed();
    let before = answers(&pair).len();
    propose(&mut pair, source, &lap);
    pair.run(5);
    assert_eq!(answers(&pair)[before..], [ApStatus::Success]);
    let alternate = pair.qp(PASSIVE).alternate.expect("loaded");
    assert_eq!(alternate.slid, lap.alternate.remote_port_lid);
}

/// The simulation's seeds 1795722265133530 and 1795724621427174: MADs were late, or many were lost, so that the
/// alternate seemed to be a hole; while another one was being agreed on the primary failed, and each end migrated to
/// an alternate of its own.
#[test]
fn it_is_not_replaced_while_the_primary_is_silent() {
    for failed_before in [20, 100, 200, 300, 400] {
        let (mut pair, source, lap) = armed();
        let before = answers(&pair).len();
        pair.black_hole(ACTIVE, 1);
        pair.run(failed_before);
        propose(&mut pair, source, &lap);
        pair.run(1_000);
        let answers = &answers(&pair)[before..];
        assert!(!answers.contains(&ApStatus::Success), "{failed_before} ms");
        for host in [ACTIVE, PASSIVE] {
            assert!(pair.is_alive(host), "{failed_before} ms: host {host}");
            assert_eq!(pair.qp(host).primary.port, 2, "{failed_before} ms");
        }
        pair.run(3_000);
        pair.assert_armed();
    }
}

/// Where nothing is sent the queue pair stays, and the proposal is rejected when probes say that the alternate is
/// needed.
#[test]
fn it_is_not_replaced_when_the_primary_is_suspect() {
    let (mut pair, source, lap) = armed();
    pair.set_traffic(false);
    pair.hosts[ACTIVE].stopped = true;
    let before = answers(&pair).len();
    let loaded = pair.qp(PASSIVE).alternate;
    propose(&mut pair, source, &lap);
    pair.run(1_000);
    assert_eq!(answers(&pair)[before..], [ApStatus::Rejected]);
    assert_eq!(pair.qp(PASSIVE).alternate, loaded);
}

/// The peer may still have the alternate that was replaced last, and then the ends have different ones. A third one would
/// make them different.
#[test]
fn without_an_answer_of_the_primary_only_the_one_before_it_is_loaded() {
    for (remote_bits, answer) in [(1, ApStatus::Success), (0, ApStatus::Rejected)] {
        let (mut pair, source, lap) = armed();
        propose(&mut pair, source, &lap);
        pair.run(5);
        let before = answers(&pair).len();
        pair.set_traffic(false);
        pair.hosts[ACTIVE].stopped = true;
        // The last answer is not of just now.
        pair.run(20);
        let mut next = newest(&lap);
        next.alternate.local_port_lid.0 ^= 1;
        next.alternate.remote_port_lid.0 ^= remote_bits;
        let source = MadSource {
            transaction_id: pair.last_transaction("LAP").wrapping_add(2),
            ..source
        };
        pair.forge(PASSIVE, source, next.into());
        pair.run(1_000);
        assert_eq!(answers(&pair)[before..], [answer], "{remote_bits}");
    }
}

/// As many paths over the second ports as it takes to judge one of these: the alternates of other connections.
fn with_many_paths_over_the_second_port() -> (Pair, MadSource, Lap) {
    let mut pair = Pair::with(2, 3, 25);
    for conn in 1..25_u16 {
        let bits = [conn % 8, (conn + conn / 8) % 8];
        for host in [ACTIVE, PASSIVE] {
            let lid = |end: usize| Lid(base_lid((end, 2)).0 | bits[end]);
            let qp = &mut pair.hosts[host].qps[usize::from(conn)];
            qp.alternate = Some(Path {
                port: 2,
                slid: lid(host),
                dlid: lid(1 - host),
                sgid: gid((host, 2)),
                dgid: gid((1 - host, 2)),
                ..qp.primary
            });
            qp.migration = MigrationState::Armed;
        }
    }
    pair.record("LAP");
    pair.begin();
    pair.run(5_000);
    pair.assert_armed();
    pair.set_traffic(false);
    let qpn = pair.hosts[PASSIVE].qpn(0);
    let proposed = |message: &Message| match message {
        Message::Lap(lap) => Some(lap.clone())
            .filter(|lap| lap.remote_qpn_eecn == qpn && lap.alternate.local_port_lid != Lid(0)),
        _ => None,
    };
    let recorded = pair.recorded().iter().rev();
    let mut laps = recorded.filter_map(|(_, source, message)| Some((*source, proposed(message)?)));
    let (source, mut lap) = laps.next().expect("a LAP");
    lap.alternate.remote_port_gid = gid((PASSIVE, 1));
    lap.alternate.remote_port_lid = base_lid((PASSIVE, 1));
    (pair, source, lap)
}

/// No probe over its local port is answered, and the primary's port carries some: it protects nothing.
#[test]
fn one_over_a_silent_port_is_replaced_though_the_primary_does_not_answer_at_this_moment() {
    let (mut pair, source, lap) = with_many_paths_over_the_second_port();
    let is_silent = |pair: &Pair| {
        let engine = pair.hosts[PASSIVE].engine.as_ref().expect("it runs");
        engine.is_suspect_port(pair.hosts[PASSIVE].port_id(2))
    };
    // The active end finds no other alternate.
    pair.sa_dead = true;
    pair.black_hole(PASSIVE, 2);
    pair.run(4_000);
    assert!(is_silent(&pair));
    let alternate = pair.qp(PASSIVE).alternate.expect("it still has it");
    assert_eq!(alternate.port, 2);
    pair.hosts[ACTIVE].stopped = true;
    // The last answer is not of just now.
    pair.run(20);
    let loads = pair.view(PASSIVE).counters.loads;
    propose(&mut pair, source, &newest(&lap));
    pair.run(1);
    assert_eq!(pair.view(PASSIVE).counters.loads, loads + 1);
}

/// What the hardware has called broken protects nothing, so that nothing is waited for.
#[test]
fn one_that_hardware_finds_no_good_is_replaced_at_once() {
    let (mut pair, source, lap) = armed();
    pair.set_traffic(false);
    pair.hosts[ACTIVE].stopped = true;
    pair.run(20);
    pair.report_broken_alternate(PASSIVE);
    pair.run(1);
    let loads = pair.view(PASSIVE).counters.loads;
    propose(&mut pair, source, &newest(&lap));
    pair.run(1);
    assert_eq!(pair.view(PASSIVE).counters.loads, loads + 1);
}

/// A peer that proposes one alternate after the other does not keep the library busy.
#[test]
fn it_is_replaced_sixteen_times_in_a_row_and_then_once_a_second() {
    let (mut pair, source, mut lap) = armed();
    pair.set_traffic(false);
    pair.kill(ACTIVE);
    let loads = pair.view(PASSIVE).counters.loads;
    for later in 0..60 {
        let mut state = State::decode(&lap.private_data).expect("a state");
        state.sequence += 1;
        lap.private_data = state.encode();
        let at = MadSource {
            transaction_id: 0x7000 + later,
            ..source
        };
        pair.forge_later(PASSIVE, at, &lap, 100);
        pair.run(50);
        lap.alternate.local_port_lid.0 ^= 1;
        lap.alternate.remote_port_lid.0 ^= 1;
    }
    let loaded = pair.view(PASSIVE).counters.loads - loads;
    assert!((15..=20).contains(&loaded), "{loaded} times in 3 s");
}

/// The peer may be silent, or MADs may be lost: nothing is known of either path.
#[test]
fn nor_when_both_paths_became_suspect_together() {
    let (mut pair, source, lap) = armed();
    pair.set_traffic(false);
    pair.hosts[ACTIVE].stopped = true;
    pair.run(2_500);
    let before = answers(&pair).len();
    let loaded = pair.qp(PASSIVE).alternate;
    propose(&mut pair, source, &lap);
    pair.run(1_000);
    assert_eq!(answers(&pair)[before..], [ApStatus::Rejected]);
    assert_eq!(pair.qp(PASSIVE).alternate, loaded);
}

/// The simulation's seed 1795830685678447: MADs took up to 0.4 s. The alternate was suspect, and another was proposed;
/// it answered again, and then the passive end loaded what had been proposed, 0.3 s after the LAP was sent. The primary
/// failed, whose probes of before still came back, and each end migrated to an alternate of its own.
#[test]
fn it_is_not_replaced_while_mads_are_late_and_it_carries_packets() {
    let (mut pair, source, lap) = armed();
    pair.net.weather = Weather {
        delay: 300_000,
        ..Weather::FAIR
    };
    pair.run(3_000);
    let before = answers(&pair).len();
    let loaded = pair.qp(PASSIVE).alternate;
    propose(&mut pair, source, &newest(&lap));
    pair.run(1_000);
    assert_eq!(answers(&pair)[before..], [ApStatus::Rejected]);
    assert_eq!(pair.qp(PASSIVE).alternate, loaded);
}

/// An alternate that the peer does not have is none of both ends: it is replaced, however late MADs are.
#[test]
fn it_is_replaced_while_mads_are_late_if_the_peer_has_none() {
    let (mut pair, source, lap) = armed();
    pair.net.weather = Weather {
        delay: 300_000,
        ..Weather::FAIR
    };
    pair.run(3_000);
    let mut lap = newest(&lap);
    let mut state = State::decode(&lap.private_data).expect("a state");
    state.migration = MigrationState::Migrated;
    lap.private_data = state.encode();
    let before = answers(&pair).len();
    propose(&mut pair, source, &lap);
    pair.run(1_000);
    assert_eq!(answers(&pair)[before..], [ApStatus::Success]);
}

/// Where MADs are late some come early. An alternate of which both ends know is kept until none has been late for a
/// while.
#[test]
fn it_is_not_replaced_because_one_answer_was_prompt() {
    for (calm, answer) in [(2_000, ApStatus::Rejected), (20_000, ApStatus::Success)] {
        let (mut pair, source, lap) = armed();
        pair.net.weather = Weather {
            delay: 300_000,
            ..Weather::FAIR
        };
        pair.run(3_000);
        pair.net.weather = Weather::FAIR;
        pair.run(calm);
        let before = answers(&pair).len();
        propose(&mut pair, source, &newest(&lap));
        pair.run(1_000);
        assert_eq!(answers(&pair)[before..], [answer], "after {calm} ms");
    }
}

/// How many alternates were proposed in place of the armed one while all paths were good, and only MADs were lost or
/// late. A primary may be left because of that, which is another thing.
fn needless(weather: Weather) -> usize {
    let count = Cell::new(0);
    seeds(200, |seed| {
        let mut pair = Pair::with(seed, 1, 1);
        pair.begin();
        pair.run(2_500 + seed * 23);
        pair.assert_armed();
        pair.forget_traces();
        let loaded = pair.qp(ACTIVE).alternate.expect("armed");
        pair.net.weather = weather;
        pair.run(2_000);
        let stays = |what: &What| !matches!(what, What::Migrate(_) | What::Migrated { .. });
        let is_other = |what: &What| match what {
            What::LapSent(path) => (path.slid, path.dlid) != (loaded.slid, loaded.dlid),
            _ => false,
        };
        let said = pair.traces(ACTIVE).map(|trace| &trace.what);
        let others = said
            .take_while(|what| stays(what))
            .filter(|what| is_other(what));
        count.set(count.get() + others.count());
    });
    count.get()
}

/// In the first second of a loss probes do not know yet how much gets lost, and an alternate becomes suspect by chance.
/// One answer over another path is chance as well.
#[test]
fn it_is_not_replaced_because_mads_get_lost() {
    let lossy = |loss| Weather {
        loss,
        ..Weather::FAIR
    };
    let counts = [350, 500, 620].map(|loss| needless(lossy(loss)));
    assert!(counts.iter().sum::<usize>() <= 3, "{counts:?}");
}

#[test]
fn it_is_not_replaced_because_mads_are_late() {
    let late = |delay| Weather {
        delay,
        ..Weather::FAIR
    };
    let counts = [250_000, 400_000, 680_000].map(|delay| needless(late(delay)));
    assert!(counts.iter().sum::<usize>() <= 3, "{counts:?}");
}
