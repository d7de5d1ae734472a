// SPDX-License-Identifier: MIT OR Apache-2.0
//! NodeRecord (IBA 15.2.5.2), of NodeInfo (14.2.5.3) and NodeDescription (14.2.5.2).

use core::fmt;

use super::record::{component_mask, record};
use crate::codes::codes;
use crate::fields::FieldValue;
use crate::layout::{Span, Wire, layout};
use crate::{Guid, Lid};

codes! {
    /// What a node is.
    pub enum NodeType: u8 {
        Ca = 1, "channel adapter";
        Switch = 2, "switch";
        Router = 3, "router";
    }
}

/// The name that a node goes by: UTF-8, padded with zeros. Shown without the padding; what is no
/// UTF-8 is replaced.
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
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_str("\u{fffd}")?;
            }
        }
        Ok(())
    }
}

impl Wire for NodeDescription {
    fn read(bytes: &[u8], at: Span) -> Self {
        Self(Wire::read(bytes, at))
    }

    fn write(&self, bytes: &mut [u8], at: Span) {
        self.0.write(bytes, at);
    }

    fn value(&self) -> FieldValue<'_> {
        self.0.value()
    }
}

/// A node, once for every port of a channel adapter or router, once for a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeRecord {
    /// LID of the port, path bits zero; a switch's is its port 0's.
    pub lid: Lid,
    /// Version of the MAD format that the node speaks.
    pub base_version: u8,
    /// Version of its subnet management class.
    pub class_version: u8,
    /// See [`NodeRecord::kind`].
    pub node_type: u8,
    /// Physical ports; a switch's port 0 is not counted.
    pub num_ports: u8,
    /// Nodes of one box have the same.
    pub system_image_guid: Guid,
    /// The node.
    pub node_guid: Guid,
    /// The port with `lid`.
    pub port_guid: Guid,
    /// Entries of the partition table of the channel adapter's ports, or of a switch's port 0.
    pub partition_cap: u16,
    /// Chosen by the vendor.
    pub device_id: u16,
    /// Chosen by the vendor.
    pub revision: u32,
    /// Number of the port with `lid`.
    pub local_port_num: u8,
    /// The vendor, 24 bits.
    pub vendor_id: u32,
    /// What people call it.
    pub node_description: NodeDescription,
}

layout!(pub NodeRecord, 108, {
    lid: [0, 0, 16],
    base_version: [4, 0, 8],
    class_version: [5, 0, 8],
    node_type: [6, 0, 8],
    num_ports: [7, 0, 8],
    system_image_guid: [8, 0, 64],
    node_guid: [16, 0, 64],
    port_guid: [24, 0, 64],
    partition_cap: [32, 0, 16],
    device_id: [34, 0, 16],
    revision: [36, 0, 32],
    local_port_num: [40, 0, 8],
    vendor_id: [41, 0, 24],
    node_description: [44, 0, 512],
});

component_mask! {
    /// A set of components of a [`NodeRecord`].
    pub NodeMask {
        /// `lid`. Bit 1 is a reserved component.
        LID = 1 << 0;
        /// `node_type`.
        NODE_TYPE = 1 << 4;
        /// `system_image_guid`.
        SYSTEM_IMAGE_GUID = 1 << 6;
        /// `node_guid`.
        NODE_GUID = 1 << 7;
        /// `port_guid`.
        PORT_GUID = 1 << 8;
        /// `local_port_num`.
        LOCAL_PORT_NUM = 1 << 12;
        /// `node_description`.
        NODE_DESCRIPTION = 1 << 14;
    }
}

record!(NodeRecord, NodeMask, 0x0011);

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
