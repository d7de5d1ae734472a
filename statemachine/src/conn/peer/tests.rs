// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the two ends know of each other.

use super::*;
use cm_msgs::control::QpState;
use cm_msgs::{Gid, Guid};

fn port(number: u16, up: bool) -> PeerPort {
    PeerPort {
        gid: Gid::new(0xfe80 << 48, Guid(number.into())),
        lid: Lid(number),
        lmc: 0,
        up,
        drained: false,
    }
}

fn qp(port: u8) -> Snapshot {
    let primary = Path {
        port,
        slid: Lid(port.into()),
        dlid: Lid(8 + u16::from(port)),
        ..Path::default()
    };
    Snapshot {
        qp_state: QpState::Rts,
        migration: MigrationState::Migrated,
        primary,
        alternate: None,
    }
}

fn ports(second: bool) -> Arc<Ports> {
    Arc::new(Ports::new([port(1, true), port(2, second)]))
}

fn end<'a>(qp: &'a Snapshot, place: u8, ports: &'a Arc<Ports>) -> OwnEnd<'a> {
    OwnEnd {
        qp,
        distrusted: false,
        moves_idle: false,
        place,
        ports,
    }
}

#[test]
fn an_older_state_changes_nothing() {
    let mut own = OwnState::new(&end(&qp(1), 1, &ports(true)));
    let first = own.state();
    own.refresh(&end(&qp(1), 1, &ports(false)));
    let second = own.state();
    let mut peer = Peer::default();
    peer.proven(&first);
    assert_eq!(peer.update(&first), News::None);
    assert_eq!(peer.update(&second), News::Ports);
    assert_eq!(peer.update(&first), News::None);
    assert_eq!(peer.ports[1].lid, Lid(0), "out of service");
    peer.proven(&first);
    assert_eq!(peer.ports[1].lid, Lid(2), "another association");
}

#[test]
fn connections_to_one_host_keep_one_list_of_its_ports() {
    let state = OwnState::new(&end(&qp(1), 1, &ports(true))).state();
    let mut lists = SharedValues::default();
    let mut peers = [(); 3].map(|()| Peer::default());
    assert!(!peers[0].has_answered());
    for peer in &mut peers {
        peer.proven(&state);
        assert!(peer.has_answered());
        peer.share_ports(&mut lists);
    }
    // And so does one that a path source led to the ports before.
    peers[2].reported = Arc::new(peers[2].ports.to_vec());
    peers[2].share_ports(&mut lists);
    for peer in &peers {
        assert!(Arc::ptr_eq(&peer.ports, &peers[0].ports));
        assert!(Arc::ptr_eq(&peer.reported, &peer.ports));
    }
}

/// A path source has led to one more port than the peer reported; each change of the connection shares the list again.
#[test]
fn what_the_peer_reported_stays_known_where_the_list_with_other_ports_is_shared() {
    let mut lists = SharedValues::default();
    let mut peer = Peer::default();
    peer.proven(&OwnState::new(&end(&qp(1), 1, &ports(true))).state());
    peer.share_ports(&mut lists);
    Arc::make_mut(&mut peer.ports).push(address(&port(3, true)));
    for _ in 0..2 {
        peer.share_ports(&mut lists);
        assert_eq!((peer.ports.len(), peer.reported.len()), (3, 2));
    }
}

#[test]
fn one_that_was_about_to_leave_its_primary_and_is_not_any_more_says_so() {
    let mut own = OwnState::new(&end(&qp(1), 1, &ports(true)));
    own.set_leaves(true);
    let leaving = own.state();
    assert_eq!(leaving.movement, Movement::Leaves);
    own.set_leaves(false);
    assert!(!own.leaves());
    assert_eq!(own.state().movement, Movement::None);
    assert_ne!(own.sequence(), leaving.sequence, "a later state");
}

/// Hardware was faster than the peer's answer: the migration tells more.
#[test]
fn a_peer_that_has_moved_first_is_not_told_any_more_that_this_end_was_about_to_leave() {
    let ports = ports(true);
    let mut own = OwnState::new(&end(&qp(1), 1, &ports));
    own.told(1);
    own.set_leaves(true);
    own.refresh(&end(&qp(2), 2, &ports));
    let mut peer = Peer::default();
    assert!(own.is_news_to(&peer, &qp(2).primary));
    let Path { slid, dlid, .. } = qp(2).primary;
    let primary = PrimaryPath {
        port: 2,
        local: dlid,
        remote: slid,
    };
    peer.proven(&State {
        sequence: 9,
        primary,
        ..State::default()
    });
    assert!(!own.is_news_to(&peer, &qp(2).primary));
}

#[test]
fn what_the_peer_knows_is_no_news() {
    let peer = Peer::default();
    let mut own = OwnState::new(&end(&qp(1), 1, &ports(true)));
    own.forgotten();
    assert!(own.is_news_to(&peer, &qp(1).primary));
    own.told(1);
    assert!(!own.is_news_to(&peer, &qp(1).primary));
    own.refresh(&end(&qp(1), 1, &ports(false)));
    assert!(own.is_news_to(&peer, &qp(1).primary));
    own.told(1);
    assert!(own.is_news_to(&peer, &qp(1).primary), "a late answer");
    own.told(2);
    assert!(!own.is_news_to(&peer, &qp(1).primary));
}

#[test]
fn a_peer_that_moved_first_is_not_told_that_we_followed() {
    let ports = ports(true);
    let mut own = OwnState::new(&end(&qp(1), 1, &ports));
    own.told(1);
    own.refresh(&end(&qp(2), 2, &ports));
    let mut peer = Peer::default();
    assert!(own.is_news_to(&peer, &qp(2).primary));
    let there = PrimaryPath {
        port: 2,
        local: qp(2).primary.dlid,
        remote: qp(2).primary.slid,
    };
    peer.proven(&State {
        sequence: 9,
        primary: there,
        ..State::default()
    });
    assert!(peer.is_on(&qp(2).primary));
    assert!(!own.is_news_to(&peer, &qp(2).primary));
    peer.followed_to(&qp(2).primary);
    assert!(peer.is_on(&qp(2).primary));
    peer.followed_to(&qp(1).primary);
    assert!(!peer.is_on(&qp(2).primary));
}

/// Two rails with subnet managers of their own: both paths have the same LIDs.
fn rails() -> [Path; 2] {
    [1, 2].map(|number: u8| Path {
        port: number,
        slid: Lid(4),
        dlid: Lid(5),
        dgid: port(number.into(), true).gid,
        ..Path::default()
    })
}

fn on_rail(place: u8) -> State {
    let ports = [1, 2].map(|number| PeerPort {
        lid: Lid(5),
        ..port(number, true)
    });
    let primary = PrimaryPath {
        port: 9,
        local: Lid(5),
        remote: Lid(4),
    };
    State {
        sequence: 9,
        primary,
        place,
        ports: Ports::new(ports),
        ..State::default()
    }
}

#[test]
fn of_two_paths_with_equal_lids_the_peer_is_on_the_one_that_leads_to_its_port() {
    let [first, second] = rails();
    let mut peer = Peer::default();
    peer.proven(&on_rail(2));
    assert!(peer.is_on(&second) && !peer.is_on(&first));
    assert!(peer.prefers(&second, &first) && !peer.prefers(&first, &second));
    assert!(is_primary_of(&second, &on_rail(2)) && !is_primary_of(&first, &on_rail(2)));
    assert!(prefers(&on_rail(1), &first, &second));
    // Its subnet's prefix is another than when the path was made.
    let before = Path {
        dgid: Gid::new(7, second.dgid.interface_id()),
        ..second
    };
    assert!(peer.is_on(&before));
}

#[test]
fn a_peer_that_may_be_on_either_path_has_left_neither() {
    let [first, second] = rails();
    let mut peer = Peer::default();
    peer.proven(&on_rail(0));
    assert!(peer.is_on(&second) && peer.is_on(&first));
    assert!(!peer.prefers(&second, &first) && !peer.prefers(&first, &second));
    // Where one path leads to another port of the peer's, its port is not that of the other.
    let unknown = Path {
        dgid: Gid::default(),
        ..first
    };
    peer.proven(&on_rail(2));
    assert!(peer.is_on(&unknown), "as far as is known");
    assert!(peer.prefers(&second, &unknown));
    peer.proven(&on_rail(1));
    assert!(!peer.prefers(&second, &unknown));
    assert!(
        !peer.prefers(&unknown, &second),
        "nothing tells where it leads"
    );
    let other_lids = Path {
        slid: Lid(6),
        ..second
    };
    assert!(peer.prefers(&unknown, &other_lids));
}

#[test]
fn a_move_is_the_peers_wish_only_where_it_left_or_leaves_the_one_path_for_the_other() {
    let [first, second] = rails();
    let unknown = Path {
        dgid: Gid::default(),
        ..first
    };
    let elsewhere = Path {
        slid: Lid(6),
        ..first
    };
    let wants = |movement, from: &Path, to: &Path| {
        let mut peer = Peer::default();
        peer.proven(&State {
            movement,
            ..on_rail(2)
        });
        peer.wants_move(from, to)
    };
    assert!(wants(Movement::Leaves, &second, &first));
    assert!(wants(Movement::Left, &first, &second));
    assert!(!wants(Movement::None, &first, &second));
    assert!(
        !wants(Movement::Leaves, &elsewhere, &first),
        "it is not there"
    );
    assert!(!wants(Movement::Left, &first, &elsewhere), "nor there");
    // It may be on either path by their LIDs, and is on the other one by its port.
    assert!(!wants(Movement::Leaves, &unknown, &second));
    assert!(!wants(Movement::Left, &second, &unknown));
}

#[test]
fn two_ends_without_alternates_are_on_one_path() {
    let [first, second] = rails();
    let unknown = Path {
        dgid: Gid::default(),
        ..first
    };
    let mut peer = Peer::default();
    peer.proven(&on_rail(2));
    assert_eq!(peer.far_gid_of(&unknown, None), Some(port(2, true).gid));
    assert_eq!(peer.far_gid_of(&first, None), None, "it is known");
    peer.proven(&on_rail(0));
    assert_eq!(peer.far_gid_of(&unknown, None), None);
    let armed = State {
        migration: MigrationState::Armed,
        ..on_rail(2)
    };
    peer.proven(&armed);
    let of = |alternate: &Path| peer.far_gid_of(&unknown, Some(alternate));
    assert_eq!(
        peer.far_gid_of(&unknown, None),
        None,
        "it may have an alternate"
    );
    assert_eq!(
        of(&first),
        Some(port(2, true).gid),
        "it is not on the first"
    );
    assert_eq!(of(&second), None, "it is on the second");
}

#[test]
fn a_state_after_the_wrap_of_sequence_numbers_is_later() {
    let numbered = |sequence| State {
        sequence,
        ..State::default()
    };
    let mut peer = Peer::default();
    peer.proven(&numbered(u32::MAX));
    assert!(!peer.is_past(&numbered(0)));
    assert_ne!(peer.update(&numbered(0)), News::None);
    assert!(peer.is_past(&numbered(u32::MAX)));
    assert_eq!(peer.update(&numbered(u32::MAX)), News::None);
    assert_ne!(peer.update(&numbered(1)), News::None);
}

#[test]
fn what_a_peers_handshake_proved_is_reviewed_once_for_each_time_that_it_names_other_ports() {
    let mut own = OwnState::new(&end(&qp(1), 1, &ports(true)));
    let mut peer = Peer::default();
    peer.proven(&own.state());
    assert!(!peer.take_other_ports(), "a proof of its own");
    own.refresh(&end(&qp(2), 2, &ports(true)));
    peer.update(&own.state());
    assert!(!peer.take_other_ports(), "it is on another path");
    own.refresh(&end(&qp(2), 2, &ports(false)));
    assert_eq!(peer.update(&own.state()), News::Ports);
    assert!(peer.take_other_ports());
    assert!(!peer.take_other_ports());
}

#[test]
fn what_it_reported_of_a_port_in_service_stands_against_path_sources() {
    let mut peer = Peer::default();
    let other = Gid::new(7, Guid(2));
    assert_eq!(peer.reported_gid(other, Lid(2)), None, "nothing was said");
    peer.proven(&OwnState::new(&end(&qp(1), 1, &ports(true))).state());
    assert_eq!(peer.reported_gid(other, Lid(2)), Some(port(2, true).gid));
    assert_eq!(peer.reported_gid(other, Lid(3)), None, "another LID");
    assert_eq!(peer.reported_gid(Gid::new(7, Guid(3)), Lid(2)), None);
    let to = |guid, lid| Path {
        dgid: Gid::new(7, Guid(guid)),
        dlid: Lid(lid),
        ..Path::default()
    };
    assert!(peer.reported_elsewhere(&to(2, 3), 0));
    assert!(!peer.reported_elsewhere(&to(2, 3), 1), "path bits");
    assert!(!peer.reported_elsewhere(&to(2, 2), 0));
    assert!(!peer.reported_elsewhere(&to(3, 3), 0), "not its port");
    peer.proven(&OwnState::new(&end(&qp(1), 1, &ports(false))).state());
    assert!(
        !peer.reported_elsewhere(&to(2, 3), 0),
        "out of service: any"
    );
}

/// There is one for each of 100,000 connections.
#[test]
fn what_is_known_of_a_peer_takes_little_room() {
    assert!(size_of::<Peer>() <= 32, "{}", size_of::<Peer>());
}
