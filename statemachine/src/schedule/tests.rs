// SPDX-License-Identifier: MIT OR Apache-2.0

use alloc::vec;

use cm_msgs::{Guid, Lid};

use super::*;
use crate::id::{Payer, PortId};
use crate::members::Member;
use crate::subnet::SubnetLid;

const ALL: Concerned = Concerned::Exposed(Guid(1));

fn conn(conn: u32) -> Waiter {
    Waiter::Conn(ConnId { client: 1, conn })
}

fn claim(class: Class, payer: u64, lid: u16) -> Claim {
    Claim {
        class,
        payer: Payer(payer),
        far: Some(SubnetLid::in_subnet(0xfe80 << 48, Lid(lid))),
    }
}

/// Sends as many as there is room for, each to a far port and by a payer of its own; how many.
fn fill(schedule: &mut Schedule, class: Class) -> usize {
    (0..1_000)
        .map(|other| claim(class, 1_000 + other, 1_000 + other as u16))
        .take_while(|claim| send(schedule, *claim))
        .count()
}

/// Whether there was room for one more.
fn send(schedule: &mut Schedule, claim: Claim) -> bool {
    let room = schedule.has_room(&claim);
    if room {
        schedule.in_flight(&mut None, claim, 1);
    }
    room
}

fn count(schedule: &mut Schedule, claim: Claim) -> usize {
    (0..1_000).take_while(|_| send(schedule, claim)).count()
}

fn next(schedule: &mut Schedule) -> Option<Waiter> {
    let Some(Turn::Waiting(waiter)) = schedule.first(false) else {
        return None;
    };
    schedule.serve(waiter);
    Some(waiter)
}

#[test]
fn no_class_takes_what_is_another_ones_floor() {
    use Class::{Improve, Initial, Rearm, SamePort};
    for first in [Rearm, SamePort, Initial, Improve] {
        let mut schedule = Schedule::default();
        let taken = fill(&mut schedule, first);
        assert_eq!(taken, if first == Rearm { 52 } else { 44 }, "{first:?}");
        // However many of it wait, the others go on.
        for waiting in 0..10 {
            schedule.wait(claim(first, 1, 1), conn(waiting));
        }
        for other in [Rearm, SamePort, Initial, Improve] {
            if other != first {
                let least = if other == Rearm { 12 } else { 4 };
                assert_eq!(
                    fill(&mut schedule, other),
                    least,
                    "{other:?} beside {first:?}"
                );
            }
        }
        assert_eq!(schedule.first(false), None);
    }
}

#[test]
fn a_class_with_room_does_not_wait_behind_one_without() {
    let mut schedule = Schedule::default();
    fill(&mut schedule, Class::Initial);
    schedule.wait(claim(Class::Initial, 1, 1), conn(1));
    schedule.wait(claim(Class::Improve, 2, 2), conn(2));
    schedule.wait(claim(Class::SamePort, 3, 3), conn(3));
    assert!(schedule.is_crowded(&claim(Class::Initial, 4, 4)));
    assert!(!schedule.is_crowded(&claim(Class::Rearm, 4, 4)));
    assert_eq!(next(&mut schedule), Some(conn(3)));
    assert_eq!(next(&mut schedule), Some(conn(2)));
    assert_eq!(next(&mut schedule), None);
}

#[test]
fn turns_go_over_payers_and_then_over_far_ports() {
    let mut schedule = Schedule::default();
    // A thousand to one port, first; then one to another, and two of another payer.
    for number in 0..1_000 {
        schedule.wait(claim(Class::Rearm, 1, 1), conn(number));
    }
    schedule.wait(claim(Class::Rearm, 1, 2), conn(2_000));
    schedule.wait(claim(Class::Rearm, 2, 1), conn(3_000));
    schedule.wait(claim(Class::Rearm, 2, 1), conn(3_001));
    let order = [0, 3_000, 2_000, 3_001, 1, 2].map(conn);
    assert_eq!(order.map(|_| next(&mut schedule)), order.map(Some));
}

#[test]
fn one_far_port_or_payer_has_a_quarter_while_others_wait() {
    let mut schedule = Schedule::default();
    let slow = claim(Class::Rearm, 1, 1);
    // Alone it has all that there is.
    assert_eq!(count(&mut schedule, slow), 52);
    // What it has above a quarter does not keep out one that comes later.
    let other = claim(Class::Rearm, 1, 2);
    assert_eq!(count(&mut schedule, other), 16);
    schedule.wait(slow, conn(1));
    schedule.wait(other, conn(2));
    assert!(!schedule.has_room(&slow) && schedule.is_crowded(&slow));
    assert!(!schedule.has_room(&other));
    assert!(schedule.has_room(&claim(Class::Rearm, 1, 3)));

    let mut schedule = Schedule::default();
    for far in 0..16 {
        assert!(send(&mut schedule, claim(Class::Initial, 1, far)));
    }
    assert!(schedule.has_room(&claim(Class::Initial, 1, 99)));
    schedule.wait(claim(Class::Initial, 2, 1), conn(2));
    assert!(!schedule.has_room(&claim(Class::Initial, 1, 99)));
    assert_eq!(next(&mut schedule), Some(conn(2)));
}

#[test]
fn what_is_answered_makes_room() {
    let mut schedule = Schedule::default();
    let claim = claim(Class::Initial, 1, 1);
    let mut flight = None;
    schedule.in_flight(&mut flight, claim, 2);
    assert_eq!(count(&mut schedule, claim), 42);
    schedule.wait(claim, conn(1));
    assert_eq!(next(&mut schedule), None);
    schedule.in_flight(&mut flight, claim, 1);
    assert_eq!(next(&mut schedule), Some(conn(1)));
}

#[test]
fn migrations_and_answers_wait_for_no_room() {
    let mut schedule = Schedule::default();
    fill(&mut schedule, Class::Improve);
    fill(&mut schedule, Class::Rearm);
    assert_eq!(schedule.first(false), None);
    assert_eq!(schedule.first(true), Some(Turn::Answer));
    schedule.mark(Class::Migrate, ALL, true);
    let migrate = Turn::Next(Class::Migrate, ALL);
    assert_eq!(schedule.first(true), Some(migrate));
}

/// These connections, of one payer and to one port.
fn members(conns: &[u32]) -> Members {
    let mut members = Members::default();
    for &conn in conns {
        members.insert(Member {
            payer: Payer(1),
            far: Lid(1),
            id: ConnId { client: 1, conn },
        });
    }
    members
}

/// What is left of all rounds over `of`, each look with its class.
fn look_on(schedule: &mut Schedule, of: &Members) -> Vec<(Class, u32)> {
    let mut looks = Vec::new();
    while let Some(Turn::Next(class, _)) = schedule.first(false) {
        let next = schedule.next(Some(of));
        looks.extend(next.map(|id| (class, id.conn)));
    }
    looks
}

#[test]
fn those_in_need_look_first_and_each_once_for_each_event() {
    use Class::{Improve, Rearm, SamePort};
    let mut schedule = Schedule::default();
    let port = |number| Concerned::Armed(PortId::new(Guid(1), number));
    schedule.mark(Improve, port(1), true);
    schedule.mark(Rearm, port(1), true);
    schedule.mark(Rearm, port(2), true);
    // Nobody has its paths there.
    schedule.mark(SamePort, port(3), false);
    let looks = look_on(&mut schedule, &members(&[7, 8]));
    let of = |class| [(class, 7), (class, 8)];
    assert_eq!(looks, [of(Rearm), of(Rearm), of(Improve)].concat());
    assert_eq!(schedule.first(false), None);
}

/// A port may flap faster than all have looked.
#[test]
fn the_same_event_again_has_all_look_again_and_none_is_left_out() {
    let mut schedule = Schedule::default();
    let all = members(&[1, 2, 3]);
    schedule.mark(Class::Improve, ALL, true);
    schedule.next(Some(&all));
    schedule.mark(Class::Improve, ALL, true);
    let looks = look_on(&mut schedule, &all).into_iter();
    assert!(looks.map(|(_, conn)| conn).eq([2, 3, 1]));
    // All have been closed before their turn.
    schedule.mark(Class::Improve, ALL, true);
    assert_eq!(schedule.next(None), None);
    assert_eq!(schedule.first(false), None);
}

/// The caller has MADs to send and others to serve in between.
#[test]
fn some_look_in_one_go_and_migrations_do_not_count() {
    let mut schedule = Schedule::default();
    let turns = |schedule: &mut Schedule| {
        let turn = || schedule.turn(false);
        core::iter::from_fn(turn).take(1_000).count()
    };
    schedule.refresh();
    schedule.mark(Class::Improve, ALL, true);
    assert_eq!(turns(&mut schedule), MAX_LOOKS);
    schedule.mark(Class::Migrate, ALL, true);
    assert_eq!(turns(&mut schedule), 1_000, "whatever has looked before");
}

#[test]
fn there_is_something_to_do_when_somebody_can_do_it() {
    let mut schedule = Schedule::default();
    assert!(!schedule.is_runnable(false) && schedule.is_runnable(true));
    let claim = claim(Class::Initial, 1, 1);
    schedule.wait(claim, conn(1));
    assert!(schedule.is_runnable(false) && schedule.has_queue());
    fill(&mut schedule, Class::Initial);
    assert!(!schedule.is_runnable(false) && schedule.has_queue());
    assert!(schedule.is_crowded(&claim));
    schedule.leave(conn(1));
    assert!(!schedule.has_queue());
    assert!(!schedule.is_crowded(&claim), "nobody waits");
}

#[test]
fn who_waits_already_moves_up_but_not_down_and_keeps_its_age() {
    let mut schedule = Schedule::default();
    let [initial, rearm] = [Class::Initial, Class::Rearm].map(|class| claim(class, 1, 1));
    for (claim, number) in [(rearm, 1), (initial, 2), (rearm, 3)] {
        schedule.wait(claim, conn(number));
    }
    schedule.wait(initial, conn(1));
    schedule.wait(rearm, conn(1));
    schedule.wait(rearm, conn(2));
    let order = [1, 2, 3].map(conn);
    assert_eq!(order.map(|_| next(&mut schedule)), order.map(Some));
    assert_eq!(next(&mut schedule), None, "each had one place");
    assert!(!schedule.has_queue());
    // Its peer is at another port now; its turn is that port's.
    schedule.wait(claim(Class::Rearm, 1, 5), conn(1));
    schedule.wait(claim(Class::Rearm, 1, 6), conn(2));
    schedule.wait(claim(Class::Rearm, 1, 7), conn(1));
    let served = vec![next(&mut schedule), next(&mut schedule)];
    assert_eq!(served, [Some(conn(2)), Some(conn(1))]);
}

#[test]
fn what_waits_and_what_is_to_look_go_by_their_classes() {
    let waiting = Some(Turn::Waiting(conn(1)));
    for (class, first) in [(Class::Rearm, false), (Class::Improve, true)] {
        let mut schedule = Schedule::default();
        schedule.mark(class, ALL, true);
        schedule.wait(claim(Class::SamePort, 1, 1), conn(1));
        let look = Some(Turn::Next(class, ALL));
        let expected = if first { waiting } else { look };
        assert_eq!(schedule.first(false), expected, "{class:?}");
    }
}

#[test]
fn who_waits_in_a_class_with_room_keeps_that_place() {
    let mut schedule = Schedule::default();
    fill(&mut schedule, Class::Initial);
    schedule.wait(claim(Class::Rearm, 1, 1), conn(1));
    schedule.wait(claim(Class::Initial, 1, 1), conn(1));
    assert_eq!(next(&mut schedule), Some(conn(1)));
}

#[test]
fn of_one_payer_to_one_port_the_first_to_come_is_served_first() {
    let mut schedule = Schedule::default();
    let order = [3, 1, 2].map(conn);
    for waiter in order {
        schedule.wait(claim(Class::Rearm, 1, 1), waiter);
    }
    assert_eq!(order.map(|_| next(&mut schedule)), order.map(Some));
}

#[test]
fn the_place_of_an_answered_request_is_its_payers_and_its_far_ports_again() {
    let (payer, far) = (claim(Class::Rearm, 1, 9), claim(Class::Rearm, 9, 1));
    for (mine, other) in [
        (payer, claim(Class::Rearm, 2, 9)),
        (far, claim(Class::Rearm, 9, 2)),
    ] {
        let mut schedule = Schedule::default();
        schedule.wait(other, conn(1));
        let quarter = count(&mut schedule, mine);
        assert_eq!(quarter, 16, "the other waits");
        let mut flight = Some(Box::new(Flight {
            claim: mine,
            requests: 1,
        }));
        schedule.in_flight(&mut flight, mine, 0);
        assert_eq!(count(&mut schedule, mine), 1);
    }
}
