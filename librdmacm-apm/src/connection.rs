// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection, as both the application's threads and the commit thread see it.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cm_msgs::control::{Migrate, MigrationState, PolicyOverride, Report, Role, Snapshot};
use cm_msgs::{Gid, Guid, Qpn};
use nix::errno::Errno;

use crate::idle_move;
use crate::queue_pair::{KnownGids, QueuePair};

/// The address of an application's `rdma_cm_id`: a key, never dereferenced.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct IdKey(pub(crate) usize);

/// The address of an application's `ibv_qp`: a key, never dereferenced.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct QpKey(pub(crate) usize);

/// What names a queue pair among all of a host: a number is a device's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct QpNumber {
    pub(crate) node_guid: Guid,
    pub(crate) qpn: Qpn,
}

/// The verbs context of a connection: its address as a key, and the descriptor that becomes
/// readable on asynchronous events.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ContextKey {
    pub(crate) address: usize,
    pub(crate) async_fd: RawFd,
}

/// How well a connection is protected; the values of `enum rdma_apm_state` in `rdma_apm.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Protection {
    /// Nobody has looked at it yet, or the daemon has refused it.
    Unmanaged = 0,
    /// No alternate path is loaded.
    Unprotected = 1,
    /// An alternate path is loaded; it counts with the next packet from the peer.
    Rearming = 2,
    /// The alternate path takes over when the primary fails.
    Armed = 3,
}

impl From<&Snapshot> for Protection {
    fn from(snapshot: &Snapshot) -> Self {
        match snapshot.migration {
            MigrationState::Migrated => Self::Unprotected,
            MigrationState::Rearm => Self::Rearming,
            MigrationState::Armed => Self::Armed,
        }
    }
}

/// A connection under APM.
pub(crate) struct Connection {
    /// Names it to the daemon; never used twice in a process.
    pub(crate) number: u64,
    /// `None`: no CM has told, so that the ends' addresses decide.
    pub(crate) role: Option<Role>,
    /// `None` for a QP that was attached without an id.
    pub(crate) id: Option<IdKey>,
    pub(crate) qp_key: QpKey,
    pub(crate) context: ContextKey,
    /// GID of the peer's port on the primary path, if known.
    pub(crate) peer_gid: Gid,
    /// It was made before there was an answer about its peer: it has rdma_cm's ACK timeout.
    pub(crate) answer_came_late: bool,
    /// Its QP is in RTR. If it stays there it only receives, and cannot be protected.
    pub(crate) only_receives: bool,
    opted_in: AtomicBool,
    policy: Mutex<PolicyOverride>,
    protection: AtomicU8,
    /// It is not on the path on which it was established.
    moved: AtomicBool,
    qp: Mutex<Option<Held>>,
}

/// A QP that is in use.
struct Held {
    qp: Arc<dyn QueuePair>,
    /// It is in SQD because we moved it, and has not been let go on.
    suspended: bool,
}

/// What a new [`Connection`] is made of.
pub(crate) struct Description {
    pub(crate) role: Option<Role>,
    pub(crate) id: Option<IdKey>,
    pub(crate) qp_key: QpKey,
    pub(crate) context: ContextKey,
    pub(crate) peer_gid: Gid,
    pub(crate) opted_in: bool,
    pub(crate) policy: PolicyOverride,
    /// It was made before there was an answer about its peer.
    pub(crate) answer_came_late: bool,
    /// Its QP is in RTR.
    pub(crate) only_receives: bool,
    pub(crate) qp: Arc<dyn QueuePair>,
}

impl Connection {
    pub(crate) fn new(number: u64, description: Description) -> Self {
        Self {
            number,
            role: description.role,
            id: description.id,
            qp_key: description.qp_key,
            context: description.context,
            peer_gid: description.peer_gid,
            answer_came_late: description.answer_came_late,
            only_receives: description.only_receives,
            opted_in: AtomicBool::new(description.opted_in),
            policy: Mutex::new(description.policy),
            protection: AtomicU8::new(Protection::Unmanaged as u8),
            moved: AtomicBool::new(false),
            qp: Mutex::new(Some(Held {
                qp: description.qp,
                suspended: false,
            })),
        }
    }

    /// Calls `f` with the QP, which cannot be destroyed meanwhile. `None`: it is gone.
    pub(crate) fn with_qp<T>(&self, f: impl FnOnce(&dyn QueuePair) -> T) -> Option<T> {
        let held = self.held();
        held.as_ref().map(|held| f(&*held.qp))
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.qp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out an order to leave the primary though there is no traffic; `None`: the QP is gone.
    pub(crate) fn move_idle(
        &self,
        gids: &KnownGids,
        order: &Migrate,
    ) -> Option<Result<Report, Errno>> {
        let mut held = self.held();
        let Held { qp, suspended } = held.as_mut()?;
        Some(idle_move::carry_out(&**qp, gids, order, suspended))
    }

    /// Whether a move has left the QP in SQD.
    pub(crate) fn is_suspended(&self) -> bool {
        self.held().as_ref().is_some_and(|held| held.suspended)
    }

    /// Lets the QP go on if a move has left it in SQD.
    pub(crate) fn resume(&self) {
        let mut held = self.held();
        let Some(Held { qp, suspended }) = held.as_mut() else {
            return;
        };
        if *suspended && let Err(errno) = idle_move::resume(&**qp, suspended) {
            crate::log::debug(&format_args!(
                "connection {}: still in SQD after a move: {errno}",
                self.number
            ));
        }
    }

    /// Lets go of the QP. When this returns nobody uses it, and nobody will.
    pub(crate) fn release_qp(&self) {
        *self.held() = None;
    }

    /// Runs a change of the application's while nobody else uses the QP, and lets go of it if that succeeded. A
    /// change that fails changes nothing.
    pub(crate) fn release_qp_by(&self, change: impl FnOnce() -> c_int) -> c_int {
        let mut held = self.held();
        let result = change();
        if result == 0 {
            *held = None;
        }
        result
    }

    /// Runs a change by the application that leaves the QP in its connection, and never in the middle of a move. If it
    /// sets the QP's `state` the QP stays in that state, even if that is SQD.
    pub(crate) fn change_by_owner(&self, state: bool, change: impl FnOnce() -> c_int) -> c_int {
        let mut held = self.held();
        let result = change();
        if let Some(held) = held.as_mut().filter(|_| state && result == 0) {
            held.suspended = false;
        }
        result
    }

    /// The application wants events.
    pub(crate) fn opted_in(&self) -> bool {
        self.opted_in.load(Ordering::Relaxed)
    }

    pub(crate) fn set_opted_in(&self, on: bool) {
        self.opted_in.store(on, Ordering::Relaxed);
    }

    /// What the application says of how it is to be protected.
    pub(crate) fn policy(&self) -> PolicyOverride {
        *self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_policy(&self, policy: PolicyOverride) {
        *self.policy.lock().unwrap_or_else(PoisonError::into_inner) = policy;
    }

    /// How well it is protected, as last seen by the commit thread.
    pub(crate) fn protection(&self) -> Protection {
        match self.protection.load(Ordering::Relaxed) {
            1 => Protection::Unprotected,
            2 => Protection::Rearming,
            3 => Protection::Armed,
            _ => Protection::Unmanaged,
        }
    }

    /// Whether it was last seen on another path than that on which it was established: then the CM's
    /// messages go another way than its data.
    pub(crate) fn has_moved(&self) -> bool {
        self.moved.load(Ordering::Relaxed)
    }

    pub(crate) fn set_moved(&self, moved: bool) {
        self.moved.store(moved, Ordering::Relaxed);
    }

    pub(crate) fn set_protection(&self, protection: Protection) {
        self.protection.store(protection as u8, Ordering::Relaxed);
    }
}
