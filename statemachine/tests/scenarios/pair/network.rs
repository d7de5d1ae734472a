// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way between two hosts: two ports each, all of them on one subnet, or each pair of ports on its own.

use cm_msgs::{Gid, Guid, Lid};

/// Ports, by host and port number (from 1).
pub(crate) type PortOf = (usize, u8);

/// What a port's cable does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cable {
    Plugged,
    Pulled,
    /// The link is up, and nothing passes.
    BlackHole,
    /// The link is up, and nothing that the host sends passes.
    Mute,
}

/// Chances per thousand, and the spread of delays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) loss: u64,
    pub(crate) duplication: u64,
    /// Microseconds at most; more than the gap between two messages reorders them.
    pub(crate) delay: u64,
}

impl Weather {
    pub(crate) const FAIR: Self = Self {
        loss: 0,
        duplication: 0,
        delay: 100,
    };
    pub(crate) const FOUL: Self = Self {
        loss: 200,
        duplication: 200,
        delay: 300_000,
    };
}

/// What a daemon tells of the port that its primary leaves from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlaceTold {
    True,
    /// One from before that was told.
    Nothing,
    /// The other port, but where it proposes an alternate.
    Wrong,
}

#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) cables: [[Cable; 2]; 2],
    pub(crate) weather: Weather,
    pub(crate) lmc: u8,
    /// Base LIDs, where they are others than at first.
    pub(crate) relabelled: Vec<(PortOf, Lid)>,
    /// First ports reach first ports only, and second ports second ports: two subnets.
    pub(crate) two_subnets: bool,
    /// LIDs to which no switch forwards.
    pub(crate) holes: Vec<Lid>,
    /// What the hosts' daemons tell of the port that their primary leaves from.
    pub(crate) place_told: [PlaceTold; 2],
    /// Ports outside of the connections' partition: no packet of theirs gets in or out.
    pub(crate) outside: Vec<PortOf>,
    /// The subnet's prefix.
    pub(crate) prefix: u64,
    random: u64,
}

impl Network {
    pub(crate) fn new(seed: u64, lmc: u8) -> Self {
        let cables = [[Cable::Plugged; 2]; 2];
        Self {
            cables,
            weather: Weather::FAIR,
            lmc,
            relabelled: Vec::new(),
            two_subnets: false,
            holes: Vec::new(),
            place_told: [PlaceTold::True; 2],
            outside: Vec::new(),
            prefix: PREFIX,
            random: seed,
        }
    }

    /// A pseudo-random number below `bound` (xorshift64*: the schedule of a seed is for ever).
    pub(crate) fn random(&mut self, bound: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    /// Whether a GID has the prefix that the subnet had before.
    pub(crate) fn is_outdated(&self, gid: Gid) -> bool {
        self.prefix != PREFIX && gid.subnet_prefix() == PREFIX
    }

    pub(crate) fn cable(&mut self, port: PortOf) -> &mut Cable {
        &mut self.cables[port.0][usize::from(port.1) - 1]
    }

    /// Whether a packet that a port sends from one of its LIDs gets to a LID.
    pub(crate) fn passes(&self, from: PortOf, slid: Lid, dlid: Lid) -> bool {
        let cable = |port: Option<PortOf>| {
            let (host, port) = port?;
            let inside = !self.outside.contains(&(host, port));
            inside.then_some(self.cables[host][usize::from(port) - 1])
        };
        let sender = Some(from).filter(|&from| self.has_lid(from, slid));
        let receiver = self.port_at(from, dlid);
        !self.holes.contains(&dlid)
            && cable(sender) == Some(Cable::Plugged)
            && matches!(cable(receiver), Some(Cable::Plugged | Cable::Mute))
    }

    /// A port's base LID.
    pub(crate) fn lid(&self, port: PortOf) -> Lid {
        let mut others = self.relabelled.iter().rev();
        let other = others.find(|(of, _)| *of == port);
        other.map_or(base_lid(port), |&(_, lid)| lid)
    }

    fn has_lid(&self, port: PortOf, lid: Lid) -> bool {
        self.lid(port).0 == lid.0 & !7 && (lid.0 & 7) < 1 << self.lmc
    }

    /// The port with this LID in the subnet of a port.
    pub(crate) fn port_at(&self, from: PortOf, lid: Lid) -> Option<PortOf> {
        let all = [(0, 1), (0, 2), (1, 1), (1, 2)];
        let mut here = all.into_iter().filter(|to| self.is_connected(from, *to));
        here.find(|&port| self.has_lid(port, lid))
    }

    /// Whether two ports are in one subnet.
    pub(crate) fn is_connected(&self, from: PortOf, to: PortOf) -> bool {
        !self.two_subnets || from.1 == to.1
    }
}

pub(crate) fn guid(host: usize) -> Guid {
    Guid(0x0005_ad00_0000_0000 + ((host as u64 + 1) << 8))
}

/// The subnet's prefix at first.
const PREFIX: u64 = 0xfe80_0000_0000_0000;

/// A port's GID at first.
pub(crate) fn gid(port: PortOf) -> Gid {
    gid_in(PREFIX, port)
}

pub(crate) fn gid_in(prefix: u64, (host, port): PortOf) -> Gid {
    Gid::new(prefix, Guid(guid(host).0 + u64::from(port)))
}

pub(crate) fn port_of(gid: Gid) -> Option<PortOf> {
    let ports = [(0, 1), (0, 2), (1, 1), (1, 2)];
    // Whatever its subnet's prefix is.
    let is_it = |port: &PortOf| self::gid(*port).interface_id() == gid.interface_id();
    ports.into_iter().find(is_it)
}

/// At first. Room for LMC 3.
pub(crate) fn base_lid((host, port): PortOf) -> Lid {
    Lid(0x40 + host as u16 * 16 + (u16::from(port) - 1) * 8)
}
