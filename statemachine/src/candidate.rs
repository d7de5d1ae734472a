// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thinkable alternates of a connection, and which of them is best.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;

use cm_msgs::path::{Path, PortAddress};
use cm_msgs::{Gid, Guid, Lid};
use strum::Display;

use crate::guard::guard;
use crate::id::PortId;
use crate::input::Origin;
use crate::overlap::{Overlap, PathEnds};
use crate::port::{Port, Ports};
use crate::subnet::SubnetLid;

/// A thinkable alternate path. No path record has been asked for yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The local port.
    pub port: PortId,
    /// Its GID.
    pub sgid: Gid,
    /// The remote port's GID.
    pub dgid: Gid,
    /// The local LID, where the port has several.
    pub slid: Option<Lid>,
    /// The remote LID, where the port has several.
    pub dlid: Option<Lid>,
    /// How good it is.
    pub score: Score,
    /// Where its path record came from, once there is one.
    pub origin: Option<Origin>,
}

impl Candidate {
    /// Whether both can be the same path: a LID that is not named is any of the port's.
    pub(crate) fn may_be(&self, other: &Self) -> bool {
        let fits = |one: Option<Lid>, other: Option<Lid>| {
            one.zip(other).is_none_or(|(one, other)| one == other)
        };
        self.port == other.port
            && self.dgid == other.dgid
            && fits(self.slid, other.slid)
            && fits(self.dlid, other.dlid)
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "port {} to {} ({})",
            self.port.port, self.dgid, self.score
        )
    }
}

/// How good a candidate is: the least is the best.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Score {
    /// What speaks against its working at all.
    pub doubt: Doubt,
    /// It does not lead to where the connection is to go.
    pub astray: bool,
    /// Which ports it shares with the primary.
    pub shared: Shared,
    /// What it shares with the primary inside the fabric, where that is known.
    ///
    /// An unknown overlap stands behind one that is known to be none, and before all others: that
    /// a shared switch takes both paths down is certain of those, and of the unknown only
    /// possible. A loaded alternate is replaced only where the new one is *known* to share less,
    /// so knowledge that comes and goes moves nothing to and fro.
    pub overlap: Option<Overlap>,
    /// Another path to the same remote port is silent although that path's local port carries others.
    pub dead_end: bool,
    /// Spreads connections over equal candidates.
    pub tie: u32,
}

impl Score {
    /// Nothing speaks against the path.
    #[cfg(test)]
    pub(crate) const BEST: Self = Self {
        doubt: Doubt::None,
        astray: false,
        shared: Shared::Neither,
        overlap: None,
        dead_end: false,
        tie: 0,
    };

    /// Whether it is better by more than a dead end or the tie-break, and surely so.
    pub fn beats(self, other: Self) -> bool {
        match self.doubt.cmp(&other.doubt) {
            Ordering::Less => true,
            Ordering::Equal => self.leads_better(other),
            Ordering::Greater => false,
        }
    }

    /// Whether it leads to where the connection is to go and the other does not, or surely shares less
    /// with the primary, doubts aside.
    pub(crate) fn leads_better(self, other: Self) -> bool {
        match (self.astray, other.astray) {
            (false, true) => true,
            (true, false) => false,
            _ => self.shares_less(other),
        }
    }

    /// Whether it surely shares less with the primary, doubts aside.
    fn shares_less(self, other: Self) -> bool {
        match self.shared.cmp(&other.shared) {
            Ordering::Less => true,
            Ordering::Equal => match (self.overlap, other.overlap) {
                (Some(overlap), Some(other)) => overlap < other,
                (Some(overlap), None) => overlap.is_none(),
                (None, _) => false,
            },
            Ordering::Greater => false,
        }
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |score: &Self| {
            let overlap = score.overlap.unwrap_or_default();
            let known = match score.overlap {
                Some(overlap) if overlap.is_none() => OverlapRank::Disjoint,
                None => OverlapRank::Unknown,
                Some(_) => OverlapRank::Shared,
            };
            (
                score.doubt,
                score.astray,
                score.shared,
                known,
                overlap,
                score.dead_end,
                score.tie,
            )
        };
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What is known of an overlap, from best to worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum OverlapRank {
    Disjoint,
    Unknown,
    Shared,
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.shared)?;
        if let Some(overlap) = self.overlap {
            write!(f, ", {overlap}")?;
        }
        match self.doubt {
            Doubt::None => Ok(()),
            doubt => write!(f, ", {doubt}"),
        }
    }
}

/// Which ports a candidate shares with the primary, from least to most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Display)]
pub enum Shared {
    /// Another local and another remote port.
    #[strum(to_string = "other ports on both sides")]
    Neither,
    /// Another port on one side only.
    #[strum(to_string = "other port on one side")]
    OnePort,
    /// The same two ports, by another LID.
    #[strum(to_string = "same ports, other LID")]
    BothPorts,
}

impl Shared {
    fn new(local: bool, remote: bool) -> Self {
        match (local, remote) {
            (false, false) => Self::Neither,
            (true, true) => Self::BothPorts,
            _ => Self::OnePort,
        }
    }
}

/// What speaks against a candidate's working at all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Display)]
pub enum Doubt {
    /// Nothing.
    #[strum(to_string = "no doubt")]
    None,
    /// It works, but an operator, here or at the peer, wants one of its ports left alone.
    #[strum(to_string = "over a drained port")]
    Drained,
    /// The peer or a path source said that its remote port is out of service.
    #[strum(to_string = "remote port was out of service")]
    RemoteDown,
    /// Hardware gave it up a short time ago, without a visible cause.
    #[strum(to_string = "suspect")]
    Suspect,
}

/// What there is to choose from.
#[derive(Clone, Copy)]
pub(crate) struct CandidatePool<'a> {
    pub(crate) ports: &'a Ports,
    /// The device.
    pub(crate) node_guid: Guid,
    pub(crate) primary: &'a Path,
    pub(crate) peer_ports: &'a [PortAddress],
    /// Different for every connection.
    pub(crate) salt: u64,
}

/// Pairs of LIDs tried per pair of ports.
const MAX_OFFSETS: usize = 8;

impl CandidatePool<'_> {
    fn local(&self) -> impl Iterator<Item = &Port> {
        self.ports.of_device(self.node_guid).filter(|port| {
            // A port that flaps would have each alternate over it loaded and lost in turn.
            guard!(AlternatePortUp, port.is_settled())
                && port.has_pkey(self.primary.pkey)
                && port.status.mtu >= self.primary.mtu
        })
    }

    fn remote(&self) -> Vec<PortAddress> {
        let mut remote = self.peer_ports.to_vec();
        let end = self.primary.remote_end();
        if !end.gid.is_unspecified() && self.far_port(self.primary).is_none() {
            remote.push(end);
        }
        remote
    }

    /// Which of the peer's ports a path ends at: the one with its GUID, whatever the subnet's prefix was when
    /// the path was made; or the one that has its LID, where that LID can be in one subnet only. If a subnet manager has
    /// given the LID to another port since, the LID tells: packets go by it.
    pub(crate) fn far_port(&self, path: &Path) -> Option<usize> {
        let guid = path.dgid.interface_id();
        let mut ports = self.peer_ports.iter();
        let by_guid = ports.position(|port| port.gid.interface_id() == guid);
        let Some(named) = by_guid.filter(|_| !path.dgid.is_unspecified()) else {
            return self.port_with_lid_of(path);
        };
        let is_elsewhere = self.has_another_lid(path, &self.peer_ports[named]);
        let there = is_elsewhere.then(|| self.port_with_lid_of(path)).flatten();
        Some(there.unwrap_or(named))
    }

    fn port_with_lid_of(&self, path: &Path) -> Option<usize> {
        let end = self.end(path)?;
        let is_there = |port: &PortAddress| self.ports.end_of(self.node_guid, port) == Some(end);
        let mut there = self
            .peer_ports
            .iter()
            .enumerate()
            .filter(|(_, port)| is_there(port));
        // If two of them have that LID, they are in different subnets, and nothing tells which is meant.
        match (there.next(), there.next()) {
            (Some((index, _)), None) => Some(index),
            _ => None,
        }
    }

    /// Whether a far port is known to have another LID than a path's, in the one subnet that there is: of several,
    /// whose prefixes may be changing, it could be in another one.
    fn has_another_lid(&self, path: &Path, far: &PortAddress) -> bool {
        let ports = self.ports.of_device(self.node_guid);
        let lmc = self.ports.of_path(self.node_guid, path.port);
        let lmc = lmc.map_or(0, |port| port.status.lmc);
        if far.lid == Lid(0) || far.lid.is_one_port_with(path.dlid, lmc) {
            return false;
        }
        let there = self.ports.end_of(self.node_guid, far);
        let there = there.map(SubnetLid::subnet);
        let mut subnets = ports.map(|port| self.ports.subnet(port.id));
        there.is_some() && subnets.all(|subnet| subnet == there)
    }

    fn end(&self, path: &Path) -> Option<SubnetLid> {
        let port = PortId::new(self.node_guid, path.port);
        self.ports.end(port, path.dlid)
    }

    /// Whether a far port has the LID that a path leads to, and may be in the subnet of its local port.
    fn has_lid_of(&self, path: &Path, far: &PortAddress) -> bool {
        let local = self.ports.of_path(self.node_guid, path.port);
        local.is_some_and(|local| {
            local.status.gid.subnet_prefix() == far.gid.subnet_prefix()
                && far.lid.is_one_port_with(path.dlid, local.status.lmc)
        })
    }

    /// Whether a path may end at this far port: it does, or which port it ends at is not known.
    fn may_end_at(&self, path: &Path, far: PortAddress) -> bool {
        match self.far_port(path).and_then(|at| self.peer_ports.get(at)) {
            Some(port) => port.gid == far.gid,
            None => path.dgid == far.gid || self.has_lid_of(path, &far),
        }
    }

    /// What a path shares with the primary.
    pub(crate) fn shared(&self, path: &Path) -> Shared {
        let ends = [self.primary, path].map(|path| self.far_port(path));
        let same_remote = match ends {
            [Some(one), Some(other)] => one == other,
            _ => {
                let far = path.remote_end();
                far.gid == self.primary.dgid && !far.gid.is_unspecified()
                    || self.has_lid_of(self.primary, &far)
                    || self.end(path).is_some() && self.end(path) == self.end(self.primary)
            }
        };
        Shared::new(path.port == self.primary.port, same_remote)
    }

    fn between(&self, port: &Port, remote: PortAddress) -> impl Iterator<Item = Candidate> {
        let lmc = port.status.lmc.min(7);
        let same_local = port.id.port == self.primary.port;
        let same_remote = self.may_end_at(self.primary, remote);
        let one_lid = lmc == 0 || remote.lid == Lid(0);
        let lids: u16 = if one_lid { 1 } else { 1 << lmc };
        let shared = Shared::new(same_local, same_remote);
        let (id, sgid, base, salt) = (port.id, port.status.gid, port.status.lid, self.salt);
        let at = move |base: Lid, offset| (!one_lid).then_some(Lid(base.0 | offset));
        let candidate = move |(near, far): (u16, u16)| Candidate {
            port: id,
            sgid,
            dgid: remote.gid,
            slid: at(base, near),
            dlid: at(remote.lid, far),
            score: Score {
                doubt: Doubt::None,
                astray: false,
                shared,
                overlap: None,
                dead_end: false,
                tie: tie(salt, id.port, remote.gid, near | (near ^ far) << 8),
            },
            origin: None,
        };
        let primary = (Some(self.primary.slid), Some(self.primary.dlid));
        // The way there is routed by the one LID and the way back by the other: each is a choice.
        let pairs =
            (0..lids).flat_map(move |shift| (0..lids).map(move |at| (at, (at + shift) % lids)));
        let candidates = pairs.take(MAX_OFFSETS).map(candidate);
        candidates.filter(move |candidate| {
            shared != Shared::BothPorts || (!one_lid && (candidate.slid, candidate.dlid) != primary)
        })
    }
}

impl CandidatePool<'_> {
    /// A candidate's ends, with the LIDs that its path will have, where that is known already.
    pub(crate) fn ends(&self, candidate: &Candidate) -> PathEnds {
        let Candidate {
            port, sgid, dgid, ..
        } = *candidate;
        let only = |lid: Lid, lmc: u8| Some(lid).filter(|&lid| lmc == 0 && lid != Lid(0));
        let local = self.ports.get(port).map(|port| &port.status);
        let lmc = local.map_or(0, |status| status.lmc);
        let remote = self.remote().into_iter().find(|remote| remote.gid == dgid);
        PathEnds {
            port,
            sgid,
            dgid,
            slid: candidate.slid.or_else(|| only(local?.lid, lmc)),
            dlid: candidate.dlid.or_else(|| only(remote?.lid, lmc)),
        }
    }

    /// The ends of a path that the connection has.
    pub(crate) fn ends_of(&self, path: &Path) -> PathEnds {
        PathEnds {
            port: PortId::new(self.node_guid, path.port),
            sgid: path.sgid,
            dgid: path.dgid,
            slid: Some(path.slid),
            dlid: Some(path.dlid),
        }
    }
}

fn tie(salt: u64, port: u8, gid: Gid, offsets: u16) -> u32 {
    let remote = mix(gid.interface_id().0 ^ gid.subnet_prefix().rotate_left(32));
    let local = u64::from(port) << 16 | u64::from(offsets);
    // The same for a connection at every evaluation, or equal candidates would take turns.
    (mix(mix(salt) ^ remote.wrapping_add(local)) >> 32) as u32
}

/// A hash (splitmix64's finalizer): every bit of `x` changes every bit of the result with even
/// chances.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// All thinkable alternates, the best first. Local ports are up and fit the connection; of remote
/// ports only `doubt` can say something.
pub(crate) fn rank(ends: CandidatePool<'_>, doubt: impl Fn(&Candidate) -> Doubt) -> Vec<Candidate> {
    let remote = ends.remote();
    let pairs = ends
        .local()
        .flat_map(|port| remote.iter().map(move |&remote| (port, remote)));
    let mut candidates: Vec<Candidate> = pairs
        .flat_map(|(port, remote)| ends.between(port, remote))
        .collect();
    for candidate in &mut candidates {
        candidate.score.doubt = doubt(candidate);
    }
    candidates.sort_by_key(|candidate| candidate.score);
    candidates
}

#[cfg(test)]
mod tests;
