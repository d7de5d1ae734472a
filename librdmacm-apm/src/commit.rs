// SPDX-License-Identifier: MIT OR Apache-2.0
//! The application threads' end of the commit thread.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cm_msgs::control::{AppEvent, Cause};
use cm_msgs::path;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::unistd::Pid;

use crate::connection::Connection;
use crate::leak_check::Untracked;
use crate::link;
use crate::peers::{Answer, FarPort, Peers};
use crate::thread;

/// An order that waited longer, because the process was stopped for instance, was decided for a fabric that may have
/// changed: the daemon probes each path about once a second.
const MAX_ORDER_AGE: Duration = Duration::from_secs(1);

/// What the commit thread is told.
pub(crate) enum Command {
    /// Look after a new connection, or tell the daemon anew of a known one.
    Register(Arc<Connection>),
    /// A QP has come to RTR. It is registered if it stays there.
    Receives(Arc<Connection>),
    /// What the application says of a connection's policy is another than before.
    Policy(u64),
    /// A connection is gone.
    Close(u64),
    /// The same: its application disconnects.
    Disconnect(u64),
    /// The application received this asynchronous event of a connection.
    Seen(u64, Cause),
    /// The application received an event which says that a port of this verbs context has failed.
    PortFailed(usize),
    /// A socket to the daemon that another thread has opened.
    Linked(OwnedFd),
    /// Ask the daemon whether one answers at a peer's port; the question's number.
    AskPeer(u64, FarPort),
}

/// Hands an event to the application.
pub(crate) type Deliver = Box<dyn Fn(Delivery<'_>) + Send>;

/// What an application is told.
pub(crate) enum Delivery<'a> {
    /// Of a connection on this primary path: an event for those that opted in, with an errno.
    Event(&'a Connection, AppEvent, u8, &'a path::Path),
    /// Of a connection on this primary path: the peer's application has disconnected.
    Disconnected(&'a Connection, &'a path::Path),
    /// Of a connection with this number that the application has disconnected: the peer knows.
    Left(u64),
}

/// What the commit thread does, until it ends.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// Makes the commit thread's work ready, on the thread that needs it first.
pub(crate) type Prepare = fn(&'static Commit, Arc<EventFd>, Deliver) -> io::Result<Work>;

/// The commit thread as others see it. It is started when it first has something to do.
pub(crate) struct Commit {
    socket: PathBuf,
    deliver: fn() -> Deliver,
    prepare: Prepare,
    queue: Mutex<Queue>,
    linked: AtomicBool,
    pub(crate) peers: Peers,
    /// An order that waited longer to be carried out is not carried out.
    pub(crate) max_order_age: Duration,
    /// The user was told that the daemon lets nobody in.
    denied: AtomicBool,
    descriptors: [AtomicI32; 3],
}

#[derive(Default)]
struct Queue {
    commands: VecDeque<Command>,
    wake: Option<Arc<EventFd>>,
    /// The thread could not be started; nothing is queued any more.
    failed: bool,
}

/// The descriptors that a forked child must not keep open.
#[derive(Clone, Copy)]
pub(crate) enum Descriptor {
    Wake = 0,
    Epoll = 1,
    Socket = 2,
}

impl Commit {
    pub(crate) fn new(socket: PathBuf, deliver: fn() -> Deliver, prepare: Prepare) -> Self {
        Self {
            socket,
            deliver,
            prepare,
            queue: Mutex::default(),
            linked: AtomicBool::new(false),
            peers: Peers::default(),
            max_order_age: MAX_ORDER_AGE,
            denied: AtomicBool::new(false),
            descriptors: [const { AtomicI32::new(-1) }; 3],
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a command to the commit thread; false if there is none.
    pub(crate) fn send(&'static self, command: Command) -> bool {
        let mut queue = self.queue();
        if queue.wake.is_none() && !queue.failed {
            match self.start() {
                Ok(wake) => queue.wake = Some(wake),
                Err(error) => {
                    queue.failed = true;
                    self.forget_descriptors();
                    crate::log::warn(&format_args!("no commit thread, so no APM here: {error}"));
                }
            }
        }
        let Some(wake) = queue.wake.clone() else {
            return false;
        };
        queue.commands.push_back(command);
        drop(queue);
        // It fails only if the counter is at its end, and then the thread is awake.
        let _ = wake.write(1);
        true
    }

    /// How many commands wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue().commands.len()
    }

    /// The next command. The queue's memory stays here: what only the thread has is lost in a forked child, and
    /// LeakSanitizer reports there what the application's threads have allocated for it.
    pub(crate) fn next(&self) -> Option<Command> {
        self.queue().commands.pop_front()
    }

    /// Whether a daemon can be reached now.
    pub(crate) fn daemon_present(&'static self) -> bool {
        if self.linked.load(Ordering::Relaxed) {
            return true;
        }
        let Ok(socket) = self.open() else {
            return false;
        };
        self.send(Command::Linked(socket))
    }

    /// Whether a daemon is known to answer at the peer's port. Waits for a moment at most ([`Peers`]), and not at all
    /// for a daemon that hangs.
    pub(crate) fn peer_answers(&'static self, peer: FarPort) -> Answer {
        let ask = |question| self.send(Command::AskPeer(question, peer));
        self.peers.answers(peer, ask)
    }

    /// Asks that for a connection to come, without waiting.
    pub(crate) fn ask_peer_ahead(&'static self, peer: FarPort) {
        let ask = |question| self.send(Command::AskPeer(question, peer));
        self.peers.ask_ahead(peer, ask);
    }

    /// Opens a socket to the daemon. That none is there is no news; that one is there and may not be
    /// spoken to is, once.
    pub(crate) fn open(&self) -> io::Result<OwnedFd> {
        link::open(&self.socket).inspect_err(|error| {
            let denied = error.kind() == io::ErrorKind::PermissionDenied;
            if denied && !self.denied.swap(true, Ordering::Relaxed) {
                let socket = self.socket.display();
                crate::log::warn(&format_args!(
                    "{socket}: {error}: connections are not protected"
                ));
            }
        })
    }

    pub(crate) fn set_linked(&self, linked: bool) {
        self.linked.store(linked, Ordering::Relaxed);
    }

    /// Notes a descriptor (-1: closed) for [`Self::descriptors`].
    pub(crate) fn note(&self, which: Descriptor, fd: RawFd) {
        self.descriptors[which as usize].store(fd, Ordering::Relaxed);
    }

    /// The descriptors that are open now.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.descriptors
            .iter()
            .map(|fd| fd.load(Ordering::Relaxed))
            .filter(|&fd| fd >= 0)
    }

    /// The thread ends for good. The numbers of its descriptors may be the application's by now, so
    /// nobody uses or closes them again.
    pub(crate) fn give_up(&self) {
        self.forget_descriptors();
        self.set_linked(false);
        let mut queue = self.queue();
        queue.failed = true;
        queue.commands.clear();
        std::mem::forget(queue.wake.take());
        drop(queue);
        self.peers.daemon_lost();
    }

    fn forget_descriptors(&self) {
        for descriptor in &self.descriptors {
            descriptor.store(-1, Ordering::Relaxed);
        }
    }

    fn start(&'static self) -> io::Result<Arc<EventFd>> {
        let _untracked = Untracked::begin();
        let wake =
            EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map(Arc::new)?;
        self.note(Descriptor::Wake, wake.as_raw_fd());
        let work = (self.prepare)(self, Arc::clone(&wake), (self.deliver)())?;
        let cpus = cpus();
        let work = move || {
            if let Some(cpus) = cpus {
                // Refused, it runs where its parent may.
                let _ = sched_setaffinity(Pid::from_raw(0), &cpus);
            }
            work();
        };
        // The application's signals are for the application's threads.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let started = thread::spawn(c"rdmacm-apm", work);
        before.thread_set_mask()?;
        started.map(|()| wake)
    }
}

/// Where the commit thread may run: on the CPUs of the process's first thread and of the calling one, which
/// may be bound to the CPU on which it polls without end. `None`: just there, as its child does by itself. A
/// seccomp filter may kill who sets an affinity, so that is not done for nothing.
fn cpus() -> Option<CpuSet> {
    let mut cpus = sched_getaffinity(Pid::this()).ok()?;
    let own = sched_getaffinity(Pid::from_raw(0)).ok()?;
    for cpu in 0..CpuSet::count() {
        if own.is_set(cpu).ok()? {
            cpus.set(cpu).ok()?;
        }
    }
    (cpus != own).then_some(cpus)
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::mpsc::{Sender, channel};
    use std::thread;

    use super::*;

    static RUNS_ON: OnceLock<Sender<CpuSet>> = OnceLock::new();

    #[test]
    fn the_thread_is_not_bound_to_the_cpu_of_who_starts_it() {
        let (tell, told) = channel();
        RUNS_ON
            .set(tell)
            .expect("no other test starts such a thread");
        let prepare: Prepare = |_, _, _| {
            Ok(Box::new(|| {
                let cpus = sched_getaffinity(Pid::from_raw(0)).expect("a mask");
                RUNS_ON.get().expect("set").send(cpus).expect("it is heard");
            }))
        };
        let deliver = || -> Deliver { Box::new(|_| {}) };
        let commit: &Commit = Box::leak(Box::new(Commit::new(PathBuf::new(), deliver, prepare)));
        let processes = sched_getaffinity(Pid::this()).expect("a mask");
        let mut one = CpuSet::new();
        let first = (0..CpuSet::count()).find(|&cpu| processes.is_set(cpu) == Ok(true));
        one.set(first.expect("a CPU")).expect("it is one");
        thread::spawn(move || {
            sched_setaffinity(Pid::from_raw(0), &one).expect("it is allowed");
            assert!(commit.send(Command::Close(1)));
        })
        .join()
        .expect("it ends");
        assert_eq!(told.recv().expect("it runs"), processes);
    }

    #[test]
    fn no_affinity_is_set_where_the_thread_has_it_already() {
        assert_eq!(cpus(), None);
    }
}
