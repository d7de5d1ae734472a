// SPDX-License-Identifier: MIT OR Apache-2.0
//! LIDs that not every host reaches, and why.

use std::collections::BTreeSet;

use cm_msgs::Lid;
use rayon::prelude::*;

use crate::fabric::{Fabric, NO_LINK, NO_PORT, NodeId, PortId};
use crate::walk::Step;

/// How many LIDs are looked at from one word of progress to the next.
const STRIDE: usize = 1 << 10;

/// A LID that ports of hosts cannot reach.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreachable {
    /// The LID.
    pub lid: Lid,
    /// Whose it is.
    pub port: PortId,
    /// How many ports of hosts cannot reach it.
    pub sources: usize,
    /// One of them.
    pub example: PortId,
    /// Where their packets end.
    pub causes: Vec<Cause>,
}

/// Where packets end.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// They go in circles between these switches, in this order.
    Loop(Vec<NodeId>),
    /// A switch does not send them on.
    DeadEnd(NodeId, Stuck),
}

/// Why a switch does not send packets on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stuck {
    /// Its forwarding table has no entry.
    NoEntry,
    /// It takes them for its own.
    Itself,
    /// Nothing is plugged into the port of the entry, or there is no such port.
    Unplugged(u8),
    /// The link of that port is down.
    Down(u8),
    /// That port leads to an adapter whose LID it is not.
    Stranger(u8),
}

impl Fabric {
    /// The LIDs that some port of a host cannot reach, ascending, with all causes.
    pub fn unreachable(&self) -> Vec<Unreachable> {
        self.unreachable_with(&mut |_, _| ())
    }

    /// The same; `progress` is told how many of how many LIDs were looked at.
    pub fn unreachable_with(&self, progress: &mut dyn FnMut(u64, u64)) -> Vec<Unreachable> {
        let sources = self.sources();
        let lids: Vec<(Lid, PortId)> = self.lids().collect();
        let look =
            |walks: &mut Walks, &(lid, port): &(Lid, PortId)| walks.to(self, lid, port, &sources);
        let (mut found, all) = (Vec::new(), lids.len() as u64);
        for (part, start) in lids.chunks(STRIDE).zip((0..).step_by(STRIDE)) {
            progress(start, all);
            let part = part.par_iter().map_init(|| Walks::new(self), look);
            found.par_extend(part.flatten_iter());
        }
        progress(all, all);
        found
    }

    /// How many ports of hosts have LIDs and a link that is up.
    pub fn source_count(&self) -> usize {
        self.host_ports().count()
    }

    /// The ports of hosts by the switch where they are plugged in, and those that have none.
    fn sources(&self) -> Vec<(Option<u32>, Vec<PortId>)> {
        let mut ends: Vec<(Option<u32>, PortId)> = self
            .host_ports()
            .map(|port| (self.next_switch(port), port))
            .collect();
        ends.sort_unstable();
        ends.chunk_by(|a, b| a.0 == b.0)
            .map(|own| (own[0].0, own.iter().map(|&(_, port)| port).collect()))
            .collect()
    }
}

/// What has become of packets at a switch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Unknown,
    OnPath,
    Arrive,
    Lost,
}

/// Walks to one LID at a time, of which each switch is visited once.
struct Walks {
    fates: Vec<Fate>,
    path: Vec<u32>,
}

impl Walks {
    fn new(fabric: &Fabric) -> Self {
        Self {
            fates: vec![Fate::Unknown; fabric.switch_count()],
            path: Vec::new(),
        }
    }

    fn to(
        &mut self,
        fabric: &Fabric,
        lid: Lid,
        port: PortId,
        sources: &[(Option<u32>, Vec<PortId>)],
    ) -> Option<Unreachable> {
        self.fates.fill(Fate::Unknown);
        let mut causes = BTreeSet::new();
        let mut cut_off = Vec::new();
        for (rank, ports) in sources {
            // A port does not send to itself.
            let mut others = ports
                .iter()
                .copied()
                .filter(|&other| other != port)
                .peekable();
            match *rank {
                _ if others.peek().is_none() => {}
                Some(rank) if self.visit(fabric, lid, port, rank, &mut causes) => {}
                Some(_) => cut_off.extend(others),
                // A cable from adapter to adapter leads to one port only.
                None => cut_off.extend(others.filter(|&other| fabric.peer(other) != Some(port))),
            }
        }
        Some(Unreachable {
            lid,
            port,
            sources: cut_off.len(),
            example: *cut_off.first()?,
            causes: causes.into_iter().collect(),
        })
    }

    /// Whether packets arrive from a switch; adds the cause if not.
    fn visit(
        &mut self,
        fabric: &Fabric,
        lid: Lid,
        port: PortId,
        mut rank: u32,
        causes: &mut BTreeSet<Cause>,
    ) -> bool {
        let row = fabric.forwarding().row(lid);
        let node = |rank: u32| fabric.switch(rank).node;
        let fate = loop {
            match self.fates[rank as usize] {
                Fate::Unknown => self.fates[rank as usize] = Fate::OnPath,
                Fate::OnPath => {
                    let start = self.path.iter().position(|&on| on == rank);
                    let circle = &self.path[start.unwrap_or(0)..];
                    causes.insert(Cause::Loop(from_least(circle).map(node).collect()));
                    break Fate::Lost;
                }
                known => break known,
            }
            self.path.push(rank);
            match fabric.step(rank, row, port.0) {
                Step::On(_, next) => rank = next,
                Step::Out(_) | Step::Here => break Fate::Arrive,
                Step::Stuck => {
                    causes.insert(Cause::DeadEnd(node(rank), stuck(fabric, rank, row)));
                    break Fate::Lost;
                }
            }
        };
        for rank in self.path.drain(..) {
            self.fates[rank as usize] = fate;
        }
        fate == Fate::Arrive
    }
}

/// A circle from its least member on, so that it is the same wherever it was entered.
fn from_least(circle: &[u32]) -> impl Iterator<Item = u32> + '_ {
    let least = circle.iter().enumerate().min_by_key(|&(_, rank)| rank);
    let (after, before) = circle.split_at(least.map_or(0, |(at, _)| at));
    before.iter().chain(after).copied()
}

/// Why the switch of this rank does not send on what the row is for.
fn stuck(fabric: &Fabric, rank: u32, row: &[u8]) -> Stuck {
    let switch = fabric.switch(rank);
    let number = row.get(rank as usize).copied().unwrap_or(NO_PORT);
    if number == 0 {
        return Stuck::Itself;
    }
    if number == NO_PORT {
        return Stuck::NoEntry;
    }
    match fabric
        .port_of(switch.node, number)
        .map(|port| fabric.hop(port))
    {
        None => Stuck::Unplugged(number),
        Some(hop) if hop.peer == NO_LINK => Stuck::Unplugged(number),
        Some(hop) if !hop.up => Stuck::Down(number),
        Some(_) => Stuck::Stranger(number),
    }
}
