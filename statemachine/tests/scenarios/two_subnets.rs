// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two rails with subnet managers of their own: LIDs mean something within a rail only, and prefixes may be
//! equal or not.

use cm_msgs::control::{Cause, MigrationState, QpState, Report, Snapshot};
use cm_msgs::path::Path;
use cm_msgs::{Gid, Lid};
use statemachine::Input;
use statemachine::view::{AssociationState, Grade, Held, Protection};

use super::pair::{ACTIVE, PASSIVE, Pair, PlaceTold, PortOf, seeds};

const PREFIX: u64 = 0xfe80_0000_0000_0000;

/// What LIDs the two subnet managers give.
#[derive(Clone, Copy, Debug)]
enum Lids {
    /// Each host has the same LID on both rails.
    Equal,
    /// Each host has on one rail the LID that the other has on the other rail.
    Crossed,
    /// All are different.
    Different,
}

/// Which of the subnets' properties are equal.
#[derive(Clone, Copy, Debug)]
struct Rails {
    lids: Lids,
    prefixes: [u64; 2],
    /// Where the subnet managers are on their rails.
    managers: [u16; 2],
}

const RAILS: [Rails; 8] = {
    const fn rails(lids: Lids, prefixes: [u64; 2], managers: [u16; 2]) -> Rails {
        Rails {
            lids,
            prefixes,
            managers,
        }
    }
    let (equal, other) = ([PREFIX; 2], [PREFIX, PREFIX + 1]);
    [
        rails(Lids::Equal, equal, [1, 1]),
        rails(Lids::Equal, equal, [1, 9]),
        rails(Lids::Equal, other, [1, 1]),
        rails(Lids::Crossed, equal, [1, 1]),
        rails(Lids::Crossed, equal, [1, 9]),
        rails(Lids::Crossed, other, [1, 1]),
        rails(Lids::Different, equal, [1, 1]),
        rails(Lids::Different, other, [1, 1]),
    ]
};

impl Rails {
    fn lid(&self, (host, port): PortOf) -> Lid {
        let second_rail = port == 2;
        let number = match self.lids {
            Lids::Equal => host,
            Lids::Crossed => host ^ usize::from(second_rail),
            Lids::Different => 2 * host + usize::from(second_rail),
        };
        Lid(0x40 + 8 * number as u16)
    }

    fn gid(&self, port: PortOf) -> Gid {
        let at = usize::from(port.1) - 1;
        Gid::new(self.prefixes[at], super::pair::gid(port).interface_id())
    }
}

fn pair(seed: u64, rails: &Rails) -> Pair {
    with(seed, rails, 1)
}

fn with(seed: u64, rails: &Rails, connections: usize) -> Pair {
    let mut pair = Pair::with(seed, 0, connections);
    pair.net.two_subnets = true;
    for host in [ACTIVE, PASSIVE] {
        for number in [1, 2] {
            let port = (host, number);
            pair.net.relabelled.push((port, rails.lid(port)));
            let at = usize::from(number) - 1;
            let status = &mut pair.hosts[host].ports[at];
            status.lid = rails.lid(port);
            status.gid = rails.gid(port);
            status.sm_lid = Lid(rails.managers[at]);
            status.sm_guid = cm_msgs::Guid(0x100 + at as u64);
        }
        let (here, there) = ((host, 1), (1 - host, 1));
        for qp in &mut pair.hosts[host].qps {
            let primary = &mut qp.primary;
            (primary.slid, primary.dlid) = (rails.lid(here), rails.lid(there));
            (primary.sgid, primary.dgid) = (rails.gid(here), rails.gid(there));
        }
    }
    pair
}

/// The programs' libraries do not know where their QPs lead.
fn without_gids(pair: &mut Pair) {
    for host in &mut pair.hosts {
        host.qps[0].primary.dgid = Gid::default();
    }
}

fn migrations(pair: &Pair) -> [u32; 2] {
    [ACTIVE, PASSIVE].map(|host| pair.view(host).counters.migrations)
}

#[test]
fn without_a_fault_nothing_migrates() {
    for rails in &RAILS {
        let mut pair = pair(1, rails);
        pair.begin();
        pair.run(10_000);
        pair.assert_armed();
        pair.run(50_000);
        pair.assert_armed();
        assert_eq!(migrations(&pair), [0, 0], "{rails:?}");
        for host in [ACTIVE, PASSIVE] {
            assert_eq!(pair.view(host).grade, Some(Grade::Full), "{rails:?}");
        }
    }
}

#[test]
fn every_pulled_cable_is_survived_and_left_once() {
    for rails in &RAILS {
        seeds(5, |seed| {
            let mut pair = pair(seed, rails);
            pair.begin();
            pair.run(5_000);
            for (round, port) in [(ACTIVE, 1), (PASSIVE, 2), (PASSIVE, 1), (ACTIVE, 2)]
                .into_iter()
                .enumerate()
            {
                let before = migrations(&pair);
                pair.pull(port.0, port.1);
                pair.run(5_000);
                assert!(
                    pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE),
                    "{rails:?} {port:?}"
                );
                pair.plug(port.0, port.1);
                pair.run_until_armed(60_000);
                pair.run(20_000);
                pair.assert_armed();
                let after = migrations(&pair);
                for host in [ACTIVE, PASSIVE] {
                    let moved = after[host] - before[host];
                    assert!(moved <= 1, "{rails:?} round {round}: {moved} migrations");
                }
            }
        });
    }
}

/// Nothing tells of it but probes, and the retries of the hardware.
#[test]
fn a_black_hole_is_left_once() {
    for rails in &RAILS {
        let mut pair = pair(3, rails);
        pair.begin();
        pair.run(5_000);
        pair.black_hole(PASSIVE, 1);
        pair.run(10_000);
        assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE), "{rails:?}");
        assert_eq!(migrations(&pair), [1, 1], "{rails:?}");
    }
}

/// Our communication ID goes to where the QP leads only. On the other rail that LID is somebody else's.
#[test]
fn no_message_goes_to_a_stranger() {
    for rails in &RAILS {
        seeds(3, |seed| {
            let mut pair = pair(seed, rails);
            pair.begin();
            pair.run(5_000);
            // Other routes are tried when the first is lost.
            pair.net.weather.loss = 500;
            for host in [ACTIVE, PASSIVE] {
                pair.pull(host, 1);
                pair.run(5_000);
                pair.plug(host, 1);
                pair.run(20_000);
            }
            assert!(pair.to_strangers.is_empty(), "{rails:?}");
        });
    }
}

/// The program's library does not know the peer's GID (no GRH, no connection manager).
#[test]
fn the_peers_gid_need_not_be_known() {
    for rails in &RAILS {
        let mut pair = pair(5, rails);
        without_gids(&mut pair);
        pair.begin();
        pair.run(10_000);
        pair.assert_armed();
        pair.run(30_000);
        assert_eq!(migrations(&pair), [0, 0], "{rails:?}");
        // Where nothing tells which port the primary ends at, no grade says that it is another.
        let prefixes_differ = rails.prefixes[0] != rails.prefixes[1];
        if prefixes_differ || matches!(rails.lids, Lids::Different) {
            assert_eq!(pair.view(ACTIVE).grade, Some(Grade::Full), "{rails:?}");
        }
        pair.pull(PASSIVE, 1);
        pair.run(5_000);
        assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE), "{rails:?}");
        assert_eq!(migrations(&pair), [1, 1], "{rails:?}");
    }
}

/// A daemon that starts again finds QPs on the rails where they are.
#[test]
fn a_restarted_daemon_moves_nothing() {
    for rails in &RAILS {
        for restarted in [ACTIVE, PASSIVE] {
            let mut pair = pair(6, rails);
            pair.begin();
            pair.run(5_000);
            pair.kill(restarted);
            pair.run(100);
            pair.start(restarted);
            pair.run(20_000);
            pair.assert_armed();
            assert_eq!(migrations(&pair), [0, 0], "{rails:?}");
            assert_eq!(pair.view(restarted).protection, Protection::Armed);
        }
    }
}

/// A QP does not show it, and the path is the next alternate when the QP has been moved.
#[test]
fn a_restarted_daemon_learns_where_an_armed_primary_ends() {
    for rails in &RAILS {
        for restarted in [ACTIVE, PASSIVE] {
            let mut pair = pair(11, rails);
            pair.begin();
            pair.run(5_000);
            pair.kill(restarted);
            pair.hosts[restarted].qps[0].primary.dgid = Gid::default();
            pair.start(restarted);
            pair.run(5_000);
            let known = pair.view(restarted).primary.dgid;
            assert_eq!(known, rails.gid((1 - restarted, 1)), "{rails:?}");
        }
    }
}

/// No packet tells a QP that its peer has moved: the daemons do.
#[test]
fn an_idle_peer_is_followed_to_the_path_that_it_is_on() {
    for (rails, known) in RAILS
        .iter()
        .flat_map(|rails| [(rails, true), (rails, false)])
    {
        for first in [ACTIVE, PASSIVE] {
            let mut pair = pair(7, rails);
            if !known {
                without_gids(&mut pair);
            }
            pair.begin();
            pair.run(5_000);
            pair.set_traffic(false);
            pair.pull(first, 1);
            pair.run(300);
            assert_eq!(migrations(&pair), [1, 1], "{rails:?} {first}");
            for host in [ACTIVE, PASSIVE] {
                assert_eq!(pair.qp(host).primary.port, 2, "{rails:?} {first}");
            }
        }
    }
}

/// The daemon that starts again is told in the handshake.
#[test]
fn a_restarted_daemon_follows_its_idle_peer() {
    for rails in &RAILS {
        for restarted in [ACTIVE, PASSIVE] {
            let mut pair = pair(8, rails);
            pair.begin();
            pair.run(5_000);
            pair.set_traffic(false);
            pair.kill(restarted);
            pair.pull(1 - restarted, 1);
            pair.run(1_000);
            pair.start(restarted);
            pair.run(20_000);
            for host in [ACTIVE, PASSIVE] {
                let port = pair.qp(host).primary.port;
                assert_eq!(port, 2, "{rails:?}, restarted: {restarted}, end {host}");
            }
        }
    }
}

/// What an older daemon says fits both paths where LIDs are equal: it is not followed then, and the hardware's
/// retries move the connection.
#[test]
fn a_peer_that_does_not_tell_its_port_moves_nothing() {
    for rails in &RAILS {
        for old in [[true, false], [false, true], [true, true]] {
            let mut pair = pair(9, rails);
            pair.net.place_told = old.map(|old| match old {
                true => PlaceTold::Nothing,
                false => PlaceTold::True,
            });
            without_gids(&mut pair);
            pair.begin();
            pair.run(30_000);
            pair.assert_armed();
            assert_eq!(migrations(&pair), [0, 0], "{rails:?} {old:?}");
            pair.pull(ACTIVE, 1);
            pair.run(5_000);
            assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE), "{rails:?}");
            assert_eq!(migrations(&pair), [1, 1], "{rails:?} {old:?}");
        }
    }
}

/// A peer that always says that it is on the other path would be followed without end.
#[test]
fn following_is_bounded_and_said() {
    for liar in [ACTIVE, PASSIVE] {
        let mut pair = pair(10, &RAILS[0]);
        pair.begin();
        pair.run(5_000);
        pair.assert_armed();
        pair.net.place_told[liar] = PlaceTold::Wrong;
        // It says how it is.
        let other = 3 - pair.qp(liar).primary.port;
        pair.drain_port(liar, other, true);
        pair.run(100);
        pair.drain_port(liar, other, false);
        pair.run(40_000);
        let moved = migrations(&pair)[1 - liar];
        assert!((1..=4).contains(&moved), "{moved} migrations");
        let held = pair.view(1 - liar).held;
        assert_eq!(held, Some(Held::ToAndFro), "liar: {liar}");
        assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE));
        // A lost port is left all the same.
        pair.net.place_told[liar] = PlaceTold::True;
        let port = pair.qp(1 - liar).primary.port;
        pair.pull(1 - liar, port);
        pair.run(2_000);
        assert!(pair.is_alive(ACTIVE) && pair.is_alive(PASSIVE));
        assert_ne!(pair.qp(1 - liar).primary.port, port);
    }
}

/// The first connection's association was opened over its alternate's ports, since the primary's local port was out of
/// service. The second one's primary leads by those ports, and the peer's is lost before its handshake.
#[test]
fn a_handshake_over_the_alternates_ports_proves_where_else_the_peer_can_be_asked() {
    let rails = &RAILS[7];
    let mut pair = with(12, rails, 2);
    for host in [PASSIVE, ACTIVE] {
        let (here, there) = ((host, 2), (1 - host, 2));
        let primary = &mut pair.hosts[host].qps[1].primary;
        primary.port = 2;
        (primary.slid, primary.dlid) = (rails.lid(here), rails.lid(there));
        (primary.sgid, primary.dgid) = (rails.gid(here), rails.gid(there));
        pair.start(host);
        pair.register_some(host, 0..1);
    }
    // Without a packet its queue pairs are not armed, and cannot leave the primary.
    pair.run(2_000);
    assert!(pair.qp(ACTIVE).alternate.is_some());
    pair.kill(ACTIVE);
    pair.pull(ACTIVE, 1);
    pair.start(ACTIVE);
    pair.run(5_000);
    let state = pair.view(ACTIVE).association.state;
    assert_eq!(state, AssociationState::Established);
    pair.plug(ACTIVE, 1);
    pair.run(1_000);
    pair.pull(PASSIVE, 2);
    pair.run(1_000);
    pair.record("REQ");
    pair.register_some(ACTIVE, 1..2);
    pair.run(1_000);
    let (to, source, _) = pair.recorded().first().expect("it is asked");
    assert_eq!(
        (*to, source.port),
        (PASSIVE, pair.hosts[PASSIVE].port_id(1))
    );
}

/// The library's reports are slow: its queue pair has loaded the alternate and has followed the peer to it, and the daemon
/// knows neither. The LIDs of both rails are the same, so that the peer's could be those of the primary.
#[test]
fn while_a_library_loads_a_peers_port_is_not_taken_for_the_end_of_the_primary() {
    let rails = &RAILS[0];
    let mut pair = pair(13, rails);
    without_gids(&mut pair);
    pair.net.place_told[PASSIVE] = PlaceTold::Nothing;
    pair.begin();
    while pair.qp(PASSIVE).alternate.is_none() {
        pair.run_us(20);
    }
    pair.hosts[ACTIVE].last_report = pair.now + 1_000_000;
    pair.net.place_told[PASSIVE] = PlaceTold::True;
    pair.run(100);
    assert!(pair.is_armed());
    pair.pull(PASSIVE, 1);
    pair.run(200);
    assert_eq!(pair.qp(ACTIVE).primary.port, 2);
    let primary = pair.view(ACTIVE).primary;
    assert_eq!((primary.port, primary.dgid), (1, Gid::default()));
    pair.run(2_000);
    let primary = pair.view(ACTIVE).primary;
    assert_eq!((primary.port, primary.dgid), (2, rails.gid((PASSIVE, 2))));
}

/// A queue pair that has migrated may still show the alternate that it had. The LIDs are those of the path that both ends
/// are on, and the port is another.
#[test]
fn a_peers_port_is_not_taken_for_the_end_of_an_alternate_that_does_not_count() {
    let rails = &RAILS[0];
    let mut pair = pair(14, rails);
    without_gids(&mut pair);
    pair.sa_dead = true;
    pair.begin();
    pair.run(2_000);
    let primary = pair.qp(ACTIVE).primary;
    let alternate = Path {
        port: 2,
        sgid: rails.gid((ACTIVE, 2)),
        ..primary
    };
    let snapshot = Snapshot {
        qp_state: QpState::Rts,
        migration: MigrationState::Migrated,
        primary,
        alternate: Some(alternate),
    };
    let cause = Cause::Changed;
    let id = pair.id(ACTIVE, 0);
    pair.tell(ACTIVE, Input::Report(id, Report { cause, snapshot }));
    let view = pair.view(ACTIVE);
    assert_eq!(view.primary.dgid, rails.gid((PASSIVE, 1)));
    let alternate = view.alternate.expect("it is shown");
    assert_eq!(alternate.dgid, Gid::default());
}
