// SPDX-License-Identifier: MIT OR Apache-2.0
//! The socket to the daemon.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use cm_msgs::control::{FromDaemon, FromLibrary, MAX_LEN};
use nix::errno::Errno;
use nix::sys::socket::sockopt::{PeerCredentials, ReceiveTimestampns};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, connect,
    getsockopt, recvmsg, send, setsockopt, socket,
};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::getresuid;

use crate::privilege;
use crate::settings::DEFAULT_SOCKET;

/// Messages kept for a daemon that does not read. More than that, and it is better to begin
/// anew: a fresh registration says all that the lost messages said.
const MAX_QUEUED: usize = 4096;

/// An open socket to the daemon.
pub(crate) struct Link {
    socket: OwnedFd,
    queue: VecDeque<FromLibrary>,
    /// The socket took no more of it.
    full: bool,
    /// Room for a packet's time.
    control: Vec<u8>,
}

/// What came from the daemon.
#[derive(PartialEq, Debug)]
pub(crate) enum Received {
    /// A message, and how long it was in the socket; zero if that is not known.
    Message(FromDaemon, Duration),
    /// A packet that is no message.
    Garbage(String),
    /// Nothing more for now.
    Nothing,
    /// The daemon is gone.
    Closed,
}

/// Connects to the daemon's socket; never blocks. Permission is also denied if the listener is no user that
/// [`is_believed`]: it could have paths of its own choice loaded.
pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    let listener = getsockopt(&fd, PeerCredentials)?.uid();
    let daemon = owner_made_by_root(daemon_directory());
    if !is_believed(listener, own_user(), daemon) {
        let untrusted = format!(
            "the listener is user {listener}, which is neither root nor the owner of {directory} (that counts only \
             if root alone can write above it); run apmd as one of these",
            directory = daemon_directory().display()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, untrusted));
    }
    Ok(fd)
}

/// The directory that the daemon's unit has: `/run/apmd`.
fn daemon_directory() -> &'static Path {
    let socket = Path::new(DEFAULT_SOCKET);
    socket.parent().unwrap_or(socket)
}

/// Whether a listener is taken for the daemon: root, the user that root gave the default directory to (`daemon`), or
/// this process's own user (`own`). The owner of a directory that `APMD_SOCKET` names counts for nothing: the variable
/// may be another user's, who made the directory. sudo -E and su -m pass it on, and so does a set-user-ID program
/// that starts another after setuid(0); `AT_SECURE` is 0 in all of these.
fn is_believed(listener: u32, own: Option<u32>, daemon: Option<u32>) -> bool {
    listener == 0 || own == Some(listener) || daemon == Some(listener)
}

/// The user of this process; `None` if it has rights that a user does not have.
fn own_user() -> Option<u32> {
    let ids = getresuid().ok()?;
    let is_root = [ids.real, ids.effective, ids.saved]
        .iter()
        .any(|id| id.is_root());
    (!is_root && !privilege::is_elevated()).then(|| ids.real.as_raw())
}

/// The owner of a directory that nobody but root could make, give away or replace: the directory above it is root's, and
/// no other user may write there.
fn owner_made_by_root(directory: &Path) -> Option<u32> {
    let above = directory.parent()?.symlink_metadata().ok()?;
    let itself = directory.symlink_metadata().ok()?;
    let is_roots = above.is_dir() && above.uid() == 0 && above.mode() & 0o022 == 0;
    (is_roots && itself.is_dir()).then(|| itself.uid())
}

impl Link {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        // Where that is forbidden (seccomp), messages count as just sent.
        if let Err(errno) = setsockopt(&socket, ReceiveTimestampns, &true) {
            crate::log::debug(&format_args!("no times of the daemon's messages: {errno}"));
        }
        Self {
            socket,
            queue: VecDeque::new(),
            full: false,
            control: nix::cmsg_space!(TimeSpec),
        }
    }

    /// Whether something waits for the socket to become writable.
    pub(crate) fn wants_write(&self) -> bool {
        self.full
    }

    /// Queues a message until [`Self::flush`], and says how many are queued. `Err`: the daemon has not read
    /// for long.
    pub(crate) fn queue(&mut self, message: FromLibrary) -> Result<usize, Errno> {
        if self.queue.len() == MAX_QUEUED {
            return Err(Errno::ENOBUFS);
        }
        self.queue.push_back(message);
        Ok(self.queue.len())
    }

    /// Sends what is queued, as far as the socket takes it. `Err`: the daemon is gone.
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        self.full = false;
        while let Some(message) = self.queue.front() {
            let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            match send(self.socket.as_raw_fd(), message.encode().as_ref(), flags) {
                Ok(_) => self.queue.pop_front(),
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => {
                    self.full = true;
                    return Ok(());
                }
                Err(errno) => return Err(errno),
            };
        }
        Ok(())
    }

    /// The next packet.
    pub(crate) fn receive(&mut self) -> Received {
        // One byte more than any message, so that a longer packet does not pass for one.
        let mut bytes = [0; MAX_LEN + 1];
        let (len, sent) = loop {
            let mut slices = [IoSliceMut::new(&mut bytes)];
            let (socket, flags) = (self.socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
            match recvmsg::<()>(socket, &mut slices, Some(&mut self.control), flags) {
                Ok(packet) => {
                    let mut control = packet.cmsgs().into_iter().flatten();
                    let sent = control.find_map(|message| match message {
                        ControlMessageOwned::ScmTimestampns(sent) => Some(sent),
                        _ => None,
                    });
                    break (packet.bytes, sent);
                }
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => return Received::Nothing,
                Err(_) => return Received::Closed,
            }
        };
        if len == 0 {
            return Received::Closed;
        }
        match FromDaemon::decode(&bytes[..len]) {
            Ok(message) => Received::Message(message, since(sent)),
            Err(error) => Received::Garbage(error.to_string()),
        }
    }
}

/// How long ago the kernel queued a packet, by the clock of its time stamps; zero where the clock was set back.
fn since(sent: Option<TimeSpec>) -> Duration {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).ok();
    let waited = now.zip(sent).map(|(now, sent)| now - sent);
    let waited = waited.filter(|waited| *waited > TimeSpec::new(0, 0));
    waited.map(Duration::from).unwrap_or_default()
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, remove_dir_all};
    use std::path::PathBuf;
    use std::sync::mpsc::channel;

    use nix::sys::socket::{Backlog, bind, listen};
    use nix::unistd::{chown, geteuid};

    use super::*;

    const NOBODY: u32 = 65534;

    fn listener(path: &Path, user: u32) -> OwnedFd {
        set_ids(u32::MAX, user, u32::MAX);
        let (family, kind) = (AddressFamily::Unix, SockType::SeqPacket);
        let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
        bind(socket.as_raw_fd(), &UnixAddr::new(path).expect("a path")).expect("a free name");
        listen(&socket, Backlog::new(4).expect("a length")).expect("it is bound");
        socket
    }

    fn directory(name: &str, owner: u32) -> PathBuf {
        let path = std::env::temp_dir().join(format!("link-{}-{name}", std::process::id()));
        create_dir_all(&path).expect("temporary directory");
        // The other user may bind there, whichever of them it belongs to.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&path, mode).expect("its own directory");
        if owner != geteuid().as_raw() {
            chown(&path, Some(owner.into()), None).expect("root may");
        }
        path
    }

    /// What becomes of opening a socket in a directory of `owner` where `user` listens.
    fn opened(name: &str, owner: u32, user: u32) -> Result<(), io::ErrorKind> {
        let directory = directory(name, owner);
        let path = directory.join("apmd.sock");
        let (ready, listening) = channel();
        let (done, wait) = channel::<()>();
        let result = std::thread::scope(|scope| {
            let path = &path;
            scope.spawn(move || {
                let _socket = listener(path, user);
                ready.send(()).expect("it is waited for");
                // Until the other end has gone away.
                let _ = wait.recv();
            });
            listening.recv().expect("it listens");
            let result = open(path).map(drop).map_err(|error| error.kind());
            drop(done);
            result
        });
        remove_dir_all(&directory).expect("its own directory");
        result
    }

    #[test]
    fn only_root_the_own_user_and_the_default_directorys_owner_are_taken_for_the_daemon() {
        let (user, other, daemon) = (1000, 1001, 999);
        for (listener, own, made_by_root, expected) in [
            (0, None, None, true),
            (0, Some(user), Some(daemon), true),
            (user, Some(user), Some(daemon), true),
            (daemon, Some(user), Some(daemon), true),
            (daemon, None, Some(daemon), true),
            // A privileged process has no own user.
            (user, None, Some(daemon), false),
            (other, Some(user), Some(daemon), false),
            (daemon, Some(user), None, false),
            (daemon, None, None, false),
        ] {
            let is_it = is_believed(listener, own, made_by_root);
            assert_eq!(is_it, expected, "{listener} {own:?} {made_by_root:?}");
        }
    }

    #[test]
    fn a_directory_that_others_could_make_names_no_daemon() {
        let owner = |name| owner_made_by_root(Path::new(name));
        assert_eq!(owner("/nonexistent/apmd"), None);
        assert_eq!(owner("/etc/passwd"), None, "a file");
        assert_eq!(owner("/usr/bin"), Some(0));
        let own = geteuid().as_raw();
        // Anybody may write to /tmp, and to a directory with access 0777.
        let directory = directory("outer", own);
        let inner = directory.join("apmd");
        create_dir_all(&inner).expect("its own directory");
        for directory in [&directory, &inner] {
            assert_eq!(
                owner_made_by_root(directory),
                None,
                "{}",
                directory.display()
            );
        }
        remove_dir_all(&directory).expect("its own directory");
    }

    /// Sets the real, effective and saved user ID of this thread only.
    fn set_ids(real: u32, effective: u32, saved: u32) {
        // By the system call: glibc's function changes the whole process.
        // SAFETY: the call takes three numbers and changes this thread's credentials only.
        #[allow(unsafe_code)]
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, real, effective, saved) };
        assert_eq!(changed, 0, "{}", io::Error::last_os_error());
    }

    /// A set-user-ID program of root's that has given up its effective ID can take it back.
    #[test]
    fn a_process_with_any_id_of_roots_has_no_own_user() {
        if geteuid().as_raw() != 0 {
            assert_eq!(own_user(), Some(geteuid().as_raw()));
            return;
        }
        for ids in [
            [0, 0, 0],
            [NOBODY, NOBODY, 0],
            [NOBODY, 0, 0],
            [0, NOBODY, NOBODY],
        ] {
            let [real, effective, saved] = ids;
            let own = std::thread::spawn(move || {
                set_ids(real, effective, saved);
                own_user()
            });
            assert_eq!(own.join().expect("no panic"), None, "{ids:?}");
        }
        let own = std::thread::spawn(|| {
            set_ids(NOBODY, NOBODY, NOBODY);
            own_user()
        });
        assert_eq!(own.join().expect("no panic"), Some(NOBODY));
    }

    #[test]
    fn a_program_of_roots_takes_nobody_elses_listener_for_the_daemon() {
        let own = geteuid().as_raw();
        assert_eq!(opened("own", own, own), Ok(()));
        if own != 0 {
            let required = std::env::var_os("APMD_REQUIRE_ROOT");
            let required = required.is_some_and(|required| required == "1");
            assert!(
                !required,
                "only root can listen as another user: run it as root"
            );
            eprintln!("skipped: only root can listen as another user");
            return;
        }
        let denied = Err(io::ErrorKind::PermissionDenied);
        // Whoever names a directory by `APMD_SOCKET` may own it.
        assert_eq!(opened("home-of-a-user", NOBODY, NOBODY), denied);
        assert_eq!(opened("stranger", own, NOBODY), denied);
        assert_eq!(opened("neighbour", NOBODY - 1, NOBODY), denied);
    }
}
