// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a fabric, found without sending a packet: forwarding tables that lead in
//! circles or nowhere, hosts whose ports hang on one switch, and pairs of hosts whose paths meet
//! though the cables lead around.

mod connectivity;
mod difference;
mod forwarding;
mod survey;

pub use difference::{Difference, LinkChange, LostPorts, MovedLids, Worse, difference};
pub use forwarding::{Cause, Stuck, Unreachable};
pub use survey::{Example, Needless, Survey, survey};

use cm_msgs::Guid;

use crate::fabric::{Fabric, NodeId, NodeKind, PortId};

/// A box with adapters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// SystemImageGUID.
    pub system: Guid,
    /// Its ports with LIDs and a link that is up, ascending.
    pub ports: Vec<PortId>,
}

/// A host of several ports, all of which hang on one switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OneSwitch {
    /// The host.
    pub host: Host,
    /// The switch.
    pub switch: NodeId,
}

impl Fabric {
    /// All hosts with more than one port that is up, by SystemImageGUID.
    pub fn multi_port_hosts(&self) -> Vec<Host> {
        let mut hosts = self.hosts();
        hosts.retain(|host| host.ports.len() > 1);
        hosts
    }

    /// The ports of hosts that have LIDs and a link that is up.
    fn host_ports(&self) -> impl Iterator<Item = PortId> {
        self.end_ports().filter(|&port| {
            let node = self.node(self.port(port).node);
            node.kind == NodeKind::Adapter && self.is_up(port)
        })
    }

    /// The switch, by rank, at the other end of a port's link.
    fn next_switch(&self, port: PortId) -> Option<u32> {
        let hop = self.hop(port);
        hop.is_to_switch().then_some(hop.switch)
    }

    /// All hosts with a port that is up, by SystemImageGUID.
    fn hosts(&self) -> Vec<Host> {
        let system = |port: PortId| self.node(self.port(port).node).system;
        let mut ends: Vec<(Guid, PortId)> =
            self.host_ports().map(|port| (system(port), port)).collect();
        ends.sort_unstable();
        let hosts = ends.chunk_by(|a, b| a.0 == b.0);
        let host = |own: &[(Guid, PortId)]| Host {
            system: own[0].0,
            ports: own.iter().map(|&(_, port)| port).collect(),
        };
        hosts.map(host).collect()
    }

    /// Those of them whose ports all hang on one switch, whose failure no other port survives.
    pub fn hosts_on_one_switch(&self) -> Vec<OneSwitch> {
        let mut found = Vec::new();
        for host in self.multi_port_hosts() {
            let mut ranks = host.ports.iter().map(|&port| self.next_switch(port));
            let first = ranks.next().flatten();
            if let Some(rank) = first.filter(|_| ranks.all(|other| other == first)) {
                let switch = self.switch(rank).node;
                found.push(OneSwitch { host, switch });
            }
        }
        found
    }
}
