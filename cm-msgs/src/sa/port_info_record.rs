// SPDX-License-Identifier: MIT OR Apache-2.0
//! PortInfoRecord (IBA 15.2.5.3).

use super::Template;
use super::record::record;
use crate::Lid;
use crate::fields::{FieldSource, FieldValue, Fields};
use crate::layout::{Wire, resized};
use crate::smp::PortInfo;

/// PortInfo of a port of any node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortInfoRecord {
    /// LID of the port, path bits zero; of a switch, that of its port 0 with all of its ports.
    pub lid: Lid,
    /// Number of the port.
    pub port_num: u8,
    /// Which capability mask a query means: bit 7 is set to match `capability_mask` bit by bit.
    pub options: u8,
    /// The port.
    pub port_info: PortInfo,
}

record!(@impl PortInfoRecord, 0x0012);

impl Template<PortInfoRecord> {
    /// Only ports of this number.
    pub fn port_num(mut self, port_num: u8) -> Self {
        self.record.port_num = port_num;
        self.component_mask |= 1 << 1;
        self
    }

    /// Only ports in this state, of `port_info`.
    pub fn port_state(mut self, state: u8) -> Self {
        self.record.port_info.port_state = state;
        self.component_mask |= 1 << 15;
        self
    }
}

/// Where the PortInfo begins.
const PORT_INFO: usize = 4;

impl PortInfoRecord {
    /// Bytes on the wire.
    pub const LEN: usize = PORT_INFO + PortInfo::LEN;

    /// Reads the fields; reserved bits are ignored.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Self {
        let [lid_high, lid_low, port_num, options, ..] = *bytes;
        let mut port_info = [0; PortInfo::LEN];
        port_info.copy_from_slice(&bytes[PORT_INFO..]);
        Self {
            lid: Lid(u16::from_be_bytes([lid_high, lid_low])),
            port_num,
            options,
            port_info: PortInfo::decode(&port_info),
        }
    }

    /// Writes the fields, each cut to its width; reserved bits are zero.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let [lid_high, lid_low] = self.lid.0.to_be_bytes();
        let mut bytes = resized(&[lid_high, lid_low, self.port_num, self.options]);
        bytes[PORT_INFO..].copy_from_slice(&self.port_info.encode());
        bytes
    }

    /// Names and values of the fields, in the order of the wire.
    pub fn fields(&self) -> Fields<'_> {
        Fields::new(self)
    }
}

impl FieldSource for PortInfoRecord {
    fn field(&self, index: usize) -> Option<(&'static str, FieldValue<'_>)> {
        Some(match index {
            0 => ("record_lid", self.lid.value()),
            1 => ("record_port_num", self.port_num.value()),
            2 => ("options", self.options.value()),
            _ => return self.port_info.field(index - 3),
        })
    }
}
