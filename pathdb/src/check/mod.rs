// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a fabric, found without sending a packet: forwarding tables that lead in
//! circles or nowhere, devices whose ports hang on one switch, and pairs of devices whose paths meet
//! though the cables lead around. And what depends on a switch that is to go down.

mod connectivity;
mod difference;
mod forwarding;
mod survey;
mod without;

pub use difference::{Difference, LinkChange, LostPorts, MovedLids, Worse, difference};
pub use forwarding::{Cause, Stuck, Unreachable};
pub use survey::{Example, Needless, Survey, survey};
pub use without::{Attached, Dependence, Fate, Without};

use std::collections::BTreeMap;

use cm_msgs::Guid;

use crate::fabric::{Fabric, NodeId, NodeKind, PortId};

/// A channel adapter: what a queue pair stays on, whatever path APM takes it to. Where each port of a card is an
/// adapter of its own, each is one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// NodeGUID.
    pub guid: Guid,
    /// Its ports with LIDs and a link that is up, ascending.
    pub ports: Vec<PortId>,
}

/// A device of several ports, all of which hang on one switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OneSwitch {
    /// The device.
    pub device: Device,
    /// The switch.
    pub switch: NodeId,
}

impl Fabric {
    /// All devices with more than one port that is up, by NodeGUID.
    pub fn multi_port_devices(&self) -> Vec<Device> {
        let mut devices = self.devices();
        devices.retain(|device| device.ports.len() > 1);
        devices
    }

    /// How many hosts (by SystemImageGUID) have several ports that are up, but no device with more than one: APM moves
    /// no connection from one of these ports to another.
    pub fn hosts_without_multi_port_device(&self) -> usize {
        let mut hosts: BTreeMap<Guid, (usize, usize)> = BTreeMap::new();
        for device in self.devices() {
            let system = self.node(self.port(device.ports[0]).node).system;
            let (devices, most) = hosts.entry(system).or_default();
            *devices += 1;
            *most = device.ports.len().max(*most);
        }
        hosts
            .values()
            .filter(|&&(devices, most)| devices > 1 && most == 1)
            .count()
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

    /// All devices with a port that is up, by NodeGUID.
    fn devices(&self) -> Vec<Device> {
        let guid = |port: PortId| self.node(self.port(port).node).guid;
        let mut ends: Vec<(Guid, PortId)> =
            self.host_ports().map(|port| (guid(port), port)).collect();
        ends.sort_unstable();
        let devices = ends.chunk_by(|a, b| a.0 == b.0);
        let device = |own: &[(Guid, PortId)]| Device {
            guid: own[0].0,
            ports: own.iter().map(|&(_, port)| port).collect(),
        };
        devices.map(device).collect()
    }

    /// Those of them whose ports all hang on one switch, whose failure no other port survives.
    pub fn devices_on_one_switch(&self) -> Vec<OneSwitch> {
        let mut found = Vec::new();
        for device in self.multi_port_devices() {
            let mut ranks = device.ports.iter().map(|&port| self.next_switch(port));
            let first = ranks.next().flatten();
            if let Some(rank) = first.filter(|_| ranks.all(|other| other == first)) {
                let switch = self.switch(rank).node;
                found.push(OneSwitch { device, switch });
            }
        }
        found
    }
}
