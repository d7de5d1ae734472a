// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notice (IBA 13.4.8.2) and the details of the subnet manager's traps (14.2.5.1).

use crate::layout::{Span, Wire, attribute, field};
use crate::{Gid, Lid};

attribute! {
    /// Something happened in the fabric.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Notice: 80 {
        /// Generic; otherwise the vendor's own, and `producer_type` is the vendor.
        is_generic: bool = [0, 0, 1],
        /// 0 fatal, 1 urgent, 2 security, 3 subnet management, 4 informational; 7 bits.
        notice_type: u8 = [0, 1, 7],
        /// Node type of the producer, 24 bits.
        producer_type: u32 = [1, 0, 24],
        /// Trap number (or the vendor's device ID).
        trap_number: u16 = [4, 0, 16],
        /// LID of the issuer.
        issuer_lid: Lid = [6, 0, 16],
        /// The trap was sent because the notice queue was not empty.
        notice_toggle: bool = [8, 0, 1],
        /// Notices in the queue, 15 bits.
        notice_count: u16 = [8, 1, 15],
        /// By trap number: see [`Notice::trap`].
        data_details: [u8; 54] = [10, 0, 432],
        /// GID of the issuer.
        issuer_gid: Gid = [64, 0, 128],
    }
}

/// What a generic notice says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trap {
    /// 64: the port is reachable.
    InService(Gid),
    /// 65: the port is no longer reachable.
    OutOfService(Gid),
    /// 66: a multicast group came to be.
    GroupCreated(Gid),
    /// 67: a multicast group went.
    GroupDeleted(Gid),
    /// 128: the link state of a port of this switch changed.
    LinkState(Lid),
    /// 144: the port's capabilities, node description or link width changed.
    LocalChange {
        /// The port.
        lid: Lid,
        /// Its capability mask now.
        capability_mask: u32,
    },
}

impl Notice {
    /// What the notice says, if it is one of [`Trap`]'s.
    pub fn trap(&self) -> Option<Trap> {
        if !self.is_generic {
            return None;
        }
        match self.trap_number {
            64 => Some(Trap::InService(self.detail_gid())),
            65 => Some(Trap::OutOfService(self.detail_gid())),
            66 => Some(Trap::GroupCreated(self.detail_gid())),
            67 => Some(Trap::GroupDeleted(self.detail_gid())),
            128 => Some(Trap::LinkState(
                self.detail(const { Span::within(54, 0, 0, 16) }),
            )),
            144 => Some(Trap::LocalChange {
                lid: self.detail(const { Span::within(54, 2, 0, 16) }),
                capability_mask: self.detail(const { Span::within(54, 6, 0, 32) }),
            }),
            _ => None,
        }
    }

    fn detail_gid(&self) -> Gid {
        self.detail(const { Span::within(54, 6, 0, 128) })
    }

    fn detail<T: Wire>(&self, at: Span) -> T {
        field(&self.data_details, at)
    }
}
