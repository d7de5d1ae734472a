// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that mean no good, and the real daemon.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use apmd::io::seqpacket::{Packets, Receive};
use cm_msgs::control::{
    FromDaemon, FromLibrary, MigrationState, PeerPort, PolicyOverride, QpState, Refusal, Register,
    Role, Snapshot,
};
use cm_msgs::{Guid, Lid, Qpn, path};
use nix::sys::socket::{MsgFlags, send};
use serde_json::json;

use crate::daemon::{Daemon, assert_welcome, connect};
use crate::directory::Directory;

const HELLO: FromLibrary = FromLibrary::Hello {
    command: *b"stranger\0\0\0\0\0\0\0\0",
};

fn libraries(daemon: &Daemon) -> PathBuf {
    daemon.directory().join("apmd.sock")
}

fn register(conn: u64) -> FromLibrary {
    let primary = path::Path {
        port: 1,
        slid: Lid(1),
        dlid: Lid(2),
        ..path::Path::default()
    };
    let snapshot = Snapshot {
        qp_state: QpState::Rts,
        migration: MigrationState::Migrated,
        primary,
        alternate: None,
    };
    let register = Register {
        role: Role::Active,
        opted_in: false,
        node_guid: Guid(0x1234),
        qpn: Qpn(0x11),
        peer_qpn: Qpn(0x22),
        policy: PolicyOverride::default(),
        snapshot,
    };
    FromLibrary::Register { conn, register }
}

/// Resident memory in KiB.
fn memory(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("it lives");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let size = line.and_then(|line| line.split_whitespace().nth(1));
    size.and_then(|size| size.parse().ok()).expect("a size")
}

/// As many connections as the daemon keeps, of `count`, by this user.
#[allow(unsafe_code)]
fn crowd(socket: &Path, count: usize, uid: u32) -> Vec<Packets> {
    let become_user = |uid: u32| {
        // SAFETY: three numbers. The call changes this thread only.
        let result = unsafe { libc::syscall(libc::SYS_setresuid, -1, uid, -1) };
        assert_eq!(result, 0, "root may");
    };
    std::thread::scope(|scope| {
        let connected = scope.spawn(|| {
            become_user(uid);
            let patience = Duration::from_secs(60);
            let mut all: Vec<_> = (0..count)
                .map(|_| Packets::connect(socket, patience).expect("the daemon listens"))
                .collect();
            all.retain(|packets| {
                let greeted = packets.send(HELLO.encode().as_ref());
                greeted.is_ok()
                    && packets
                        .receive(&mut [0; 64])
                        .is_ok_and(|got| got != Receive::End)
            });
            all
        });
        connected.join().expect("no panic")
    })
}

#[test]
fn who_says_nothing_is_closed() {
    let daemon = Daemon::start("");
    let library = connect(&libraries(&daemon));
    let operator = connect(&daemon.directory().join("observe.sock"));
    assert!(library.receive().is_empty() && operator.receive().is_empty());
    daemon.await_counter("clients_gone", &json!(1));
}

#[test]
fn silent_clients_keep_nobody_out() {
    let directory = Directory::new();
    let daemon = Daemon::start_with_descriptors(600, directory.path(), "");
    let silent: Vec<_> = (0..580).map(|_| connect(&libraries(&daemon))).collect();
    assert_eq!(daemon.status()["pid"], daemon.pid());
    assert!(daemon.counters()["clients_refused"].as_u64() > Some(300));
    // Those that got a place lose it after a while.
    assert!(silent.iter().all(|socket| socket.receive().is_empty()));
    let library = connect(&libraries(&daemon));
    library.send(HELLO.encode().as_ref()).expect("room");
    assert_welcome(&library);
}

/// Whether the test can be several users; it must be able to where that is required.
fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        let required =
            std::env::var_os("APMD_REQUIRE_ROOT").is_some_and(|required| required == "1");
        assert!(!required, "only root can be several users: run it as root");
        eprintln!("skipped: only root can be several users");
    }
    root
}

#[test]
fn one_user_leaves_places_for_others() {
    if !is_root() {
        return;
    }
    let directory = Directory::new();
    let daemon =
        Daemon::start_with_descriptors(600, directory.path(), "[control]\ngroup = \"*\"\n");
    let socket = libraries(&daemon);
    let first = crowd(&socket, 300, 1001);
    assert!((100..150).contains(&first.len()), "{}", first.len());
    let second = crowd(&socket, 300, 1002);
    assert!((20..50).contains(&second.len()), "{}", second.len());
    let root = crowd(&socket, 40, 0);
    assert_eq!(root.len(), 40);
}

/// One person is seven users, by the IDs that are subordinate to its own.
#[test]
fn seven_users_of_one_person_have_one_share() {
    if !is_root() {
        return;
    }
    let directory = Directory::new();
    let subordinates = "1001:100000:65536\n";
    let config = "[control]\ngroup = \"*\"\n";
    let daemon = Daemon::start_with_subordinates(600, directory.path(), subordinates, config);
    let socket = libraries(&daemon);
    let uids = [1001, 100_000, 100_001, 100_002, 100_003, 165_534, 165_535];
    let crowds = uids.map(|uid| crowd(&socket, 150, uid));
    let held: usize = crowds.iter().map(Vec::len).sum();
    assert!((100..150).contains(&held), "{held}, as one user has");
    let innocent = crowd(&socket, 20, 1002);
    assert_eq!(innocent.len(), 20);
    let not_of_it = crowd(&socket, 5, 165_536);
    assert_eq!(not_of_it.len(), 5, "the next person's first");
}

/// A limit of the unit that the daemon runs as, in units of one.
fn unit_limit(name: &str) -> u64 {
    const UNIT: &str = include_str!("../../dist/apmd.service");
    let value = UNIT
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
        .expect("the unit has it");
    let digits = value.trim_end_matches(char::is_alphabetic);
    let number: u64 = digits.parse().expect("a number");
    match &value[digits.len()..] {
        "" => number,
        "M" => number << 20,
        "G" => number << 30,
        other => panic!("{name}={value}: {other}?"),
    }
}

/// As many clients of many users as the unit's daemon has descriptors for, none of whom reads: what each may have
/// waiting for it is far from what systemd lets the daemon have.
#[test]
fn a_crowd_that_does_not_read_leaves_the_units_memory_alone() {
    const USERS: u32 = 24;
    const SHARE: u64 = 16;
    if !is_root() {
        return;
    }
    let [high, max] = ["MemoryHigh", "MemoryMax"].map(unit_limit);
    assert!(0 < high && high < max, "throttled before it is ended");
    let descriptors = 2_000;
    assert!(descriptors < unit_limit("LimitNOFILE"));
    let directory = Directory::new();
    let daemon = Daemon::start_with_descriptors(
        descriptors as u32,
        directory.path(),
        "[control]\ngroup = \"*\"\n",
    );
    let before = memory(&daemon);
    let crowds: Vec<_> = (0..USERS)
        .map(|user| crowd(&libraries(&daemon), 400, 2_000 + user))
        .collect();
    let held: u64 = crowds.iter().map(|crowd| crowd.len() as u64).sum();
    assert!(held > 500, "{held}");
    let (message, at_once) = (register(1).encode(), MsgFlags::MSG_DONTWAIT);
    for packets in crowds.iter().flatten() {
        let fd = packets.as_fd().as_raw_fd();
        let sent = |_: &usize| send(fd, message.as_ref(), at_once).is_ok();
        (0..2 * BURST).take_while(sent).count();
    }
    // It has taken in what it reads of that.
    daemon.status();
    let grown = (memory(&daemon).saturating_sub(before)) << 10;
    let all = grown * unit_limit("LimitNOFILE") / held;
    assert!(all < high / SHARE, "{grown} bytes for {held} clients");
}

/// What every user may send at once (`parts/libraries/pace.rs`): so many are read of who reads its answers.
const BURST: usize = 1000;

#[test]
fn answers_that_nobody_reads_cost_little() {
    let daemon = Daemon::start("");
    let before = memory(&daemon);
    let mut deaf = Vec::new();
    for _ in 0..200 {
        let patience = Duration::from_millis(20);
        let packets = Packets::connect(&libraries(&daemon), patience).expect("a listener");
        packets.send(HELLO.encode().as_ref()).expect("room");
        // Each is refused, until the daemon reads no more of them: of the first few before their user has
        // sent too much.
        let sent = |_: &usize| matches!(packets.send(register(1).encode().as_ref()), Ok(true));
        let sent = (0..2 * BURST).take_while(sent).count();
        assert!(sent < BURST, "{sent}");
        deaf.push(packets);
    }
    assert_eq!(daemon.status()["libraries"], 200);
    let grown = memory(&daemon).saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB");
}

#[test]
fn a_question_about_a_peer_that_nobody_can_reach_is_answered_at_once() {
    let daemon = Daemon::start("");
    let library = connect(&libraries(&daemon));
    let ask = FromLibrary::AskPeer {
        question: 9,
        peer: PeerPort {
            node_guid: Guid(1),
            port: 1,
            lid: Lid(9),
        },
    };
    for message in [HELLO, ask] {
        library.send(message.encode().as_ref()).expect("room");
    }
    assert_welcome(&library);
    let no = FromDaemon::Peer {
        question: 9,
        answers: false,
    };
    assert_eq!(FromDaemon::decode(&library.receive()), Ok(no));
    assert_eq!(daemon.counters()["peers_asked"], 0, "through no port");
}

#[test]
fn a_connection_on_an_unknown_device_is_not_looked_after() {
    let daemon = Daemon::start("");
    let library = connect(&libraries(&daemon));
    for message in [HELLO, register(7)] {
        library.send(message.encode().as_ref()).expect("room");
    }
    assert_welcome(&library);
    let refused = FromDaemon::Refuse {
        conn: 7,
        refusal: Refusal::NoDevice,
    };
    assert_eq!(FromDaemon::decode(&library.receive()), Ok(refused));
    assert_eq!(daemon.status()["connections"]["total"], 0);
}

#[test]
fn a_flood_is_a_few_lines_in_the_log() {
    let daemon = Daemon::start("");
    for _ in 0..500 {
        let library = connect(&libraries(&daemon));
        library.send(b"nonsense").expect("room");
        assert!(library.receive().is_empty());
    }
    let said = |what: &str| {
        let log = daemon.log();
        log.iter().filter(|line| line.contains(what)).count()
    };
    let operator = connect(&daemon.directory().join("observe.sock"));
    operator.send(b"nonsense").expect("room");
    daemon.await_counter("malformed_requests", &json!(1));
    daemon.await_log("request not understood");
    assert!(said("protocol violation") < 200);
    assert_eq!(said("request not understood"), 1, "nothing hides another");
    daemon.await_log(" left out, like: ");
}
