// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which service levels get through a path both ways.

use cm_msgs::Lid;

use super::Path;
use crate::fabric::{Fabric, ServiceLevels};
use crate::walk::Fault;

impl Fabric {
    /// The service levels that get through both ways of a path.
    pub fn path_service_levels(&self, path: Path) -> Result<ServiceLevels, Fault> {
        let way = |from: Lid, to: Lid| {
            let from = self.port_by_lid(from).ok_or(Fault::DeadEnd)?;
            self.service_levels(from, to)
        };
        Ok(way(path.slid, path.dlid)?.and(way(path.dlid, path.slid)?))
    }

    /// Whether a path that works drops the service level that all paths have, as far as both are
    /// known.
    pub(crate) fn drops(&self, path: Path) -> bool {
        let known = self.terms().service_level.filter(|_| self.knows_sl_to_vl());
        known.is_some_and(|sl| {
            let levels = self.path_service_levels(path);
            levels.is_ok_and(|levels| !levels.contains(sl))
        })
    }
}
