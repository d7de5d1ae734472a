// SPDX-License-Identifier: MIT OR Apache-2.0
//! What depends on one switch: hosts with ports on it, pairs of devices, and single paths.
//!
//! Two questions have different answers. At the moment at which the switch goes down only paths count that the
//! forwarding tables have and that avoid it; later, when the subnet manager has routed around it, what the cables allow.

use rayon::prelude::*;

use super::connectivity::Connectivity;
use super::survey::{Pairs, keep, least};
use super::{Device, Example};
use crate::disjoint::{Finder, Path};
use crate::fabric::{Change, Delta, Element, Fabric, NodeId, NodeKind, PortId};

/// A fabric, and that fabric while one of its switches is down, with the forwarding tables as they are.
#[derive(Debug)]
pub struct Without<'a> {
    fabric: &'a Fabric,
    switch: NodeId,
    rest: Fabric,
}

/// A device with links to the switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attached {
    /// The device, with all its ports that are up.
    pub device: Device,
    /// How many of these ports are on the switch.
    pub lost: usize,
}

/// What was found about pairs of devices.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dependence {
    /// How many pairs of devices there are.
    pub pairs: u64,
    /// How many of them were looked at, evenly spread.
    pub looked_at: u64,
    /// Pairs that have a path, and none without the switch.
    pub cut: u64,
    /// Of these, pairs that cables lead around the switch for: the subnet manager can connect them again.
    pub cut_until_rerouted: u64,
    /// Some of those that are cut, with the paths that they have now.
    pub cut_examples: Vec<Example>,
    /// Pairs that have an alternate, and without the switch a path and no alternate.
    pub alone: u64,
    /// Some of these, with the paths that they have now.
    pub alone_examples: Vec<Example>,
}

/// What becomes of a path without the switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It goes on working.
    Works,
    /// It does not work any more.
    Lost,
    /// It does not work in this fabric even with the switch.
    Unknown,
}

impl<'a> Without<'a> {
    /// The fabric without this switch; `None` if the node is no switch.
    pub fn new(fabric: &'a Fabric, switch: NodeId) -> Option<Self> {
        if fabric.node(switch).kind != NodeKind::Switch {
            return None;
        }
        let mut rest = fabric.clone();
        let numbers = 1..=fabric.node(switch).ports;
        let down = numbers.filter_map(|number| {
            let port = fabric.port_of(switch, number)?;
            fabric.peer(port)?;
            Some(Change::Link {
                end: (switch, number),
                up: false,
                carries: fabric.carries(port),
            })
        });
        // The greatest epoch has none after it.
        rest.set_epoch(0);
        let delta = Delta {
            from: 0,
            to: 1,
            changes: down.collect(),
        };
        rest.apply(&delta).ok()?;
        Some(Self {
            fabric,
            switch,
            rest,
        })
    }

    /// The devices that have ports on it, by NodeGUID.
    pub fn attached(&self) -> Vec<Attached> {
        let mut attached = Vec::new();
        for device in self.fabric.devices() {
            let is_lost = |port: &&PortId| !self.rest.is_up(**port);
            let lost = device.ports.iter().filter(is_lost).count();
            if lost > 0 {
                attached.push(Attached { device, lost });
            }
        }
        attached
    }

    /// What becomes of one path.
    pub fn fate(&self, path: Path) -> Fate {
        let Path { slid, dlid } = path;
        let works = |fabric: &Fabric| {
            let arrives = |from, to| {
                let from = fabric.port_by_lid(from);
                from.is_some_and(|from| fabric.trace(from, to).is_ok())
            };
            arrives(slid, dlid) && arrives(dlid, slid)
        };
        match (works(self.fabric), works(&self.rest)) {
            (false, _) => Fate::Unknown,
            (true, true) => Fate::Works,
            (true, false) => Fate::Lost,
        }
    }

    /// Looks at pairs of devices, also of those with one port, at most `most`. Whether a pair has a path, and one with
    /// an alternate, is judged as by [`survey`](super::survey). `progress` is told how many of how many were looked at.
    pub fn dependence(&self, most: u64, progress: &mut dyn FnMut(u64, u64)) -> Dependence {
        let devices = self.fabric.devices();
        let pairs = Pairs::new(devices.len() as u64, most);
        let connectivity = Connectivity::new(self.fabric);
        let looker = Looker {
            without: self,
            before: Finder::new(self.fabric),
            after: Finder::new(&self.rest),
            connectivity: &connectivity,
        };
        let mut found = Dependence::default();
        for part in pairs.parts(progress) {
            let part = part.into_par_iter().fold_with(
                (Dependence::default(), looker.clone()),
                |(mut found, mut looker), at| {
                    let (a, b) = pairs.get(at);
                    looker.look(&devices[a], &devices[b], &mut found);
                    (found, looker)
                },
            );
            let part = part.map(|(found, _)| found);
            found = found.merge(&part.reduce(Dependence::default, |a, b| a.merge(&b)));
        }
        Dependence {
            pairs: pairs.all,
            looked_at: pairs.chosen,
            ..found
        }
    }
}

impl Dependence {
    fn merge(mut self, other: &Self) -> Self {
        self.cut += other.cut;
        self.cut_until_rerouted += other.cut_until_rerouted;
        self.alone += other.alone;
        keep(&mut self.cut_examples, &other.cut_examples);
        keep(&mut self.alone_examples, &other.alone_examples);
        self
    }
}

/// Looks at one pair after the other.
#[derive(Clone)]
struct Looker<'a> {
    without: &'a Without<'a>,
    before: Finder<'a>,
    after: Finder<'a>,
    connectivity: &'a Connectivity<'a>,
}

impl Looker<'_> {
    fn look(&mut self, a: &Device, b: &Device, found: &mut Dependence) {
        let Without {
            fabric,
            switch,
            rest,
        } = self.without;
        // What does not work with the switch either is found elsewhere.
        let Some((primary, best)) = least(&mut self.before, fabric, a, b) else {
            return;
        };
        let example = Example {
            primary,
            alternate: best.map(|best| best.path),
        };
        match least(&mut self.after, rest, a, b) {
            None => {
                found.cut += 1;
                let element = Element::Switch(*switch);
                found.cut_until_rerouted +=
                    u64::from(self.connectivity.leads_around(element, a, b));
                keep(&mut found.cut_examples, &[example]);
            }
            Some((_, None)) if best.is_some() => {
                found.alone += 1;
                keep(&mut found.alone_examples, &[example]);
            }
            Some(_) => {}
        }
    }
}
