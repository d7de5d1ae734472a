// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs by verbs.
#![allow(unsafe_code)]

use std::mem::zeroed;
use std::ptr::NonNull;

use cm_msgs::control::{MigrationState, QpState, Snapshot};
use cm_msgs::path::Path;
use cm_msgs::{Gid, Lid, Qpn};
use nix::errno::Errno;
use rdma_sys::{
    ibv_ah_attr, ibv_gid, ibv_global_route, ibv_mig_state, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask,
    ibv_qp_init_attr, ibv_qp_state, ibv_query_qp,
};

use crate::device::{Device, check};
use crate::queue_pair::{Address, Glance, Identity, KnownGids, QueuePair};
use crate::real::real;

/// A QP that exists.
pub(crate) struct Qp(NonNull<ibv_qp>);

// SAFETY: verbs calls on a QP may come from any thread; the calls used here go to the kernel, and
// the owner of this value serialises them with the QP's destruction.
unsafe impl Send for Qp {}
// SAFETY: as above: verbs calls are thread-safe.
unsafe impl Sync for Qp {}

impl Qp {
    /// # Safety
    /// The QP must exist as long as the value does.
    pub(crate) unsafe fn new(qp: NonNull<ibv_qp>) -> Self {
        Self(qp)
    }

    fn device(&self) -> Device {
        // SAFETY: the QP exists, so its context is open.
        unsafe { Device::new(self.0.as_ref().context) }
    }

    fn query(&self) -> Result<ibv_qp_attr, Errno> {
        self.query_of(
            ibv_qp_attr_mask::IBV_QP_STATE.0
                | ibv_qp_attr_mask::IBV_QP_AV.0
                | ibv_qp_attr_mask::IBV_QP_ALT_PATH.0
                | ibv_qp_attr_mask::IBV_QP_PATH_MIG_STATE.0
                | ibv_qp_attr_mask::IBV_QP_PATH_MTU.0
                | ibv_qp_attr_mask::IBV_QP_PKEY_INDEX.0
                | ibv_qp_attr_mask::IBV_QP_PORT.0
                | ibv_qp_attr_mask::IBV_QP_TIMEOUT.0
                | ibv_qp_attr_mask::IBV_QP_DEST_QPN.0,
        )
    }

    fn query_of(&self, mask: u32) -> Result<ibv_qp_attr, Errno> {
        // SAFETY: both structures are plain data, valid when all zero.
        let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) = unsafe { zeroed() };
        // SAFETY: the QP exists.
        check(unsafe { ibv_query_qp(self.0.as_ptr(), &mut attr, mask as i32, &mut init) })?;
        Ok(attr)
    }

    fn modify(&self, attr: &mut ibv_qp_attr, mask: u32) -> Result<(), Errno> {
        // SAFETY: the QP exists, and every attribute in the mask is set.
        check(unsafe { (real().ibv_modify_qp)(self.0.as_ptr(), attr, mask as i32) })
    }

    fn set_state(&self, state: ibv_qp_state::Type) -> Result<(), Errno> {
        // SAFETY: all zero is valid.
        let mut attr: ibv_qp_attr = unsafe { zeroed() };
        attr.qp_state = state;
        self.modify(&mut attr, ibv_qp_attr_mask::IBV_QP_STATE.0)
    }

    fn snapshot(&self, attr: &ibv_qp_attr, gids: &KnownGids) -> Result<Snapshot, Errno> {
        let qp_state = QpState::from_code(attr.qp_state as u8).ok_or(Errno::EPROTO)?;
        let migration =
            MigrationState::from_code(attr.path_mig_state as u8).ok_or(Errno::EPROTO)?;
        let loaded = migration != MigrationState::Migrated && attr.alt_port_num != 0;
        let primary = End {
            port: attr.port_num,
            pkey_index: attr.pkey_index,
            timeout: attr.timeout,
        };
        let alternate = End {
            port: attr.alt_port_num,
            pkey_index: attr.alt_pkey_index,
            timeout: attr.alt_timeout,
        };
        let path = |ah, end| self.path(ah, end, attr.path_mtu, gids);
        let primary = path(&attr.ah_attr, primary)?;
        let alternate = loaded.then(|| path(&attr.alt_ah_attr, alternate));
        Ok(Snapshot {
            qp_state,
            migration,
            primary,
            alternate: alternate.transpose()?,
        })
    }

    fn path(&self, ah: &ibv_ah_attr, end: End, mtu: u32, gids: &KnownGids) -> Result<Path, Errno> {
        let device = self.device();
        let port = device.port(end.port)?;
        let global = ah.is_global != 0;
        let dlid = Lid(ah.dlid);
        let grh = global.then_some(ah.grh);
        let dgid = match grh {
            // SAFETY: any 16 bytes are a GID.
            Some(grh) => Some(Gid(unsafe { grh.dgid.raw })),
            None => gids.get(end.port, dlid),
        };
        Ok(Path {
            port: end.port,
            sl: ah.sl,
            mtu: mtu as u8,
            rate: ah.static_rate,
            ack_timeout: end.timeout,
            global,
            traffic_class: grh.map_or(0, |grh| grh.traffic_class),
            hop_limit: grh.map_or(0, |grh| grh.hop_limit),
            flow_label: grh.map_or(0, |grh| grh.flow_label & 0xf_ffff),
            slid: port.with_path_bits(ah.src_path_bits),
            dlid,
            pkey: device.pkey(end.port, end.pkey_index)?,
            sgid: device.gid(end.port, grh.map_or(0, |grh| grh.sgid_index.into()))?,
            dgid: dgid.unwrap_or_default(),
        })
    }

    fn address(&self, path: &Path) -> Result<(ibv_ah_attr, u16), Errno> {
        let device = self.device();
        let port = device.port(path.port)?;
        let sgid_index = if path.global {
            device.gid_index(path.port, &port, path.sgid)?
        } else {
            0
        };
        let grh = ibv_global_route {
            dgid: ibv_gid { raw: path.dgid.0 },
            flow_label: path.flow_label,
            sgid_index,
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
        };
        let ah = ibv_ah_attr {
            grh,
            dlid: path.dlid.0,
            sl: path.sl,
            src_path_bits: port.path_bits(path.slid),
            static_rate: path.rate,
            is_global: path.global.into(),
            port_num: path.port,
        };
        Ok((ah, device.pkey_index(path.port, &port, path.pkey)?))
    }
}

/// What of a path stands beside the address vector.
struct End {
    port: u8,
    pkey_index: u16,
    timeout: u8,
}

impl QueuePair for Qp {
    fn introduce(&self, gids: &KnownGids) -> Result<(Identity, Snapshot), Errno> {
        let attr = self.query()?;
        let identity = Identity {
            node_guid: self.device().node_guid(),
            // SAFETY: the QP exists.
            qpn: Qpn(unsafe { self.0.as_ref().qp_num }),
            peer_qpn: Qpn(attr.dest_qp_num & 0xff_ffff),
        };
        Ok((identity, self.snapshot(&attr, gids)?))
    }

    fn read(&self, gids: &KnownGids) -> Result<Snapshot, Errno> {
        self.snapshot(&self.query()?, gids)
    }

    fn load(&self, alternate: &Path, rearm: bool) -> Result<(), Errno> {
        let (alt_ah_attr, alt_pkey_index) = self.address(alternate)?;
        // SAFETY: all zero is valid.
        let mut attr: ibv_qp_attr = unsafe { zeroed() };
        attr.alt_ah_attr = alt_ah_attr;
        attr.alt_pkey_index = alt_pkey_index;
        attr.alt_port_num = alternate.port;
        attr.alt_timeout = alternate.ack_timeout;
        let mut mask = ibv_qp_attr_mask::IBV_QP_ALT_PATH.0;
        if rearm {
            attr.path_mig_state = ibv_mig_state::IBV_MIG_REARM;
            mask |= ibv_qp_attr_mask::IBV_QP_PATH_MIG_STATE.0;
        }
        self.modify(&mut attr, mask)
    }

    fn glance(&self) -> Result<Glance, Errno> {
        let attr = self.query_of(
            ibv_qp_attr_mask::IBV_QP_STATE.0
                | ibv_qp_attr_mask::IBV_QP_AV.0
                | ibv_qp_attr_mask::IBV_QP_PATH_MIG_STATE.0
                | ibv_qp_attr_mask::IBV_QP_PORT.0,
        )?;
        Ok(Glance {
            qp_state: QpState::from_code(attr.qp_state as u8).ok_or(Errno::EPROTO)?,
            migration: MigrationState::from_code(attr.path_mig_state as u8).ok_or(Errno::EPROTO)?,
            primary: Address {
                port: attr.port_num,
                path_bits: attr.ah_attr.src_path_bits,
                dlid: Lid(attr.ah_attr.dlid),
            },
        })
    }

    fn is_port_up(&self, port: u8) -> Result<bool, Errno> {
        Ok(self.device().port(port)?.up)
    }

    fn migrate(&self) -> Result<(), Errno> {
        // SAFETY: all zero is valid.
        let mut attr: ibv_qp_attr = unsafe { zeroed() };
        attr.path_mig_state = ibv_mig_state::IBV_MIG_MIGRATED;
        self.modify(&mut attr, ibv_qp_attr_mask::IBV_QP_PATH_MIG_STATE.0)
    }

    fn suspend(&self) -> Result<(), Errno> {
        self.set_state(ibv_qp_state::IBV_QPS_SQD)
    }

    fn is_drained(&self) -> Result<bool, Errno> {
        let attr = self.query_of(ibv_qp_attr_mask::IBV_QP_STATE.0)?;
        Ok(attr.qp_state == ibv_qp_state::IBV_QPS_SQD && attr.sq_draining == 0)
    }

    fn set_primary(&self, primary: &Path) -> Result<(), Errno> {
        let (ah_attr, pkey_index) = self.address(primary)?;
        // SAFETY: all zero is valid.
        let mut attr: ibv_qp_attr = unsafe { zeroed() };
        attr.ah_attr = ah_attr;
        attr.pkey_index = pkey_index;
        attr.port_num = primary.port;
        attr.timeout = primary.ack_timeout;
        let mask = ibv_qp_attr_mask::IBV_QP_AV.0
            | ibv_qp_attr_mask::IBV_QP_PKEY_INDEX.0
            | ibv_qp_attr_mask::IBV_QP_PORT.0
            | ibv_qp_attr_mask::IBV_QP_TIMEOUT.0;
        self.modify(&mut attr, mask)
    }

    fn resume(&self) -> Result<(), Errno> {
        self.set_state(ibv_qp_state::IBV_QPS_RTS)
    }

    fn leads_back(&self, path: &Path) -> bool {
        self.device().is_end_of(path)
    }
}
