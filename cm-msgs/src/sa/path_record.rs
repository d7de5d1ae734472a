// SPDX-License-Identifier: MIT OR Apache-2.0
//! PathRecord (IBA 15.2.5.16).

use super::record::record;
use crate::{Gid, Lid, PKey};

record! {
    /// A path from a source to a destination. A query is a [`super::Template`] of it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct PathRecord: 64, 0x0035 {
        /// Service that the path is for, where quality of service depends on it.
        service_id: u64 = [0, 0, 64],
        /// GID of the destination port.
        dgid: Gid = [8, 0, 128] @ 2,
        /// GID of the source port.
        sgid: Gid = [24, 0, 128] @ 3,
        /// LID of the destination port, or of the router to it.
        dlid: Lid = [40, 0, 16] @ 4,
        /// LID of the source port.
        slid: Lid = [42, 0, 16] @ 5,
        /// The path is for raw packets.
        raw_traffic: bool = [44, 0, 1] @ 6,
        /// GRH flow label, 20 bits.
        flow_label: u32 = [44, 4, 20] @ 8,
        /// GRH hop limit.
        hop_limit: u8 = [47, 0, 8] @ 9,
        /// GRH traffic class.
        traffic_class: u8 = [48, 0, 8] @ 10,
        /// The way back has the same attributes.
        reversible: bool = [49, 0, 1] @ 11,
        /// In a query: how many paths at most, 7 bits.
        numb_path: u8 = [49, 1, 7] @ 12,
        /// The partition.
        pkey: PKey = [50, 0, 16] @ 13,
        /// Quality of service class, 12 bits.
        qos_class: u16 = [52, 0, 12] @ 14,
        /// Service level, 4 bits.
        sl: u8 = [53, 4, 4] @ 15,
        /// How `mtu` is meant in a query, 2 bits: 0 greater, 1 less, 2 exactly, 3 largest available.
        mtu_selector: u8 = [54, 0, 2] @ 16,
        /// Path MTU, 6 bits (1 = 256 bytes .. 5 = 4096).
        mtu: u8 = [54, 2, 6] @ 17,
        /// How `rate` is meant in a query, 2 bits.
        rate_selector: u8 = [55, 0, 2] @ 18,
        /// Static rate, 6 bits (`enum ibv_rate`).
        rate: u8 = [55, 2, 6] @ 19,
        /// How `packet_life_time` is meant in a query, 2 bits.
        packet_life_time_selector: u8 = [56, 0, 2] @ 20,
        /// Time that a packet can be under way, 6 bits: 4.096 us * 2^n.
        packet_life_time: u8 = [56, 2, 6] @ 21,
        /// The SA's order among several paths, the least first.
        preference: u8 = [57, 0, 8] @ 22,
    }
}
