// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the SA knows of switches: SwitchInfoRecord (IBA 15.2.5.5, of SwitchInfo, 14.2.5.4) and
//! LinearForwardingTableRecord (15.2.5.6).

use super::record::record;
use crate::Lid;

record! {
    /// How a switch forwards.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct SwitchInfoRecord: 24, 0x0014 {
        /// LID of the switch's port 0.
        lid: Lid = [0, 0, 16] @ 0,
        /// Entries of the linear forwarding table.
        linear_fdb_cap: u16 = [4, 0, 16],
        /// Entries of the random forwarding table.
        random_fdb_cap: u16 = [6, 0, 16],
        /// Entries of the multicast forwarding table.
        multicast_fdb_cap: u16 = [8, 0, 16],
        /// The last LID that the linear forwarding table is used for.
        linear_fdb_top: Lid = [10, 0, 16],
        /// Port for LIDs that are not in a random forwarding table.
        default_port: u8 = [12, 0, 8],
        /// Primary port for multicast LIDs that are not in the table.
        default_multicast_primary_port: u8 = [13, 0, 8],
        /// The other port for multicast LIDs that are not in the table.
        default_multicast_not_primary_port: u8 = [14, 0, 8],
        /// How long a packet may wait in the switch, 5 bits: 4.096 us * 2^n.
        life_time_value: u8 = [15, 0, 5],
        /// The state of a port has changed since the subnet manager last cleared this.
        port_state_change: bool = [15, 5, 1],
        /// Programming of SLtoVLMappingTables of many ports at once, 2 bits.
        optimized_sl_to_vl_mapping: u8 = [15, 6, 2],
        /// LIDs of a port in a random forwarding table.
        lids_per_port: u16 = [16, 0, 16],
        /// Entries of the partition enforcement tables.
        partition_enforcement_cap: u16 = [18, 0, 16],
        /// Partitions can be enforced on packets in.
        inbound_enforcement_cap: bool = [20, 0, 1],
        /// Partitions can be enforced on packets out.
        outbound_enforcement_cap: bool = [20, 1, 1],
        /// Raw packets in can be dropped.
        filter_raw_inbound_cap: bool = [20, 2, 1],
        /// Raw packets out can be dropped.
        filter_raw_outbound_cap: bool = [20, 3, 1],
        /// Port 0 is an enhanced one.
        enhanced_port0: bool = [20, 4, 1],
        /// The last multicast LID that the multicast forwarding table is used for.
        multicast_fdb_top: u16 = [22, 0, 16],
    }
}

record! {
    /// 64 entries of a switch's linear forwarding table.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct LinearForwardingTableRecord: 72, 0x0015 {
        /// LID of the switch's port 0.
        lid: Lid = [0, 0, 16] @ 0,
        /// Which 64: the first is for LID 64 * `block`.
        block: u16 = [2, 0, 16] @ 1,
        /// The port for each LID; 255 is none.
        ports: [u8; 64] = [8, 0, 512],
    }
}
