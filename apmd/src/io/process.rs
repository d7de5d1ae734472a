// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that cannot be mistaken for a later one of the same number.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use rustix::fs::RawDir;

/// A process, held by a pidfd.
#[derive(Debug)]
pub(crate) struct Process {
    pid: i32,
    pidfd: OwnedFd,
}

impl Process {
    /// The process at the other end of a Unix socket, which calls itself `pid`.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn of_peer(socket: BorrowedFd<'_>, pid: i32) -> io::Result<Self> {
        let pidfd = match getsockopt(&socket, sockopt::PeerPidfd) {
            // Before Linux 6.5. A process that ends between its connect and here and whose number
            // is given away meanwhile would be mistaken for its successor: the numbers have to
            // go round once in that time.
            Err(Errno::ENOPROTOOPT) => open_pidfd(pid)?,
            opened => opened?,
        };
        Ok(Self { pid, pidfd })
    }

    /// Whether a thread of it is left.
    pub(crate) fn is_alive(&self) -> bool {
        // A pidfd becomes readable when the last thread ends.
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready == 0)
    }

    /// Whether task `tid` is a thread of it.
    ///
    /// # Errors
    /// It lives, and this process may not see its threads (proc(5), `hidepid`).
    pub(crate) fn has_thread(&self, tid: i32) -> io::Result<bool> {
        // In this order: while the process lives, the directory is its own.
        let listed = if tid == self.pid {
            Ok(true)
        } else {
            self.lists(tid)
        };
        self.while_alive(listed)
    }

    /// Whether it is the one of this number that started then, in nanoseconds since the host did.
    ///
    /// # Errors
    /// It has the number and lives, and this process may not see when it started.
    pub(crate) fn is(&self, pid: i32, started: Option<u64>) -> io::Result<bool> {
        if pid != self.pid {
            return Ok(false);
        }
        // In this order, as above.
        let same_start = match started {
            Some(at) => start_ticks(pid).map(|ticks| ticks == at / NS_PER_TICK),
            None => Ok(true),
        };
        self.while_alive(same_start)
    }

    /// What was read of `/proc`, if the process lives still.
    fn while_alive(&self, read: io::Result<bool>) -> io::Result<bool> {
        match self.is_alive() {
            true => read,
            false => Ok(false),
        }
    }

    fn lists(&self, tid: i32) -> io::Result<bool> {
        let directory = format!("/proc/{}", self.pid);
        match fs::metadata(format!("{directory}/task/{tid}")) {
            Ok(_) => Ok(true),
            // Nothing is in a process that is hidden, not even what is in every one.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::metadata(format!("{directory}/stat")).map(|_| false)
            }
            Err(error) => Err(error),
        }
    }
}

/// `/proc` counts in hundredths of a second (`USER_HZ`), on every architecture that has InfiniBand.
const NS_PER_TICK: u64 = 10_000_000;

/// Of a list of threads: `.`, `..` and the first thread need 80 bytes of it, so two threads at most are in it.
const FIRST_THREAD: usize = 96;

/// The process of a thread, as our pid namespace numbers both; `None` where it has ended or cannot be read.
///
/// It costs the same whatever a user makes of the thread and its process. `/proc/TID/status` does not: the kernel prints
/// all groups that the thread is in, which may be 65,536, before it gives out the first byte. The list of a thread's
/// siblings begins with the first thread, which has the process's number (`first_tid` of `fs/proc/base.c`), also
/// if that has ended, and the kernel goes on only as far as the buffer has room. For the moment in which another thread
/// takes the first one's place by execve(2), the list may begin with a number that is no process's.
pub(crate) fn process_of(tid: i32) -> Option<i32> {
    let threads = File::open(format!("/proc/{tid}/task")).ok()?;
    let mut buffer = [MaybeUninit::uninit(); FIRST_THREAD];
    let mut entries = RawDir::new(threads, &mut buffer);
    while let Some(entry) = entries.next() {
        let name = entry.ok()?.file_name().to_str().ok()?.parse();
        // Neither `.` nor `..` is a number.
        if let Ok(pid) = name {
            return Some(pid);
        }
    }
    None
}

fn start_ticks(pid: i32) -> io::Result<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat"))?;
    let start = start_of(&String::from_utf8_lossy(&stat));
    start.ok_or_else(|| ErrorKind::InvalidData.into())
}

/// Field 22 of `/proc/PID/stat`; the second is a name in parentheses, in which anything may be.
fn start_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[allow(unsafe_code)]
fn open_pidfd(pid: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: two numbers, no pointer.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = Errno::result(result)?;
    i32::try_from(fd)
        .map(crate::io::owned)
        .map_err(|_| Errno::EBADF)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::process::{Child, Command, Stdio};

    use nix::sched::{CloneFlags, unshare};
    use nix::sys::time::TimeValLike;

    use super::*;

    /// A process that lives until it is killed.
    fn cat() -> Child {
        Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
    }

    fn process(pid: u32) -> Process {
        let pid = pid.cast_signed();
        Process {
            pid,
            pidfd: open_pidfd(pid).unwrap(),
        }
    }

    #[test]
    fn a_process_has_its_threads_and_no_others() {
        let this = process(std::process::id());
        let tid = || nix::unistd::gettid().as_raw();
        assert!(this.has_thread(tid()).unwrap());
        let (thread, was_its) = std::thread::scope(|scope| {
            scope
                .spawn(|| (tid(), this.has_thread(tid()).unwrap()))
                .join()
                .unwrap()
        });
        assert!(was_its);
        assert_ne!(thread, this.pid);
        let parent = nix::unistd::getppid().as_raw();
        assert!(!this.has_thread(parent).unwrap());
    }

    #[test]
    fn a_thread_is_its_process_s() {
        let own = Some(std::process::id().cast_signed());
        let tid = || nix::unistd::gettid().as_raw();
        let of_thread = std::thread::spawn(move || (tid(), process_of(tid())));
        let (thread, process) = of_thread.join().unwrap();
        assert_eq!(process, own);
        assert_ne!(Some(thread), own);
        assert_eq!(process_of(std::process::id().cast_signed()), own);
        assert_eq!(process_of(i32::MAX), None);
    }

    #[test]
    fn a_process_s_first_thread_is_its_own() {
        let mut child = cat();
        let pid = child.id().cast_signed();
        assert_eq!(process_of(pid), Some(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(process_of(pid), None);
    }

    /// Who has subordinate IDs is root of a user namespace, and puts a process into as many groups as the kernel allows
    /// (`NGROUPS_MAX`). The failover loop looks up 512 threads of a device in a round (docs/quotas.md).
    #[test]
    fn a_thread_in_many_groups_costs_no_more_than_one_in_none() {
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let joined = join_groups();
            tell.send(joined.then(|| nix::unistd::gettid().as_raw()))
                .unwrap();
            let _ = stopped.recv();
        });
        let Some(in_many) = told.recv().unwrap() else {
            eprintln!("skipped: no groups can be joined here");
            return;
        };
        // Of many, so that nothing that interrupts one counts: nobody else's time is in it, but interrupts are.
        let least = |tid| (0..32).map(|_| processor_time_of_lookup(tid)).min();
        let (many, few) = (least(in_many), least(nix::unistd::gettid().as_raw()));
        drop(stop);
        thread.join().unwrap();
        // With all groups printed it is some hundred times as much.
        assert!(many < few.map(|few| few * 10), "{many:?}, not {few:?}");
    }

    /// This thread's, in nanoseconds.
    fn processor_time_of_lookup(tid: i32) -> i64 {
        let now = || {
            let clock = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
            nix::time::clock_gettime(clock).unwrap().num_nanoseconds()
        };
        let began = now();
        assert_eq!(process_of(tid), Some(std::process::id().cast_signed()));
        now() - began
    }

    /// Puts this thread, and no other, into 65,536 groups.
    #[allow(unsafe_code)]
    fn join_groups() -> bool {
        let groups: Vec<libc::gid_t> = (0..65_536).map(|n| 4_000_000_000 + n).collect();
        // SAFETY: a list of that many numbers; without the C library it changes this thread only.
        let result = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
        result == 0
    }

    #[test]
    fn an_ended_process_has_nothing() {
        let mut child = cat();
        let process = process(child.id());
        assert!(process.is_alive() && process.has_thread(process.pid).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive());
        assert!(!process.has_thread(process.pid).unwrap());
        assert!(!process.has_thread(process.pid + 1).unwrap());
        assert!(!process.is(process.pid, Some(NS_PER_TICK)).unwrap());
    }

    #[test]
    fn a_start_is_read_behind_any_name() {
        let fields = "S 1 7 7 0 -1 4194560 97 0 0 0 0 0 0 0 20 0 1 0 5842 2703360 0";
        for name in ["cat", "a) (b", ")", "\u{fffd}"] {
            assert_eq!(start_of(&format!("7 ({name}) {fields}")), Some(5842));
        }
        assert_eq!(start_of("7 (cat) S 1"), None);
    }

    #[test]
    fn a_process_has_its_number_and_its_start() {
        let this = process(std::process::id());
        let at = start_ticks(this.pid).unwrap() * NS_PER_TICK;
        let is = |pid, started| this.is(pid, started).unwrap();
        assert!(at > 0 && is(this.pid, Some(at)) && is(this.pid, Some(at + 9_999_999)));
        assert!(!is(this.pid, Some(at + NS_PER_TICK)) && is(this.pid, None));
        let parent = nix::unistd::getppid().as_raw();
        assert!(!is(parent, None) && !is(parent, Some(at)));
    }

    /// Makes this thread, and no other, a user's who is nobody here, without groups.
    #[allow(unsafe_code)]
    fn become_stranger() {
        const STRANGER: u32 = 64_123;
        let none = std::ptr::null::<libc::gid_t>();
        // SAFETY: numbers, and a list of no groups; without the C library they change this thread only.
        let results = unsafe {
            [
                libc::syscall(libc::SYS_setgroups, 0, none),
                libc::syscall(libc::SYS_setresgid, -1, STRANGER, -1),
                libc::syscall(libc::SYS_setresuid, -1, STRANGER, -1),
            ]
        };
        assert_eq!(results, [0; 3], "root may");
    }

    /// Not by mount(8): a child of this process that ends at once may interrupt another test's poll.
    #[allow(unsafe_code)]
    fn mount(kind: &CStr, at: &CStr, flags: libc::c_ulong, options: &CStr) -> Option<()> {
        let (kind, at, options) = (kind.as_ptr(), at.as_ptr(), options.as_ptr());
        // SAFETY: each is a text that ends with NUL and is there until the call returns.
        let result = unsafe { libc::mount(kind, at, kind, flags, options.cast()) };
        (result == 0).then_some(())
    }

    /// What a stranger is told of a process with `/proc` mounted so: whether it has its first thread,
    /// whether it has another, whether it began when the host did, and whether its number is another.
    /// Nothing if nobody may mount it here.
    fn told_with(options: &CStr, of: &Process) -> Option<[Result<bool, ErrorKind>; 4]> {
        let look = || {
            // This thread's mounts, and nobody else's.
            unshare(CloneFlags::CLONE_NEWNS).ok()?;
            mount(c"none", c"/", libc::MS_REC | libc::MS_PRIVATE, c"")?;
            mount(c"proc", c"/proc", 0, options)?;
            become_stranger();
            let told = [
                of.has_thread(of.pid),
                of.has_thread(1),
                of.is(of.pid, Some(0)),
                of.is(1, Some(0)),
            ];
            Some(told.map(|told| told.map_err(|error| error.kind())))
        };
        std::thread::scope(|scope| scope.spawn(look).join().unwrap())
    }

    #[test]
    fn a_process_that_is_hidden_is_not_taken_for_another() {
        let mut child = cat();
        let process = process(child.id());
        let [seen, denied, invisible] =
            [c"hidepid=0", c"hidepid=1", c"hidepid=2"].map(|options| told_with(options, &process));
        child.kill().unwrap();
        child.wait().unwrap();
        let Some(seen) = seen else {
            let required = std::env::var_os("APMD_REQUIRE_ROOT");
            let required = required.is_some_and(|required| required == "1");
            assert!(!required, "/proc cannot be mounted here: run it as root");
            eprintln!("skipped: /proc cannot be mounted here");
            return;
        };
        assert_eq!(seen, [Ok(true), Ok(false), Ok(false), Ok(false)]);
        let hidden = |error| Some([Ok(true), Err(error), Err(error), Ok(false)]);
        assert_eq!(denied, hidden(ErrorKind::PermissionDenied));
        assert_eq!(invisible, hidden(ErrorKind::NotFound));
        let ended = told_with(c"hidepid=2", &process);
        assert_eq!(ended, Some([Ok(false); 4]));
    }

    #[test]
    fn the_peer_of_a_socket_is_found() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let pid = std::process::id().cast_signed();
        let peer = Process::of_peer(one.as_fd(), pid).unwrap();
        assert!(peer.is_alive() && peer.has_thread(pid).unwrap());
    }
}
