// SPDX-License-Identifier: MIT OR Apache-2.0
//! C programs with the real shared object and fakes of rdma-core preloaded, and the daemon's end of
//! their library's socket.

mod programs;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use cm_msgs::control::{FromDaemon, FromLibrary};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, listen, recv,
    send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

pub(crate) use programs::{compile, fake, library};

/// The program with these objects preloaded.
pub(crate) fn preloaded(program: &Path, objects: &[&Path]) -> Command {
    let objects: Vec<_> = objects.iter().map(|path| path.to_string_lossy()).collect();
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", objects.join(":"));
    command
}

/// The program, and its library's socket.
pub(crate) struct Session {
    pub(crate) program: Child,
    socket: OwnedFd,
}

impl Session {
    /// Starts a program that has the library preloaded.
    pub(crate) fn start(test: &str, mut command: Command) -> Self {
        let directory = std::env::temp_dir().join(format!("session-{}-{test}", std::process::id()));
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

        command.env("APMD_SOCKET", &path).stdin(Stdio::piped());
        // Its ids are not the kernel's, which could not be told of a timeout.
        command.env("RDMA_APM_ACK_TIMEOUT", "0");
        let program = command.spawn().expect("it starts");
        let fd = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC).expect("a library comes");
        std::fs::remove_dir_all(&directory).expect("its own directory");
        // SAFETY: accept4 has just returned it.
        #[allow(unsafe_code)]
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        setsockopt(&socket, sockopt::ReceiveTimeout, &patience).expect("timeout");
        let session = Self { program, socket };
        assert!(matches!(session.next(), FromLibrary::Hello { .. }));
        session.say(FromDaemon::Welcome);
        session
    }

    /// What the library says next.
    pub(crate) fn next(&self) -> FromLibrary {
        let mut bytes = [0; 512];
        let len = recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::empty()).expect("a message");
        FromLibrary::decode(&bytes[..len]).expect("a valid message")
    }

    /// Says something to the library.
    pub(crate) fn say(&self, message: FromDaemon) {
        let bytes = message.encode();
        let sent = send(
            self.socket.as_raw_fd(),
            bytes.as_ref(),
            MsgFlags::MSG_NOSIGNAL,
        );
        sent.expect("it is there");
    }
}
