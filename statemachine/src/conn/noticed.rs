// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a connection makes of what subnet administration reports by itself: its paths are probed sooner,
//! and a path that nobody knew is asked for again. Nothing is believed.

use alloc::vec::Vec;

use cm_msgs::Gid;
use cm_msgs::path::Path;

use super::qp::Core;
use super::{Connection, Side};
use crate::context::Context;
use crate::notices::Heard;

impl Connection {
    /// Says which of its paths the notices concern. If a port of the peer's is in service, the active side
    /// looks for an alternate there.
    pub(crate) fn noticed(&mut self, cx: &mut Context, heard: &mut Heard) {
        let core = &self.core;
        let left = match &self.side {
            Side::Active(active) => active.negotiation.suspect(core, cx),
            Side::Passive(_) => None,
        };
        let paths = [Some(&core.qp.primary), core.loaded(), left];
        for path in paths.into_iter().flatten() {
            core.hear_of(cx, path, heard);
        }
        let ports = core.peer.ports.iter().map(|port| port.gid);
        let in_service: Vec<Gid> = ports.filter(|gid| heard.is_in_service(*gid)).collect();
        if !in_service.is_empty() {
            self.ports_in_service(cx, heard, &in_service);
        }
    }

    fn ports_in_service(&mut self, cx: &mut Context, heard: &mut Heard, ports: &[Gid]) {
        self.catch_up(cx);
        if let Side::Active(active) = &mut self.side {
            for &gid in ports {
                if active.negotiation.port_in_service(&self.core, cx, gid) {
                    heard.mattered(gid);
                }
            }
        }
        self.drive(cx);
    }
}

impl Core {
    fn hear_of(&self, cx: &Context, path: &Path, heard: &mut Heard) {
        let base = path.dlid.base(self.lmc(cx));
        if let Some(probe) = self.probe_path(path) {
            heard.uses(probe, path.dgid, base);
        }
    }
}
