// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end's view of a path of a reliable connection.

use core::fmt;

use crate::{Gid, Lid, PKey};

/// How a port is reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PortAddress {
    /// Its GID.
    pub gid: Gid,
    /// Its base LID.
    pub lid: Lid,
}

impl fmt::Display for PortAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lid {}", self.gid, self.lid)
    }
}

/// What a QP needs to know of a path (`struct ibv_ah_attr` and its companions in
/// `struct ibv_qp_attr`), by value: a P_Key where verbs want a table index and a GID where verbs
/// want a GID index, because indices differ from port to port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Path {
    /// The local port, counted from 1.
    pub port: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Path MTU as IBA codes it (1 = 256 bytes .. 5 = 4096).
    pub mtu: u8,
    /// Static rate as IBA codes it (IBA table 15.2.5.16, `enum ibv_rate`).
    pub rate: u8,
    /// Local ACK timeout, 5 bits: 4.096 us * 2^n, 0 for none.
    pub ack_timeout: u8,
    /// Packets carry a GRH.
    pub global: bool,
    /// GRH traffic class.
    pub traffic_class: u8,
    /// GRH hop limit.
    pub hop_limit: u8,
    /// GRH flow label, 20 bits.
    pub flow_label: u32,
    /// Local LID, path bits included.
    pub slid: Lid,
    /// Remote LID, path bits included.
    pub dlid: Lid,
    /// The partition.
    pub pkey: PKey,
    /// GID of the local port.
    pub sgid: Gid,
    /// GID of the remote port; zero if the reporter does not know it.
    pub dgid: Gid,
}

impl Path {
    /// Where it starts.
    pub const fn local_end(&self) -> PortAddress {
        PortAddress {
            gid: self.sgid,
            lid: self.slid,
        }
    }

    /// Where it ends.
    pub const fn remote_end(&self) -> PortAddress {
        PortAddress {
            gid: self.dgid,
            lid: self.dlid,
        }
    }

    /// Whether both are the same way through the fabric: same ports and LIDs at both ends.
    pub fn same_way(&self, other: &Self) -> bool {
        self.port == other.port && self.slid == other.slid && self.dlid == other.dlid
    }
}
