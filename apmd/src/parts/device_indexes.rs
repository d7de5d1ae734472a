// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers by which nldev and the kernel module name devices.

use std::collections::BTreeMap;

use cm_msgs::Guid;

use crate::io::nldev::Nldev;

/// All that were asked for; each is asked of the kernel once.
#[derive(Debug)]
pub(crate) struct DeviceIndexes {
    nldev: Option<Nldev>,
    known: BTreeMap<Guid, u32>,
}

impl DeviceIndexes {
    pub(crate) fn new() -> Self {
        Self {
            // Who has no netlink was told when the libraries' socket was opened.
            nldev: Nldev::open().ok(),
            known: BTreeMap::new(),
        }
    }

    pub(crate) fn of(&mut self, node_guid: Guid) -> Option<u32> {
        if let Some(index) = self.known.get(&node_guid) {
            return Some(*index);
        }
        let index = self.nldev.as_mut()?.index_of(node_guid).ok()??;
        self.known.insert(node_guid, index);
        Some(index)
    }

    /// The device has gone; one that comes has another.
    pub(crate) fn forget(&mut self, node_guid: Guid) {
        self.known.remove(&node_guid);
    }
}
