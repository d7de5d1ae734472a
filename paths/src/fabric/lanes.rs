// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fabric whose cables are known, and which takes in SL-to-VL tables.

use cm_msgs::sa::SlToVlMappingTableRecord;
use pathdb::SlToVl;

use super::tables::{Cables, Contradiction, SwitchTable, Tables, Wired};

/// What OpenSM answers for a port whose table it has not set, since it never asks for one: without
/// QoS, for all ports. A table that really is so, everything on lane 0, drops nothing, and that is
/// what is taken of one not known.
const NOT_SET: [u8; 8] = [0; 8];

/// Nodes, ports and cables.
#[derive(Debug)]
pub(super) struct Cabled {
    tables: Tables,
    cables: Cables,
}

impl Cabled {
    /// Puts the nodes and ports of `tables` together by their cables.
    pub(super) fn new(tables: Tables) -> Result<Self, Contradiction> {
        let cables = tables.wire()?;
        Ok(Self { tables, cables })
    }

    /// All switches with a LID.
    pub(super) fn switches(&self) -> &[SwitchTable] {
        &self.cables.switches
    }

    /// Takes in the SL-to-VL table of one way through a switch, or of one adapter's port, for which
    /// the record's port numbers say nothing.
    pub(super) fn sl_to_vl(
        &mut self,
        record: &SlToVlMappingTableRecord,
    ) -> Result<(), Contradiction> {
        let known = self.tables.lanes_of(record)?;
        let Some((guid, from, to)) = known.filter(|_| record.vls != NOT_SET) else {
            return Ok(());
        };
        let node = self.cables.ids[&guid];
        Ok(self
            .cables
            .builder
            .sl_to_vl(node, from, to, SlToVl(record.vls))?)
    }

    /// Ready for the forwarding tables.
    pub(super) fn routing(self) -> Wired {
        Wired::new(self.cables.builder.routing(), self.cables.switches)
    }
}
