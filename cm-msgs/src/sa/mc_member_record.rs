// SPDX-License-Identifier: MIT OR Apache-2.0
//! MCMemberRecord (IBA 15.2.5.17).

use super::record::{component_mask, record};
use crate::layout::layout;
use crate::{Gid, PKey};

/// A multicast group, and a port's membership in it. Set joins (and creates), Delete leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct McMemberRecord {
    /// GID of the group.
    pub mgid: Gid,
    /// GID of the member port.
    pub port_gid: Gid,
    /// Q_Key of the group.
    pub q_key: u32,
    /// LID of the group, 0xc000 to 0xfffe.
    pub mlid: u16,
    /// How `mtu` is meant in a request, 2 bits: 0 greater, 1 less, 2 exactly, 3 largest available.
    pub mtu_selector: u8,
    /// MTU of the group, 6 bits (1 = 256 bytes .. 5 = 4096).
    pub mtu: u8,
    /// GRH traffic class.
    pub traffic_class: u8,
    /// The partition.
    pub pkey: PKey,
    /// How `rate` is meant in a request, 2 bits.
    pub rate_selector: u8,
    /// Static rate of the group, 6 bits (`enum ibv_rate`).
    pub rate: u8,
    /// How `packet_life_time` is meant in a request, 2 bits.
    pub packet_life_time_selector: u8,
    /// Time that a packet can be under way, 6 bits: 4.096 us * 2^n.
    pub packet_life_time: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// GRH flow label, 20 bits.
    pub flow_label: u32,
    /// GRH hop limit.
    pub hop_limit: u8,
    /// Scope of the group, 4 bits: 2 link local, 5 site local, 14 global.
    pub scope: u8,
    /// Membership, 4 bits: 1 full, 2 not, 4 send only, 8 send only full.
    pub join_state: u8,
    /// Another port may join for this one.
    pub proxy_join: bool,
}

layout!(pub McMemberRecord, 52, {
    mgid: [0, 0, 128],
    port_gid: [16, 0, 128],
    q_key: [32, 0, 32],
    mlid: [36, 0, 16],
    mtu_selector: [38, 0, 2],
    mtu: [38, 2, 6],
    traffic_class: [39, 0, 8],
    pkey: [40, 0, 16],
    rate_selector: [42, 0, 2],
    rate: [42, 2, 6],
    packet_life_time_selector: [43, 0, 2],
    packet_life_time: [43, 2, 6],
    sl: [44, 0, 4],
    flow_label: [44, 4, 20],
    hop_limit: [47, 0, 8],
    scope: [48, 0, 4],
    join_state: [48, 4, 4],
    proxy_join: [49, 0, 1],
});

component_mask! {
    /// A set of components of a [`McMemberRecord`].
    pub McMemberMask {
        /// `mgid`.
        MGID = 1 << 0;
        /// `port_gid`.
        PORT_GID = 1 << 1;
        /// `q_key`.
        Q_KEY = 1 << 2;
        /// `mlid`.
        MLID = 1 << 3;
        /// `mtu_selector`.
        MTU_SELECTOR = 1 << 4;
        /// `mtu`.
        MTU = 1 << 5;
        /// `traffic_class`.
        TRAFFIC_CLASS = 1 << 6;
        /// `pkey`.
        PKEY = 1 << 7;
        /// `rate_selector`.
        RATE_SELECTOR = 1 << 8;
        /// `rate`.
        RATE = 1 << 9;
        /// `packet_life_time_selector`.
        PACKET_LIFE_TIME_SELECTOR = 1 << 10;
        /// `packet_life_time`.
        PACKET_LIFE_TIME = 1 << 11;
        /// `sl`.
        SL = 1 << 12;
        /// `flow_label`.
        FLOW_LABEL = 1 << 13;
        /// `hop_limit`.
        HOP_LIMIT = 1 << 14;
        /// `scope`.
        SCOPE = 1 << 15;
        /// `join_state`.
        JOIN_STATE = 1 << 16;
        /// `proxy_join`.
        PROXY_JOIN = 1 << 17;
    }
}

record!(McMemberRecord, McMemberMask, 0x0038);
