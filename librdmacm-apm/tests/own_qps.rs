// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which queue pairs of an application's own the real shared object registers, and when it lets go
//! of them. The device is a few lines of C: what a kernel has to say to it, the VM's programs show.

mod session;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use cm_msgs::control::{FromLibrary, QpState, Role};

use session::{Session, compile, fake, library, preloaded};

fn device(test: &str) -> PathBuf {
    fake(test, "fake_verbs")
}

fn program(test: &str) -> PathBuf {
    compile(test, "own_qps", &[], &["-lrdmacm", "-libverbs"])
}

/// The program with the library and the device preloaded.
fn start(test: &str, arguments: &[&str], all: bool) -> Session {
    let mut command = preloaded(&program(test), &[&library(), &device(test)]);
    command.args(arguments);
    if all {
        command.env("RDMA_APM", "all");
    }
    Session::start(test, command)
}

fn go_on(session: &mut Session) {
    let stdin = session.program.stdin.as_mut().expect("a pipe");
    stdin.write_all(b"\n").expect("it reads");
}

/// What is registered: QP numbers with roles, by the library's number for the connection.
#[derive(Default)]
struct Registered {
    in_rts: BTreeMap<u64, (u32, Role)>,
    /// Three seconds in RTR, which may be over sooner than expected on a busy machine.
    in_rtr: BTreeMap<u64, (u32, Role)>,
}

impl Registered {
    fn take(&mut self, message: FromLibrary) {
        match message {
            FromLibrary::Register { conn, register } => {
                let open = match register.snapshot.qp_state {
                    QpState::Rtr => &mut self.in_rtr,
                    _ => &mut self.in_rts,
                };
                open.insert(conn, (register.qpn.0, register.role));
            }
            FromLibrary::Close { conn, .. } => {
                let closed = self.in_rts.remove(&conn).or(self.in_rtr.remove(&conn));
                assert!(closed.is_some(), "{conn} was not registered");
            }
            other => panic!("{other:?} where a registration or its end was due"),
        }
    }
}

/// Takes registrations until `is_enough`, then lets the program destroy its QPs. What was registered, until everything of
/// it was closed again.
fn until(mut session: Session, is_enough: impl Fn(&Registered) -> bool) -> Registered {
    let mut open = Registered::default();
    while !is_enough(&open) {
        open.take(session.next());
    }
    go_on(&mut session);
    let registered = Registered {
        in_rts: open.in_rts.clone(),
        in_rtr: open.in_rtr.clone(),
    };
    while !(open.in_rts.is_empty() && open.in_rtr.is_empty()) {
        open.take(session.next());
    }
    go_on(&mut session);
    assert!(session.program.wait().expect("it ends").success());
    registered
}

/// By QP number, those in RTS when there are `count`.
fn registered(session: Session, count: usize) -> BTreeMap<u32, Role> {
    let registered = until(session, |open| open.in_rts.len() == count);
    registered.in_rts.into_values().collect()
}

/// The program's connected queue pairs that manage no paths themselves.
fn connected() -> BTreeMap<u32, Role> {
    BTreeMap::from([
        // LID 0x11 is lower than the peer's 0x20.
        (7, Role::Active),
        (9, Role::Passive),
        (11, Role::Active),
        // To RTS with the migration state that it has by then anyway.
        (23, Role::Active),
    ])
}

#[test]
fn every_connected_qp_is_registered_where_all_are_wanted() {
    assert_eq!(registered(start("all", &[], true), 4), connected());
}

/// One that goes on to RTS is registered once, in RTS.
#[test]
fn a_qp_that_stays_in_rtr_is_registered_as_such() {
    let session = start("receiver", &["receiver"], true);
    let registered = until(session, |open| !open.in_rtr.is_empty());
    let in_rtr: Vec<_> = registered.in_rtr.into_values().collect();
    assert_eq!(in_rtr, [(17, Role::Active)]);
    assert_eq!(
        registered.in_rts.into_values().collect::<BTreeMap<_, _>>(),
        connected()
    );
}

#[test]
fn a_modify_that_fails_takes_no_qp_out() {
    let session = start("vain", &["vain"], true);
    assert_eq!(registered(session, 4), connected());
}

#[test]
fn only_qps_of_ids_that_opted_in_are_registered_otherwise() {
    let registered = registered(start("opt", &["opt"], false), 2);
    let expected = [(9, Role::Passive), (11, Role::Active)];
    assert_eq!(registered, BTreeMap::from(expected));
}

#[test]
fn a_qp_that_is_attached_is_registered_though_its_program_has_set_its_migration_state() {
    let registered = registered(start("attach", &["attach"], false), 1);
    assert_eq!(registered, BTreeMap::from([(15, Role::Passive)]));
}

#[test]
fn who_may_not_speak_to_the_daemon_is_told_once() {
    let directory = std::env::temp_dir().join(format!("own-qps-{}-denied", std::process::id()));
    std::fs::create_dir_all(&directory).expect("temporary directory");
    let socket = directory.join("apmd.sock");
    let _listener = UnixListener::bind(&socket).expect("bind");
    let nobody = Permissions::from_mode(0o000);
    std::fs::set_permissions(&socket, nobody).expect("its own file");
    // Another user may have no way to where this was built.
    let reachable = |from: PathBuf, name: &str| {
        let to = directory.join(name);
        std::fs::copy(from, &to).expect("a copy");
        to
    };
    let library = reachable(library(), "library.so");
    let device = reachable(device("denied"), "device.so");
    let program = reachable(program("denied"), "program");

    let mut command = preloaded(&program, &[&library, &device]);
    command
        .env("RDMA_APM", "all")
        .env("RDMA_APM_ACK_TIMEOUT", "0")
        .env("APMD_SOCKET", &socket)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    // Root is let in everywhere.
    if std::fs::metadata("/proc/self").expect("procfs").uid() == 0 {
        command.uid(65534);
    }
    let mut child = command.spawn().expect("it starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut said = String::new();
    stderr.read_line(&mut said).expect("it says so");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"\n\n").expect("it reads");
    assert!(child.wait().expect("it ends").success());
    let mut more = String::new();
    stderr.read_to_string(&mut more).expect("text");
    std::fs::remove_dir_all(&directory).expect("its own directory");
    assert!(said.contains("Permission denied"), "{said}");
    assert_eq!(more, "", "and once is enough");
}

/// What `devx.c` prints on its two streams, with these objects preloaded.
fn devx(test: &str, preload: &[&Path], all: bool) -> (String, String) {
    let program = compile(test, "devx", &[], &["-lmlx5", "-libverbs"]);
    let mut command = preloaded(&program, preload);
    if all {
        command.env("RDMA_APM", "all");
    }
    let output = command.output().expect("it starts");
    assert!(output.status.success());
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (text(output.stdout), text(output.stderr))
}

#[test]
fn a_qp_made_past_libibverbs_is_told_of_once() {
    let (library, device) = (library(), device("devx"));
    let (_, said) = devx("devx", &[&library, &device], true);
    let expected = "0x400\n0x500\n\
        librdmacm-apm: this program makes queue pairs past libibverbs (mlx5 DevX): \
        those are not protected\n\
        0x500\n0x500\n";
    assert_eq!(said, expected);
    let (_, said) = devx("devx", &[&library, &device], false);
    assert_eq!(said, "0x400\n0x500\n0x500\n0x500\n", "nobody asked");
}

#[test]
fn the_real_libmlx5_answers_as_without_the_library() {
    let library = library();
    let with = devx("mlx5", &[&library], true);
    assert_eq!(with, devx("mlx5", &[], true));
    assert!(with.0.contains("not made"), "there is no such device");
}
