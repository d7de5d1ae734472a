// SPDX-License-Identifier: MIT OR Apache-2.0
//! PortInfo (IBA 14.2.5.6).

use crate::Lid;
use crate::codes::codes;
use crate::layout::layout;

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

codes! {
    /// Physical state of a port.
    pub enum PhysState: u8 {
        NoChange = 0, "no change";
        Sleep = 1, "sleep";
        Polling = 2, "polling";
        Disabled = 3, "disabled";
        Training = 4, "port configuration training";
        LinkUp = 5, "link up";
        ErrorRecovery = 6, "link error recovery";
        PhyTest = 7, "phy test";
    }
}

/// State and settings of a port. Widths are bit masks (1 1x, 2 4x, 4 8x, 8 12x, 16 2x), speeds
/// too (1 SDR, 2 DDR, 4 QDR; extended 1 FDR, 2 EDR, 4 HDR, 8 NDR), of which the active one has a
/// single bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortInfo {
    /// Management key; zero when not shown.
    pub m_key: u64,
    /// Subnet prefix.
    pub gid_prefix: u64,
    /// The port's LID, path bits zero; 0 before the subnet manager gave one.
    pub lid: Lid,
    /// LID of the subnet manager.
    pub master_sm_lid: Lid,
    /// Capabilities.
    pub capability_mask: u32,
    /// Diagnostic code.
    pub diag_code: u16,
    /// Lease period of the management key, seconds.
    pub m_key_lease_period: u16,
    /// The port that this came in by.
    pub local_port_num: u8,
    /// Widths enabled.
    pub link_width_enabled: u8,
    /// Widths supported.
    pub link_width_supported: u8,
    /// Width in use.
    pub link_width_active: u8,
    /// Speeds supported, 4 bits.
    pub link_speed_supported: u8,
    /// Logical state, 4 bits: see [`PortInfo::state`].
    pub port_state: u8,
    /// Physical state, 4 bits: see [`PortInfo::phys_state`].
    pub port_physical_state: u8,
    /// What a port that is down does, 4 bits.
    pub link_down_default_state: u8,
    /// Protection by the management key, 2 bits.
    pub m_key_protect_bits: u8,
    /// LID mask control, 3 bits: the port has 2^lmc LIDs.
    pub lmc: u8,
    /// Speed in use, 4 bits.
    pub link_speed_active: u8,
    /// Speeds enabled, 4 bits.
    pub link_speed_enabled: u8,
    /// MTU in use, 4 bits (1 = 256 bytes .. 5 = 4096).
    pub neighbor_mtu: u8,
    /// Service level to the subnet manager, 4 bits.
    pub master_sm_sl: u8,
    /// Virtual lanes supported, 4 bits.
    pub vl_cap: u8,
    /// Initialisation asked for, 4 bits.
    pub init_type: u8,
    /// Limit of high priority.
    pub vl_high_limit: u8,
    /// Entries of the high-priority arbitration table.
    pub vl_arbitration_high_cap: u8,
    /// Entries of the low-priority arbitration table.
    pub vl_arbitration_low_cap: u8,
    /// Initialisation done, 4 bits.
    pub init_type_reply: u8,
    /// Largest MTU supported, 4 bits.
    pub mtu_cap: u8,
    /// Drops before a virtual lane is stalled, 3 bits.
    pub vl_stall_count: u8,
    /// Time at the head of the queue, 5 bits.
    pub hoq_life: u8,
    /// Virtual lanes in use, 4 bits.
    pub operational_vls: u8,
    /// Partitions are enforced on packets in.
    pub partition_enforcement_inbound: bool,
    /// Partitions are enforced on packets out.
    pub partition_enforcement_outbound: bool,
    /// Raw packets in are dropped.
    pub filter_raw_inbound: bool,
    /// Raw packets out are dropped.
    pub filter_raw_outbound: bool,
    /// Packets with a wrong management key.
    pub m_key_violations: u16,
    /// Packets with a wrong partition key.
    pub p_key_violations: u16,
    /// Packets with a wrong queue key.
    pub q_key_violations: u16,
    /// Entries of the GUID table.
    pub guid_cap: u8,
    /// Clients are asked to register again.
    pub client_reregister: bool,
    /// Partition traps of multicast packets are suppressed, 2 bits.
    pub multicast_pkey_trap_suppression: u8,
    /// Longest time across the subnet, 5 bits: 4.096 us * 2^n.
    pub subnet_timeout: u8,
    /// Answers come within this, 5 bits: 4.096 us * 2^n.
    pub resp_time_value: u8,
    /// Threshold of local physical errors, 4 bits.
    pub local_phy_errors: u8,
    /// Threshold of overrun errors, 4 bits.
    pub overrun_errors: u8,
    /// Most credits that are useful.
    pub max_credit_hint: u16,
    /// Second extended speed in use, 2 bits: 0 none, 1 XDR. It counts before the first (rdma-core
    /// libibmad/fields.c, `LinkSpeedExtActive2`; the IBA revisions before XDR have it reserved).
    pub link_speed_ext_active2: u8,
    /// Round trip time of the link in 4 ns, 24 bits.
    pub link_round_trip_latency: u32,
    /// Further capabilities.
    pub capability_mask2: u16,
    /// Extended speed in use, 4 bits; 0 is none.
    pub link_speed_ext_active: u8,
    /// Extended speeds supported, 4 bits.
    pub link_speed_ext_supported: u8,
    /// Extended speeds enabled, 5 bits.
    pub link_speed_ext_enabled: u8,
}

layout!(pub PortInfo, 64, {
    m_key: [0, 0, 64],
    gid_prefix: [8, 0, 64],
    lid: [16, 0, 16],
    master_sm_lid: [18, 0, 16],
    capability_mask: [20, 0, 32],
    diag_code: [24, 0, 16],
    m_key_lease_period: [26, 0, 16],
    local_port_num: [28, 0, 8],
    link_width_enabled: [29, 0, 8],
    link_width_supported: [30, 0, 8],
    link_width_active: [31, 0, 8],
    link_speed_supported: [32, 0, 4],
    port_state: [32, 4, 4],
    port_physical_state: [33, 0, 4],
    link_down_default_state: [33, 4, 4],
    m_key_protect_bits: [34, 0, 2],
    lmc: [34, 5, 3],
    link_speed_active: [35, 0, 4],
    link_speed_enabled: [35, 4, 4],
    neighbor_mtu: [36, 0, 4],
    master_sm_sl: [36, 4, 4],
    vl_cap: [37, 0, 4],
    init_type: [37, 4, 4],
    vl_high_limit: [38, 0, 8],
    vl_arbitration_high_cap: [39, 0, 8],
    vl_arbitration_low_cap: [40, 0, 8],
    init_type_reply: [41, 0, 4],
    mtu_cap: [41, 4, 4],
    vl_stall_count: [42, 0, 3],
    hoq_life: [42, 3, 5],
    operational_vls: [43, 0, 4],
    partition_enforcement_inbound: [43, 4, 1],
    partition_enforcement_outbound: [43, 5, 1],
    filter_raw_inbound: [43, 6, 1],
    filter_raw_outbound: [43, 7, 1],
    m_key_violations: [44, 0, 16],
    p_key_violations: [46, 0, 16],
    q_key_violations: [48, 0, 16],
    guid_cap: [50, 0, 8],
    client_reregister: [51, 0, 1],
    multicast_pkey_trap_suppression: [51, 1, 2],
    subnet_timeout: [51, 3, 5],
    resp_time_value: [52, 3, 5],
    local_phy_errors: [53, 0, 4],
    overrun_errors: [53, 4, 4],
    max_credit_hint: [54, 0, 16],
    link_speed_ext_active2: [56, 1, 2],
    link_round_trip_latency: [57, 0, 24],
    capability_mask2: [60, 0, 16],
    link_speed_ext_active: [62, 0, 4],
    link_speed_ext_supported: [62, 4, 4],
    link_speed_ext_enabled: [63, 3, 5],
});

impl PortInfo {
    /// Logical state.
    pub fn state(&self) -> PortState {
        self.port_state.into()
    }

    /// Physical state.
    pub fn phys_state(&self) -> PhysState {
        self.port_physical_state.into()
    }
}
