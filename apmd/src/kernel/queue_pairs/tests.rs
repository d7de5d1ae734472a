// SPDX-License-Identifier: MIT OR Apache-2.0
mod astray;

use cm_msgs::Lid;
use cm_msgs::control::{Load, Migrate, MigrationState, QpState, Role, Snapshot};
use cm_msgs::path::Path;

use super::*;
use crate::io::apm_module::{LeftAlone, Owner};
use crate::io::person::Person;
use crate::io::person::testing::with_subuid;
use crate::registrations::Sharer;

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
            payer: Person::default(),
            started: None,
        },
        retries: Some(7),
        snapshot: Some(snapshot(1)),
    }
}

fn known() -> QueuePairs {
    let mut all = QueuePairs::new(Room::new(100));
    all.handle_port(NOW, PortId::new(DEVICE, 1), 0);
    all
}

fn outputs(all: &mut QueuePairs) -> Vec<String> {
    let outputs = iter::from_fn(|| all.poll_output());
    let words = outputs.map(|output| match output {
        Output::Engine(input) => match *input {
            Input::Register(id, _, register) => format!("register {} {}", id.conn, register.role),
            Input::Report(id, report) => format!("report {} {:?}", id.conn, report.cause),
            Input::Refused(id, _, _, why) => format!("refused {} {why:?}", id.conn),
            Input::Close(id) => format!("close {}", id.conn),
            Input::ClientGone(client) => format!("gone {client}"),
            other => format!("{other:?}"),
        },
        Output::AskLibrary { pid, .. } => format!("library of {pid}?"),
        Output::Known { id, qp, .. } => match qp {
            Some(qp) => {
                let primary = qp.snapshot.map(|it| it.primary.port);
                format!("{}.{} is on {primary:?}", id.client, id.conn)
            }
            None => format!("{}.{} is not known", id.client, id.conn),
        },
        Output::Query { token, .. } => format!("query {token}"),
        Output::Forget(id) => format!("forget {}", id.conn),
        Output::DeviceUsed(node_guid) => format!("device {:#x} is used", node_guid.0),
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
fn an_idle_move_is_ordered_as_one_and_a_module_may_say_again_that_it_takes_that() {
    let mut all = known();
    all.handle_moves_idle();
    assert_eq!(outputs(&mut all), ["MovesIdle(0)"]);
    all.handle_new(NOW, queue_pair(1, None));
    outputs(&mut all);
    let (token, primary) = (79, snapshot(1).primary);
    let order = Order::MoveIdle(Migrate { token, primary });
    let (_, token, ask) = all.order(FIRST, order).expect("asked");
    assert_eq!(ask, Ask::MoveIdle { primary });
    all.handle_report(NOW, &report(1, Cause::Done, Some(token)));
    assert_eq!(outputs(&mut all), ["report 1 Done { token: 79 }"]);
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

/// All are one client's: what a user's cost is no matter of a ULP's, and the other way round.
#[test]
fn owners_pay_for_their_own() {
    let mut all = known();
    all.handle_new(NOW, queue_pair(1, None));
    all.handle_new(NOW, queue_pair(2, Some(7)));
    let user = ConnId { conn: 2, ..FIRST };
    all.handle_library(NOW, user, false);
    let payers = iter::from_fn(|| all.poll_output()).filter_map(|output| match output {
        Output::Engine(input) => match *input {
            Input::Register(_, payer, _) => Some(payer),
            _ => None,
        },
        _ => None,
    });
    let (qp, ports) = (queue_pair(1, None), BTreeMap::new());
    let register = registration(&qp).expect("in RTS");
    let ulp = sharer(&qp, &register, &ports).payer();
    let user = queue_pair(2, Some(7)).owner.payer;
    assert!(payers.eq([ulp, Sharer::User(user).payer()]));
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
    let late = NOW + libraries::FOR_LIBRARY;
    all.handle_time(late);
    assert!(outputs(&mut all).is_empty(), "it is the library's");
    all.release(late, library);
    assert!(outputs(&mut all).is_empty(), "it may be about to end");
    all.handle_time(late + libraries::FOR_LIBRARY);
    assert_eq!(outputs(&mut all), ["register 1 passive"]);
    // A library that comes late gets it.
    all.claim(late, (DEVICE, Qpn(0x101)), library);
    assert_eq!(outputs(&mut all), ["close 1"]);
    all.release_client(late, 5);
    all.handle_time(late + libraries::FOR_LIBRARY * 2);
    assert_eq!(outputs(&mut all), ["register 1 passive"]);
}

const LIBRARY: ConnId = ConnId { client: 5, conn: 3 };
const NUMBER: (Guid, Qpn) = (DEVICE, Qpn(0x101));

fn answer(cookie: u64, token: u32, port: u8) -> KernelReport {
    KernelReport {
        snapshot: Some(snapshot(port)),
        ..report(cookie, Cause::Done, Some(token))
    }
}

fn said(cause: control::Cause, port: u8) -> Report {
    Report {
        cause,
        snapshot: snapshot(port),
    }
}

#[test]
fn a_registration_is_held_against_what_the_module_reads_now() {
    let mut all = known();
    all.handle_new(NOW, queue_pair(1, Some(7)));
    outputs(&mut all);
    all.ask(NOW, LIBRARY, NUMBER);
    assert_eq!(outputs(&mut all), ["query 1"]);
    // It has migrated since the module told of it, of which no event told.
    all.handle_report(NOW, &answer(1, 1, 2));
    assert_eq!(outputs(&mut all), ["5.3 is on Some(2)"]);
    // Refused to be read: what was told last.
    all.ask(NOW, LIBRARY, NUMBER);
    all.handle_refused(2, 105);
    assert_eq!(outputs(&mut all), ["query 2", "5.3 is on Some(2)"]);
    // Gone before it could be.
    all.ask(NOW, LIBRARY, NUMBER);
    all.handle_gone(NOW, Cookie(1));
    assert_eq!(outputs(&mut all), ["query 3", "5.3 is not known"]);
}

#[test]
fn what_the_module_has_not_told_of_yet_is_waited_for() {
    let mut all = known();
    all.ask(NOW, LIBRARY, NUMBER);
    assert!(outputs(&mut all).is_empty());
    all.handle_new(NOW, queue_pair(1, Some(7)));
    assert_eq!(outputs(&mut all), ["library of 7?", "query 1"]);
    all.handle_report(NOW, &answer(1, 1, 1));
    assert_eq!(outputs(&mut all), ["5.3 is on Some(1)"]);
    // A kind that it does not see.
    let other = ConnId { client: 5, conn: 4 };
    all.ask(NOW, other, (DEVICE, Qpn(0x999)));
    assert_eq!(all.poll_timeout(), Some(NOW + libraries::FOR_MODULE));
    all.handle_time(NOW + libraries::FOR_MODULE);
    assert_eq!(outputs(&mut all), ["5.4 is not known"]);
    // One that was registered before the module was there is held against it then.
    all.claim(NOW, (DEVICE, Qpn(0x102)), other);
    all.handle_new(NOW, queue_pair(2, Some(7)));
    assert_eq!(outputs(&mut all), ["library of 7?", "query 2"]);
}

#[test]
fn a_librarys_report_goes_on_with_the_kernels_truth() {
    let mut all = known();
    let done = control::Cause::Done { token: 77 };
    assert!(all.believes(LIBRARY, said(done, 1)), "nobody knows better");
    all.claim(NOW, NUMBER, LIBRARY);
    assert!(all.believes(LIBRARY, said(done, 1)), "nobody knows better");
    all.handle_new(NOW, queue_pair(1, Some(7)));
    all.handle_report(NOW, &answer(1, 1, 1));
    outputs(&mut all);
    assert!(!all.believes(LIBRARY, said(done, 1)));
    assert!(!all.believes(LIBRARY, said(control::Cause::PathMigrated, 2)));
    assert_eq!(outputs(&mut all), ["query 2", "query 3"]);
    all.handle_report(NOW, &answer(1, 2, 1));
    assert_eq!(outputs(&mut all), ["report 3 Done { token: 77 }"]);
    // A lie: it is where it was.
    all.handle_report(NOW, &answer(1, 3, 1));
    let Some(Output::Engine(input)) = all.poll_output() else {
        panic!("no report");
    };
    let Input::Report(LIBRARY, report) = *input else {
        panic!("{input:?}");
    };
    assert_eq!(report.snapshot, snapshot(1));
    // Answers may be lost, and are asked for again.
    assert!(!all.believes(LIBRARY, said(done, 1)));
    all.forget_orders();
    assert_eq!(outputs(&mut all), ["query 4", "query 5"]);
    // What was closed meanwhile reports no more, whatever its number is given to.
    all.release(NOW, LIBRARY);
    all.handle_report(NOW, &answer(1, 5, 1));
    assert!(outputs(&mut all).is_empty());
}

#[test]
fn a_queue_pair_that_is_gone_reports_nothing_and_without_the_module_libraries_are_believed() {
    let mut all = known();
    all.handle_new(NOW, queue_pair(1, Some(7)));
    all.claim(NOW, NUMBER, LIBRARY);
    outputs(&mut all);
    let lost = said(control::Cause::PathMigrated, 2);
    assert!(!all.believes(LIBRARY, lost));
    all.ask(NOW, ConnId { client: 6, conn: 0 }, (DEVICE, Qpn(0x999)));
    all.handle_vanished(NOW);
    let want = [
        "query 1",
        "report 3 PathMigrated",
        "6.0 is not known",
        "gone 0",
    ];
    assert_eq!(outputs(&mut all), want);
    assert!(all.believes(LIBRARY, lost));
    all.handle_new(NOW, queue_pair(2, Some(7)));
    let renumbered = KernelQp {
        qpn: NUMBER.1,
        ..queue_pair(3, Some(7))
    };
    all.handle_new(NOW, renumbered);
    all.handle_gone(NOW, Cookie(3));
    outputs(&mut all);
    assert!(!all.believes(LIBRARY, lost));
    assert!(outputs(&mut all).is_empty());
}

#[test]
fn a_librarys_connection_is_shown_once_with_the_kernels_owner() {
    let mut all = known();
    all.handle_new(NOW, queue_pair(1, Some(7)));
    all.claim(NOW, NUMBER, LIBRARY);
    let left_alone = KernelQp {
        left_alone: Some(LeftAlone::OwnApm),
        ..queue_pair(1, Some(7))
    };
    all.handle_new(NOW, left_alone);
    let seen: Vec<_> = all.after(None).map(|seen| seen.care).collect();
    assert_eq!(seen, [Care::Connection(LIBRARY)]);
    let owner = all.client(LIBRARY).expect("known");
    assert_eq!(
        (owner.command.as_deref(), owner.peer.pid),
        (Some("ib_srp"), 7)
    );
    assert!(all.client(ConnId { client: 5, conn: 4 }).is_none());
}

#[test]
fn an_alternate_with_a_grh_is_asked_for_never() {
    let mut all = known();
    all.handle_new(NOW, queue_pair(1, None));
    outputs(&mut all);
    let path = snapshot(1).primary;
    let global = Path {
        port: 2,
        global: true,
        ..path
    };
    let load = Order::Load(Load {
        token: 7,
        primary: path,
        alternate: global,
        standing: false,
    });
    assert!(all.order(FIRST, load).is_none());
    assert_eq!(outputs(&mut all), ["refused 1 GlobalRoute"]);
    let seen: Vec<_> = all.after(None).map(|seen| seen.care).collect();
    assert_eq!(seen, [Care::Refused(Refusal::GlobalRoute)]);
    all.handle_report(NOW, &report(1, Cause::PathMigrated, None));
    assert_eq!(
        outputs(&mut all),
        ["report 1 PathMigrated"],
        "and not registered again"
    );
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
fn one_that_stays_in_rtr_is_the_engines_and_again_when_it_sends() {
    let mut all = known();
    let receiver = KernelQp {
        left_alone: Some(LeftAlone::ResponderOnly),
        snapshot: Some(Snapshot {
            qp_state: QpState::Rtr,
            ..snapshot(1)
        }),
        ..queue_pair(1, None)
    };
    all.handle_new(NOW, receiver.clone());
    assert_eq!(outputs(&mut all), ["register 1 passive"]);
    all.order(FIRST, Order::Refuse(Refusal::ReceivesOnly));
    let seen: Vec<_> = all.after(None).map(|seen| seen.care).collect();
    assert_eq!(seen, [Care::Refused(Refusal::ReceivesOnly)]);
    assert_eq!(all.count(), (1, 1), "the module leaves it alone");
    all.handle_new(NOW, receiver);
    assert_eq!(outputs(&mut all), ["report 1 Changed"], "it is known");
    all.handle_new(NOW, queue_pair(1, None));
    assert_eq!(
        outputs(&mut all),
        ["report 1 Changed", "register 1 passive"]
    );
    // In RTR for a moment only.
    let connecting = KernelQp {
        snapshot: Some(Snapshot {
            qp_state: QpState::Rtr,
            ..snapshot(1)
        }),
        ..queue_pair(2, None)
    };
    all.handle_new(NOW, connecting);
    assert!(outputs(&mut all).is_empty());
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
    let accepted = all.registrations.accepted_in_all();
    assert_eq!((all.count(), accepted), ((0, 0), 0));
}

/// The kernel reads a queue pair for the dump, tells its end, and only then hands the dump over.
#[test]
fn an_end_that_was_told_during_a_dump_counts_against_it() {
    let mut all = known();
    for cookie in [1, 2] {
        all.handle_new(NOW, queue_pair(cookie, None));
    }
    outputs(&mut all);
    all.begin_dump();
    // One is known, of the other nothing had been told.
    for cookie in [1, 3] {
        all.handle_gone(NOW, Cookie(cookie));
    }
    assert_eq!(outputs(&mut all), ["close 1", "forget 1"]);
    for cookie in [1, 2, 3] {
        all.handle_new(NOW, queue_pair(cookie, None));
    }
    assert_eq!(outputs(&mut all), ["report 2 Changed"]);
    all.end_dump(NOW);
    assert!(outputs(&mut all).is_empty());
    assert_eq!(all.count(), (1, 0));
    assert!(!all.dump.has_ended(Cookie(1)), "nothing more comes of it");
}

#[test]
fn it_waits_for_its_port_and_is_shown_so() {
    let mut all = QueuePairs::new(Room::new(100));
    all.handle_new(NOW, queue_pair(1, None));
    // Devices are looked for, once.
    assert_eq!(outputs(&mut all), ["device 0x11 is used"]);
    all.handle_report(NOW, &report(1, Cause::Changed, None));
    assert!(outputs(&mut all).is_empty());
    let care = |all: &QueuePairs| all.after(None).map(|seen| seen.care).collect::<Vec<_>>();
    assert_eq!(care(&all), [Care::NoPort]);
    all.handle_port(NOW, PortId::new(DEVICE, 1), 0);
    assert_eq!(outputs(&mut all), ["register 1 passive"]);
    assert_eq!(care(&all), [Care::Connection(FIRST)]);
    assert_eq!(all.after(Some((DEVICE, Qpn(0x101)))).count(), 0);
}

/// A program's that has no library.
fn add_of_user(all: &mut QueuePairs, cookie: u64, uid: u32) {
    let mut qp = queue_pair(cookie, Some(7));
    // As one of those that the user has for programs in namespaces of his own.
    (qp.owner.uid, qp.owner.payer) = (100_000, Person::of(uid));
    all.handle_new(NOW, qp);
    let conn = all.all[&Cookie(cookie)].conn;
    let client = CLIENT;
    all.handle_library(NOW, ConnId { client, conn }, false);
}

/// A kernel ULP's, with a port of another host.
fn of_ulp(cookie: u64, name: &str, dlid: u16) -> KernelQp {
    let mut qp = queue_pair(cookie, None);
    qp.owner.name = name.to_owned();
    if let Some(snapshot) = &mut qp.snapshot {
        snapshot.primary.dlid = Lid(dlid);
    }
    qp
}

fn registered(all: &mut QueuePairs) -> usize {
    let outputs = outputs(all);
    let is_it = |output: &&String| output.starts_with("register ");
    outputs.iter().filter(is_it).count()
}

fn without_room(all: &QueuePairs) -> usize {
    let left_out = all.left_out(NOW, true);
    let no_room = all.after(None).filter(|seen| seen.care == Care::NoRoom);
    assert_eq!(left_out.no_room, no_room.count());
    left_out.no_room
}

#[test]
fn a_user_has_a_share() {
    let mut all = known();
    for cookie in 1..=100 {
        add_of_user(&mut all, cookie, 1000);
    }
    assert_eq!(registered(&mut all), 75);
    assert_eq!(without_room(&all), 25);
}

#[test]
fn a_host_that_connects_to_a_target_leaves_room_for_others() {
    let mut all = QueuePairs::new(Room::new(100));
    // With LMC 2 it has four LIDs.
    all.handle_port(NOW, PortId::new(DEVICE, 1), 2);
    for cookie in 1..=100 {
        let dlid = 8 + u16::try_from(cookie % 4).expect("small");
        all.handle_new(NOW, of_ulp(cookie, "ib_srpt", dlid));
    }
    assert_eq!(registered(&mut all), 57);
    for (cookie, name, dlid) in [
        (101, "ib_srpt", 12),
        (102, "nvmet_rdma", 8),
        (103, "nvmet_rdma", 12),
    ] {
        all.handle_new(NOW, of_ulp(cookie, name, dlid));
        assert_eq!(registered(&mut all), 1, "{name} with LID {dlid}");
    }
    add_of_user(&mut all, 104, 1000);
    assert_eq!(registered(&mut all), 1, "a user's program");
}

#[test]
fn what_found_no_room_is_looked_at_again_when_there_is_some() {
    let room = Room::new(100);
    let mut all = QueuePairs::new(room.clone());
    all.handle_port(NOW, PortId::new(DEVICE, 1), 0);
    for cookie in 1..=100 {
        add_of_user(&mut all, cookie, 1000);
    }
    assert_eq!((registered(&mut all), without_room(&all)), (75, 25));
    assert_eq!(all.poll_timeout(), None, "nothing has changed");
    // Others of its user end: whether here or at a library's does not matter.
    all.handle_gone(NOW, Cookie(1));
    let at = all.poll_timeout().expect("there may be room");
    all.handle_time(at.max(NOW));
    assert_eq!((registered(&mut all), without_room(&all)), (1, 24));
    room.set_limit(1000);
    let at = all.poll_timeout().expect("there may be room");
    all.handle_time(at);
    assert_eq!((registered(&mut all), without_room(&all)), (24, 0));
    assert_eq!(all.poll_timeout(), None);
}

#[test]
fn what_is_left_out_because_nobody_wants_it_is_not_counted() {
    let mut all = known();
    for cookie in 1..=100 {
        add_of_user(&mut all, cookie, 1000);
    }
    let mut qp = queue_pair(100, Some(7));
    (qp.owner.uid, qp.left_alone) = (1000, Some(LeftAlone::Owner));
    all.handle_new(NOW, qp);
    assert_eq!(all.left_out(NOW, true).no_room, 24);
    all.claim(NOW, (DEVICE, Qpn(0x100 + 99)), LIBRARY);
    assert_eq!(all.left_out(NOW, true).no_room, 23, "a library's");
    // Its device is one that apmd is not to manage.
    let mut elsewhere = queue_pair(101, None);
    elsewhere.node_guid = Guid(0x12);
    all.handle_new(NOW, elsewhere);
    let late = NOW + libraries::FOR_LIBRARY * 10;
    let port = |all_devices| all.left_out(late, all_devices).overdue.port;
    assert_eq!((port(false), port(true)), (0, 1));
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

/// As library sockets are charged (docs/quotas.md, *Who is charged*): 65,536 subordinate IDs have one share.
#[test]
fn subordinate_users_outside_of_a_namespace_have_one_share() {
    const NAME: &str =
        "kernel::queue_pairs::tests::subordinate_users_outside_of_a_namespace_have_one_share";
    with_subuid("1234:100000:65536\n", NAME, || {
        let mut all = known();
        for cookie in 1..=300 {
            let uid = 100_000 + cookie as u32 % 3;
            add_of_user(&mut all, cookie, uid);
        }
        // One person, alone: three quarters of 100.
        assert_eq!(registered(&mut all), 75);
    });
}
