// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which queue pairs of an application's own the real shared object registers, and when it lets go
//! of them. The device is a few lines of C: what a kernel has to say to it, the VM's programs show.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use cm_msgs::control::{FromDaemon, FromLibrary, Role};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, listen, recv,
    send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

fn compile(test: &str, name: &str, flags: &[&str], libraries: &[&str]) -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{test}"));
    let status = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&out)
        .args(flags)
        .arg("-I")
        .arg(crate_dir.join("include"))
        .arg(crate_dir.join("tests/c").join(format!("{name}.c")))
        .args(libraries)
        .status();
    assert!(status.expect("a C compiler").success());
    out
}

/// The shared object of this build; cargo puts it beside the test's own executable.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("own path");
    test.with_file_name("librdmacm_apm.so")
}

fn device(test: &str) -> PathBuf {
    let map = concat!(
        "-Wl,--version-script=",
        env!("CARGO_MANIFEST_DIR"),
        "/tests/c/fake_verbs.map"
    );
    compile(test, "fake_verbs", &["-shared", "-fPIC", map], &[])
}

fn program(test: &str) -> PathBuf {
    compile(test, "own_qps", &[], &["-lrdmacm", "-libverbs"])
}

/// The program, and its library's socket.
struct Session {
    program: Child,
    socket: OwnedFd,
}

impl Session {
    /// Starts it with the library and the device preloaded.
    fn start(name: &str, arguments: &[&str], all: bool) -> Self {
        let directory = std::env::temp_dir().join(format!("own-qps-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("temporary directory");
        let path = directory.join("apmd.sock");
        let (family, kind) = (AddressFamily::Unix, SockType::SeqPacket);
        let listener = socket(family, kind, SockFlag::SOCK_CLOEXEC, None).expect("socket");
        bind(
            listener.as_raw_fd(),
            &UnixAddr::new(&path).expect("address"),
        )
        .expect("bind");
        listen(&listener, Backlog::new(4).expect("backlog")).expect("listen");
        // A failing test ends; it does not hang.
        let patience = TimeVal::new(20, 0);
        setsockopt(&listener, sockopt::ReceiveTimeout, &patience).expect("timeout");

        let library = library();
        let device = device(name);
        let mut command = Command::new(program(name));
        let preload = format!("{}:{}", library.display(), device.display());
        command.args(arguments).env("LD_PRELOAD", preload);
        command.env("APMD_SOCKET", &path).stdin(Stdio::piped());
        // Its ids are not the kernel's, which could not be told of a timeout.
        command.env("RDMA_APM_ACK_TIMEOUT", "0");
        if all {
            command.env("RDMA_APM", "all");
        }
        let program = command.spawn().expect("it starts");
        let fd = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC).expect("a library comes");
        std::fs::remove_dir_all(&directory).expect("its own directory");
        // SAFETY: accept4 has just returned it.
        #[allow(unsafe_code)]
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        setsockopt(&socket, sockopt::ReceiveTimeout, &patience).expect("timeout");
        let session = Self { program, socket };
        assert!(matches!(session.next(), FromLibrary::Hello { .. }));
        let welcome = FromDaemon::Welcome.encode();
        send(
            session.socket.as_raw_fd(),
            welcome.as_ref(),
            MsgFlags::empty(),
        )
        .expect("it is there");
        session
    }

    fn next(&self) -> FromLibrary {
        let mut bytes = [0; 512];
        let len = recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::empty()).expect("a message");
        FromLibrary::decode(&bytes[..len]).expect("a valid message")
    }

    fn line(&mut self) {
        let stdin = self.program.stdin.as_mut().expect("a pipe");
        stdin.write_all(b"\n").expect("it reads");
    }

    /// Takes `count` registrations, then lets the program destroy its QPs. What was registered, by
    /// QP number, until everything of it was closed again.
    fn registered(mut self, count: usize) -> BTreeMap<u32, Role> {
        let mut open = BTreeMap::new();
        while open.len() < count {
            match self.next() {
                FromLibrary::Register { conn, register } => {
                    open.insert(conn, (register.qpn.0, register.role));
                }
                other => panic!("{other:?} where a registration was due"),
            }
        }
        self.line();
        let registered = open.values().copied().collect();
        while !open.is_empty() {
            match self.next() {
                FromLibrary::Close { conn, .. } => assert!(open.remove(&conn).is_some()),
                other => panic!("{other:?} where only closing was due"),
            }
        }
        self.line();
        assert!(self.program.wait().expect("it ends").success());
        registered
    }
}

#[test]
fn every_connected_qp_is_registered_where_all_are_wanted() {
    let registered = Session::start("all", &[], true).registered(3);
    let expected = [
        // LID 0x11 is lower than the peer's 0x20.
        (7, Role::Active),
        (9, Role::Passive),
        (11, Role::Active),
    ];
    assert_eq!(registered, BTreeMap::from(expected));
}

#[test]
fn only_qps_of_ids_that_opted_in_are_registered_otherwise() {
    let registered = Session::start("opt", &["opt"], false).registered(2);
    let expected = [(9, Role::Passive), (11, Role::Active)];
    assert_eq!(registered, BTreeMap::from(expected));
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

    let mut command = Command::new(program);
    command
        .env(
            "LD_PRELOAD",
            format!("{}:{}", library.display(), device.display()),
        )
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
    let preload: Vec<_> = preload.iter().map(|path| path.to_string_lossy()).collect();
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", preload.join(":"));
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
