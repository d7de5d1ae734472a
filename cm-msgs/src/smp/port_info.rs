// SPDX-License-Identifier: MIT OR Apache-2.0
//! PortInfo (IBA 14.2.5.6).

use crate::Lid;
use crate::codes::codes;
use crate::layout::attribute;

codes! {
    /// Logical state of a port.
    pub enum PortState: u8 {
        NoChange = 0, "no change";
        Down = 1, "down";
        Init = 2, "init";
        Armed = 3, "armed";
        Active = 4, "active";
    }
}

attribute! {
    /// State and settings of a port. Widths are bit masks (1 1x, 2 4x, 4 8x, 8 12x, 16 2x), speeds
    /// too (1 SDR, 2 DDR, 4 QDR; extended 1 FDR, 2 EDR, 4 HDR, 8 NDR), of which the active one has a
    /// single bit.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct PortInfo: 64 {
        /// Management key; zero when not shown.
        m_key: u64 = [0, 0, 64],
        /// Subnet prefix.
        gid_prefix: u64 = [8, 0, 64],
        /// The port's LID, path bits zero; 0 before the subnet manager gave one.
        lid: Lid = [16, 0, 16],
        /// LID of the subnet manager.
        master_sm_lid: Lid = [18, 0, 16],
        /// Capabilities.
        capability_mask: u32 = [20, 0, 32],
        /// Diagnostic code.
        diag_code: u16 = [24, 0, 16],
        /// Lease period of the management key, seconds.
        m_key_lease_period: u16 = [26, 0, 16],
        /// The port that this came in by.
        local_port_num: u8 = [28, 0, 8],
        /// Widths enabled.
        link_width_enabled: u8 = [29, 0, 8],
        /// Widths supported.
        link_width_supported: u8 = [30, 0, 8],
        /// Width in use.
        link_width_active: u8 = [31, 0, 8],
        /// Speeds supported, 4 bits.
        link_speed_supported: u8 = [32, 0, 4],
        /// Logical state, 4 bits: see [`PortInfo::state`].
        port_state: u8 = [32, 4, 4],
        /// Physical state, 4 bits: 5 link up.
        port_physical_state: u8 = [33, 0, 4],
        /// What a port that is down does, 4 bits.
        link_down_default_state: u8 = [33, 4, 4],
        /// Protection by the management key, 2 bits.
        m_key_protect_bits: u8 = [34, 0, 2],
        /// LID mask control, 3 bits: the port has 2^lmc LIDs.
        lmc: u8 = [34, 5, 3],
        /// Speed in use, 4 bits.
        link_speed_active: u8 = [35, 0, 4],
        /// Speeds enabled, 4 bits.
        link_speed_enabled: u8 = [35, 4, 4],
        /// MTU in use, 4 bits (1 = 256 bytes .. 5 = 4096).
        neighbor_mtu: u8 = [36, 0, 4],
        /// Service level to the subnet manager, 4 bits.
        master_sm_sl: u8 = [36, 4, 4],
        /// Virtual lanes supported, 4 bits.
        vl_cap: u8 = [37, 0, 4],
        /// Initialisation asked for, 4 bits.
        init_type: u8 = [37, 4, 4],
        /// Limit of high priority.
        vl_high_limit: u8 = [38, 0, 8],
        /// Entries of the high-priority arbitration table.
        vl_arbitration_high_cap: u8 = [39, 0, 8],
        /// Entries of the low-priority arbitration table.
        vl_arbitration_low_cap: u8 = [40, 0, 8],
        /// Initialisation done, 4 bits.
        init_type_reply: u8 = [41, 0, 4],
        /// Largest MTU supported, 4 bits.
        mtu_cap: u8 = [41, 4, 4],
        /// Drops before a virtual lane is stalled, 3 bits.
        vl_stall_count: u8 = [42, 0, 3],
        /// Time at the head of the queue, 5 bits.
        hoq_life: u8 = [42, 3, 5],
        /// Virtual lanes in use, 4 bits.
        operational_vls: u8 = [43, 0, 4],
        /// Partitions are enforced on packets in.
        partition_enforcement_inbound: bool = [43, 4, 1],
        /// Partitions are enforced on packets out.
        partition_enforcement_outbound: bool = [43, 5, 1],
        /// Raw packets in are dropped.
        filter_raw_inbound: bool = [43, 6, 1],
        /// Raw packets out are dropped.
        filter_raw_outbound: bool = [43, 7, 1],
        /// Packets with a wrong management key.
        m_key_violations: u16 = [44, 0, 16],
        /// Packets with a wrong partition key.
        p_key_violations: u16 = [46, 0, 16],
        /// Packets with a wrong queue key.
        q_key_violations: u16 = [48, 0, 16],
        /// Entries of the GUID table.
        guid_cap: u8 = [50, 0, 8],
        /// Clients are asked to register again.
        client_reregister: bool = [51, 0, 1],
        /// Partition traps of multicast packets are suppressed, 2 bits.
        multicast_pkey_trap_suppression: u8 = [51, 1, 2],
        /// Longest time across the subnet, 5 bits: 4.096 us * 2^n.
        subnet_timeout: u8 = [51, 3, 5],
        /// Answers come within this, 5 bits: 4.096 us * 2^n.
        resp_time_value: u8 = [52, 3, 5],
        /// Threshold of local physical errors, 4 bits.
        local_phy_errors: u8 = [53, 0, 4],
        /// Threshold of overrun errors, 4 bits.
        overrun_errors: u8 = [53, 4, 4],
        /// Most credits that are useful.
        max_credit_hint: u16 = [54, 0, 16],
        /// Second extended speed in use, 2 bits: 0 none, 1 XDR. It counts before the first (rdma-core
        /// libibmad/fields.c, `LinkSpeedExtActive2`; the IBA revisions before XDR have it reserved).
        link_speed_ext_active2: u8 = [56, 1, 2],
        /// Round trip time of the link in 4 ns, 24 bits.
        link_round_trip_latency: u32 = [57, 0, 24],
        /// Further capabilities.
        capability_mask2: u16 = [60, 0, 16],
        /// Extended speed in use, 4 bits; 0 is none.
        link_speed_ext_active: u8 = [62, 0, 4],
        /// Extended speeds supported, 4 bits.
        link_speed_ext_supported: u8 = [62, 4, 4],
        /// Extended speeds enabled, 5 bits.
        link_speed_ext_enabled: u8 = [63, 3, 5],
    }
}

impl PortInfo {
    /// Logical state.
    pub fn state(&self) -> PortState {
        self.port_state.into()
    }
}
