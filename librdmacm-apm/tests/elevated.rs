// SPDX-License-Identifier: MIT OR Apache-2.0
//! A set-user-ID program that is linked with the real shared object: its caller's environment does not choose
//! the daemon.

#[path = "session/programs.rs"]
mod programs;

use std::fs::{Permissions, copy, create_dir_all, remove_dir_all, set_permissions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, listen, socket,
};
use nix::unistd::geteuid;

use programs::{compile, fake, library};

const CALLER: u32 = 65534;

/// A directory that every user can use.
fn directory() -> PathBuf {
    let path = std::env::temp_dir().join(format!("elevated-{}", std::process::id()));
    create_dir_all(&path).expect("temporary directory");
    set_permissions(&path, Permissions::from_mode(0o755)).expect("its own directory");
    path
}

/// Copies what another user may have no way to, and links the program with the copies.
fn program(directory: &Path) -> PathBuf {
    let place = |from: PathBuf, name: &str| {
        let to = directory.join(name);
        copy(from, &to).expect("a copy");
        to.to_str().expect("a plain name").to_owned()
    };
    let library = place(library(), "library.so");
    let device = place(fake("elevated", "fake_verbs"), "device.so");
    let built = compile(
        "elevated",
        "own_qps",
        &[],
        &[&library, &device, "-lrdmacm", "-libverbs"],
    );
    PathBuf::from(place(built, "program"))
}

fn listener(path: &Path) -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).expect("a socket");
    bind(socket.as_raw_fd(), &UnixAddr::new(path).expect("a path")).expect("a free name");
    listen(&socket, Backlog::new(16).expect("a length")).expect("it is bound");
    set_permissions(path, Permissions::from_mode(0o777)).expect("its own file");
    socket
}

/// Whether the program comes to the daemon that its caller names. It looks for one in `rdma_connect`, so it
/// has done so when it has ended.
fn comes(program: &Path, named: &Path) -> bool {
    let listener = listener(named);
    let mut child = Command::new(program)
        .arg("opt")
        .env("APMD_SOCKET", named)
        .current_dir("/")
        .uid(CALLER)
        .stdin(Stdio::piped())
        .spawn()
        .expect("it starts");
    // It reads two lines, and takes the end for them.
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
    std::fs::remove_file(named).expect("its own file");
    match accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC) {
        Ok(fd) => {
            nix::unistd::close(fd).expect("it is open");
            true
        }
        Err(Errno::EAGAIN) => false,
        Err(errno) => panic!("{errno}"),
    }
}

#[test]
fn a_set_user_id_program_ignores_its_callers_environment() {
    if !geteuid().is_root() {
        let required = std::env::var_os("APMD_REQUIRE_ROOT");
        let required = required.is_some_and(|required| required == "1");
        assert!(
            !required,
            "only root can give a program away: run it as root"
        );
        eprintln!("skipped: only root can give a program away");
        return;
    }
    let directory = directory();
    let program = program(&directory);
    let named = directory.join("apmd.sock");
    let ordinary = comes(&program, &named);
    set_permissions(&program, Permissions::from_mode(0o4755)).expect("its own file");
    let elevated = comes(&program, &named);
    remove_dir_all(&directory).expect("its own directory");
    assert!(ordinary, "the caller's own program goes where it says");
    assert!(!elevated, "the set-user-ID program does not");
}
