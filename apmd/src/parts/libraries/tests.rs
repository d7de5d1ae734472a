// SPDX-License-Identifier: MIT OR Apache-2.0
use std::path::PathBuf;
use std::time::Duration;

use cm_msgs::control::{Cause, MigrationState, PolicyOverride, QpState, Role};
use cm_msgs::path::Path;
use cm_msgs::{Gid, Lid};
use mio::Poll;

use super::check::Objection;
use super::*;
use crate::config;
use crate::descriptors;
use crate::io::apm_module::{Cookie, KernelQp, LeftAlone, Owner};
use crate::io::seqpacket::Packets;
use crate::token::Token;

const NOW: Time = Time(1_000_000);
const PATIENCE: Duration = Duration::from_secs(10);
const DEVICE: Guid = Guid(0x11);
/// The first library's connection.
const ID: ConnId = ConnId { client: 1, conn: 3 };

/// A library's socket in a directory of its own, and one that has said hello.
struct Bench {
    libraries: Libraries,
    library: Packets,
    directory: PathBuf,
    _poll: Poll,
}

impl Bench {
    fn new(name: &str) -> Self {
        let directory = format!("apmd-libraries-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(directory);
        std::fs::create_dir(&directory).expect("a new directory");
        let poll = Poll::new().expect("a poll");
        let budget = descriptors::libraries(&config::Acm::default());
        let (control, path) = (config::Control::default(), directory.join(SOCKET));
        let (listening, token) = (Token::Control, Token::Library);
        let server = Server::listen(&path, &control, budget, poll.registry(), listening, token);
        let mut libraries = Libraries::new(server.expect("a new socket"), Room::new(100));
        let library = Packets::connect(&path, PATIENCE).expect("it listens");
        libraries.handle_callers(NOW);
        let mut bench = Self {
            libraries,
            library,
            directory,
            _poll: poll,
        };
        bench.say(&[FromLibrary::Hello {
            command: [b'a'; 16],
        }]);
        bench.heard();
        bench
    }

    /// Says all of it in one turn.
    fn say(&mut self, messages: &[FromLibrary]) {
        for message in messages {
            let sent = self.library.send(message.encode().as_ref());
            assert!(sent.expect("it is there"), "room");
        }
        self.libraries.handle_ready(NOW, ID.client);
    }

    /// What the library has been told.
    fn heard(&self) -> Vec<FromDaemon> {
        let mut buffer = [0; MAX_LEN];
        let mut packet = || {
            let flags = nix::sys::socket::MsgFlags::MSG_DONTWAIT;
            let fd = std::os::fd::AsRawFd::as_raw_fd(&self.library);
            let len = nix::sys::socket::recv(fd, &mut buffer, flags).ok()?;
            FromDaemon::decode(&buffer[..len]).ok()
        };
        iter::from_fn(&mut packet).collect()
    }

    fn know_port(&mut self, port: u8) {
        let status = PortStatus {
            active: true,
            lid: Lid(4),
            lmc: 0,
            sm_lid: Lid(1),
            sm_guid: Guid(1),
            gid: Gid([1; 16]),
            pkeys: vec![PKey::DEFAULT_FULL],
            mtu: 5,
            rate: 7,
            apm: true,
            moves_idle: false,
            infiniband: true,
            device_ports: 2,
        };
        let id = PortId::new(DEVICE, port);
        self.libraries.handle_port(NOW, id, &status);
    }

    fn notes(&mut self) -> Vec<Note> {
        iter::from_fn(|| self.libraries.poll_note()).collect()
    }

    fn state(&self) -> Option<State> {
        let found = self.libraries.registrations.get(ID);
        found.map(|registration| registration.state)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn snapshot(port: u8) -> Snapshot {
    Snapshot {
        qp_state: QpState::Rts,
        migration: MigrationState::Migrated,
        primary: Path {
            port,
            slid: Lid(4),
            dlid: Lid(9),
            sgid: Gid([1; 16]),
            ..Path::default()
        },
        alternate: None,
    }
}

fn register() -> FromLibrary {
    FromLibrary::Register {
        conn: ID.conn.into(),
        register: Register {
            role: Role::Active,
            opted_in: false,
            node_guid: DEVICE,
            qpn: Qpn(0x101),
            peer_qpn: Qpn(0x22),
            policy: PolicyOverride::default(),
            snapshot: snapshot(1),
        },
    }
}

fn report(port: u8) -> FromLibrary {
    FromLibrary::Report {
        conn: ID.conn.into(),
        report: Report {
            cause: Cause::Changed,
            snapshot: snapshot(port),
        },
    }
}

/// What it says between its registration and the kernel's word is judged as the registration was.
#[test]
fn a_report_on_the_heels_of_a_registration_names_ports_that_exist() {
    let mut bench = Bench::new("heels");
    bench.know_port(1);
    bench.say(&[register(), report(200)]);
    let refused = FromDaemon::Refuse {
        conn: ID.conn.into(),
        refusal: Refusal::Contradicted,
    };
    assert_eq!(bench.heard(), [refused]);
    assert_eq!(bench.state(), None);
    assert_eq!(bench.libraries.counters.contradicted, 1);
}

/// apmd's MADs have no GRH: over such a port the ends of a connection could not agree on an alternate.
#[test]
fn a_connection_on_a_port_that_requires_a_grh_is_refused_as_such() {
    let mut bench = Bench::new("grh");
    bench
        .libraries
        .set_grh_required(PortId::new(DEVICE, 1), true);
    bench.know_port(1);
    bench.say(&[register()]);
    let refused = FromDaemon::Refuse {
        conn: ID.conn.into(),
        refusal: Refusal::GrhRequired,
    };
    assert_eq!(bench.heard(), [refused]);
    // Another driver, or another mode of the device.
    bench
        .libraries
        .set_grh_required(PortId::new(DEVICE, 1), false);
    bench.say(&[register()]);
    assert_eq!(bench.heard(), []);
}

#[test]
fn a_report_of_a_port_that_is_not_known_yet_waits_for_it() {
    let mut bench = Bench::new("unknown");
    bench.know_port(1);
    bench.say(&[register(), report(2)]);
    assert_eq!(bench.state(), Some(State::NoPort));
    // The kernel was asked of what was said before, and confirms nothing now.
    assert!(matches!(
        bench.notes()[..],
        [Note::AskKernel { id: ID, .. }]
    ));
    let number = (DEVICE, Qpn(0x101));
    bench.libraries.handle_known(NOW, ID, number, None);
    assert!(bench.notes().is_empty() && bench.heard().is_empty());
    bench.know_port(2);
    assert_eq!(bench.state(), Some(State::Asked));
    bench.say(&[report(2)]);
    assert!(matches!(
        bench.notes()[..],
        [Note::AskKernel { id: ID, .. }]
    ));
}

#[test]
fn a_device_of_which_nothing_is_known_is_looked_for() {
    let mut bench = Bench::new("device");
    bench.say(&[register()]);
    assert!(matches!(bench.notes()[..], [Note::UnknownDevice(DEVICE)]));
    assert_eq!(bench.state(), Some(State::NoPort));
    bench.heard();
    // One whose other port is known is open.
    bench.know_port(2);
    bench.say(&[register()]);
    assert!(bench.notes().is_empty());
    assert_eq!(bench.state(), Some(State::NoPort));
}

#[test]
fn a_port_that_is_not_known_confirms_nothing() {
    let mut bench = Bench::new("gone");
    bench.know_port(1);
    let FromLibrary::Register { register, .. } = register() else {
        panic!("no registration");
    };
    let judge = |primary, alternate: Option<u8>| {
        let mut register = register;
        register.snapshot.primary.port = primary;
        register.snapshot.alternate = alternate.map(|port| snapshot(port).primary);
        bench.libraries.check_ports(&register)
    };
    assert_eq!(judge(1, None), Ok(()));
    assert_eq!(judge(1, Some(2)), Ok(()), "it may be heard of any moment");
    assert_eq!(judge(1, Some(200)), Err(Objection::Port(200)));
    assert_eq!(judge(2, None), Err(Objection::Port(2)));
}

fn ask_peer(question: u64) -> FromLibrary {
    FromLibrary::AskPeer {
        question,
        peer: PeerPort {
            node_guid: DEVICE,
            port: 1,
            lid: Lid(9),
        },
    }
}

#[test]
fn nobody_is_asked_for_a_port_without_a_second_path() {
    let mut bench = Bench::new("second-path");
    bench.know_port(1);
    bench.say(&[ask_peer(5)]);
    let no = FromDaemon::Peer {
        question: 5,
        answers: false,
    };
    assert_eq!(bench.heard(), [no]);
    assert!(bench.notes().is_empty());
    // The other port has come up.
    bench.know_port(2);
    bench.say(&[ask_peer(6)]);
    let notes = bench.notes();
    let [Note::AskPeer { question, far, .. }] = notes[..] else {
        panic!("not one question: {notes:?}");
    };
    assert_eq!((question.client, question.question), (ID.client, 6));
    assert_eq!((far.port, far.lid), (PortId::new(DEVICE, 1), Lid(9)));
    assert!(bench.heard().is_empty(), "the peer has not said");
}

#[test]
fn connections_that_were_made_before_an_answer_came_are_counted_and_named() {
    let mut bench = Bench::new("late");
    let late = |conn| FromLibrary::AnswerCameLate { conn };
    bench.say(&[register()]);
    assert_eq!(bench.libraries.problem(), None);
    assert_eq!(bench.libraries.warning(ID), None);
    // Of one that is not registered there is nothing to be shown.
    bench.say(&[late(ID.conn.into()), late(ID.conn.into()), late(77)]);
    assert_eq!(bench.libraries.counters().late_peer_answers, 1);
    let said = bench.libraries.problem().expect("one");
    assert!(
        said.starts_with("1 connection with the library made before"),
        "{said}"
    );
    assert!(bench.libraries.warning(ID).is_some());
    bench.say(&[FromLibrary::Close {
        conn: ID.conn.into(),
        ending: Ending::Gone,
    }]);
    assert_eq!(bench.libraries.problem(), None, "it is gone");
    assert_eq!(bench.libraries.counters().late_peer_answers, 1);
}

#[test]
fn a_library_is_its_processs_until_it_is_gone() {
    let mut bench = Bench::new("process");
    let own = std::process::id().cast_signed();
    assert!(bench.libraries.has_process(own) && !bench.libraries.has_process(own + 1));
    bench.libraries.lose(NOW, ID.client, "it is a test");
    assert!(!bench.libraries.has_process(own));
}

/// As the module tells of the library's queue pair.
fn told(primary: Path, alternate: Option<Path>) -> KernelQp {
    KernelQp {
        cookie: Cookie(1),
        node_guid: DEVICE,
        qpn: Qpn(0x101),
        peer_qpn: Qpn(0x22),
        role: None,
        left_alone: Some(LeftAlone::OwnApm),
        owner: Owner {
            pid: Some(0),
            ..Owner::default()
        },
        retries: None,
        snapshot: Some(Snapshot {
            migration: MigrationState::Rearm,
            primary,
            alternate,
            ..snapshot(1)
        }),
    }
}

/// The module says where a path ends, and that no port is there neither it nor the library.
#[test]
fn a_queue_pair_that_goes_astray_is_refused_and_the_engine_not_told() {
    let (good, nowhere) = (
        snapshot(1).primary,
        Path {
            dlid: Lid(0xffff),
            ..snapshot(1).primary
        },
    );
    let mut bench = Bench::new("astray");
    bench.know_port(1);
    let number = (DEVICE, Qpn(0x101));
    let asks = |bench: &mut Bench| {
        bench.say(&[register()]);
        assert!(matches!(bench.notes()[..], [Note::AskKernel { .. }]));
    };
    asks(&mut bench);
    let lie = told(good, Some(nowhere));
    bench.libraries.handle_known(NOW, ID, number, Some(&lie));
    assert!(bench.notes().is_empty() && bench.state().is_none());
    assert!(matches!(bench.heard()[..], [FromDaemon::Refuse { .. }]));
    asks(&mut bench);
    let true_one = told(good, None);
    bench
        .libraries
        .handle_known(NOW, ID, number, Some(&true_one));
    assert!(
        matches!(&bench.notes()[..], [Note::Engine(input)] if matches!(**input, Input::Register(..)))
    );
    for gone in [told(good, Some(nowhere)), told(nowhere, None)] {
        bench.libraries.handle_known(NOW, ID, number, Some(&gone));
        assert!(bench.notes().is_empty());
    }
}

#[test]
fn a_queue_pair_in_rtr_is_the_engines_with_that_state() {
    let mut bench = Bench::new("receiver");
    bench.know_port(1);
    let in_rtr = Snapshot {
        qp_state: QpState::Rtr,
        ..snapshot(1)
    };
    let FromLibrary::Register { conn, register } = register() else {
        unreachable!("that is what it makes");
    };
    let register = Register {
        snapshot: in_rtr,
        ..register
    };
    bench.say(&[FromLibrary::Register { conn, register }]);
    assert!(matches!(bench.notes()[..], [Note::AskKernel { .. }]));
    let told = KernelQp {
        snapshot: Some(in_rtr),
        ..told(in_rtr.primary, None)
    };
    let number = (DEVICE, Qpn(0x101));
    bench.libraries.handle_known(NOW, ID, number, Some(&told));
    assert!(matches!(&bench.notes()[..], [Note::Engine(input)]
            if matches!(**input, Input::Register(_, _, it) if it.snapshot.qp_state == QpState::Rtr)));
}

/// The table was read just before the GID came, for whoever named one that the port has not.
#[test]
fn a_gid_is_not_denied_by_a_table_that_is_older_than_the_librarys_second_look() {
    const LATER: Time = Time(NOW.0 + 200_000);
    let gid = Gid([2; 16]);
    let port = PortId::new(DEVICE, 1);
    let number = (DEVICE, Qpn(0x101));
    let of_gid = |mut snapshot: Snapshot| {
        snapshot.primary.sgid = gid;
        snapshot
    };
    let mut bench = Bench::new("gids");
    bench.know_port(1);
    let tables = &mut bench.libraries.gids;
    tables.look(NOW, port, gid, None, || Some([].into()));
    let true_one = told(of_gid(snapshot(1)).primary, None);
    let FromLibrary::Register { conn, mut register } = register() else {
        panic!("no registration");
    };
    register.snapshot = of_gid(register.snapshot);
    bench.say(&[FromLibrary::Register { conn, register }]);
    let FromLibrary::Report { conn, mut report } = report(1) else {
        panic!("no report");
    };
    report.snapshot = of_gid(report.snapshot);
    let asked = |bench: &mut Bench| matches!(bench.notes()[..], [Note::AskKernel { .. }]);
    assert!(asked(&mut bench));
    let known = Some(&true_one);
    bench.libraries.handle_known(NOW, ID, number, known);
    assert!(matches!(bench.heard()[..], [FromDaemon::Query { .. }]));
    bench.say(&[FromLibrary::Report { conn, report }]);
    assert!(asked(&mut bench));
    bench.libraries.handle_known(NOW, ID, number, known);
    assert!(bench.heard().is_empty(), "nothing is decided");
    assert_eq!(bench.state(), Some(State::Unsettled(NOW)));
    // Nor does it cost anything until then.
    bench.say(&[FromLibrary::Report { conn, report }]);
    assert!(bench.notes().is_empty());
    bench.libraries.handle_time(LATER, |_| false);
    assert!(asked(&mut bench));
    let tables = &mut bench.libraries.gids;
    tables.look(LATER, port, gid, None, || Some([gid].into()));
    bench.libraries.handle_known(LATER, ID, number, known);
    assert_eq!(bench.state(), Some(State::Accepted(LATER)));
}
