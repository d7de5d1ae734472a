// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes and cables, and the file in which ibsim reads them.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use pathdb::{Speed, Width};

/// A node of a [`Net`], by its position among the switches or hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Node {
    /// A switch.
    Switch(usize),
    /// A host with one adapter.
    Host(usize),
}

/// One end of a cable: a node and the number of its port, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct End {
    /// The node.
    pub node: Node,
    /// The port.
    pub port: u8,
}

/// A cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cable {
    /// Its ends.
    pub ends: [End; 2],
    /// Lanes: 1, 4 or 12 of them.
    pub width: Width,
    /// Speed of a lane: up to QDR.
    pub speed: Speed,
}

/// Switches, hosts and cables. Switches are named `switch-N`, hosts `host-N`.
#[derive(Clone, Default, Debug)]
pub struct Net {
    /// How many ports each switch has.
    pub(super) switches: Vec<u8>,
    /// How many ports each host has.
    pub(super) hosts: Vec<u8>,
    cables: Vec<Cable>,
}

impl Net {
    /// GUIDs that ibsim gives to switches, in the order of its file.
    const FIRST_SWITCH_GUID: u64 = 0x20_0000;

    /// Adds a switch.
    pub fn switch(&mut self, ports: u8) -> Node {
        self.switches.push(ports);
        Node::Switch(self.switches.len() - 1)
    }

    /// Adds a host.
    pub fn host(&mut self, ports: u8) -> Node {
        self.hosts.push(ports);
        Node::Host(self.hosts.len() - 1)
    }

    /// Plugs in a cable of 4 lanes.
    pub fn cable(&mut self, a: (Node, u8), b: (Node, u8), speed: Speed) {
        self.wide_cable(a, b, Width::X4, speed);
    }

    /// Plugs in a cable.
    pub fn wide_cable(&mut self, a: (Node, u8), b: (Node, u8), width: Width, speed: Speed) {
        self.cables.push(Cable {
            ends: [a, b].map(|(node, port)| End { node, port }),
            width,
            speed,
        });
    }

    /// All cables.
    pub fn cables(&self) -> &[Cable] {
        &self.cables
    }

    /// How many switches.
    pub fn switch_count(&self) -> usize {
        self.switches.len()
    }

    /// How many hosts.
    pub fn host_count(&self) -> usize {
        self.hosts.len()
    }

    /// How many ports of hosts have a cable.
    pub fn end_ports(&self) -> usize {
        let ends = self.cables.iter().flat_map(|cable| cable.ends);
        ends.filter(|end| matches!(end.node, Node::Host(_))).count()
    }

    /// How many ports, those of switches without a number (port 0) among them.
    pub fn port_count(&self) -> usize {
        let ports = self.switches.iter().map(|ports| usize::from(*ports) + 1);
        ports.sum::<usize>()
            + self
                .hosts
                .iter()
                .map(|&ports| usize::from(ports))
                .sum::<usize>()
    }

    /// The GUID that ibsim gives to a switch.
    pub fn switch_guid(switch: usize) -> u64 {
        Self::FIRST_SWITCH_GUID + switch as u64
    }

    /// How many ports the switch with this GUID has; 0 if there is none.
    pub fn switch_ports(&self, guid: u64) -> u8 {
        let at = guid.wrapping_sub(Self::FIRST_SWITCH_GUID);
        usize::try_from(at)
            .ok()
            .and_then(|at| self.switches.get(at).copied())
            .unwrap_or(0)
    }

    /// The file for ibsim.
    pub fn text(&self) -> String {
        let mut lines: BTreeMap<Node, Vec<String>> = BTreeMap::new();
        for cable in &self.cables {
            let [a, b] = cable.ends;
            for (here, there) in [(a, b), (b, a)] {
                let line = format!(
                    "[{}] \"{}\"[{}] w={} s={}",
                    here.port,
                    there.node,
                    there.port,
                    widths(cable.width),
                    speeds(cable.speed)
                );
                lines.entry(here.node).or_default().push(line);
            }
        }
        let switches = self.switches.iter().enumerate();
        let switches = switches.map(|(at, ports)| (Node::Switch(at), "Switch", ports));
        let hosts = self.hosts.iter().enumerate();
        let hosts = hosts.map(|(at, ports)| (Node::Host(at), "Hca", ports));
        let mut text = String::new();
        for (node, kind, ports) in switches.chain(hosts) {
            let lines = lines.get(&node).map_or(&[][..], Vec::as_slice).join("\n");
            // A String takes everything.
            let _ = writeln!(text, "{kind} {ports} \"{node}\"\n{lines}\n");
        }
        text
    }
}

/// LinkWidthEnabled of a port that can do `width` and less.
fn widths(width: Width) -> u8 {
    match width {
        Width::X1 => 1,
        Width::X2 => 17,
        Width::X4 => 3,
        Width::X8 => 7,
        Width::X12 => 11,
    }
}

/// LinkSpeedEnabled of a port that can do `speed` and less, without the extended ones.
fn speeds(speed: Speed) -> u8 {
    match speed {
        Speed::Sdr => 1,
        Speed::Ddr => 3,
        _ => 7,
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(at) => write!(f, "switch-{at}"),
            Self::Host(at) => write!(f, "host-{at}"),
        }
    }
}

impl fmt::Display for End {
    /// As ibsim's console wants it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"[{}]", self.node, self.port)
    }
}

impl fmt::Display for Cable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = self.ends;
        write!(f, "{}:{} - {}:{}", a.node, a.port, b.node, b.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_name_each_other() {
        let mut net = Net::default();
        let (switch, host) = (net.switch(4), net.host(2));
        net.cable((switch, 3), (host, 2), Speed::Qdr);
        assert_eq!(
            net.text(),
            "Switch 4 \"switch-0\"\n[3] \"host-0\"[2] w=3 s=7\n\n\
             Hca 2 \"host-0\"\n[2] \"switch-0\"[3] w=3 s=7\n\n"
        );
        assert_eq!((net.end_ports(), net.port_count()), (1, 7));
        let [end, _] = net.cables()[0].ends;
        assert_eq!(end.to_string(), "\"switch-0\"[3]");
    }
}
