// SPDX-License-Identifier: MIT OR Apache-2.0
//! The alternate that shares least with a primary.

use std::cmp::Reverse;

use cm_msgs::Lid;

use super::{Elements, Met, Path, Sharing, meet};
use crate::fabric::{Element, Fabric, PortId, RiskId};
use crate::walk::{Fault, Leg};
use cm_msgs::rate::{Mtu, Rate};

/// An alternate of some primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alternate {
    /// The alternate.
    pub path: Path,
    /// What it shares with the primary.
    pub shared: Sharing,
    /// The way there.
    pub forward: Leg,
    /// The way back.
    pub reverse: Leg,
}

/// By what alternates are chosen, the least first: sharing, rate, length, and at last the LIDs, so
/// that the choice depends on nothing else.
pub(super) type Rank = (Sharing, Reverse<Option<Rate>>, u32, Path);

impl Alternate {
    pub(super) fn rank(&self) -> Rank {
        let rate = self.forward.carries.rate.min(self.reverse.carries.rate);
        let hops = u32::from(self.forward.hops) + u32::from(self.reverse.hops);
        (self.shared, Reverse(rate), hops, self.path)
    }

    /// The primary's MTU stays that of the QP, so an alternate with a lesser one drops packets.
    pub(super) fn carries(&self, mtu: Option<Mtu>) -> bool {
        let own = self.forward.carries.mtu.min(self.reverse.carries.mtu);
        own.is_none() || own >= mtu
    }
}

/// One direction between a port and a LID of the other side, and which of the primary's elements
/// it meets.
#[derive(Clone, Copy, Debug)]
struct Direction {
    port: PortId,
    lid: Lid,
    leg: Leg,
    /// Where its bits begin.
    bits: usize,
}

/// Finds alternates in one fabric; keeps its memory from one to the next.
#[derive(Clone, Debug)]
pub struct Finder<'a> {
    fabric: &'a Fabric,
    primary: Elements,
    /// The directions that were looked at last, there and back.
    forward: Vec<Direction>,
    reverse: Vec<Direction>,
    bits: Vec<u64>,
}

impl<'a> Finder<'a> {
    /// A finder for this fabric.
    pub fn new(fabric: &'a Fabric) -> Self {
        Self {
            fabric,
            primary: Elements::default(),
            forward: Vec::new(),
            reverse: Vec::new(),
            bits: Vec::new(),
        }
    }

    /// The best alternate of `primary` between any of the `local` and any of the `remote` ports, by
    /// any of their LIDs. `Ok(None)` if there is none that works; an error if the primary does not.
    ///
    /// Ports without a partition in common, and paths that carry less than the primary's MTU or drop
    /// the service level that all paths have, are no alternates.
    pub fn best(
        &mut self,
        primary: Path,
        local: &[PortId],
        remote: &[PortId],
    ) -> Result<Option<Alternate>, Fault> {
        let (there, back) = self.primary.follow(self.fabric, primary)?;
        let mtu = there.carries.mtu.min(back.carries.mtu);
        self.bits.clear();
        self.forward = self.directions(local, remote);
        self.reverse = self.directions(remote, local);
        let mut best: Option<Alternate> = None;
        for forward in &self.forward {
            for reverse in &self.reverse {
                // The LID of one direction must be of the port where the other begins.
                if self.fabric.port_by_lid(reverse.lid) != Some(forward.port)
                    || self.fabric.port_by_lid(forward.lid) != Some(reverse.port)
                {
                    continue;
                }
                let candidate = self.candidate(forward, reverse);
                let better = best.is_none_or(|best| candidate.rank() < best.rank());
                if better
                    && candidate.path != primary
                    && candidate.carries(mtu)
                    && !self.fabric.drops(candidate.path)
                {
                    best = Some(candidate);
                }
            }
        }
        Ok(best)
    }

    /// What an alternate that was found shares with its primary, and of each element whether some direction
    /// there between the ports avoids it: then the cables certainly lead around it.
    pub(crate) fn common(
        &mut self,
        primary: Path,
        alternate: &Alternate,
        local: &[PortId],
        remote: &[PortId],
    ) -> Vec<(Element, bool)> {
        if self.best(primary, local, remote).is_err() {
            return Vec::new();
        }
        let Path { slid, dlid } = alternate.path;
        let of = |directions: &[Direction], from: Lid, to: Lid| {
            let from = self.fabric.port_by_lid(from);
            let is_it =
                |direction: &&Direction| Some(direction.port) == from && direction.lid == to;
            directions
                .iter()
                .find(is_it)
                .map(|direction| direction.bits)
        };
        let (forward, reverse) = (of(&self.forward, slid, dlid), of(&self.reverse, dlid, slid));
        let words = self.words();
        let Elements {
            switches,
            links,
            groups,
        } = &self.primary;
        let switch = |&rank: &u32| Element::Switch(self.fabric.switch(rank).node);
        let link = |&link: &u32| Element::Link(PortId(link));
        // Groups are numbered with 16 bits.
        let group = |&group: &u32| Element::Group(RiskId(group as u16));
        let switches = (0..).zip(switches.iter().map(switch));
        let links = (words.switches * 64..).zip(links.iter().map(link));
        let after_links = words.switches + words.links;
        let groups = (after_links * 64..).zip(groups.iter().map(group));
        let meets = |from: usize, bit: usize| self.bits[from + bit / 64] >> (bit % 64) & 1 == 1;
        let shared = |bit: usize| {
            [forward, reverse]
                .iter()
                .flatten()
                .any(|&at| meets(at, bit))
        };
        let avoided = |bit: usize| {
            self.forward
                .iter()
                .any(|direction| !meets(direction.bits, bit))
        };
        switches
            .chain(links)
            .chain(groups)
            .filter(|&(bit, _)| shared(bit))
            .map(|(bit, element)| (element, avoided(bit)))
            .collect()
    }

    fn candidate(&self, forward: &Direction, reverse: &Direction) -> Alternate {
        let words = self.words();
        let count = |from: usize, words: usize| {
            (from..from + words)
                .map(|word| self.bits[forward.bits + word] | self.bits[reverse.bits + word])
                .map(u64::count_ones)
                .sum::<u32>() as u16
        };
        Alternate {
            path: Path {
                slid: reverse.lid,
                dlid: forward.lid,
            },
            shared: Sharing {
                switches: count(0, words.switches),
                groups: count(words.switches + words.links, words.groups),
                links: count(words.switches, words.links),
            },
            forward: forward.leg,
            reverse: reverse.leg,
        }
    }

    fn words(&self) -> Words {
        let words = |set: &[u32]| set.len().div_ceil(u64::BITS as usize);
        Words {
            switches: words(&self.primary.switches),
            links: words(&self.primary.links),
            groups: words(&self.primary.groups),
        }
    }

    /// All directions that arrive, from each of `from` to each LID of each of `to`.
    fn directions(&mut self, from: &[PortId], to: &[PortId]) -> Vec<Direction> {
        let fabric = self.fabric;
        let mut directions = Vec::with_capacity(from.len() * to.len());
        for &port in from {
            for &other in to {
                if port == other || !fabric.share_partition(port, other) {
                    continue;
                }
                let lids = fabric.port(other).lids.into_iter();
                for lid in lids.flat_map(|range| range.iter()) {
                    let bits = self.bits.len();
                    if let Ok(leg) = self.mark(port, lid) {
                        directions.push(Direction {
                            port,
                            lid,
                            leg,
                            bits,
                        });
                    }
                }
            }
        }
        directions
    }

    /// Adds the bits of one direction: which of the primary's elements it meets.
    fn mark(&mut self, port: PortId, lid: Lid) -> Result<Leg, Fault> {
        let words = self.words();
        let first = self.bits.len();
        let groups = words.switches + words.links;
        self.bits.resize(first + groups + words.groups, 0);
        let bits = &mut self.bits[first..];
        let primary = &self.primary;
        meet(self.fabric, port, lid, |met| {
            let (set, element, first) = match met {
                Met::Switch(rank) => (&primary.switches, rank, 0),
                Met::Link(link) => (&primary.links, link, words.switches),
                Met::Group(group) => (&primary.groups, group, groups),
            };
            if let Some(at) = set.iter().position(|&own| own == element) {
                bits[first + at / 64] |= 1 << (at % 64);
            }
        })
    }
}

/// How many words the bits of the primary's elements take, in the order of the fields.
#[derive(Clone, Copy)]
struct Words {
    switches: usize,
    links: usize,
    groups: usize,
}
