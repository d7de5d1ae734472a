// SPDX-License-Identifier: MIT OR Apache-2.0
//! What goes first when there is much to do: a worker that has no thread, and does what it is told.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use cm_msgs::control::{Cause, FromDaemon, Migrate};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use nix::sys::eventfd::EventFd;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, socketpair};

use super::{Client, Daemon, commit, commit_with, connection, load_with, nobody};
use crate::commit::Commit;
use crate::tests::model::{Model, path};
use crate::worker::{SOCKET, Worker};

/// The daemon's end, and a worker that has registered a connection there.
fn linked(model: &Model) -> (Client, Worker) {
    linked_by(commit(&Daemon::new(), nobody), model)
}

fn linked_by(commit: &'static Commit, model: &Model) -> (Client, Worker) {
    let wake = Arc::new(EventFd::new().expect("eventfd"));
    let mut worker = Worker::new(commit, wake, nobody()).expect("epoll");
    let (daemon, library) = pair();
    worker.up(library);
    let connection = connection(5, model, false);
    assert!(worker.track(connection));
    worker.say_register(5);
    worker.send_queued();
    daemon.hello();
    daemon.registration();
    (daemon, worker)
}

fn pair() -> (Client, OwnedFd) {
    let (kind, flags) = (SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
    let (daemon, library) = socketpair(AddressFamily::Unix, kind, None, flags).expect("sockets");
    (Client(daemon), library)
}

fn query(token: u32) -> FromDaemon {
    FromDaemon::Query { conn: 5, token }
}

/// What is ready, as epoll says it.
fn ready(what: u64) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, what)
}

#[test]
fn a_daemon_that_says_much_is_not_heard_to_the_end() {
    let (daemon, mut worker) = linked(&Model::new(path(1)));
    for token in 1..=20 {
        daemon.order(query(token));
    }
    let mut answers = || {
        worker.serve(&[ready(SOCKET)]);
        worker.send_queued();
        let mut buffer = [0; 512];
        let mut next = || recv(daemon.0.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT);
        std::iter::from_fn(|| next().ok()).count()
    };
    // The welcome is the first.
    assert_eq!([answers(), answers()], [15, 5]);
}

#[test]
fn a_context_goes_before_the_daemon() {
    let model = Model::new(path(1));
    let (daemon, mut worker) = linked(&model);
    model.arm(path(2));
    daemon.order(query(9));
    worker.serve(&[ready(SOCKET), ready(0x3000)]);
    worker.send_queued();
    assert_eq!(daemon.report().cause, Cause::Armed);
    assert_eq!(daemon.report().cause, Cause::Query { token: 9 });
}

/// As a stopped process finds them when it continues.
#[test]
fn orders_that_waited_for_long_are_not_carried_out() {
    let armed = |max_order_age| {
        let model = Model::new(path(1));
        model.arm(path(2));
        let commit = commit_with(&Daemon::new(), nobody, max_order_age);
        (linked_by(commit, &model), model)
    };
    let orders = || {
        let migrate = Migrate {
            token: 2,
            primary: path(1),
        };
        let migrate = FromDaemon::Migrate { conn: 5, migrate };
        [load_with(5, 1, 1, 3, false), migrate, query(3)]
    };
    let causes = |(daemon, mut worker): (Client, Worker)| {
        orders().map(|order| {
            daemon.order(order);
            std::thread::sleep(Duration::from_millis(1));
            worker.serve(&[ready(SOCKET)]);
            worker.send_queued();
            daemon.report().cause
        })
    };
    let (fresh, model) = armed(Duration::MAX);
    let [loaded, migrated, asked] = causes(fresh);
    assert_eq!(loaded, Cause::Done { token: 1 });
    assert_eq!(migrated, Cause::Done { token: 2 });
    assert_eq!(asked, Cause::Query { token: 3 });
    assert_eq!(model.modifies(), 2);

    let (late, model) = armed(Duration::ZERO);
    let [loaded, migrated, asked] = causes(late);
    assert_eq!(loaded, Cause::Stale { token: 1 });
    assert_eq!(migrated, Cause::Stale { token: 2 });
    assert_eq!(asked, Cause::Query { token: 3 }, "that is no order");
    assert_eq!(model.modifies(), 0);
}
