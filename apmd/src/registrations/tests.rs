// SPDX-License-Identifier: MIT OR Apache-2.0
use cm_msgs::control::{MigrationState, PolicyOverride, QpState, Role, Snapshot};
use cm_msgs::path::Path as QpPath;
use cm_msgs::{Gid, Guid, Lid, Qpn};

use super::*;
use crate::io::person::Person;

pub(crate) fn register() -> Register {
    Register {
        role: Role::Active,
        opted_in: false,
        node_guid: Guid(1),
        qpn: Qpn(0x11),
        peer_qpn: Qpn(0x22),
        policy: PolicyOverride::default(),
        snapshot: Snapshot {
            qp_state: QpState::Rts,
            migration: MigrationState::Migrated,
            primary: QpPath {
                port: 1,
                slid: Lid(4),
                dlid: Lid(9),
                sgid: Gid([1; 16]),
                ..QpPath::default()
            },
            alternate: None,
        },
    }
}

fn id(client: u32, conn: u32) -> ConnId {
    ConnId { client, conn }
}

fn user(uid: u32) -> Sharer {
    Sharer::User(Person::without_ranges(uid))
}

const START: Time = Time(0);

const QP: (Guid, Qpn) = (Guid(1), Qpn(0x11));

#[test]
fn a_users_registrations_are_bounded_and_end_with_the_client() {
    let mut all = Registrations::new(Room::new(100));
    let taken = (0..200).take_while(|conn| all.add(START, id(1, *conn), user(7), register()));
    assert_eq!(taken.count(), 75);
    assert!(
        all.add(START, id(2, 0), user(8), register()),
        "another user's"
    );
    all.remove_client(Time(0), 1);
    assert!(all.get(id(1, 0)).is_none() && all.get(id(2, 0)).is_some());
    assert_eq!(all.room.total(), 1);
}

/// A user who has its share by libraries has none left for queue pairs that the kernel tells of.
#[test]
fn libraries_and_the_kernel_share_one_room() {
    let room = Room::new(100);
    let [mut libraries, mut kernel] = [&room, &room].map(|room| Registrations::new(room.clone()));
    let fill = |all: &mut Registrations, client, uid| {
        (0..200)
            .take_while(|conn| all.add(START, id(client, *conn), user(uid), register()))
            .count()
    };
    assert_eq!(fill(&mut libraries, 1, 7), 75);
    assert_eq!(fill(&mut kernel, 0, 7), 0);
    assert!(fill(&mut kernel, 0, 8) > 0, "another user's");
    libraries.remove_client(Time(0), 1);
    assert!(kernel.add(START, id(0, 1000), user(7), register()));
}

#[test]
fn one_registration_holds_a_queue_pair() {
    let mut all = Registrations::new(Room::new(100));
    assert!(all.add(START, id(1, 5), user(7), register()));
    assert_eq!(all.holder(QP), None, "it was not accepted yet");
    assert_eq!(all.accept(Time(0), id(1, 5), register()), None);
    assert!(all.add(START, id(2, 9), user(8), register()));
    assert_eq!(all.holder(QP), Some(id(1, 5)));
    assert_eq!((all.accepted(&user(7)), all.accepted(&user(8))), (1, 0));
    assert_eq!(all.accept(Time(0), id(2, 9), register()), Some(id(1, 5)));
    assert_eq!((all.accepted(&user(7)), all.accepted(&user(8))), (0, 1));
    assert!(!all.remove(Time(0), id(1, 5)), "gone already");
    assert_eq!(all.holder(QP), Some(id(2, 9)));
    assert!(all.remove(Time(0), id(2, 9)));
    assert_eq!(all.holder(QP), None);
}

#[test]
fn a_loop_of_false_registrations_waits() {
    let mut all = Registrations::new(Room::new(100));
    let now = Time(1_000_000);
    let checked = (0..1000).filter(|_| {
        assert!(all.add(START, id(1, 1), user(7), register()));
        let checked = all.is_its_turn(now, id(1, 1));
        if checked {
            all.count_as_short(now, id(1, 1));
        }
        all.remove(now, id(1, 1));
        checked
    });
    assert_eq!(checked.count(), 101);
}

#[test]
fn a_loop_of_registrations_waits() {
    let mut all = Registrations::new(Room::new(100));
    let now = Time(1_000_000);
    let mut accepted = 0;
    for _ in 0..1000 {
        all.remove(now, id(1, 1));
        assert!(all.add(START, id(1, 1), user(7), register()));
        if all.is_its_turn(now, id(1, 1)) {
            all.accept(now, id(1, 1), register());
            accepted += 1;
        }
    }
    assert_eq!(accepted, 101);
    let at = all.poll_timeout().expect("it is waited for");
    assert!(all.due(now).is_empty());
    assert_eq!(all.due(at), [id(1, 1)]);
    assert!(all.is_its_turn(at, id(1, 1)));
}

#[test]
fn who_waits_for_long_is_overdue() {
    let mut all = Registrations::new(Room::new(100));
    for (conn, state) in [
        (1, State::NoPort),
        (2, State::Turnover),
        (3, State::Asked),
        (4, State::Accepted(START)),
    ] {
        assert!(all.add(START, id(1, conn), user(7), register()));
        all.get_mut(id(1, conn)).expect("added").state = state;
    }
    let overdue = |after, counts| {
        let Overdue { port, turn } = all.overdue(START + after, |_| counts);
        (port, turn)
    };
    assert_eq!(overdue(FOR_PORT, true), (0, 0));
    assert_eq!(overdue(FOR_TURN, true), (1, 0));
    assert_eq!(overdue(FOR_TURN * 2, true), (1, 1));
    assert_eq!(overdue(FOR_TURN * 2, false), (0, 1), "another device");
}
