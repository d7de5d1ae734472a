// SPDX-License-Identifier: MIT OR Apache-2.0
//! NodeRecord (IBA 15.2.5.2), of NodeInfo (14.2.5.3) and NodeDescription (14.2.5.2).

use core::fmt;

use super::record::record;
use crate::codes::codes;
use crate::layout::wire_bytes;
use crate::{Escaped, Guid, Lid};

codes! {
    /// What a node is.
    pub enum NodeType: u8 {
        Ca = 1, "channel adapter";
        Switch = 2, "switch";
        Router = 3, "router";
    }
}

/// The name that a node goes by: UTF-8, padded with zeros. Shown without the padding; what is no
/// UTF-8 is replaced, control characters are escaped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeDescription(pub [u8; 64]);

impl Default for NodeDescription {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl fmt::Display for NodeDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(64);
        for chunk in self.0[..len].trim_ascii_end().utf8_chunks() {
            Escaped(chunk.valid()).fmt(f)?;
            if !chunk.invalid().is_empty() {
                f.write_str("\u{fffd}")?;
            }
        }
        Ok(())
    }
}

wire_bytes!([] NodeDescription;);

record! {
    /// A node, once for every port of a channel adapter or router, once for a switch.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct NodeRecord: 108, 0x0011 {
        /// LID of the port, path bits zero; a switch's is its port 0's.
        lid: Lid = [0, 0, 16] @ 0,
        /// Version of the MAD format that the node speaks.
        base_version: u8 = [4, 0, 8],
        /// Version of its subnet management class.
        class_version: u8 = [5, 0, 8],
        /// See [`NodeRecord::kind`].
        node_type: u8 = [6, 0, 8] @ 4,
        /// Physical ports; a switch's port 0 is not counted.
        num_ports: u8 = [7, 0, 8],
        /// Nodes of one box have the same.
        system_image_guid: Guid = [8, 0, 64] @ 6,
        /// The node.
        node_guid: Guid = [16, 0, 64] @ 7,
        /// The port with `lid`.
        port_guid: Guid = [24, 0, 64] @ 8,
        /// Entries of the partition table of the channel adapter's ports, or of a switch's port 0.
        partition_cap: u16 = [32, 0, 16],
        /// Chosen by the vendor.
        device_id: u16 = [34, 0, 16],
        /// Chosen by the vendor.
        revision: u32 = [36, 0, 32],
        /// Number of the port with `lid`.
        local_port_num: u8 = [40, 0, 8] @ 12,
        /// The vendor, 24 bits.
        vendor_id: u32 = [41, 0, 24],
        /// What people call it.
        node_description: NodeDescription = [44, 0, 512] @ 14,
    }
}

impl NodeRecord {
    /// What the node is.
    pub fn kind(&self) -> NodeType {
        self.node_type.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(bytes: &[u8]) -> String {
        let mut description = NodeDescription::default();
        description.0[..bytes.len()].copy_from_slice(bytes);
        description.to_string()
    }

    #[test]
    fn descriptions_are_text() {
        assert_eq!(named(b"sw1"), "sw1");
        assert_eq!(named("Höhe 3  \n".as_bytes()), "Höhe 3");
        assert_eq!(named(b"a\xffb\0rest"), "a\u{fffd}b");
        assert_eq!(named(&[b'x'; 64]).len(), 64);
        assert_eq!(named(b""), "");
    }
}
