// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has to be known of a device and its ports.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fs;
use std::mem::zeroed;
use std::path::Path;

use cm_msgs::{Gid, Guid, Lid, PKey};
use nix::errno::Errno;
use rdma_sys::{
    ___ibv_query_port, ibv_context, ibv_device_attr, ibv_device_cap_flags, ibv_get_device_guid,
    ibv_gid, ibv_port_attr, ibv_port_state, ibv_query_device, ibv_query_gid, ibv_query_pkey,
};

/// `IBV_LINK_LAYER_INFINIBAND`.
const LINK_LAYER_INFINIBAND: u8 = 1;

const SYSFS: &str = "/sys/class";

/// An open device. Lives no longer than the QP or id through which it was reached.
#[derive(Clone, Copy)]
pub(crate) struct Device(*mut ibv_context);

/// A port as the subnet manager has set it up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Port {
    /// Base LID.
    pub(crate) lid: Lid,
    /// Its subnet manager's LID.
    sm_lid: Lid,
    /// The port owns 2^lmc LIDs.
    pub(crate) lmc: u8,
    /// InfiniBand, not Ethernet.
    pub(crate) infiniband: bool,
    /// It carries traffic.
    pub(crate) up: bool,
    gids: i32,
    pkeys: i32,
}

impl Port {
    /// The low LID bits that choose one of the port's LIDs.
    pub(crate) fn path_bits(&self, lid: Lid) -> u8 {
        (lid.0 & ((1 << self.lmc) - 1)) as u8
    }

    /// The port's LID with these path bits.
    pub(crate) fn with_path_bits(&self, bits: u8) -> Lid {
        Lid(self.lid.0 | u16::from(self.path_bits(Lid(bits.into()))))
    }
}

impl Device {
    /// # Safety
    /// The context must stay open as long as the value is used.
    pub(crate) unsafe fn new(context: *mut ibv_context) -> Self {
        Self(context)
    }

    pub(crate) fn node_guid(self) -> Guid {
        // SAFETY: the context is open, so its device is valid.
        Guid(u64::from_be(unsafe {
            ibv_get_device_guid((*self.0).device)
        }))
    }

    pub(crate) fn port(self, number: u8) -> Result<Port, Errno> {
        // SAFETY: an all-zero ibv_port_attr is valid.
        let mut attr: ibv_port_attr = unsafe { zeroed() };
        // SAFETY: the context is open and `attr` is of the size that the call is told.
        check(unsafe { ___ibv_query_port(self.0, number, &mut attr) })?;
        Ok(Port {
            lid: Lid(attr.lid),
            sm_lid: Lid(attr.sm_lid),
            lmc: attr.lmc & 7,
            infiniband: attr.link_layer == LINK_LAYER_INFINIBAND,
            // Deferred: the link is being retrained, and packets wait (IBA 7.2.7).
            up: matches!(
                attr.state,
                ibv_port_state::IBV_PORT_ACTIVE | ibv_port_state::IBV_PORT_ACTIVE_DEFER
            ),
            gids: attr.gid_tbl_len,
            pkeys: attr.pkey_tbl_len.into(),
        })
    }

    /// Whether a path that begins at it ends at it. Each port may be in a subnet of its own, where LIDs are equal: so
    /// the LID counts of the port that the path leaves from. Another port is known by its GID; where the path's is not
    /// known, by its LID if nothing tells the two ports' subnets apart.
    pub(crate) fn is_end_of(self, path: &cm_msgs::path::Path) -> bool {
        let has_lid = |port: &Port| port.with_path_bits(port.path_bits(path.dlid)) == path.dlid;
        // Other link layers have no LIDs; the daemon refuses them, and says so.
        let Ok(from) = self.port(path.port) else {
            return false;
        };
        if !from.infiniband {
            return false;
        }
        let mut numbers = 1..=self.ports();
        has_lid(&from)
            || numbers.any(|number| {
                let Ok(gid) = self.gid(number, 0) else {
                    return false;
                };
                if !path.dgid.is_unspecified() {
                    return gid.interface_id() == path.dgid.interface_id();
                }
                let is_one_subnet = |port: &Port| {
                    gid.subnet_prefix() == path.sgid.subnet_prefix()
                        && port.sm_lid == from.sm_lid
                        && port.lid != from.lid
                };
                let port = self.port(number);
                port.is_ok_and(|port| has_lid(&port) && is_one_subnet(&port))
            })
    }

    fn ports(self) -> u8 {
        // SAFETY: an all-zero ibv_device_attr is valid.
        let mut attr: ibv_device_attr = unsafe { zeroed() };
        // SAFETY: the context is open.
        match unsafe { ibv_query_device(self.0, &mut attr) } {
            0 => attr.phys_port_cnt,
            _ => 0,
        }
    }

    pub(crate) fn gid(self, port: u8, index: i32) -> Result<Gid, Errno> {
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: the context is open.
        check(unsafe { ibv_query_gid(self.0, port, index, &mut gid) })?;
        // SAFETY: any 16 bytes are a GID.
        Ok(Gid(unsafe { gid.raw }))
    }

    pub(crate) fn pkey(self, port: u8, index: u16) -> Result<PKey, Errno> {
        let mut pkey = 0;
        // SAFETY: the context is open.
        let read = check(unsafe { ibv_query_pkey(self.0, port, index.into(), &mut pkey) });
        match read {
            Ok(()) => Ok(PKey(u16::from_be(pkey))),
            // libibverbs looks for it under the name that the device had when the program saw it first.
            Err(error) => {
                let uverbs = self.uverbs();
                pkey_in_sysfs(Path::new(SYSFS), &uverbs, port, index).ok_or(error)
            }
        }
    }

    /// The name of its uverbs file, which it keeps.
    fn uverbs(self) -> String {
        // SAFETY: the context is open, so its device is valid, and its name is NUL-terminated.
        let name = unsafe { CStr::from_ptr((&raw const (*(*self.0).device).dev_name).cast()) };
        name.to_string_lossy().into_owned()
    }

    /// Where the port's table holds the GID.
    pub(crate) fn gid_index(self, number: u8, port: &Port, gid: Gid) -> Result<u8, Errno> {
        let found = (0..port.gids).find(|&i| self.gid(number, i) == Ok(gid));
        found
            .and_then(|i| u8::try_from(i).ok())
            .ok_or(Errno::EADDRNOTAVAIL)
    }

    /// Where the port's table holds the P_Key: this one, or else one of the same partition.
    pub(crate) fn pkey_index(self, number: u8, port: &Port, pkey: PKey) -> Result<u16, Errno> {
        let table = (0..port.pkeys)
            .filter_map(|i| u16::try_from(i).ok())
            .map_while(|i| self.pkey(number, i).ok());
        pkey_position(table, pkey).ok_or(Errno::ENOENT)
    }

    /// Whether a connection on the port can have a second path at all: InfiniBand, a device that
    /// claims automatic path migration, and a second port or a second LID.
    pub(crate) fn can_migrate(self, port: u8) -> bool {
        // SAFETY: an all-zero ibv_device_attr is valid.
        let mut attr: ibv_device_attr = unsafe { zeroed() };
        // SAFETY: the context is open.
        if unsafe { ibv_query_device(self.0, &mut attr) } != 0 {
            return false;
        }
        let apm = attr.device_cap_flags & ibv_device_cap_flags::IBV_DEVICE_AUTO_PATH_MIG.0 != 0;
        apm && self
            .port(port)
            .is_ok_and(|p| p.infiniband && (attr.phys_port_cnt > 1 || p.lmc > 0))
    }
}

/// Reads no further than the P_Key itself: each entry costs a call.
fn pkey_position(table: impl Iterator<Item = PKey>, pkey: PKey) -> Option<u16> {
    let mut same = None;
    for (index, have) in (0..=u16::MAX).zip(table) {
        if have == pkey {
            return Some(index);
        }
        if have.partition() == pkey.partition() {
            same.get_or_insert(index);
        }
    }
    same
}

/// A verbs call's result, which is an errno.
pub(crate) fn check(result: i32) -> Result<(), Errno> {
    match result {
        0 => Ok(()),
        -1 => Err(Errno::last()),
        errno => Err(Errno::from_raw(errno)),
    }
}

/// An entry of a port's P_Key table, of the device with this uverbs file, whatever it is called now.
fn pkey_in_sysfs(classes: &Path, uverbs: &str, port: u8, index: u16) -> Option<PKey> {
    let name = classes.join("infiniband_verbs").join(uverbs).join("ibdev");
    let name = fs::read_to_string(name).ok()?;
    let pkeys = classes.join("infiniband").join(name.trim());
    let pkey = pkeys.join(format!("ports/{port}/pkeys/{index}"));
    fs::read_to_string(pkey).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkeys_of_a_device_that_was_renamed_are_found() {
        let classes = std::env::temp_dir().join(format!("apm-renamed-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let path = classes.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let pkey = |index| pkey_in_sysfs(&classes, "uverbs0", 1, index);
        assert_eq!(pkey(0), None);
        write("infiniband_verbs/uverbs0/ibdev", "ibp1s0\n");
        write("infiniband/ibp1s0/ports/1/pkeys/0", "0xffff\n");
        write("infiniband/ibp1s0/ports/1/pkeys/1", "0x8001\n");
        assert_eq!(pkey(0), Some(PKey(0xffff)));
        assert_eq!(pkey(1), Some(PKey(0x8001)));
        assert_eq!(pkey(2), None);
        fs::remove_dir_all(classes).unwrap();
    }

    #[test]
    fn an_exact_pkey_is_preferred_to_a_limited_one() {
        let table = [0x8001, 0x7fff, 0xffff, 0x0001, 0x8003, 0x8003].map(PKey);
        let position = |pkey| pkey_position(table.into_iter(), PKey(pkey));
        assert_eq!(position(0xffff), Some(2));
        assert_eq!(position(0x0001), Some(3));
        assert_eq!(position(0x0003), Some(4), "the first");
        assert_eq!(position(0x8002), None);
    }

    #[test]
    fn a_table_is_not_read_past_the_pkey() {
        let mut read = 0;
        let table = [0x7fff, 0xffff, 0x8001].map(PKey).into_iter();
        let found = pkey_position(table.inspect(|_| read += 1), PKey(0xffff));
        assert_eq!((found, read), (Some(1), 2));
    }

    #[test]
    fn path_bits_are_the_low_bits_below_lmc() {
        let port = Port {
            lid: Lid(0x10),
            sm_lid: Lid(1),
            lmc: 2,
            infiniband: true,
            up: true,
            gids: 1,
            pkeys: 1,
        };
        assert_eq!(port.path_bits(Lid(0x13)), 3);
        assert_eq!(port.with_path_bits(2), Lid(0x12));
        assert_eq!(Port { lmc: 0, ..port }.path_bits(Lid(0x13)), 0);
    }
}
