// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finding the ports that people mean by a name, an address, a GID, a GUID or a LID.

use std::collections::BTreeMap;
use std::net::IpAddr;

use cm_msgs::{Gid, Guid, Lid};

use crate::addresses::{Address, Addresses};
use crate::fabric::{Fabric, NodeId, NodeKind, PortId};

/// What was meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// All end ports of the host: paths may begin or end at any. Never empty.
    pub ports: Vec<PortId>,
    /// Those of them that were named: all if the host was. Never empty.
    pub named: Vec<PortId>,
    /// The very LID, if one was named.
    pub lid: Option<Lid>,
}

/// Why nothing was found.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum LocateError {
    #[error("{what} '{text}' is not in this fabric")]
    Unknown { what: &'static str, text: String },
    #[error("{address} has gid {gid}, which is not in this fabric")]
    ForeignGid { address: Address, gid: Gid },
    #[error("'{0}' has no port with a lid")]
    NoLids(String),
    #[error("'{0}' is not a switch")]
    NotASwitch(String),
    #[error("'{text}' names {switches} switches: name one by guid, such as {}", examples.join(" or "))]
    SeveralSwitches {
        text: String,
        switches: usize,
        examples: Vec<String>,
    },
    #[error("'{text}' names {boxes} boxes: name one by guid, lid or gid, such as {}", examples.join(" or "))]
    Ambiguous {
        text: String,
        boxes: usize,
        examples: Vec<String>,
    },
}

/// How many of several are named.
const EXAMPLES: usize = 3;

impl Fabric {
    /// The ports meant by `text`, which is tried as
    ///
    /// - an IP address or a name in `addresses`, then an IPv6 address as GID;
    /// - a LID: decimal, or `0x` and at most four digits; or a GUID of a port or node: `0x` and
    ///   more of them, 16 of them, or four groups of four with colons;
    /// - a node description, or its first word, which hosts with several adapters have in common;
    ///   each also with `/PORT` after it. A box is known by its SystemImageGUID: a description that several have names
    ///   none of them.
    pub fn locate(&self, text: &str, addresses: &Addresses) -> Result<Place, LocateError> {
        if let Ok(address) = text.parse::<Address>()
            && let Some(place) = self.by_address(&address, addresses)?
        {
            return Ok(place);
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            let port = match ip {
                IpAddr::V4(_) => None,
                IpAddr::V6(ip) => self.port_by_guid(Gid(ip.octets()).interface_id()),
            };
            return self.of_ports(text, port.ok_or_else(|| unknown("address", text))?);
        }
        if let Some(lid) = lid(text) {
            let known = self.port_by_lid(lid);
            let port = known.ok_or_else(|| unknown("lid", text))?;
            let mut place = self.of_ports(text, port)?;
            place.lid = Some(lid);
            return Ok(place);
        }
        if let Some(guid) = guid(text) {
            if let Some(port) = self.port_by_guid(guid) {
                return self.of_ports(text, port);
            }
            let node = self.nodes().find(|(_, node)| node.guid == guid);
            let (node, _) = node.ok_or_else(|| unknown("guid", text))?;
            return self.of_nodes(text, &[node], None);
        }
        self.by_name(text)
    }

    /// The switch meant by `text`: its GUID (`0x` and more than four digits), its LID, or its node description, whole
    /// or its first word, if no other switch has it.
    pub fn locate_switch(&self, text: &str) -> Result<NodeId, LocateError> {
        let is_switch = |&id: &NodeId| self.node(id).kind == NodeKind::Switch;
        let only_switch = |id: NodeId| {
            let switch = Some(id).filter(is_switch);
            switch.ok_or_else(|| LocateError::NotASwitch(text.to_owned()))
        };
        if let Some(lid) = lid(text) {
            let port = self.port_by_lid(lid);
            return only_switch(self.port(port.ok_or_else(|| unknown("lid", text))?).node);
        }
        if let Some(guid) = guid(text) {
            let mut nodes = self.nodes();
            let node = nodes.find(|(_, node)| node.guid == guid).map(|(id, _)| id);
            let of_port = || Some(self.port(self.port_by_guid(guid)?).node);
            return only_switch(node.or_else(of_port).ok_or_else(|| unknown("guid", text))?);
        }
        let called = self.nodes_called(text);
        let switches: Vec<NodeId> = called.iter().copied().filter(is_switch).collect();
        match (&switches[..], called.first()) {
            (&[switch], _) => Ok(switch),
            ([], None) => Err(unknown("switch", text)),
            ([], Some(_)) => Err(LocateError::NotASwitch(text.to_owned())),
            _ => Err(LocateError::SeveralSwitches {
                text: text.to_owned(),
                switches: switches.len(),
                examples: self.examples(switches.iter()),
            }),
        }
    }

    fn by_address(
        &self,
        address: &Address,
        addresses: &Addresses,
    ) -> Result<Option<Place>, LocateError> {
        let mut named = Vec::new();
        for entry in addresses.find(address) {
            let gid = entry.gid;
            let port = self.port_by_guid(gid.interface_id());
            named.push(port.ok_or_else(|| LocateError::ForeignGid {
                address: address.clone(),
                gid,
            })?);
        }
        let nodes: Vec<NodeId> = named.iter().map(|&port| self.port(port).node).collect();
        if nodes.is_empty() {
            return Ok(None);
        }
        let mut place = self.of_nodes(&address.to_string(), &nodes, None)?;
        named.retain(|port| place.ports.contains(port));
        named.sort();
        named.dedup();
        place.named = named;
        Ok(Some(place))
    }

    fn by_name(&self, text: &str) -> Result<Place, LocateError> {
        let nodes = self.nodes_called(text);
        if !nodes.is_empty() {
            return self.of_nodes(text, self.of_one_box(text, &nodes)?, None);
        }
        let numbered = text.rsplit_once('/').and_then(|(name, number)| {
            let nodes = self.nodes_called(name);
            Some((nodes, number.parse().ok()?))
        });
        match numbered {
            Some((nodes, number)) if !nodes.is_empty() => {
                self.of_nodes(text, self.of_one_box(text, &nodes)?, Some(number))
            }
            _ => Err(unknown("node", text)),
        }
    }

    /// The nodes, if they are in one box.
    fn of_one_box<'n>(&self, text: &str, nodes: &'n [NodeId]) -> Result<&'n [NodeId], LocateError> {
        let mut boxes: BTreeMap<Guid, NodeId> = BTreeMap::new();
        for &id in nodes {
            let node = self.node(id);
            let key = match node.kind {
                NodeKind::Adapter => node.system,
                NodeKind::Switch => node.guid,
            };
            boxes.entry(key).or_insert(id);
        }
        if boxes.len() == 1 {
            return Ok(nodes);
        }
        Err(LocateError::Ambiguous {
            text: text.to_owned(),
            boxes: boxes.len(),
            examples: self.examples(boxes.values()),
        })
    }

    fn examples<'n>(&self, nodes: impl Iterator<Item = &'n NodeId>) -> Vec<String> {
        let example = |id: &NodeId| {
            let node = self.node(*id);
            format!("{} ('{}')", node.guid, node.name)
        };
        nodes.take(EXAMPLES).map(example).collect()
    }

    /// By whole description, else by its first word.
    fn nodes_called(&self, name: &str) -> Vec<NodeId> {
        let whole: Vec<NodeId> = self.nodes_by_name(name).collect();
        if !whole.is_empty() {
            return whole;
        }
        let first = |text: &'_ str| text.split_ascii_whitespace().next() == Some(name);
        let nodes = self.nodes().filter(|(_, node)| first(&node.name));
        nodes.map(|(id, _)| id).collect()
    }

    fn of_ports(&self, text: &str, port: PortId) -> Result<Place, LocateError> {
        let mut place = self.of_nodes(text, &[self.port(port).node], None)?;
        place.named = vec![port];
        if !place.ports.contains(&port) {
            return Err(LocateError::NoLids(text.to_owned()));
        }
        Ok(place)
    }

    /// All end ports in the boxes of some nodes; those of the nodes, with `number` only those of
    /// that number, are the named ones.
    fn of_nodes(
        &self,
        text: &str,
        nodes: &[NodeId],
        number: Option<u8>,
    ) -> Result<Place, LocateError> {
        let mut ports: Vec<PortId> = nodes.iter().flat_map(|&node| self.ends(node)).collect();
        ports.sort();
        ports.dedup();
        let mut named = ports.clone();
        named.retain(|&port| {
            nodes.contains(&self.port(port).node)
                && number.is_none_or(|number| self.port_number(port) == number)
        });
        match named.is_empty() {
            true => Err(LocateError::NoLids(text.to_owned())),
            false => Ok(Place {
                ports,
                named,
                lid: None,
            }),
        }
    }

    /// The end ports of a host, or that of a switch.
    fn ends(&self, id: NodeId) -> Vec<PortId> {
        let node = self.node(id);
        match node.kind {
            NodeKind::Adapter => self.ports_of_system(node.system),
            NodeKind::Switch => {
                let own = self.port_of(id, 0).into_iter();
                own.filter(|&port| self.port(port).lids.is_some()).collect()
            }
        }
    }
}

fn unknown(what: &'static str, text: &str) -> LocateError {
    LocateError::Unknown {
        what,
        text: text.to_owned(),
    }
}

/// A LID: decimal, or `0x` and at most four digits; any 16 bits.
pub(crate) fn lid(text: &str) -> Option<Lid> {
    let number = match text.strip_prefix("0x") {
        Some(digits) if digits.len() <= 4 => u16::from_str_radix(digits, 16),
        Some(_) => return None,
        None => text.parse(),
    };
    number.ok().map(Lid)
}

/// A GUID: `0x` and more digits than a LID has; all 16 digits, as OpenSM prints them; or four groups of four, as sysfs
/// does.
pub(crate) fn guid(text: &str) -> Option<Guid> {
    let groups: Vec<&str> = text.split(':').collect();
    if let [a, b, c, d] = groups[..]
        && groups.iter().all(|group| group.len() == 4)
    {
        return crate::lines::guid(&[a, b, c, d].concat());
    }
    let digits = crate::lines::hexadecimal(text)?;
    let is_guid = digits.len() == 16 || digits.len() < text.len() && digits.len() > 4;
    is_guid.then(|| crate::lines::guid(digits)).flatten()
}
