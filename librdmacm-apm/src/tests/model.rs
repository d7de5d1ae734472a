// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue pair of a few lines for tests: what IBA 17.2.8 lets path migration do, and no more.

use std::sync::{Arc, Mutex, MutexGuard};

use cm_msgs::control::{MigrationState, QpState, Snapshot};
use cm_msgs::path::Path;
use cm_msgs::{Gid, Guid, Lid, PKey, Qpn};
use nix::errno::Errno;

use crate::queue_pair::{Address, Glance, Identity, KnownGids, QueuePair};

type Interference = Box<dyn FnOnce(&mut Snapshot) + Send>;

/// A handle to the QP; its clones are the same QP.
#[derive(Clone)]
pub(crate) struct Model(Arc<Mutex<State>>);

struct State {
    qp: Snapshot,
    modifies: u32,
    refuse: Option<Errno>,
    interference: Option<Interference>,
    down: Vec<u8>,
    /// Something is outstanding over a path that is dead.
    undrained: bool,
    /// The device does not let a QP leave SQD before its send queue is drained.
    resumes_drained_only: bool,
}

/// A path through local port `n`.
pub(crate) fn path(n: u8) -> Path {
    Path {
        port: n,
        slid: Lid(0x10 + u16::from(n)),
        dlid: Lid(0x20 + u16::from(n)),
        pkey: PKey(0xffff),
        sgid: Gid([n; 16]),
        dgid: Gid([0x80 | n; 16]),
        mtu: 5,
        ack_timeout: 14,
        ..Path::default()
    }
}

impl Model {
    pub(crate) fn new(primary: Path) -> Self {
        let (qp_state, migration) = (QpState::Rts, MigrationState::Migrated);
        let qp = Snapshot {
            qp_state,
            migration,
            primary,
            alternate: None,
        };
        Self(Arc::new(Mutex::new(State {
            qp,
            modifies: 0,
            refuse: None,
            interference: None,
            down: Vec::new(),
            undrained: false,
            resumes_drained_only: false,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0
            .lock()
            .expect("no test panics while it holds the model")
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.state().qp
    }

    pub(crate) fn modifies(&self) -> u32 {
        self.state().modifies
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.state().qp);
    }

    /// The alternate is loaded, and a packet of the peer's has come.
    pub(crate) fn arm(&self, alternate: Path) {
        self.set(|qp| {
            qp.migration = MigrationState::Armed;
            qp.alternate = Some(alternate);
        });
    }

    /// The next modify comes too late: this happens first.
    pub(crate) fn before_next_modify(&self, f: impl FnOnce(&mut Snapshot) + Send + 'static) {
        self.state().interference = Some(Box::new(f));
    }

    /// A port of its device fails, or comes back.
    pub(crate) fn set_port(&self, port: u8, up: bool) {
        let down = &mut self.state().down;
        down.retain(|&known| known != port);
        down.extend((!up).then_some(port));
    }

    /// From now on verbs refuse every modify with this, or none.
    pub(crate) fn refuse(&self, errno: impl Into<Option<Errno>>) {
        self.state().refuse = errno.into();
    }

    pub(crate) fn never_drains(&self, undrained: bool) {
        self.state().undrained = undrained;
    }

    pub(crate) fn resumes_drained_only(&self) {
        self.state().resumes_drained_only = true;
    }

    fn modify(&self, f: impl FnOnce(&mut Snapshot) -> Result<(), Errno>) -> Result<(), Errno> {
        let mut state = self.state();
        let state = &mut *state;
        state.modifies += 1;
        if let Some(interference) = state.interference.take() {
            interference(&mut state.qp);
        }
        state.refuse.map_or_else(|| f(&mut state.qp), Err)
    }
}

impl QueuePair for Model {
    fn introduce(&self, gids: &KnownGids) -> Result<(Identity, Snapshot), Errno> {
        let identity = Identity {
            node_guid: Guid(0xabcd),
            qpn: Qpn(0x11),
            peer_qpn: Qpn(0x22),
        };
        Ok((identity, self.read(gids)?))
    }

    fn read(&self, gids: &KnownGids) -> Result<Snapshot, Errno> {
        let mut qp = self.snapshot();
        qp.alternate = qp
            .alternate
            .filter(|_| qp.migration != MigrationState::Migrated);
        for path in [Some(&mut qp.primary), qp.alternate.as_mut()]
            .into_iter()
            .flatten()
        {
            path.dgid = gids.get(path.port, path.dlid).unwrap_or_default();
        }
        Ok(qp)
    }

    fn load(&self, alternate: &Path, rearm: bool) -> Result<(), Errno> {
        self.modify(|qp| {
            if rearm && qp.migration == MigrationState::Armed {
                return Err(Errno::EINVAL);
            }
            qp.alternate = Some(*alternate);
            if rearm {
                qp.migration = MigrationState::Rearm;
            }
            Ok(())
        })
    }

    fn glance(&self) -> Result<Glance, Errno> {
        let qp = self.snapshot();
        Ok(Glance {
            qp_state: qp.qp_state,
            migration: qp.migration,
            primary: Address {
                port: qp.primary.port,
                path_bits: 0,
                dlid: qp.primary.dlid,
            },
        })
    }

    fn is_port_up(&self, port: u8) -> Result<bool, Errno> {
        Ok(!self.state().down.contains(&port))
    }

    fn migrate(&self) -> Result<(), Errno> {
        self.modify(|qp| match (qp.migration, qp.alternate) {
            (MigrationState::Armed, Some(alternate)) => {
                qp.primary = alternate;
                qp.migration = MigrationState::Migrated;
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        })
    }

    fn suspend(&self) -> Result<(), Errno> {
        self.modify(|qp| {
            qp.qp_state = QpState::Sqd;
            Ok(())
        })
    }

    fn is_drained(&self) -> Result<bool, Errno> {
        let state = self.state();
        Ok(state.qp.qp_state == QpState::Sqd && !state.undrained)
    }

    fn set_primary(&self, primary: &Path) -> Result<(), Errno> {
        let drained = self.is_drained()?;
        self.modify(|qp| {
            if !drained {
                return Err(Errno::EINVAL);
            }
            qp.primary = *primary;
            Ok(())
        })
    }

    fn resume(&self) -> Result<(), Errno> {
        let held = self.state().resumes_drained_only && !self.is_drained()?;
        self.modify(|qp| match held {
            true => Err(Errno::EINVAL),
            false => {
                qp.qp_state = QpState::Rts;
                Ok(())
            }
        })
    }

    fn leads_back(&self, path: &Path) -> bool {
        (0x11..=0x13).contains(&path.dlid.0)
    }
}
