// SPDX-License-Identifier: MIT OR Apache-2.0
//! What two paths share: the switches and links whose failure takes both.
//!
//! A path depends on what it uses in either direction, since an acknowledgement lost is a
//! connection lost. The adapters at its ends do not count: an alternate of the same connection
//! cannot avoid them.

mod affected;
mod candidates;
mod finder;
mod menger;
mod recheck;
mod service_levels;
mod shared;

pub use candidates::{Candidate, Fitness};
pub use finder::{Alternate, Finder};
pub use menger::Disjoint;
pub use recheck::{Pair, Verdict, recheck, recheck_after};
pub use shared::{ElementName, Overlaps, Shared};

use cm_msgs::Lid;
use serde::Serialize;

use crate::fabric::{Fabric, PortId};
use crate::walk::{Fault, Leg};

/// A path between two end ports, by the LIDs that choose it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Path {
    /// A LID of the local port.
    pub slid: Lid,
    /// A LID of the remote port.
    pub dlid: Lid,
}

/// How much two paths share. The less, the better; switches count first, as each takes its links
/// with it, then what fails together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize)]
pub struct Sharing {
    /// Switches in both.
    pub switches: u16,
    /// Shared-risk groups that both have something in.
    pub groups: u16,
    /// Links in both.
    pub links: u16,
}

impl Sharing {
    /// Whether nothing is shared.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// What a path depends on: each switch (by rank), each link (by the lesser of its two ports) and
/// each shared-risk group once, in the order of the way there and then back.
#[derive(Clone, Debug, Default)]
struct Elements {
    switches: Vec<u32>,
    links: Vec<u32>,
    groups: Vec<u32>,
}

impl Elements {
    fn clear(&mut self) {
        self.switches.clear();
        self.links.clear();
        self.groups.clear();
    }

    /// Sets them to those of `path`.
    fn follow(&mut self, fabric: &Fabric, path: Path) -> Result<(Leg, Leg), Fault> {
        self.clear();
        let from = fabric.port_by_lid(path.slid).ok_or(Fault::DeadEnd)?;
        let to = fabric.port_by_lid(path.dlid).ok_or(Fault::DeadEnd)?;
        let mut add = |element| match element {
            Met::Switch(rank) => insert(&mut self.switches, rank),
            Met::Link(link) => insert(&mut self.links, link),
            Met::Group(group) => insert(&mut self.groups, group),
        };
        let forward = meet(fabric, from, path.dlid, &mut add)?;
        let reverse = meet(fabric, to, path.slid, &mut add)?;
        Ok((forward, reverse))
    }

    fn shared(&self, other: &Self) -> Sharing {
        let both = |a: &[u32], b: &[u32]| a.iter().filter(|x| b.contains(x)).count() as u16;
        Sharing {
            switches: both(&self.switches, &other.switches),
            groups: both(&self.groups, &other.groups),
            links: both(&self.links, &other.links),
        }
    }
}

/// The lists are as short as paths are, so looking through them is the fastest.
fn insert(set: &mut Vec<u32>, element: u32) {
    if !set.contains(&element) {
        set.push(element);
    }
}

/// What a packet comes by, and with it depends on.
enum Met {
    Switch(u32),
    Link(u32),
    Group(u32),
}

/// Walks from a port to a LID and says what is met.
fn meet(fabric: &Fabric, from: PortId, lid: Lid, mut met: impl FnMut(Met)) -> Result<Leg, Fault> {
    let risks = fabric.risks();
    let grouped = !risks.is_empty();
    let groups = |met: &mut dyn FnMut(Met), groups: &[u16]| {
        groups
            .iter()
            .for_each(|&group| met(Met::Group(group.into())));
    };
    if let Some(rank) = fabric.rank(fabric.port(from).node) {
        met(Met::Switch(rank));
        groups(&mut met, risks.of_switch(rank));
    }
    fabric.walk(from, lid, |port| {
        let hop = fabric.hop(port);
        let link = port.0.min(hop.peer);
        met(Met::Link(link));
        if hop.is_to_switch() {
            met(Met::Switch(hop.switch));
        }
        if grouped {
            groups(&mut met, risks.of_link(link));
            if hop.is_to_switch() {
                groups(&mut met, risks.of_switch(hop.switch));
            }
        }
    })
}
