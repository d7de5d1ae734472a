// SPDX-License-Identifier: MIT OR Apache-2.0
//! What paths share with a primary, as a source that knows the fabric would say.

use cm_msgs::Lid;
use cm_msgs::path::Path;
use statemachine::{Assess, Overlap, PathEnds};

use super::network::{base_lid, port_of};

/// A path's LIDs, from the active side's point of view.
pub(crate) type Lids = (Lid, Lid);

/// What the second path shares with the first.
type Rule = Box<dyn Fn(Lids, Lids) -> Option<Overlap>>;

pub(crate) struct Fabric {
    rule: Rule,
    /// Questions are not answered.
    pub(crate) silent: bool,
    /// Milliseconds that an answer takes.
    pub(crate) takes: u64,
    /// Questions asked so far: when, and their numbers.
    pub(crate) asked: Vec<(u64, u32)>,
}

impl Fabric {
    pub(crate) fn new(rule: impl Fn(Lids, Lids) -> Option<Overlap> + 'static) -> Self {
        Self {
            rule: Box::new(rule),
            silent: false,
            takes: 0,
            asked: Vec::new(),
        }
    }

    pub(crate) fn unknown() -> Self {
        Self::new(|_, _| None)
    }

    /// Every pair of paths shares something else, and of one in five nothing is known.
    pub(crate) fn random(seed: u64) -> Self {
        Self::new(move |primary, way| {
            let lids = [primary.0, primary.1, way.0, way.1];
            let mix = |hash: u64, lid: &Lid| {
                (hash ^ u64::from(lid.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash >> 29
            };
            let hash = lids.iter().fold(seed, mix) >> 32;
            (!hash.is_multiple_of(5))
                .then_some(shared((hash >> 8) as u8 % 3, (hash >> 16) as u8 % 3))
        })
    }

    /// Another rule; all else stays.
    pub(crate) fn reroute(&mut self, fabric: Self) {
        self.rule = fabric.rule;
    }

    pub(crate) fn overlap(&self, primary: &Path, way: Lids) -> Option<Overlap> {
        (self.rule)((primary.slid, primary.dlid), way)
    }

    pub(crate) fn answer(&self, assess: &Assess) -> Vec<Option<Overlap>> {
        let paths = assess.paths.iter();
        paths
            .map(|path| self.overlap(&assess.primary, lids(path)?))
            .collect()
    }
}

pub(crate) fn shared(switches: u8, links: u8) -> Overlap {
    Overlap { switches, links }
}

/// `None`: one of its ends is a port that nobody knows.
fn lids(way: &PathEnds) -> Option<Lids> {
    let lid = |lid: Option<Lid>, gid| lid.or_else(|| port_of(gid).map(base_lid));
    Some((lid(way.slid, way.sgid)?, lid(way.dlid, way.dgid)?))
}
