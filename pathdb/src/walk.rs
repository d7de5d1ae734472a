// SPDX-License-Identifier: MIT OR Apache-2.0
//! Walking the forwarding tables, as a packet does.

use cm_msgs::Lid;

use crate::capability::Capability;
use crate::fabric::{Fabric, NO_LINK, NOT_A_SWITCH, NodeKind, PortId, ServiceLevels};

/// A path in one direction that arrives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Leg {
    /// Links crossed.
    pub hops: u16,
    /// What the narrowest of them carries. The port 0 of a switch is not a link and limits nothing.
    pub carries: Capability,
}

/// Why a packet does not arrive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum Fault {
    /// It goes in circles.
    #[error("forwarding loop")]
    Loop,
    /// It is dropped, or ends at a port without the LID: no entry, no link, or the link is down.
    #[error("dead end")]
    DeadEnd,
}

/// One step of a walk that stands at a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// It leaves by this port, to the switch of that rank.
    On(PortId, u32),
    /// It leaves by this port and is there.
    Out(PortId),
    /// It is there: the LID is the switch's own.
    Here,
    /// It goes no further.
    Stuck,
}

impl Fabric {
    /// What the switch of this rank does with a packet for `owner`'s LID whose row of the tables
    /// is `row`.
    #[inline]
    pub(crate) fn step(&self, rank: u32, row: &[u8], owner: u32) -> Step {
        let switch = self.switch(rank);
        let Some(&number) = row.get(rank as usize) else {
            return Step::Stuck;
        };
        let first = switch.first;
        match number {
            0 if owner == first => Step::Here,
            1.. if number <= switch.ports => {
                let port = PortId(first + u32::from(number));
                let hop = self.hop(port);
                match (hop.up, hop.switch) {
                    (false, _) => Step::Stuck,
                    (true, NOT_A_SWITCH) if hop.peer == owner => Step::Out(port),
                    (true, NOT_A_SWITCH) => Step::Stuck,
                    (true, next) => Step::On(port, next),
                }
            }
            _ => Step::Stuck,
        }
    }

    /// Walks from the port `from` to `lid`, calling `leave` for every port that the packet leaves
    /// by, in order.
    pub(crate) fn walk(
        &self,
        from: PortId,
        lid: Lid,
        mut leave: impl FnMut(PortId),
    ) -> Result<Leg, Fault> {
        let owner = self.owner(lid);
        if owner == NO_LINK {
            return Err(Fault::DeadEnd);
        }
        if owner == from.0 {
            return self.at_home(from);
        }
        let mut leg = Leg {
            hops: 0,
            carries: Capability::UNLIMITED,
        };
        let mut cross = |leg: &mut Leg, port: PortId| {
            leave(port);
            leg.hops += 1;
            leg.carries = leg.carries.min(self.carries(port));
        };
        let node = self.port(from).node;
        let mut rank = match self.node(node).kind {
            NodeKind::Switch => self.rank(node).ok_or(Fault::DeadEnd)?,
            NodeKind::Adapter => {
                let hop = self.hop(from);
                if !hop.up {
                    return Err(Fault::DeadEnd);
                }
                cross(&mut leg, from);
                match hop.switch {
                    NOT_A_SWITCH if hop.peer == owner => return Ok(leg),
                    NOT_A_SWITCH => return Err(Fault::DeadEnd),
                    rank => rank,
                }
            }
        };
        let row = self.forwarding().row(lid);
        // A packet that has left more switches than there are has been at one of them twice.
        for _ in 0..self.switch_count() {
            match self.step(rank, row, owner) {
                Step::Here => return Ok(leg),
                Step::Out(port) => {
                    cross(&mut leg, port);
                    return Ok(leg);
                }
                Step::On(port, next) => {
                    cross(&mut leg, port);
                    rank = next;
                }
                Step::Stuck => return Err(Fault::DeadEnd),
            }
        }
        Err(Fault::Loop)
    }

    /// From a port to itself: no link is crossed, and nothing but the port limits. A port that is down
    /// has no LID to a subnet manager, nor to itself.
    pub(crate) fn at_home(&self, port: PortId) -> Result<Leg, Fault> {
        let carries = match self.port_number(port) {
            0 => Capability::UNLIMITED,
            _ if self.is_up(port) => self.carries(port),
            _ => return Err(Fault::DeadEnd),
        };
        Ok(Leg { hops: 0, carries })
    }

    /// The way from a port to a LID, whoever has it.
    pub fn leg(&self, from: PortId, lid: Lid) -> Result<Leg, Fault> {
        self.walk(from, lid, |_| ())
    }

    /// The service levels that get from a port to a LID: those that no table on the way drops. A
    /// table that is not known drops nothing.
    pub fn service_levels(&self, from: PortId, lid: Lid) -> Result<ServiceLevels, Fault> {
        let mut levels = ServiceLevels::ALL;
        let mut entered = 0;
        self.walk(from, lid, |port| {
            let node = self.port(port).node;
            let known = self.sl_to_vl(node, entered, self.port_number(port));
            levels = known.map_or(levels, |table| levels.and(table.service_levels()));
            // A port that is left has a link.
            entered = self.peer(port).map_or(0, |peer| self.port_number(peer));
        })?;
        Ok(levels)
    }

    /// The ports that a packet leaves by on its way, the first being `from` unless that is a
    /// switch's.
    pub fn trace(&self, from: PortId, lid: Lid) -> Result<Vec<PortId>, Fault> {
        let mut ports = Vec::new();
        self.walk(from, lid, |port| ports.push(port))?;
        Ok(ports)
    }
}
