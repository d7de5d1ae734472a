// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every path between two hosts, judged as the alternate of one of them: what people look at.

use cm_msgs::Lid;

use super::finder::Alternate;
use super::{Elements, Path};
use crate::fabric::{Fabric, PortId};
use crate::locate::Place;
use crate::walk::{Fault, Leg};

/// A path between two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its LIDs.
    pub path: Path,
    /// The port of its source LID.
    pub local: PortId,
    /// The port of its destination LID.
    pub remote: PortId,
    /// What it is good for.
    pub fitness: Fitness,
}

/// What a path is good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fitness {
    /// It is the primary, of this way there and way back.
    Primary(Leg, Leg),
    /// It can be the alternate.
    Alternate(Alternate),
    /// It works, but carries less than the primary's MTU and would drop its packets.
    LesserMtu(Alternate),
    /// It works, but drops packets of the service level that all paths have.
    DropsLevel(Alternate),
    /// Its ports have no partition in common.
    NoPartition,
    /// An end is at another device than the primary's, where no queue pair of the connection can be.
    OtherDevice,
    /// It does not work, on its way there or back.
    Fails(Fault),
}

impl Fabric {
    /// The path that a connection between two places uses unless it is told another: by the LIDs
    /// that were named, else by the base LIDs of the first ports named between which one works.
    /// If none does, the fault of the first.
    pub fn primary(&self, from: &Place, to: &Place) -> Result<Path, Fault> {
        let lid = |place: &Place, port: PortId| -> Option<Lid> {
            let own = self.port(port).lids.map(|lids| lids.base());
            place.lid.or(own)
        };
        let ends = from
            .named
            .iter()
            .flat_map(|&local| to.named.iter().map(move |&remote| (local, remote)))
            .filter(|&(local, remote)| local != remote);
        let mut first = None;
        for (local, remote) in ends {
            let Some((slid, dlid)) = lid(from, local).zip(lid(to, remote)) else {
                continue;
            };
            let path = Path { slid, dlid };
            match Elements::default().follow(self, path) {
                Ok(_) if self.share_partition(local, remote) => return Ok(path),
                Ok(_) => {}
                Err(fault) => first = first.or(Some(fault)),
            }
        }
        Err(first.unwrap_or(Fault::DeadEnd))
    }

    /// Every path between the hosts, by each LID of each port: the primary, the alternates with the
    /// best first, then what cannot be one. An error if the primary does not work.
    pub fn candidates(
        &self,
        primary: Path,
        local: &[PortId],
        remote: &[PortId],
    ) -> Result<Vec<Candidate>, Fault> {
        let mut elements = Elements::default();
        let legs = elements.follow(self, primary)?;
        let judge = Judge {
            fabric: self,
            primary,
            legs,
            elements,
        };
        let mut candidates = Vec::new();
        for (&local, &remote) in local
            .iter()
            .flat_map(|a| remote.iter().map(move |b| (a, b)))
        {
            let lids = |port: PortId| self.port(port).lids.into_iter().flat_map(|r| r.iter());
            for slid in lids(local).filter(|_| local != remote) {
                candidates.extend(lids(remote).map(|dlid| {
                    let path = Path { slid, dlid };
                    Candidate {
                        path,
                        local,
                        remote,
                        fitness: judge.fitness(path, local, remote),
                    }
                }));
            }
        }
        candidates.sort_by_key(|candidate| match &candidate.fitness {
            Fitness::Primary(..) => (0, None, candidate.path),
            Fitness::Alternate(alternate) => (1, Some(alternate.rank()), candidate.path),
            Fitness::LesserMtu(alternate) => (2, Some(alternate.rank()), candidate.path),
            Fitness::DropsLevel(alternate) => (3, Some(alternate.rank()), candidate.path),
            Fitness::NoPartition => (4, None, candidate.path),
            Fitness::Fails(_) => (5, None, candidate.path),
            Fitness::OtherDevice => (6, None, candidate.path),
        });
        Ok(candidates)
    }
}

/// A primary that works, against which others are judged.
struct Judge<'a> {
    fabric: &'a Fabric,
    primary: Path,
    legs: (Leg, Leg),
    elements: Elements,
}

impl Judge<'_> {
    /// Whether two ports are at the primary's devices.
    fn is_of_the_same_devices(&self, local: PortId, remote: PortId) -> bool {
        let is_beside = |lid: Lid, port: PortId| {
            let own = self.fabric.port_by_lid(lid);
            own.is_some_and(|own| self.fabric.port(own).node == self.fabric.port(port).node)
        };
        is_beside(self.primary.slid, local) && is_beside(self.primary.dlid, remote)
    }

    fn fitness(&self, path: Path, local: PortId, remote: PortId) -> Fitness {
        let (there, back) = self.legs;
        if path == self.primary {
            return Fitness::Primary(there, back);
        }
        if !self.is_of_the_same_devices(local, remote) {
            return Fitness::OtherDevice;
        }
        if !self.fabric.share_partition(local, remote) {
            return Fitness::NoPartition;
        }
        let mut own = Elements::default();
        let (forward, reverse) = match own.follow(self.fabric, path) {
            Ok(legs) => legs,
            Err(fault) => return Fitness::Fails(fault),
        };
        let alternate = Alternate {
            path,
            shared: self.elements.shared(&own),
            forward,
            reverse,
        };
        if !alternate.carries(there.carries.mtu.min(back.carries.mtu)) {
            Fitness::LesserMtu(alternate)
        } else if self.fabric.drops(path) {
            Fitness::DropsLevel(alternate)
        } else {
            Fitness::Alternate(alternate)
        }
    }
}
