// SPDX-License-Identifier: MIT OR Apache-2.0
//! ClassPortInfo (IBA 13.4.8.1).

use crate::layout::attribute;
use crate::{Gid, Lid, PKey, Qpn};

attribute! {
    /// What a class of a port can do, and who answers in its place.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct ClassPortInfo: 72 {
        /// Version of the MAD format.
        base_version: u8 = [0, 0, 8],
        /// Version of the class.
        class_version: u8 = [1, 0, 8],
        /// Capabilities; the upper 8 bits are the class's own.
        capability_mask: u16 = [2, 0, 16],
        /// Capabilities of the class, 27 bits.
        capability_mask2: u32 = [4, 0, 27],
        /// Answers come within this, 5 bits: 4.096 us * 2^n.
        resp_time_value: u8 = [7, 3, 5],
        /// GID to ask instead; zero is no redirection by GID.
        redirect_gid: Gid = [8, 0, 128],
        /// GRH traffic class to that one.
        redirect_tc: u8 = [24, 0, 8],
        /// Service level to that one, 4 bits.
        redirect_sl: u8 = [25, 0, 4],
        /// GRH flow label to that one, 20 bits.
        redirect_fl: u32 = [25, 4, 20],
        /// LID to ask instead; 0 is no redirection.
        redirect_lid: Lid = [28, 0, 16],
        /// P_Key to that one.
        redirect_pkey: PKey = [30, 0, 16],
        /// Queue pair of that one.
        redirect_qp: Qpn = [33, 0, 24],
        /// Q_Key to that one.
        redirect_qkey: u32 = [36, 0, 32],
        /// GID that traps go to.
        trap_gid: Gid = [40, 0, 128],
        /// GRH traffic class of traps.
        trap_tc: u8 = [56, 0, 8],
        /// Service level of traps, 4 bits.
        trap_sl: u8 = [57, 0, 4],
        /// GRH flow label of traps, 20 bits.
        trap_fl: u32 = [57, 4, 20],
        /// LID that traps go to.
        trap_lid: Lid = [60, 0, 16],
        /// P_Key of traps.
        trap_pkey: PKey = [62, 0, 16],
        /// GRH hop limit of traps.
        trap_hl: u8 = [64, 0, 8],
        /// Queue pair that traps go to.
        trap_qp: Qpn = [65, 0, 24],
        /// Q_Key of traps.
        trap_qkey: u32 = [68, 0, 32],
    }
}
