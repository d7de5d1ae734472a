// SPDX-License-Identifier: MIT OR Apache-2.0
//! LinkRecord (IBA 15.2.5.9).

use super::record::{component_mask, record};
use crate::Lid;
use crate::layout::attribute;

attribute! {
    /// A link, seen from one end; the SA has a record for each direction.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct LinkRecord: 6 {
        /// LID of the port at this end, a switch's port 0's.
        from_lid: Lid = [0, 0, 16],
        /// Port at this end.
        from_port: u8 = [2, 0, 8],
        /// Port at the other end.
        to_port: u8 = [3, 0, 8],
        /// LID of the port at the other end, a switch's port 0's.
        to_lid: Lid = [4, 0, 16],
    }
}

component_mask! {
    /// A set of components of a [`LinkRecord`].
    pub LinkMask {
        /// `from_lid`.
        FROM_LID = 1 << 0;
        /// `from_port`.
        FROM_PORT = 1 << 1;
        /// `to_port`.
        TO_PORT = 1 << 2;
        /// `to_lid`.
        TO_LID = 1 << 3;
    }
}

record!(LinkRecord, LinkMask, 0x0020);
