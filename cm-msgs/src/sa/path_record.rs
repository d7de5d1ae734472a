// SPDX-License-Identifier: MIT OR Apache-2.0
//! PathRecord (IBA 15.2.5.16).

use super::record::{component_mask, record};
use crate::layout::layout;
use crate::{Gid, Lid, PKey};

/// A path from a source to a destination. In a query, [`PathMask`] says which components count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathRecord {
    /// Service that the path is for, where quality of service depends on it.
    pub service_id: u64,
    /// GID of the destination port.
    pub dgid: Gid,
    /// GID of the source port.
    pub sgid: Gid,
    /// LID of the destination port, or of the router to it.
    pub dlid: Lid,
    /// LID of the source port.
    pub slid: Lid,
    /// The path is for raw packets.
    pub raw_traffic: bool,
    /// GRH flow label, 20 bits.
    pub flow_label: u32,
    /// GRH hop limit.
    pub hop_limit: u8,
    /// GRH traffic class.
    pub traffic_class: u8,
    /// The way back has the same attributes.
    pub reversible: bool,
    /// In a query: how many paths at most, 7 bits.
    pub numb_path: u8,
    /// The partition.
    pub pkey: PKey,
    /// Quality of service class, 12 bits.
    pub qos_class: u16,
    /// Service level, 4 bits.
    pub sl: u8,
    /// How `mtu` is meant in a query, 2 bits: 0 greater, 1 less, 2 exactly, 3 largest available.
    pub mtu_selector: u8,
    /// Path MTU, 6 bits (1 = 256 bytes .. 5 = 4096).
    pub mtu: u8,
    /// How `rate` is meant in a query, 2 bits.
    pub rate_selector: u8,
    /// Static rate, 6 bits (`enum ibv_rate`).
    pub rate: u8,
    /// How `packet_life_time` is meant in a query, 2 bits.
    pub packet_life_time_selector: u8,
    /// Time that a packet can be under way, 6 bits: 4.096 us * 2^n.
    pub packet_life_time: u8,
    /// The SA's order among several paths, the least first.
    pub preference: u8,
}

layout!(pub PathRecord, 64, {
    service_id: [0, 0, 64],
    dgid: [8, 0, 128],
    sgid: [24, 0, 128],
    dlid: [40, 0, 16],
    slid: [42, 0, 16],
    raw_traffic: [44, 0, 1],
    flow_label: [44, 4, 20],
    hop_limit: [47, 0, 8],
    traffic_class: [48, 0, 8],
    reversible: [49, 0, 1],
    numb_path: [49, 1, 7],
    pkey: [50, 0, 16],
    qos_class: [52, 0, 12],
    sl: [53, 4, 4],
    mtu_selector: [54, 0, 2],
    mtu: [54, 2, 6],
    rate_selector: [55, 0, 2],
    rate: [55, 2, 6],
    packet_life_time_selector: [56, 0, 2],
    packet_life_time: [56, 2, 6],
    preference: [57, 0, 8],
});

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
