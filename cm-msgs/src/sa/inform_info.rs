// SPDX-License-Identifier: MIT OR Apache-2.0
//! InformInfo (IBA 13.4.8.3): a subscription to notices.

use crate::layout::layout;
use crate::{Gid, Lid, Qpn};

/// A subscription to generic notices, or its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InformInfo {
    /// Only notices about this port; zero to go by the LID range.
    pub gid: Gid,
    /// Only notices about these LIDs; 0xffff is all.
    pub lid_range_begin: Lid,
    /// Last LID of the range.
    pub lid_range_end: Lid,
    /// 1 generic, 0 vendor specific. A byte of its own.
    pub is_generic: u8,
    /// 1 subscribe, 0 unsubscribe.
    pub subscribe: u8,
    /// Notice type; 0xffff is all.
    pub notice_type: u16,
    /// Trap number; 0xffff is all.
    pub trap_number: u16,
    /// Queue pair that the reports go to. (The reports go to the subscriber's port.)
    pub qpn: Qpn,
    /// Within this a report is answered, 5 bits: 4.096 us * 2^n.
    pub resp_time_value: u8,
    /// Node type of the producer, 24 bits: 1 CA, 2 switch, 3 router, 4 class manager, 0xffffff all.
    pub producer_type: u32,
}

layout!(pub InformInfo, 36, {
    gid: [0, 0, 128],
    lid_range_begin: [16, 0, 16],
    lid_range_end: [18, 0, 16],
    is_generic: [22, 0, 8],
    subscribe: [23, 0, 8],
    notice_type: [24, 0, 16],
    trap_number: [26, 0, 16],
    qpn: [28, 0, 24],
    resp_time_value: [31, 3, 5],
    producer_type: [33, 0, 24],
});

impl InformInfo {
    /// Subscribes QP1 of the asking port to one trap of every producer.
    pub fn subscribe_to(trap_number: u16) -> Self {
        Self {
            lid_range_begin: Lid(0xffff),
            is_generic: 1,
            subscribe: 1,
            notice_type: 0xffff,
            trap_number,
            qpn: Qpn(1),
            resp_time_value: 19,
            producer_type: 0xff_ffff,
            ..Self::default()
        }
    }
}
