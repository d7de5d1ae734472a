// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fat trees of three levels, for measurements and tests: pods of leaves and spines, and cores, of
//! which each joins the spines of one position in all pods.

use cm_msgs::{Guid, Lid};
use pathdb::{
    BuildError, Builder, Capability, Fabric, LidRange, Mtu, NodeId, NodeKind, NodeSpec, PortSpec,
    Rate,
};

/// How paths are spread over what is equally short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    /// By the destination's LID, the same at every switch (d-mod-k).
    DModK,
    /// By a hash of destination, switch and this seed.
    Random(u64),
}

/// The shape of a fat tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FatTree {
    /// Pods.
    pub pods: u32,
    /// Half a switch's ports: leaves and spines of a pod, end ports of a leaf, cores of a spine.
    pub half: u32,
    /// Two ports a host, on adjacent leaves at the same position, instead of one. `half` must then
    /// be even.
    pub dual: bool,
    /// LID mask count of the hosts' ports.
    pub lmc: u8,
    /// How paths are spread.
    pub spread: Spread,
}

/// A switch by its place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Leaf { pod: u32, leaf: u32 },
    Spine { pod: u32, spine: u32 },
    Core { spine: u32, core: u32 },
}

/// Where a LID is: at a switch, or behind a port of one.
#[derive(Clone, Copy)]
struct Target {
    lid: Lid,
    at: Place,
    port: u32,
}

impl FatTree {
    /// How many end ports of hosts.
    pub const fn end_ports(&self) -> u32 {
        self.pods * self.half * self.half
    }

    /// Builds it.
    pub fn build(&self) -> Result<Fabric, BuildError> {
        let mut builder = Builder::new();
        let places = self.places();
        let mut switches = Vec::new();
        for (place, number) in places.iter().zip(1..) {
            switches.push(builder.node(self.switch(*place, number))?);
        }
        let mut targets = self.hosts(&mut builder, &switches)?;
        self.cables(&mut builder, &switches)?;
        let first_lid = (self.end_ports() + 1) << self.lmc;
        for ((&at, &node), number) in places.iter().zip(&switches).zip(first_lid..) {
            let Some(lid) = lid(number) else { continue };
            builder.port(node, 0, &port(u64::from(number) | (3 << 40), lid, 0))?;
            targets.push(Target { lid, at, port: 0 });
        }
        let mut routing = builder.routing();
        for target in &targets {
            for (&place, &node) in places.iter().zip(&switches) {
                routing.route(node, target.lid, self.next(place, target) as u8)?;
            }
        }
        Ok(routing.finish())
    }

    fn places(&self) -> Vec<Place> {
        let half = self.half;
        let pods = 0..self.pods;
        let leaves = pods
            .clone()
            .flat_map(|pod| (0..half).map(move |leaf| Place::Leaf { pod, leaf }));
        let spines = pods.flat_map(|pod| (0..half).map(move |spine| Place::Spine { pod, spine }));
        let cores =
            (0..half).flat_map(|spine| (0..half).map(move |core| Place::Core { spine, core }));
        leaves.chain(spines).chain(cores).collect()
    }

    fn switch(&self, place: Place, number: u64) -> NodeSpec {
        let guid = Guid(number | (2 << 40));
        let (name, ports) = match place {
            Place::Leaf { pod, leaf } => (format!("leaf-{pod}-{leaf}"), 2 * self.half),
            Place::Spine { pod, spine } => (format!("spine-{pod}-{spine}"), 2 * self.half),
            Place::Core { spine, core } => (format!("core-{spine}-{core}"), self.pods),
        };
        NodeSpec {
            kind: NodeKind::Switch,
            guid,
            system: guid,
            name: name.into(),
            ports: ports as u8,
        }
    }

    /// Adds the hosts; the targets are their LIDs.
    fn hosts(&self, builder: &mut Builder, switches: &[NodeId]) -> Result<Vec<Target>, BuildError> {
        let mut targets = Vec::new();
        let rails = if self.dual { 2 } else { 1 };
        for host in 0..self.end_ports() / rails {
            let guid = Guid((u64::from(host) + 1) | (1 << 40));
            let node = builder.node(NodeSpec {
                kind: NodeKind::Adapter,
                guid,
                system: guid,
                name: format!("host-{host}").into(),
                ports: rails as u8,
            })?;
            for rail in 0..rails {
                let leaf = host / self.half * rails + rail;
                let position = host % self.half;
                let end = leaf * self.half + position;
                let Some(base) = lid((end + 1) << self.lmc) else {
                    continue;
                };
                let guid = (u64::from(end) + 1) | (4 << 40);
                builder.port(node, rail as u8 + 1, &port(guid, base, self.lmc))?;
                let switch = (switches[leaf as usize], position as u8 + 1);
                builder.link((node, rail as u8 + 1), switch, CARRIES, true)?;
                let at = Place::Leaf {
                    pod: leaf / self.half,
                    leaf: leaf % self.half,
                };
                let lids = LidRange::new(base, self.lmc).into_iter();
                targets.extend(lids.flat_map(LidRange::iter).map(|lid| Target {
                    lid,
                    at,
                    port: position + 1,
                }));
            }
        }
        Ok(targets)
    }

    /// Joins leaves with spines, and spines with cores.
    fn cables(&self, builder: &mut Builder, switches: &[NodeId]) -> Result<(), BuildError> {
        let half = self.half;
        let (leaves, rest) = switches.split_at((self.pods * half) as usize);
        let (spines, cores) = rest.split_at((self.pods * half) as usize);
        let up = |port: u32| (half + port + 1) as u8;
        for pod in 0..self.pods {
            for (spine, other) in (0..half).flat_map(|a| (0..half).map(move |b| (a, b))) {
                let here = spines[(pod * half + spine) as usize];
                let leaf = leaves[(pod * half + other) as usize];
                builder.link((leaf, up(spine)), (here, other as u8 + 1), CARRIES, true)?;
                let core = cores[(spine * half + other) as usize];
                builder.link((here, up(other)), (core, pod as u8 + 1), CARRIES, true)?;
            }
        }
        Ok(())
    }

    /// The port that `here` sends packets for `to` out of.
    fn next(&self, here: Place, to: &Target) -> u32 {
        let up = |port: u32| self.half + port + 1;
        let down = |port: u32| port + 1;
        if here == to.at {
            return to.port;
        }
        match (here, to.at) {
            // Only where it stands decides which spine a packet for a spine or core must take.
            (Place::Leaf { .. }, Place::Spine { spine, .. } | Place::Core { spine, .. }) => {
                up(spine)
            }
            (Place::Leaf { .. }, Place::Leaf { .. }) => up(self.choice(here, to, 1)),
            (Place::Spine { pod, .. }, Place::Leaf { pod: there, leaf }) if pod == there => {
                down(leaf)
            }
            (Place::Spine { spine, .. }, Place::Core { spine: s, core }) if spine == s => up(core),
            (Place::Spine { pod, spine }, Place::Spine { pod: p, spine: s }) => {
                if pod != p && spine == s {
                    up(self.choice(here, to, self.half))
                } else {
                    down(self.choice(here, to, 1))
                }
            }
            (Place::Spine { .. }, Place::Core { .. }) => down(self.choice(here, to, 1)),
            (Place::Spine { .. }, Place::Leaf { .. }) => up(self.choice(here, to, self.half)),
            (Place::Core { .. }, Place::Leaf { pod, .. } | Place::Spine { pod, .. }) => down(pod),
            (Place::Core { .. }, Place::Core { .. }) => down(u32::from(to.lid.0) % self.pods),
        }
    }

    fn choice(&self, here: Place, to: &Target, divisor: u32) -> u32 {
        let lid = u32::from(to.lid.0);
        match self.spread {
            Spread::DModK => lid / divisor % self.half,
            Spread::Random(seed) => {
                let (kind, a, b) = match here {
                    Place::Leaf { pod, leaf } => (0, pod, leaf),
                    Place::Spine { pod, spine } => (1, pod, spine),
                    Place::Core { spine, core } => (2, spine, core),
                };
                let at = (((u64::from(a) << 8) | u64::from(b)) << 2) | kind;
                let hash = mix(seed ^ mix((at << 16) | u64::from(lid)));
                (hash % u64::from(self.half)) as u32
            }
        }
    }
}

const CARRIES: Capability = Capability {
    mtu: Some(Mtu::B4096),
    rate: Some(Rate::G400),
};

fn lid(number: u32) -> Option<Lid> {
    let lid = Lid(u16::try_from(number).ok()?);
    lid.is_unicast().then_some(lid)
}

fn port(guid: u64, base: Lid, lmc: u8) -> PortSpec {
    PortSpec {
        guid: Some(Guid(guid)),
        lids: LidRange::new(base, lmc),
        pkeys: Vec::new(),
    }
}

/// Spreads the bits of a number over all bits of another (the finaliser of splitmix64).
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
