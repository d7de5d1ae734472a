// SPDX-License-Identifier: MIT OR Apache-2.0
//! LinkRecord (IBA 15.2.5.9).

use super::record::record;
use crate::Lid;

record! {
    /// A link, seen from one end; the SA has a record for each direction.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct LinkRecord: 6, 0x0020 {
        /// LID of the port at this end, a switch's port 0's.
        from_lid: Lid = [0, 0, 16] @ 0,
        /// Port at this end.
        from_port: u8 = [2, 0, 8] @ 1,
        /// Port at the other end.
        to_port: u8 = [3, 0, 8] @ 2,
        /// LID of the port at the other end, a switch's port 0's.
        to_lid: Lid = [4, 0, 16] @ 3,
    }
}
