// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a fabric cannot be.

use cm_msgs::{Guid, Lid};

use super::{Fabric, Node, NodeId, PortId};

/// What is wrong with a fabric.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BuildError {
    #[error("node guid {guid} belongs to '{first}' and to '{second}'")]
    TwoNodes {
        guid: Guid,
        first: String,
        second: String,
    },
    #[error("'{node}' cannot have {ports} ports: at most 254")]
    TooManyPorts { node: String, ports: u8 },
    #[error("node {0} is not of this fabric")]
    UnknownNode(u32),
    #[error("'{node}' has no port {port}: it has {ports}")]
    NoSuchPort { node: String, port: u8, ports: u8 },
    #[error(
        "'{node}' port {port} cannot have lids: switches have them on port 0, adapters elsewhere"
    )]
    MisplacedLid { node: String, port: u8 },
    #[error("lid {0} is no port's: want 1 to {max}", max = Lid::MAX_UNICAST)]
    NotUnicast(Lid),
    #[error("lid {lid} belongs to '{first}' and to '{second}'")]
    TwoOwners {
        lid: Lid,
        first: String,
        second: String,
    },
    #[error("port guid {guid} belongs to '{first}' and to '{second}'")]
    TwoPorts {
        guid: Guid,
        first: String,
        second: String,
    },
    #[error("'{port}' is described twice, and differently")]
    Redescribed { port: String },
    #[error("no link is possible between '{a}' and '{b}'")]
    ImpossibleLink { a: String, b: String },
    #[error("'{port}' is linked to '{first}' and to '{second}'")]
    TwoLinks {
        port: String,
        first: String,
        second: String,
    },
    #[error("the link between '{a}' and '{b}' is described twice, and differently")]
    RedescribedLink { a: String, b: String },
    #[error("'{node}' is no switch and has no forwarding table")]
    NotASwitch { node: String },
    #[error(
        "'{port}' has no sl-to-vl table for packets from port {from}: an adapter has one a port"
    )]
    MisplacedSlToVl { port: String, from: u8 },
    #[error(
        "the sl-to-vl table of '{port}' for packets from port {from} is given twice, and differently"
    )]
    RedescribedSlToVl { port: String, from: u8 },
    #[error("a fabric has at most {most} {what}")]
    TooLarge { what: &'static str, most: usize },
}

impl BuildError {
    /// Whether there is too much of something: nothing more of a file or an answer that says so is to be believed.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(self, Self::TooLarge { .. })
    }
}

/// The rank of `switch`, if its table may send packets for `lid` out of `port`.
pub(super) fn check_route(
    fabric: &Fabric,
    switch: NodeId,
    lid: Lid,
    port: u8,
) -> Result<u32, BuildError> {
    if !lid.is_unicast() {
        return Err(BuildError::NotUnicast(lid));
    }
    find_port(fabric, switch, port)?;
    switch_rank(fabric, switch)
}

pub(crate) fn fits(count: usize, most: usize, what: &'static str) -> Result<(), BuildError> {
    match count <= most {
        true => Ok(()),
        false => Err(BuildError::TooLarge { what, most }),
    }
}

pub(super) fn switch_rank(fabric: &Fabric, node: NodeId) -> Result<u32, BuildError> {
    let known = find_node(fabric, node)?;
    fabric.rank(node).ok_or_else(|| BuildError::NotASwitch {
        node: known.name.to_string(),
    })
}

pub(super) fn find_node(fabric: &Fabric, node: NodeId) -> Result<&Node, BuildError> {
    let known = fabric.nodes.get(node.index());
    known.ok_or(BuildError::UnknownNode(node.0))
}

pub(super) fn find_port(fabric: &Fabric, node: NodeId, number: u8) -> Result<PortId, BuildError> {
    let known = find_node(fabric, node)?;
    fabric
        .port_of(node, number)
        .ok_or_else(|| BuildError::NoSuchPort {
            node: known.name.to_string(),
            port: number,
            ports: known.ports,
        })
}
