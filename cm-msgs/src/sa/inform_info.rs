// SPDX-License-Identifier: MIT OR Apache-2.0
//! InformInfo (IBA 13.4.8.3): a subscription to notices.

use crate::layout::attribute;
use crate::{Gid, Lid, Qpn};

attribute! {
    /// A subscription to generic notices, or its end.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct InformInfo: 36 {
        /// Only notices about this port; zero to go by the LID range.
        gid: Gid = [0, 0, 128],
        /// Only notices about these LIDs; 0xffff is all.
        lid_range_begin: Lid = [16, 0, 16],
        /// Last LID of the range.
        lid_range_end: Lid = [18, 0, 16],
        /// 1 generic, 0 vendor specific. A byte of its own.
        is_generic: u8 = [22, 0, 8],
        /// 1 subscribe, 0 unsubscribe.
        subscribe: u8 = [23, 0, 8],
        /// Notice type; 0xffff is all.
        notice_type: u16 = [24, 0, 16],
        /// Trap number; 0xffff is all.
        trap_number: u16 = [26, 0, 16],
        /// Queue pair that the reports go to. (The reports go to the subscriber's port.)
        qpn: Qpn = [28, 0, 24],
        /// Within this a report is answered, 5 bits: 4.096 us * 2^n.
        resp_time_value: u8 = [31, 3, 5],
        /// Node type of the producer, 24 bits: 1 CA, 2 switch, 3 router, 4 class manager, 0xffffff all.
        producer_type: u32 = [33, 0, 24],
    }
}

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

    /// Ends what [`subscribe_to`](Self::subscribe_to) began.
    pub fn unsubscribe_from(trap_number: u16) -> Self {
        Self {
            subscribe: 0,
            ..Self::subscribe_to(trap_number)
        }
    }
}
