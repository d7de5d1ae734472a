// SPDX-License-Identifier: MIT OR Apache-2.0
//! PathRecord (IBA 15.2.5.16).

use super::record::{component_mask, record};
use crate::layout::attribute;
use crate::{Gid, Lid, PKey};

attribute! {
    /// A path from a source to a destination. In a query, [`PathMask`] says which components count.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct PathRecord: 64 {
        /// Service that the path is for, where quality of service depends on it.
        service_id: u64 = [0, 0, 64],
        /// GID of the destination port.
        dgid: Gid = [8, 0, 128],
        /// GID of the source port.
        sgid: Gid = [24, 0, 128],
        /// LID of the destination port, or of the router to it.
        dlid: Lid = [40, 0, 16],
        /// LID of the source port.
        slid: Lid = [42, 0, 16],
        /// The path is for raw packets.
        raw_traffic: bool = [44, 0, 1],
        /// GRH flow label, 20 bits.
        flow_label: u32 = [44, 4, 20],
        /// GRH hop limit.
        hop_limit: u8 = [47, 0, 8],
        /// GRH traffic class.
        traffic_class: u8 = [48, 0, 8],
        /// The way back has the same attributes.
        reversible: bool = [49, 0, 1],
        /// In a query: how many paths at most, 7 bits.
        numb_path: u8 = [49, 1, 7],
        /// The partition.
        pkey: PKey = [50, 0, 16],
        /// Quality of service class, 12 bits.
        qos_class: u16 = [52, 0, 12],
        /// Service level, 4 bits.
        sl: u8 = [53, 4, 4],
        /// How `mtu` is meant in a query, 2 bits: 0 greater, 1 less, 2 exactly, 3 largest available.
        mtu_selector: u8 = [54, 0, 2],
        /// Path MTU, 6 bits (1 = 256 bytes .. 5 = 4096).
        mtu: u8 = [54, 2, 6],
        /// How `rate` is meant in a query, 2 bits.
        rate_selector: u8 = [55, 0, 2],
        /// Static rate, 6 bits (`enum ibv_rate`).
        rate: u8 = [55, 2, 6],
        /// How `packet_life_time` is meant in a query, 2 bits.
        packet_life_time_selector: u8 = [56, 0, 2],
        /// Time that a packet can be under way, 6 bits: 4.096 us * 2^n.
        packet_life_time: u8 = [56, 2, 6],
        /// The SA's order among several paths, the least first.
        preference: u8 = [57, 0, 8],
    }
}

component_mask! {
    /// A set of components of a [`PathRecord`]: the component mask of a query.
    pub PathMask {
        /// `service_id`, which counts as two components.
        SERVICE_ID = 0b11;
        /// `dgid`.
        DGID = 1 << 2;
        /// `sgid`.
        SGID = 1 << 3;
        /// `dlid`.
        DLID = 1 << 4;
        /// `slid`.
        SLID = 1 << 5;
        /// `raw_traffic`.
        RAW_TRAFFIC = 1 << 6;
        /// `flow_label`. Bit 7 is a reserved component.
        FLOW_LABEL = 1 << 8;
        /// `hop_limit`.
        HOP_LIMIT = 1 << 9;
        /// `traffic_class`.
        TRAFFIC_CLASS = 1 << 10;
        /// `reversible`.
        REVERSIBLE = 1 << 11;
        /// `numb_path`.
        NUMB_PATH = 1 << 12;
        /// `pkey`.
        PKEY = 1 << 13;
        /// `qos_class`.
        QOS_CLASS = 1 << 14;
        /// `sl`.
        SL = 1 << 15;
        /// `mtu_selector`.
        MTU_SELECTOR = 1 << 16;
        /// `mtu`.
        MTU = 1 << 17;
        /// `rate_selector`.
        RATE_SELECTOR = 1 << 18;
        /// `rate`.
        RATE = 1 << 19;
        /// `packet_life_time_selector`.
        PACKET_LIFE_TIME_SELECTOR = 1 << 20;
        /// `packet_life_time`.
        PACKET_LIFE_TIME = 1 << 21;
        /// `preference`.
        PREFERENCE = 1 << 22;
    }
}

record!(PathRecord, PathMask, 0x0035);
