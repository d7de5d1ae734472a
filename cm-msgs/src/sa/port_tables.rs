// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the SA knows of ports beside PortInfo: SLtoVLMappingTableRecord (IBA 15.2.5.4) and
//! P_KeyTableRecord (15.2.5.11).

use super::record::record;
use crate::{Lid, PKey};

record! {
    /// Which virtual lane packets of a service level take out of a port.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct SlToVlMappingTableRecord: 16, 0x0013 {
        /// LID of the port, a switch's port 0's.
        lid: Lid = [0, 0, 16] @ 0,
        /// Switches: the port that a packet came in by.
        input_port: u8 = [2, 0, 8] @ 1,
        /// The port that it leaves by.
        output_port: u8 = [3, 0, 8] @ 2,
        /// 16 times 4 bits: see [`SlToVlMappingTableRecord::vl`].
        vls: [u8; 8] = [8, 0, 64],
    }
}

impl SlToVlMappingTableRecord {
    /// The virtual lane of service level `sl` (its low 4 bits); 15: such packets are dropped.
    pub fn vl(&self, sl: u8) -> u8 {
        let pair = self.vls[usize::from(sl & 0xf) / 2];
        if sl & 1 == 0 { pair >> 4 } else { pair & 0xf }
    }
}

record! {
    /// 32 entries of a port's partition table.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct PKeyTableRecord: 72, 0x0033 {
        /// LID of the port, a switch's port 0's.
        lid: Lid = [0, 0, 16] @ 0,
        /// Which 32.
        block: u16 = [2, 0, 16] @ 1,
        /// Number of the port.
        port_num: u8 = [4, 0, 8] @ 2,
        /// 32 big-endian P_Keys: see [`PKeyTableRecord::pkeys`].
        table: [u8; 64] = [8, 0, 512],
    }
}

impl PKeyTableRecord {
    /// The partitions of the block that the port is a member of.
    pub fn pkeys(&self) -> impl Iterator<Item = PKey> {
        let (pairs, _) = self.table.as_chunks();
        pairs
            .iter()
            .map(|pair| PKey(u16::from_be_bytes(*pair)))
            .filter(|key| key.0 & 0x7fff != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_by_service_level() {
        let table = SlToVlMappingTableRecord {
            vls: [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef],
            ..SlToVlMappingTableRecord::default()
        };
        assert!((0..16).all(|sl| table.vl(sl) == sl));
        assert_eq!(table.vl(0x13), 3, "4 bits");
    }

    #[test]
    fn unused_entries_are_no_partitions() {
        let mut record = PKeyTableRecord::default();
        record.table[..2].copy_from_slice(&[0xff, 0xff]);
        record.table[4..6].copy_from_slice(&[0x80, 0x01]);
        record.table[62..].copy_from_slice(&[0x00, 0x07]);
        let keys: Vec<_> = record.pkeys().collect();
        assert_eq!(keys, [0xffff, 0x8001, 0x0007].map(PKey));
    }
}
