// SPDX-License-Identifier: MIT OR Apache-2.0
//! ClassPortInfo (IBA 13.4.8.1).

use crate::layout::layout;
use crate::{Gid, Lid, PKey, Qpn};

/// What a class of a port can do, and who answers in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassPortInfo {
    /// Version of the MAD format.
    pub base_version: u8,
    /// Version of the class.
    pub class_version: u8,
    /// Capabilities; the upper 8 bits are the class's own.
    pub capability_mask: u16,
    /// Capabilities of the class, 27 bits.
    pub capability_mask2: u32,
    /// Answers come within this, 5 bits: 4.096 us * 2^n.
    pub resp_time_value: u8,
    /// GID to ask instead; zero is no redirection by GID.
    pub redirect_gid: Gid,
    /// GRH traffic class to that one.
    pub redirect_tc: u8,
    /// Service level to that one, 4 bits.
    pub redirect_sl: u8,
    /// GRH flow label to that one, 20 bits.
    pub redirect_fl: u32,
    /// LID to ask instead; 0 is no redirection.
    pub redirect_lid: Lid,
    /// P_Key to that one.
    pub redirect_pkey: PKey,
    /// Queue pair of that one.
    pub redirect_qp: Qpn,
    /// Q_Key to that one.
    pub redirect_qkey: u32,
    /// GID that traps go to.
    pub trap_gid: Gid,
    /// GRH traffic class of traps.
    pub trap_tc: u8,
    /// Service level of traps, 4 bits.
    pub trap_sl: u8,
    /// GRH flow label of traps, 20 bits.
    pub trap_fl: u32,
    /// LID that traps go to.
    pub trap_lid: Lid,
    /// P_Key of traps.
    pub trap_pkey: PKey,
    /// GRH hop limit of traps.
    pub trap_hl: u8,
    /// Queue pair that traps go to.
    pub trap_qp: Qpn,
    /// Q_Key of traps.
    pub trap_qkey: u32,
}

layout!(pub ClassPortInfo, 72, {
    base_version: [0, 0, 8],
    class_version: [1, 0, 8],
    capability_mask: [2, 0, 16],
    capability_mask2: [4, 0, 27],
    resp_time_value: [7, 3, 5],
    redirect_gid: [8, 0, 128],
    redirect_tc: [24, 0, 8],
    redirect_sl: [25, 0, 4],
    redirect_fl: [25, 4, 20],
    redirect_lid: [28, 0, 16],
    redirect_pkey: [30, 0, 16],
    redirect_qp: [33, 0, 24],
    redirect_qkey: [36, 0, 32],
    trap_gid: [40, 0, 128],
    trap_tc: [56, 0, 8],
    trap_sl: [57, 0, 4],
    trap_fl: [57, 4, 20],
    trap_lid: [60, 0, 16],
    trap_pkey: [62, 0, 16],
    trap_hl: [64, 0, 8],
    trap_qp: [65, 0, 24],
    trap_qkey: [68, 0, 32],
});
