// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a peer's daemon answers: who is asked, where, and how long an application waits.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use cm_msgs::control::{Cause, FromDaemon, FromLibrary, PeerPort, Refusal};
use cm_msgs::{Guid, PKey};

use super::{Client, Daemon, commit, connection, description, load, nobody, registered};
use crate::commit::{Command, Commit};
use crate::connection::{Connection, Description};
use crate::peers::{Answer, FarPort};
use crate::tests::model::{Model, path};
use crate::tests::peer;
use crate::worker::Worker;

/// Whether a daemon is known to answer there.
pub(super) fn yes(commit: &'static Commit, far: FarPort) -> bool {
    commit.peer_answers(far) == Answer::Yes
}

/// Asks on a thread of its own, as an application does, and hears a yes.
fn hears_yes(commit: &'static Commit, peer: FarPort) -> JoinHandle<()> {
    thread::spawn(move || assert!(yes(commit, peer)))
}

#[test]
fn a_peer_is_asked_for_once_and_its_answer_kept() {
    let mut daemon = Daemon::new();
    daemon.start();
    let commit = commit(&daemon, nobody);
    assert!(commit.daemon_present());
    let client = daemon.accept();
    assert!(matches!(client.next(), FromLibrary::Hello { .. }));
    let application = hears_yes(commit, peer(9));
    client.order(FromDaemon::AsksPeers);
    client.order(FromDaemon::Welcome);
    let FromLibrary::AskPeer {
        question,
        peer: asked,
    } = client.next()
    else {
        panic!("not asked");
    };
    assert_eq!(asked, peer(9).port);
    // An answer to a question that was not asked is none.
    client.order(FromDaemon::Peer {
        question: question + 100,
        answers: true,
    });
    client.order(FromDaemon::Peer {
        question,
        answers: true,
    });
    application.join().expect("it ends");
    assert!(yes(commit, peer(9)), "it is known");
    commit.send(Command::Register(connection(
        5,
        &Model::new(path(1)),
        false,
    )));
    assert_eq!(client.registration().0, 5, "nothing was asked in between");
}

/// The port to which path 1 leads.
pub(super) fn far() -> FarPort {
    FarPort {
        port: PeerPort {
            node_guid: Guid(0xabcd),
            port: 1,
            lid: path(1).dlid,
        },
        ..peer(0)
    }
}

#[test]
fn a_far_end_that_does_not_take_part_is_not_asked_for_until_it_does() {
    let model = Model::new(path(1));
    let (_daemon, client, commit, _) = registered(&model);
    client.order(FromDaemon::AsksPartitions);
    client.order(FromDaemon::Refuse {
        conn: 5,
        refusal: Refusal::OnePath,
    });
    let far = far();
    let other = connection(6, &Model::new(path(3)), false);
    commit.send(Command::Register(other));
    client.registration();
    client.order(FromDaemon::Query { conn: 6, token: 9 });
    let queried = Cause::Query { token: 9 };
    assert_eq!(client.report().cause, queried, "so the refusal was read");
    assert!(!yes(commit, far));
    client.order(load(1, 1, 2));
    assert_eq!(client.report().cause, Cause::Done { token: 1 }, "not asked");
    let application = hears_yes(commit, far);
    let FromLibrary::AskPeer { question, .. } = client.next() else {
        panic!("not asked");
    };
    client.order(FromDaemon::Peer {
        question,
        answers: true,
    });
    application.join().expect("it ends");
}

/// A peer that is reached in another partition than the default one.
fn in_partition(lid: u16) -> FarPort {
    FarPort {
        pkey: PKey(0x8005),
        ..peer(lid)
    }
}

#[test]
fn a_peer_in_a_partition_is_asked_for_there() {
    let mut daemon = Daemon::new();
    daemon.start();
    let commit = commit(&daemon, nobody);
    assert!(commit.daemon_present());
    let client = daemon.accept();
    assert!(matches!(client.next(), FromLibrary::Hello { .. }));
    let application = hears_yes(commit, in_partition(9));
    client.order(FromDaemon::AsksPartitions);
    client.order(FromDaemon::AsksPeers);
    client.order(FromDaemon::Welcome);
    let FromLibrary::AskPeerIn {
        question,
        peer: asked,
        pkey,
    } = client.next()
    else {
        panic!("not asked");
    };
    assert_eq!((asked, pkey), (peer(9).port, PKey(0x8005)));
    client.order(FromDaemon::Peer {
        question,
        answers: true,
    });
    application.join().expect("it ends");
}

#[test]
fn a_daemon_that_asks_in_the_default_partition_only_is_not_asked_for_another() {
    let mut daemon = Daemon::new();
    daemon.start();
    let commit = commit(&daemon, nobody);
    assert!(commit.daemon_present());
    let client = daemon.accept();
    client.order(FromDaemon::AsksPeers);
    client.hello();
    assert!(!yes(commit, in_partition(9)));
    commit.send(Command::Register(connection(
        5,
        &Model::new(path(1)),
        false,
    )));
    assert_eq!(client.registration().0, 5, "nothing was asked in between");
}

#[test]
fn a_daemon_of_an_earlier_release_is_not_asked() {
    let mut daemon = Daemon::new();
    daemon.start();
    let commit = commit(&daemon, nobody);
    assert!(commit.daemon_present());
    let client = daemon.accept();
    client.hello();
    assert!(!yes(commit, peer(9)));
    commit.send(Command::Register(connection(
        5,
        &Model::new(path(1)),
        false,
    )));
    assert_eq!(client.registration().0, 5);
}

#[test]
fn an_application_waits_for_no_daemon_that_is_silent_or_gone() {
    let mut daemon = Daemon::new();
    daemon.start();
    let commit = Commit::new(daemon.path.clone(), nobody, Worker::prepare);
    let commit: &Commit = Box::leak(Box::new(commit));
    assert!(commit.daemon_present());
    let client = daemon.accept();
    assert!(!yes(commit, peer(9)), "it has not even said welcome");
    client.order(FromDaemon::AsksPeers);
    client.hello();
    let asked = |client: &Client| matches!(client.next(), FromLibrary::AskPeer { .. });
    assert!(asked(&client), "it may answer yet");
    assert!(!yes(commit, peer(10)), "it does not answer");
    assert!(asked(&client));
    drop(client);
    assert!(!yes(commit, peer(11)), "it is gone");
}

/// A connection that was made before there was an answer.
fn late(number: u64, model: &Model) -> Command {
    let context = connection(number, model, false).context;
    let description = Description {
        answer_came_late: true,
        ..description(context, model, false)
    };
    Command::Register(Arc::new(Connection::new(number, description)))
}

#[test]
fn a_daemon_that_counts_late_answers_is_told_which_connections_were_made_before() {
    let (_daemon, client, commit, _) = registered(&Model::new(path(1)));
    let model = Model::new(path(1));
    commit.send(late(6, &model));
    assert_eq!(client.registration().0, 6, "and nothing else is said");
    client.order(FromDaemon::CountsLateAnswers);
    let said = |conn| assert_eq!(client.next(), FromLibrary::AnswerCameLate { conn });
    said(6);
    commit.send(late(7, &model));
    assert_eq!(client.registration().0, 7);
    said(7);
    commit.send(Command::Register(connection(8, &model, false)));
    assert_eq!(client.registration().0, 8);
    commit.send(Command::Close(8));
    let closed = client.next();
    assert!(
        matches!(closed, FromLibrary::Close { conn: 8, .. }),
        "{closed:?}"
    );
}
