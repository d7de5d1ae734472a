// SPDX-License-Identifier: MIT OR Apache-2.0

use cm_msgs::Lid;

use super::*;
use crate::id::Payer;
use crate::subnet::SubnetLid;

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
    schedule.mark(Class::Migrate, Concerned::All, 1);
    let migrate = Turn::Next(Class::Migrate, Concerned::All);
    assert_eq!(schedule.first(true), Some(migrate));
}
