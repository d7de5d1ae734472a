// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commit thread against a daemon's socket, with a model in the QP's place.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cm_msgs::control::{
    AppEvent, Cause, Ending, FromDaemon, FromLibrary, Load, Migrate, MigrationState, Placement,
    PolicyOverride, QpState, Refusal, Register, Report, Role,
};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, listen, recv,
    send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use crate::commit::{Command, Commit, Deliver, Delivery, Descriptor};
use crate::connection::{Connection, ContextKey, Description, IdKey, QpKey};
use crate::peers::Peers;
use crate::tests::model::{Model, path};
use crate::worker::Worker;

mod peers;
mod standing;
mod turns;
mod verdicts;

/// A daemon's listening socket in a directory of its own.
struct Daemon {
    path: PathBuf,
    listener: Option<OwnedFd>,
}

/// One library's socket at the daemon.
struct Client(OwnedFd);

impl Daemon {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "rdmacm-apm-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("temporary directory");
        Self {
            path: directory.join("apmd.sock"),
            listener: None,
        }
    }

    fn start(&mut self) {
        let fd = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .expect("socket");
        bind(fd.as_raw_fd(), &UnixAddr::new(&self.path).expect("address")).expect("bind");
        listen(&fd, Backlog::new(4).expect("backlog")).expect("listen");
        // A failing test ends; it does not hang.
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(20, 0)).expect("timeout");
        self.listener = Some(fd);
    }

    /// Gone, as by kill -9: the file stays behind, until the next one removes it.
    fn kill(&mut self) {
        self.listener = None;
        std::fs::remove_file(&self.path).expect("socket file");
    }

    fn accept(&self) -> Client {
        let listener = self.listener.as_ref().expect("started");
        let fd = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC).expect("a library comes");
        // SAFETY: accept4 has just returned it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(20, 0)).expect("timeout");
        Client(fd)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(directory) = self.path.parent() {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

impl Client {
    fn next(&self) -> FromLibrary {
        let mut bytes = [0; 512];
        let len = recv(self.0.as_raw_fd(), &mut bytes, MsgFlags::empty()).expect("a message");
        FromLibrary::decode(&bytes[..len]).expect("a valid message")
    }

    fn order(&self, message: FromDaemon) {
        self.raw(message.encode().as_ref());
    }

    fn raw(&self, bytes: &[u8]) {
        send(self.0.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL).expect("the library is there");
    }

    fn hello(&self) {
        assert!(matches!(self.next(), FromLibrary::Hello { .. }));
        self.order(FromDaemon::Welcome);
    }

    fn registration(&self) -> (u64, Register) {
        match self.next() {
            FromLibrary::Register { conn, register } => (conn, register),
            other => panic!("{other:?} where a registration was due"),
        }
    }

    fn report(&self) -> Report {
        match self.next() {
            FromLibrary::Report { report, .. } => report,
            other => panic!("{other:?} where a report was due"),
        }
    }
}

/// Answers about peers are waited for, and orders are carried out, however slow the machine is.
fn commit(daemon: &Daemon, deliver: fn() -> Deliver) -> &'static Commit {
    commit_with(daemon, deliver, Duration::from_secs(3_600))
}

fn commit_with(
    daemon: &Daemon,
    deliver: fn() -> Deliver,
    max_order_age: Duration,
) -> &'static Commit {
    let mut commit = Commit::new(daemon.path.clone(), deliver, Worker::prepare);
    commit.peers = Peers::patient();
    commit.max_order_age = max_order_age;
    Box::leak(Box::new(commit))
}

fn nobody() -> Deliver {
    Box::new(|delivery| match delivery {
        Delivery::Event(_, event, _, _) => panic!("{event:?} for who did not ask"),
        Delivery::Disconnected(..) => panic!("disconnected, though on its first path"),
        Delivery::Left(_) => {}
    })
}

fn connection(number: u64, model: &Model, opted_in: bool) -> Arc<Connection> {
    let context = ContextKey {
        address: 0x3000,
        async_fd: -1,
    };
    described(context, number, model, opted_in)
}

fn connection_on(context: ContextKey, number: u64, model: &Model) -> Arc<Connection> {
    described(context, number, model, false)
}

fn described(context: ContextKey, number: u64, model: &Model, opted_in: bool) -> Arc<Connection> {
    let description = description(context, model, opted_in);
    Arc::new(Connection::new(number, description))
}

fn description(context: ContextKey, model: &Model, opted_in: bool) -> Description {
    Description {
        role: Some(Role::Active),
        id: Some(IdKey(0x1000)),
        qp_key: QpKey(0x2000),
        context,
        peer_gid: path(1).dgid,
        opted_in,
        policy: PolicyOverride::default(),
        answer_came_late: false,
        only_receives: false,
        qp: Arc::new(model.clone()),
    }
}

/// A daemon that has one connection's registration.
fn registered(model: &Model) -> (Daemon, Client, &'static Commit, Arc<Connection>) {
    let mut daemon = Daemon::new();
    daemon.start();
    let commit = commit(&daemon, nobody);
    let connection = connection(5, model, false);
    commit.send(Command::Register(Arc::clone(&connection)));
    let client = daemon.accept();
    client.hello();
    let (number, register) = client.registration();
    assert_eq!(number, 5);
    assert_eq!(register.snapshot.primary, path(1), "with the peer's GID");
    (daemon, client, commit, connection)
}

fn load(token: u32, primary: u8, alternate: u8) -> FromDaemon {
    load_with(5, token, primary, alternate, false)
}

fn load_with(conn: u64, token: u32, primary: u8, alternate: u8, standing: bool) -> FromDaemon {
    FromDaemon::Load {
        conn,
        load: Load {
            token,
            primary: path(primary),
            alternate: path(alternate),
            standing,
        },
    }
}

#[test]
fn a_connection_is_loaded_armed_and_migrated() {
    let model = Model::new(path(1));
    let (_daemon, client, _, connection) = registered(&model);

    client.order(load(1, 1, 2));
    let done = client.report();
    assert_eq!(done.cause, Cause::Done { token: 1 });
    assert_eq!(done.snapshot.migration, MigrationState::Rearm);
    assert_eq!(
        done.snapshot.alternate,
        Some(path(2)),
        "with the GID that the order named"
    );

    model.set(|qp| qp.migration = MigrationState::Armed);
    assert_eq!(client.report().cause, Cause::Armed);
    assert_eq!(connection.protection() as u8, 3);

    let order = Migrate {
        token: 2,
        primary: path(1),
    };
    client.order(FromDaemon::Migrate {
        conn: 5,
        migrate: order,
    });
    let done = client.report();
    assert_eq!(done.cause, Cause::Done { token: 2 });
    assert_eq!(done.snapshot.primary, path(2));

    client.order(load(3, 1, 3));
    assert_eq!(client.report().cause, Cause::Stale { token: 3 });
}

#[test]
fn a_query_answers_with_the_qp_as_it_is() {
    let model = Model::new(path(1));
    let (_daemon, client, ..) = registered(&model);
    client.order(FromDaemon::Query { conn: 5, token: 9 });
    assert_eq!(
        client.report(),
        Report {
            cause: Cause::Query { token: 9 },
            snapshot: model.snapshot()
        }
    );

    model.arm(path(2));
    model.set(|qp| {
        qp.primary = path(2);
        qp.migration = MigrationState::Migrated;
    });
    client.order(FromDaemon::Query { conn: 5, token: 9 });
    let moved = client.report();
    assert_eq!(moved.cause, Cause::Query { token: 9 });
    let moved_to = moved.snapshot.primary;
    assert!(moved_to.same_way(&path(2)), "what is new is in it");

    model.set(|qp| qp.qp_state = QpState::Error);
    client.order(FromDaemon::Query { conn: 5, token: 9 });
    let broken = client.report();
    assert_eq!(broken.cause, Cause::Query { token: 9 });
    assert_eq!(broken.snapshot.qp_state, QpState::Error);
}

#[test]
fn a_migration_error_that_the_application_saw_is_reported() {
    let model = Model::new(path(1));
    let (_daemon, client, commit, _) = registered(&model);
    commit.send(Command::Seen(5, Cause::PathMigrationError));
    assert_eq!(client.report().cause, Cause::PathMigrationError);
    // An event without a change, as after our own migration, is no news.
    commit.send(Command::Seen(5, Cause::PathMigrated));
    client.order(FromDaemon::Query { conn: 5, token: 9 });
    assert_eq!(client.report().cause, Cause::Query { token: 9 });
}

#[test]
fn garbage_and_orders_for_nobody_change_nothing() {
    let model = Model::new(path(1));
    let (_daemon, client, ..) = registered(&model);
    client.raw(b"not a message");
    client.raw(&[0xff; 400]);
    client.order(FromDaemon::Query { conn: 77, token: 9 });
    client.order(FromDaemon::Query { conn: 5, token: 9 });
    assert_eq!(client.report().cause, Cause::Query { token: 9 });
}

#[test]
fn a_closed_connection_is_told_and_its_qp_not_touched() {
    let model = Model::new(path(1));
    let (_daemon, client, commit, connection) = registered(&model);
    connection.release_qp();
    client.order(load(1, 1, 2));
    commit.send(Command::Close(5));
    assert_eq!(
        client.next(),
        FromLibrary::Close {
            conn: 5,
            ending: Ending::Gone
        }
    );
    assert_eq!(model.modifies(), 0);
}

#[test]
fn a_daemon_that_comes_back_gets_every_connection_as_it_is() {
    let model = Model::new(path(1));
    let (mut daemon, client, commit, _) = registered(&model);
    commit.send(Command::Register(connection(
        6,
        &Model::new(path(1)),
        false,
    )));
    assert_eq!(client.registration().0, 6);
    daemon.kill();
    drop(client);
    model.arm(path(2));
    daemon.start();
    let client = daemon.accept();
    client.hello();
    let mut registered = [client.registration(), client.registration()];
    registered.sort_by_key(|(number, _)| *number);
    assert_eq!(registered.map(|(number, _)| number), [5, 6]);
    assert_eq!(registered[0].1.snapshot.migration, MigrationState::Armed);
}

#[test]
fn a_connection_older_than_the_daemon_is_registered_when_it_starts() {
    let mut daemon = Daemon::new();
    let commit = commit(&daemon, nobody);
    assert!(!commit.daemon_present());
    commit.send(Command::Register(connection(5, &Model::new(path(1)), true)));
    daemon.start();
    let client = daemon.accept();
    client.hello();
    let (number, register) = client.registration();
    assert_eq!((number, register.opted_in), (5, true));
}

#[test]
fn another_policy_is_said_without_beginning_anew() {
    let mut daemon = Daemon::new();
    daemon.start();
    let commit = commit(&daemon, nobody);
    let connection = connection(5, &Model::new(path(1)), true);
    commit.send(Command::Register(Arc::clone(&connection)));
    let client = daemon.accept();
    client.hello();
    assert_eq!(client.registration().1.policy, PolicyOverride::default());
    let policy = PolicyOverride {
        placement: Some(Placement::Spread),
        ..PolicyOverride::default()
    };
    connection.set_policy(policy);
    commit.send(Command::Policy(5));
    assert_eq!(client.next(), FromLibrary::Policy { conn: 5, policy });
}

#[test]
fn a_daemon_found_before_the_first_connection_is_kept() {
    let mut daemon = Daemon::new();
    daemon.start();
    let commit = commit(&daemon, nobody);
    assert!(commit.daemon_present());
    let client = daemon.accept();
    client.hello();
    commit.send(Command::Register(connection(
        5,
        &Model::new(path(1)),
        false,
    )));
    assert_eq!(client.registration().0, 5);
}

#[test]
fn a_refused_connection_is_left_alone() {
    let model = Model::new(path(1));
    let (_daemon, client, commit, connection) = registered(&model);
    commit.send(Command::Register(self::connection(
        6,
        &Model::new(path(1)),
        false,
    )));
    client.registration();
    client.order(FromDaemon::Refuse {
        conn: 5,
        refusal: Refusal::OnePath,
    });
    client.order(FromDaemon::Query { conn: 6, token: 9 });
    assert_eq!(
        client.report().cause,
        Cause::Query { token: 9 },
        "so the refusal was read"
    );
    model.arm(path(2));
    commit.send(Command::Seen(5, Cause::PathMigrationError));
    commit.send(Command::Close(5));
    assert_eq!(
        client.next(),
        FromLibrary::Close {
            conn: 5,
            ending: Ending::Gone
        },
        "and no report before it"
    );
    assert_eq!(connection.protection() as u8, 0);
}

type Delivered = (u64, AppEvent, u8);

/// What the only test with a listening application has delivered.
static DELIVERED: Mutex<Vec<Delivered>> = Mutex::new(Vec::new());

#[test]
fn events_go_to_applications_that_opted_in_and_to_no_others() {
    let mut daemon = Daemon::new();
    daemon.start();
    let commit = commit(&daemon, || {
        Box::new(|delivery| {
            if let Delivery::Event(connection, event, status, _) = delivery {
                let mut delivered = DELIVERED.lock().expect("whole");
                delivered.push((connection.number, event, status));
            }
        })
    });
    commit.send(Command::Register(connection(5, &Model::new(path(1)), true)));
    commit.send(Command::Register(connection(
        6,
        &Model::new(path(1)),
        false,
    )));
    let client = daemon.accept();
    client.hello();
    client.registration();
    client.registration();
    for (conn, event, status) in [
        (6, AppEvent::PathMigrated, 0),
        (5, AppEvent::LoadAltPath, 0),
        (5, AppEvent::AltRouteError, 113),
    ] {
        client.order(FromDaemon::Event {
            conn,
            event,
            status,
        });
    }
    client.order(FromDaemon::Query { conn: 5, token: 9 });
    assert_eq!(
        client.report().cause,
        Cause::Query { token: 9 },
        "so the events were read"
    );
    let delivered = DELIVERED.lock().expect("whole");
    assert_eq!(
        *delivered,
        [
            (5, AppEvent::LoadAltPath, 0),
            (5, AppEvent::AltRouteError, 113)
        ]
    );
}

/// What the only test with disconnects has delivered: the connection, and whether it was ours.
static ENDED: Mutex<Vec<(u64, bool)>> = Mutex::new(Vec::new());

#[test]
fn only_the_application_of_a_migrated_connection_hears_from_us_that_it_is_disconnected() {
    let mut daemon = Daemon::new();
    daemon.start();
    let commit = commit(&daemon, || {
        Box::new(|delivery| {
            let ended = match delivery {
                Delivery::Disconnected(connection, _) => (connection.number, false),
                Delivery::Left(number) => (number, true),
                Delivery::Event(_, event, _, _) => panic!("{event:?}"),
            };
            ENDED.lock().expect("whole").push(ended);
        })
    });
    let model = Model::new(path(1));
    model.arm(path(2));
    let (moves, stays) = (connection(5, &model, false), Model::new(path(1)));
    commit.send(Command::Register(Arc::clone(&moves)));
    commit.send(Command::Register(connection(6, &stays, false)));
    let client = daemon.accept();
    client.hello();
    client.registration();
    client.registration();
    // Nobody has told the library; it looks.
    model.set(|qp| {
        qp.primary = path(2);
        qp.migration = MigrationState::Migrated;
    });
    for conn in [5, 6, 7] {
        client.order(FromDaemon::Disconnected { conn });
    }
    assert_eq!(client.report().cause, Cause::PathMigrated);
    client.order(FromDaemon::Query { conn: 6, token: 9 });
    client.report();
    assert_eq!(*ENDED.lock().expect("whole"), [(5, false), (7, true)]);
    assert!(moves.has_moved());
    commit.send(Command::Disconnect(5));
    let ending = Ending::Disconnected;
    assert_eq!(client.next(), FromLibrary::Close { conn: 5, ending });
}

#[test]
fn a_thread_that_has_given_up_is_left_alone() {
    let daemon = Daemon::new();
    let commit = commit(&daemon, nobody);
    commit.note(Descriptor::Epoll, 1000);
    commit.give_up();
    assert_eq!(commit.descriptors().count(), 0);
    commit.send(Command::Close(1));
    assert_eq!(commit.waiting(), 0, "nobody would ever take it");
    assert_eq!(commit.descriptors().count(), 0, "no new thread");
}
