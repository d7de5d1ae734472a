// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the SA knows of switches: SwitchInfoRecord (IBA 15.2.5.5, of SwitchInfo, 14.2.5.4) and
//! LinearForwardingTableRecord (15.2.5.6).

use super::record::{component_mask, record};
use crate::Lid;
use crate::layout::layout;

/// How a switch forwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwitchInfoRecord {
    /// LID of the switch's port 0.
    pub lid: Lid,
    /// Entries of the linear forwarding table.
    pub linear_fdb_cap: u16,
    /// Entries of the random forwarding table.
    pub random_fdb_cap: u16,
    /// Entries of the multicast forwarding table.
    pub multicast_fdb_cap: u16,
    /// The last LID that the linear forwarding table is used for.
    pub linear_fdb_top: Lid,
    /// Port for LIDs that are not in a random forwarding table.
    pub default_port: u8,
    /// Primary port for multicast LIDs that are not in the table.
    pub default_multicast_primary_port: u8,
    /// The other port for multicast LIDs that are not in the table.
    pub default_multicast_not_primary_port: u8,
    /// How long a packet may wait in the switch, 5 bits: 4.096 us * 2^n.
    pub life_time_value: u8,
    /// The state of a port has changed since the subnet manager last cleared this.
    pub port_state_change: bool,
    /// Programming of SLtoVLMappingTables of many ports at once, 2 bits.
    pub optimized_sl_to_vl_mapping: u8,
    /// LIDs of a port in a random forwarding table.
    pub lids_per_port: u16,
    /// Entries of the partition enforcement tables.
    pub partition_enforcement_cap: u16,
    /// Partitions can be enforced on packets in.
    pub inbound_enforcement_cap: bool,
    /// Partitions can be enforced on packets out.
    pub outbound_enforcement_cap: bool,
    /// Raw packets in can be dropped.
    pub filter_raw_inbound_cap: bool,
    /// Raw packets out can be dropped.
    pub filter_raw_outbound_cap: bool,
    /// Port 0 is an enhanced one.
    pub enhanced_port0: bool,
    /// The last multicast LID that the multicast forwarding table is used for.
    pub multicast_fdb_top: u16,
}

layout!(pub SwitchInfoRecord, 24, {
    lid: [0, 0, 16],
    linear_fdb_cap: [4, 0, 16],
    random_fdb_cap: [6, 0, 16],
    multicast_fdb_cap: [8, 0, 16],
    linear_fdb_top: [10, 0, 16],
    default_port: [12, 0, 8],
    default_multicast_primary_port: [13, 0, 8],
    default_multicast_not_primary_port: [14, 0, 8],
    life_time_value: [15, 0, 5],
    port_state_change: [15, 5, 1],
    optimized_sl_to_vl_mapping: [15, 6, 2],
    lids_per_port: [16, 0, 16],
    partition_enforcement_cap: [18, 0, 16],
    inbound_enforcement_cap: [20, 0, 1],
    outbound_enforcement_cap: [20, 1, 1],
    filter_raw_inbound_cap: [20, 2, 1],
    filter_raw_outbound_cap: [20, 3, 1],
    enhanced_port0: [20, 4, 1],
    multicast_fdb_top: [22, 0, 16],
});

component_mask! {
    /// A set of components of a [`SwitchInfoRecord`].
    pub SwitchInfoMask {
        /// `lid`.
        LID = 1 << 0;
    }
}

record!(SwitchInfoRecord, SwitchInfoMask, 0x0014);

/// 64 entries of a switch's linear forwarding table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinearForwardingTableRecord {
    /// LID of the switch's port 0.
    pub lid: Lid,
    /// Which 64: the first is for LID 64 * `block`.
    pub block: u16,
    /// The port for each LID; 255 is none.
    pub ports: [u8; 64],
}

impl Default for LinearForwardingTableRecord {
    fn default() -> Self {
        Self {
            lid: Lid::default(),
            block: 0,
            ports: [0; 64],
        }
    }
}

layout!(pub LinearForwardingTableRecord, 72, {
    lid: [0, 0, 16],
    block: [2, 0, 16],
    ports: [8, 0, 512],
});

component_mask! {
    /// A set of components of a [`LinearForwardingTableRecord`].
    pub LinearForwardingTableMask {
        /// `lid`.
        LID = 1 << 0;
        /// `block`.
        BLOCK = 1 << 1;
    }
}

record!(
    LinearForwardingTableRecord,
    LinearForwardingTableMask,
    0x0015
);
