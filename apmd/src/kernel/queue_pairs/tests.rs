// SPDX-License-Identifier: MIT OR Apache-2.0
use cm_msgs::Lid;
use cm_msgs::control::{Load, MigrationState};
use cm_msgs::path::Path;

use super::*;
use crate::io::apm_module::{LeftAlone, Owner};

const NOW: Time = Time(1_000_000);
const DEVICE: Guid = Guid(0x11);

fn snapshot(port: u8) -> Snapshot {
    Snapshot {
        qp_state: QpState::Rts,
        migration: MigrationState::Migrated,
        primary: Path {
            port,
            slid: Lid(4),
            dlid: Lid(9),
            ..Path::default()
        },
        alternate: None,
    }
}

/// A kernel ULP's, or a program's.
fn queue_pair(cookie: u64, pid: Option<i32>) -> KernelQp {
    KernelQp {
        cookie: Cookie(cookie),
        node_guid: DEVICE,
        qpn: Qpn(0x100 + u32::try_from(cookie).unwrap_or(0)),
        peer_qpn: Qpn(0x22),
        role: Some(Role::Passive),
        left_alone: None,
        owner: Owner {
            name: "ib_srp".to_owned(),
            pid,
            uid: 0,
        },
        retries: Some(7),
        snapshot: Some(snapshot(1)),
    }
}

fn known() -> QueuePairs {
    let mut all = QueuePairs::new(100);
    all.handle_port(NOW, PortId::new(DEVICE, 1));
    all
}

fn outputs(all: &mut QueuePairs) -> Vec<String> {
    let outputs = iter::from_fn(|| all.poll_output());
    let words = outputs.map(|output| match output {
        Output::Engine(input) => match *input {
            Input::Register(id, register) => format!("register {} {}", id.conn, register.role),
            Input::Report(id, report) => format!("report {} {:?}", id.conn, report.cause),
            Input::Close(id) => format!("close {}", id.conn),
            Input::ClientGone(client) => format!("gone {client}"),
            other => format!("{other:?}"),
        },
        Output::AskLibrary { pid, .. } => format!("library of {pid}?"),
        Output::Forget(id) => format!("forget {}", id.conn),
    });
    words.collect()
}

fn report(cookie: u64, cause: Cause, token: Option<u32>) -> KernelReport {
    KernelReport {
        cookie: Cookie(cookie),
        cause,
        token,
        errno: 22,
        snapshot: Some(snapshot(1)),
    }
}

const FIRST: ConnId = ConnId {
    client: CLIENT,
    conn: 1,
};

fn load(token: u32) -> Order {
    let path = snapshot(1).primary;
    Order::Load(Load {
        token,
        primary: path,
        alternate: Path { port: 2, ..path },
        standing: true,
    })
}

#[test]
fn a_kernel_ulps_queue_pair_is_registered_and_answers_orders() {
    let mut all = known();
    all.handle_new(NOW, queue_pair(1, None));
    assert_eq!(outputs(&mut all), ["register 1 passive"]);
    let (cookie, token, ask) = all.order(FIRST, load(77)).expect("asked");
    assert_eq!(cookie, Cookie(1));
    assert!(matches!(ask, Ask::Load { standing: true, .. }));
    let (_, query, _) = all.order(FIRST, Order::Query(78)).expect("asked");
    assert_ne!(token, query);
    for (cause, token) in [
        (Cause::Done, Some(token)),
        (Cause::Done, Some(query)),
        (Cause::PathMigrated, None),
    ] {
        all.handle_report(NOW, &report(1, cause, token));
    }
    let want = [
        "report 1 Done { token: 77 }",
        "report 1 Query { token: 78 }",
        "report 1 PathMigrated",
    ];
    assert_eq!(outputs(&mut all), want);
    // The same answer again is to no order.
    all.handle_report(NOW, &report(1, Cause::Done, Some(token)));
    assert_eq!(outputs(&mut all), ["report 1 Changed"]);
    all.handle_gone(NOW, Cookie(1));
    assert_eq!(outputs(&mut all), ["close 1", "forget 1"]);
    assert!(all.client(FIRST).is_some(), "until it is forgotten");
    all.forget(FIRST);
    assert!(all.client(FIRST).is_none() && all.orders.is_empty());
}

#[test]
fn an_order_that_the_module_refuses_has_failed() {
    let mut all = known();
    all.handle_new(NOW, queue_pair(1, None));
    let (_, token, _) = all.order(FIRST, load(77)).expect("asked");
    outputs(&mut all);
    all.handle_refused(token, 2);
    let want = ["report 1 Failed { token: 77, errno: 2 }"];
    assert_eq!(outputs(&mut all), want);
    all.handle_refused(token, 2);
    assert!(outputs(&mut all).is_empty(), "it was answered");
}

#[test]
fn a_program_with_a_library_registers_itself_first() {
    let mut all = known();
    all.handle_new(NOW, queue_pair(1, Some(7)));
    assert_eq!(outputs(&mut all), ["library of 7?"]);
    all.handle_library(NOW, FIRST, true);
    assert!(outputs(&mut all).is_empty());
    let library = ConnId { client: 5, conn: 3 };
    all.claim(NOW, (DEVICE, Qpn(0x101)), library);
    let late = NOW + FOR_LIBRARY;
    all.handle_time(late);
    assert!(outputs(&mut all).is_empty(), "it is the library's");
    all.release(late, library);
    assert!(outputs(&mut all).is_empty(), "it may be about to end");
    all.handle_time(late + FOR_LIBRARY);
    assert_eq!(outputs(&mut all), ["register 1 passive"]);
    // A library that comes late gets it.
    all.claim(late, (DEVICE, Qpn(0x101)), library);
    assert_eq!(outputs(&mut all), ["close 1"]);
    all.release_client(late, 5);
    all.handle_time(late + FOR_LIBRARY * 2);
    assert_eq!(outputs(&mut all), ["register 1 passive"]);
}

#[test]
fn one_that_is_left_alone_is_closed_and_comes_back() {
    let mut all = known();
    all.handle_new(NOW, queue_pair(1, Some(7)));
    all.handle_library(NOW, FIRST, false);
    assert_eq!(outputs(&mut all), ["library of 7?", "register 1 passive"]);
    let left_alone = KernelQp {
        left_alone: Some(LeftAlone::OwnApm),
        ..queue_pair(1, Some(7))
    };
    all.handle_new(NOW, left_alone);
    assert_eq!(outputs(&mut all), ["report 1 Changed", "close 1"]);
    assert_eq!(all.count(), (1, 1));
    all.handle_new(NOW, queue_pair(1, Some(7)));
    assert_eq!(outputs(&mut all), ["register 1 passive"]);
}

#[test]
fn what_a_dump_does_not_tell_is_gone() {
    let mut all = known();
    for cookie in [1, 2] {
        all.handle_new(NOW, queue_pair(cookie, None));
    }
    outputs(&mut all);
    all.begin_dump();
    all.handle_new(NOW, queue_pair(2, None));
    all.end_dump(NOW);
    assert_eq!(
        outputs(&mut all),
        ["report 2 Changed", "close 1", "forget 1"]
    );
    // Its number comes again before its end is heard of.
    let again = KernelQp {
        qpn: Qpn(0x102),
        ..queue_pair(9, None)
    };
    all.handle_new(NOW, again);
    let want = ["close 2", "forget 2", "register 3 passive"];
    assert_eq!(outputs(&mut all), want);
    all.handle_vanished(NOW);
    assert_eq!(outputs(&mut all), ["gone 0"]);
    assert_eq!((all.count(), all.registrations.accepted(0)), ((0, 0), 0));
}

#[test]
fn it_waits_for_its_port_and_is_shown_so() {
    let mut all = QueuePairs::new(100);
    all.handle_new(NOW, queue_pair(1, None));
    assert!(outputs(&mut all).is_empty());
    let care = |all: &QueuePairs| all.after(None).map(|seen| seen.care).collect::<Vec<_>>();
    assert_eq!(care(&all), [Care::NoPort]);
    all.handle_port(NOW, PortId::new(DEVICE, 1));
    assert_eq!(outputs(&mut all), ["register 1 passive"]);
    assert_eq!(care(&all), [Care::Connection(FIRST)]);
    assert_eq!(all.after(Some((DEVICE, Qpn(0x101)))).count(), 0);
}

#[test]
fn a_user_has_a_share() {
    let mut all = known();
    let of_user = |cookie| {
        let mut qp = queue_pair(cookie, None);
        qp.owner.uid = 1000;
        qp
    };
    for cookie in 1..=100 {
        all.handle_new(NOW, of_user(cookie));
    }
    assert_eq!(outputs(&mut all).len(), 75);
    let no_room = all.after(None).filter(|seen| seen.care == Care::NoRoom);
    assert_eq!(no_room.count(), 25);
}

#[test]
fn without_a_connection_manager_the_lower_end_is_active() {
    let with = |slid, dlid, peer_qpn| {
        let mut qp = KernelQp {
            role: None,
            peer_qpn: Qpn(peer_qpn),
            ..queue_pair(1, None)
        };
        if let Some(snapshot) = &mut qp.snapshot {
            (snapshot.primary.slid, snapshot.primary.dlid) = (Lid(slid), Lid(dlid));
        }
        registration(&qp).map(|register| register.role)
    };
    assert_eq!(with(4, 9, 1), Some(Role::Active));
    assert_eq!(with(9, 4, 0x1000), Some(Role::Passive));
    assert_eq!(with(4, 4, 0x102), Some(Role::Active));
    assert_eq!(with(4, 4, 0x100), Some(Role::Passive));
}
