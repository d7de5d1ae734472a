// SPDX-License-Identifier: MIT OR Apache-2.0
//! MCMemberRecord (IBA 15.2.5.17).

use super::record::record;
use crate::{Gid, PKey};

record! {
    /// A multicast group, and a port's membership in it. Set joins (and creates), Delete leaves.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct McMemberRecord: 52, 0x0038 {
        /// GID of the group.
        mgid: Gid = [0, 0, 128] @ 0,
        /// GID of the member port.
        port_gid: Gid = [16, 0, 128] @ 1,
        /// Q_Key of the group.
        q_key: u32 = [32, 0, 32] @ 2,
        /// LID of the group, 0xc000 to 0xfffe.
        mlid: u16 = [36, 0, 16] @ 3,
        /// How `mtu` is meant in a request, 2 bits: 0 greater, 1 less, 2 exactly, 3 largest available.
        mtu_selector: u8 = [38, 0, 2] @ 4,
        /// MTU of the group, 6 bits (1 = 256 bytes .. 5 = 4096).
        mtu: u8 = [38, 2, 6] @ 5,
        /// GRH traffic class.
        traffic_class: u8 = [39, 0, 8] @ 6,
        /// The partition.
        pkey: PKey = [40, 0, 16] @ 7,
        /// How `rate` is meant in a request, 2 bits.
        rate_selector: u8 = [42, 0, 2] @ 8,
        /// Static rate of the group, 6 bits (`enum ibv_rate`).
        rate: u8 = [42, 2, 6] @ 9,
        /// How `packet_life_time` is meant in a request, 2 bits.
        packet_life_time_selector: u8 = [43, 0, 2] @ 10,
        /// Time that a packet can be under way, 6 bits: 4.096 us * 2^n.
        packet_life_time: u8 = [43, 2, 6] @ 11,
        /// Service level, 4 bits.
        sl: u8 = [44, 0, 4] @ 12,
        /// GRH flow label, 20 bits.
        flow_label: u32 = [44, 4, 20] @ 13,
        /// GRH hop limit.
        hop_limit: u8 = [47, 0, 8] @ 14,
        /// Scope of the group, 4 bits: 2 link local, 5 site local, 14 global.
        scope: u8 = [48, 0, 4] @ 15,
        /// Membership, 4 bits: 1 full, 2 not, 4 send only, 8 send only full.
        join_state: u8 = [48, 4, 4] @ 16,
        /// Another port may join for this one.
        proxy_join: bool = [49, 0, 1] @ 17,
    }
}
