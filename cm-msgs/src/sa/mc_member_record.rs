// SPDX-License-Identifier: MIT OR Apache-2.0
//! MCMemberRecord (IBA 15.2.5.17).

use super::record::{component_mask, record};
use crate::layout::attribute;
use crate::{Gid, PKey};

attribute! {
    /// A multicast group, and a port's membership in it. Set joins (and creates), Delete leaves.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct McMemberRecord: 52 {
        /// GID of the group.
        mgid: Gid = [0, 0, 128],
        /// GID of the member port.
        port_gid: Gid = [16, 0, 128],
        /// Q_Key of the group.
        q_key: u32 = [32, 0, 32],
        /// LID of the group, 0xc000 to 0xfffe.
        mlid: u16 = [36, 0, 16],
        /// How `mtu` is meant in a request, 2 bits: 0 greater, 1 less, 2 exactly, 3 largest available.
        mtu_selector: u8 = [38, 0, 2],
        /// MTU of the group, 6 bits (1 = 256 bytes .. 5 = 4096).
        mtu: u8 = [38, 2, 6],
        /// GRH traffic class.
        traffic_class: u8 = [39, 0, 8],
        /// The partition.
        pkey: PKey = [40, 0, 16],
        /// How `rate` is meant in a request, 2 bits.
        rate_selector: u8 = [42, 0, 2],
        /// Static rate of the group, 6 bits (`enum ibv_rate`).
        rate: u8 = [42, 2, 6],
        /// How `packet_life_time` is meant in a request, 2 bits.
        packet_life_time_selector: u8 = [43, 0, 2],
        /// Time that a packet can be under way, 6 bits: 4.096 us * 2^n.
        packet_life_time: u8 = [43, 2, 6],
        /// Service level, 4 bits.
        sl: u8 = [44, 0, 4],
        /// GRH flow label, 20 bits.
        flow_label: u32 = [44, 4, 20],
        /// GRH hop limit.
        hop_limit: u8 = [47, 0, 8],
        /// Scope of the group, 4 bits: 2 link local, 5 site local, 14 global.
        scope: u8 = [48, 0, 4],
        /// Membership, 4 bits: 1 full, 2 not, 4 send only, 8 send only full.
        join_state: u8 = [48, 4, 4],
        /// Another port may join for this one.
        proxy_join: bool = [49, 0, 1],
    }
}

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
