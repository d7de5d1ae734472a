// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random small fabrics, and what is true of them found in the plainest way: maps, sets and a
//! packet that is followed link by link.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FilePath;

use cm_msgs::{Guid, Lid};
use pathdb::{
    Builder, Capability, Fabric, LidRange, Mtu, NodeId, NodeKind, NodeSpec, PathTerms, PortId,
    PortSpec, Rate, RiskFile, SlToVl,
};
use proptest::prelude::*;

/// A port: node, number. Hosts come first, then switches.
pub(crate) type End = (usize, u8);

/// A fabric before it is built.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    hosts: usize,
    nodes: usize,
    /// Both directions.
    cables: BTreeMap<End, (End, Capability, bool)>,
    lids: BTreeMap<u16, End>,
    /// By switch and LID.
    tables: BTreeMap<(usize, u16), u8>,
    /// Shared-risk groups: switches, and links by their lesser end.
    groups: Vec<(BTreeSet<usize>, BTreeSet<End>)>,
    /// SL-to-VL tables by node, port in, port out.
    lanes: BTreeMap<(usize, u8, u8), [u8; 8]>,
    service_level: Option<u8>,
}

/// Ports of every host and every switch.
pub(crate) const HOST_PORTS: u8 = 3;
const SWITCH_PORTS: u8 = 6;

/// What random choices a plan is made of.
type Choices = (
    usize,
    usize,
    u8,
    Vec<(usize, usize, u8, u8, bool)>,
    Vec<u8>,
    Vec<Vec<u8>>,
    Vec<u8>,
    Option<u8>,
);

/// Any plan: tables are shortest paths in places, and anything elsewhere.
pub(crate) fn plans() -> impl Strategy<Value = Plan> {
    let cable = (
        0usize..64,
        0usize..64,
        0u8..6,
        0u8..6,
        prop::bool::weighted(0.9),
    );
    let choices = (
        1usize..5,
        1usize..6,
        0u8..3,
        prop::collection::vec(cable, 0..24),
        prop::collection::vec(0u8..40, 8..64),
        prop::collection::vec(prop::collection::vec(any::<u8>(), 1..5), 0..4),
        prop_oneof![Just(Vec::new()), prop::collection::vec(0u8..8, 1..20)],
        prop_oneof![Just(None), (0u8..3).prop_map(Some)],
    );
    choices.prop_map(plan)
}

fn plan(choices: Choices) -> Plan {
    let (hosts, switches, lmc, cables, noise, groups, lanes, service_level) = choices;
    let mut plan = Plan {
        hosts,
        nodes: hosts + switches,
        cables: BTreeMap::new(),
        lids: BTreeMap::new(),
        tables: BTreeMap::new(),
        groups: Vec::new(),
        lanes: BTreeMap::new(),
        service_level,
    };
    for host in 0..hosts {
        for number in 1..=HOST_PORTS {
            let near = (host + usize::from(number)) % switches;
            plan.plug((host, number), hosts + near, full(), true);
        }
    }
    for (a, b, mtu, rate, up) in cables {
        let carries = Capability {
            mtu: Mtu::from_code(mtu),
            rate: Rate::ALL.get(usize::from(rate) * 4).copied(),
        };
        let a = hosts + a % switches;
        if let Some(port) = plan.free(a, SWITCH_PORTS) {
            plan.plug((a, port), b % plan.nodes, carries, up);
        }
    }
    plan.give_lids(lmc);
    plan.fill_tables(&noise);
    plan.fill_lanes(&lanes);
    plan.groups = groups.iter().map(|members| plan.group(members)).collect();
    plan
}

fn full() -> Capability {
    Capability {
        mtu: Some(Mtu::B4096),
        rate: Some(Rate::G200),
    }
}

impl Plan {
    fn ports(&self, node: usize) -> u8 {
        if node < self.hosts {
            HOST_PORTS
        } else {
            SWITCH_PORTS
        }
    }

    fn free(&self, node: usize, ports: u8) -> Option<u8> {
        (1..=ports).find(|&number| !self.cables.contains_key(&(node, number)))
    }

    fn plug(&mut self, from: End, node: usize, carries: Capability, up: bool) {
        let mut free = (1..=self.ports(node)).map(|number| (node, number));
        let to = free.find(|end| *end != from && !self.cables.contains_key(end));
        if let Some(to) = to {
            self.cables.insert(from, (to, carries, up));
            self.cables.insert(to, (from, carries, up));
        }
    }

    fn give_lids(&mut self, lmc: u8) {
        let mut next = 1u16 << lmc;
        for host in 0..self.hosts {
            for number in 1..=HOST_PORTS {
                for _ in 0..1 << lmc {
                    self.lids.insert(next, (host, number));
                    next += 1;
                }
            }
        }
        for switch in self.hosts..self.nodes {
            self.lids.insert(next, (switch, 0));
            next += 1;
        }
    }

    /// Shortest ways, of several the one that the noise says; now and then nonsense.
    fn fill_tables(&mut self, noise: &[u8]) {
        let mut noise = noise.iter().copied().cycle();
        let mut random = || noise.next().unwrap_or_default();
        for (&lid, &owner) in &self.lids {
            let distances = self.distances(owner);
            for switch in self.hosts..self.nodes {
                let choice = random();
                let port = match choice {
                    36 => continue,
                    37..40 => choice - 36,
                    _ if owner == (switch, 0) => 0,
                    _ => match self.towards(switch, owner, &distances)[..] {
                        [] => continue,
                        ref ways => ways[usize::from(choice) % ways.len()],
                    },
                };
                self.tables.insert((switch, lid), port);
            }
        }
    }

    fn towards(&self, switch: usize, owner: End, distances: &BTreeMap<usize, usize>) -> Vec<u8> {
        let ports = 1..=SWITCH_PORTS;
        ports
            .filter(|&number| match self.cables.get(&(switch, number)) {
                Some((peer, _, true)) if *peer == owner => true,
                Some((peer, _, true)) => {
                    let (there, here) = (distances.get(&peer.0), distances.get(&switch));
                    peer.0 >= self.hosts && there.is_some() && there < here
                }
                _ => false,
            })
            .collect()
    }

    /// How far each switch is from a port.
    fn distances(&self, owner: End) -> BTreeMap<usize, usize> {
        let mut distances = BTreeMap::new();
        let mut front: Vec<usize> = match self.cables.get(&owner) {
            _ if owner.1 == 0 => vec![owner.0],
            Some((peer, _, true)) if peer.0 >= self.hosts => vec![peer.0],
            _ => Vec::new(),
        };
        let mut far = 0;
        while !front.is_empty() {
            front.retain(|switch| distances.insert(*switch, far).is_none());
            let next: BTreeSet<usize> = front
                .iter()
                .flat_map(|&switch| (1..=SWITCH_PORTS).map(move |number| (switch, number)))
                .filter_map(|end| self.cables.get(&end))
                .filter(|(peer, _, up)| *up && peer.0 >= self.hosts)
                .map(|(peer, _, _)| peer.0)
                .filter(|peer| !distances.contains_key(peer))
                .collect();
            front = next.into_iter().collect();
            far += 1;
        }
        distances
    }

    /// Tables of all ways, or of all but some.
    fn fill_lanes(&mut self, noise: &[u8]) {
        let mut noise = noise.iter().copied().cycle();
        for node in 0..self.nodes {
            let (ports, hosts) = (self.ports(node), self.hosts);
            let ways = (0..=ports).flat_map(|a| (0..=ports).map(move |b| (a, b)));
            let has_table = |way: &(u8, u8)| node >= hosts || (way.0 == 0 && way.1 != 0);
            for (from, to) in ways.filter(has_table) {
                let table = match noise.next() {
                    None | Some(0) => continue,
                    Some(1) => [0xf1, 0x2f, 0, 0, 0, 0, 0, 0],
                    Some(2) => [0x0f, 0, 0, 0, 0, 0, 0, 0xff],
                    Some(_) => [0; 8],
                };
                self.lanes.insert((node, from, to), table);
            }
        }
    }

    /// The service levels that get to a LID, as bits; packets of a node come in by its port 0.
    pub(crate) fn service_levels(&self, from: End, lid: u16) -> Option<u16> {
        let left = self.follow(from, lid).ok()?;
        let mut entered = 0;
        let mut levels = u16::MAX;
        for end in left {
            if let Some(table) = self.lanes.get(&(end.0, entered, end.1)) {
                for sl in 0..16 {
                    let digit = format!("{:02x}", table[sl / 2]).as_bytes()[sl % 2];
                    levels &= if digit == b'f' { !(1 << sl) } else { u16::MAX };
                }
            }
            entered = self.cables[&end].0.1;
        }
        Some(levels)
    }

    /// Whether the service level of all paths gets through one, both ways.
    pub(crate) fn takes_service_level(&self, slid: u16, dlid: u16) -> bool {
        let Some(sl) = self.service_level else {
            return true;
        };
        let ways = [(slid, dlid), (dlid, slid)];
        ways.iter().all(|&(from, to)| {
            let levels = self.service_levels(self.lids[&from], to);
            levels.is_none_or(|levels| levels >> sl & 1 == 1)
        })
    }

    /// Half of the members are switches, half links.
    fn group(&self, members: &[u8]) -> (BTreeSet<usize>, BTreeSet<End>) {
        let (mut switches, mut links) = (BTreeSet::new(), BTreeSet::new());
        let ends: Vec<End> = self.cables.keys().copied().collect();
        for &member in members {
            let at = usize::from(member / 2);
            if member % 2 == 0 {
                switches.insert(self.hosts + at % (self.nodes - self.hosts));
            } else if let Some(&end) = ends.get(at % ends.len().max(1)) {
                links.insert(end.min(self.cables[&end].0));
            }
        }
        (switches, links)
    }

    /// The file of shared-risk groups; every other link is named by its greater end.
    fn risks(&self) -> String {
        let mut text = String::new();
        for (number, (switches, links)) in self.groups.iter().enumerate() {
            text += &format!("[group {number}]\n");
            for switch in switches {
                text += &format!("switch node {switch}\n");
            }
            for (at, end) in links.iter().enumerate() {
                let (node, port) = if at % 2 == 0 {
                    *end
                } else {
                    self.cables[end].0
                };
                text += &format!("link node {node}/{port}\n");
            }
        }
        text
    }

    /// The shared-risk groups that a path over these is in.
    pub(crate) fn groups(
        &self,
        links: &BTreeSet<End>,
        switches: &BTreeSet<usize>,
    ) -> BTreeSet<usize> {
        let groups = self.groups.iter().enumerate();
        let met = groups
            .filter(|(_, group)| !group.0.is_disjoint(switches) || !group.1.is_disjoint(links));
        met.map(|(number, _)| number).collect()
    }

    /// All LIDs and whose they are.
    pub(crate) fn lids(&self) -> &BTreeMap<u16, End> {
        &self.lids
    }

    /// Every host's LIDs.
    pub(crate) fn host_lids(&self, host: usize) -> Vec<u16> {
        let lids = self.lids.iter().filter(|(_, end)| end.0 == host);
        lids.map(|(&lid, _)| lid).collect()
    }

    /// How many hosts.
    pub(crate) fn hosts(&self) -> usize {
        self.hosts
    }

    /// The ends that a packet leaves by, or whether it went in circles.
    pub(crate) fn follow(&self, from: End, lid: u16) -> Result<Vec<End>, bool> {
        let owner = self.lids[&lid];
        let (mut at, mut left, mut seen) = (from, Vec::new(), BTreeSet::new());
        if from == owner {
            let is_up = self.cables.get(&from).is_some_and(|cable| cable.2);
            return if from.1 == 0 || is_up {
                Ok(left)
            } else {
                Err(false)
            };
        }
        let mut out = if from.1 == 0 { None } else { Some(from) };
        loop {
            if let Some(end) = out {
                left.push(end);
                match self.cables.get(&end) {
                    Some((peer, _, true)) => at = *peer,
                    _ => return Err(false),
                }
                if at == owner {
                    return Ok(left);
                }
                if at.0 < self.hosts {
                    return Err(false);
                }
            }
            if !seen.insert(at.0) {
                return Err(true);
            }
            out = match self.tables.get(&(at.0, lid)) {
                Some(0) if owner == (at.0, 0) => return Ok(left),
                Some(0) | None => return Err(false),
                Some(&number) => Some((at.0, number)),
            };
        }
    }

    /// What all links that are left by carry.
    pub(crate) fn carries(&self, left: &[End]) -> Option<Capability> {
        let links = left.iter().map(|end| self.cables[end].1);
        links.reduce(Capability::min)
    }

    /// What the link of a port carries; nothing known where there is none.
    pub(crate) fn link(&self, end: End) -> Capability {
        self.cables.get(&end).map(|c| c.1).unwrap_or_default()
    }

    /// The links and the switches that a packet depends on.
    pub(crate) fn elements(&self, left: &[End]) -> (BTreeSet<End>, BTreeSet<usize>) {
        let links = left.iter().map(|end| (*end).min(self.cables[end].0));
        let switches = left
            .iter()
            .map(|end| end.0)
            .filter(|&node| node >= self.hosts);
        (links.collect(), switches.collect())
    }

    /// The switches and links (by their lesser ends) that the failure of elements, given as pathdb
    /// names them, takes.
    fn taken(&self, elements: &[String]) -> (BTreeSet<usize>, BTreeSet<End>) {
        let name = |end: &End| format!("node {} port {}", end.0, end.1);
        let (mut switches, mut links) = (BTreeSet::new(), BTreeSet::new());
        for element in elements {
            for switch in self.hosts..self.nodes {
                if *element == format!("switch node {switch}") {
                    switches.insert(switch);
                }
            }
            for (a, (b, _, _)) in &self.cables {
                if *element == format!("link {} - {}", name(a), name(b)) {
                    links.insert(*a.min(b));
                }
            }
            for (number, group) in self.groups.iter().enumerate() {
                if *element == format!("group group {number}") {
                    switches.extend(&group.0);
                    links.extend(&group.1);
                }
            }
        }
        (switches, links)
    }

    /// All links and switches, as pathdb names them.
    pub(crate) fn elements_by_name(&self) -> (Vec<String>, Vec<String>) {
        let ends = self.cables.iter().filter(|(a, (b, ..))| *a < b);
        let links = ends.map(|(a, (b, ..))| {
            format!("link node {} port {} - node {} port {}", a.0, a.1, b.0, b.1)
        });
        let switches = (self.hosts..self.nodes).map(|switch| format!("switch node {switch}"));
        (links.collect(), switches.collect())
    }

    /// Whether cables join two hosts without elements, given as pathdb names them.
    pub(crate) fn is_joined_without(&self, hosts: [usize; 2], elements: &[String]) -> bool {
        let (switches, links) = self.taken(elements);
        let mut seen = BTreeSet::from([hosts[0]]);
        loop {
            let usable = self.cables.iter().filter(|(a, (b, _, up))| {
                *up && !links.contains((*a).min(b)) && !switches.contains(&b.0)
            });
            // Hosts forward nothing.
            let from = usable.filter(|(a, _)| a.0 == hosts[0] || a.0 >= self.hosts);
            let reached: BTreeSet<usize> = from
                .filter(|(a, _)| seen.contains(&a.0))
                .map(|(_, (b, _, _))| b.0)
                .collect();
            let before = seen.len();
            seen.extend(reached);
            if seen.contains(&hosts[1]) {
                return true;
            }
            if seen.len() == before {
                return false;
            }
        }
    }

    /// The same with one of its links down, and an end of that.
    pub(crate) fn cut(&self, link: prop::sample::Index) -> Option<(Self, End)> {
        let up: Vec<End> = self.cables.iter().filter(|c| c.1.2).map(|c| *c.0).collect();
        let end = *up.get(link.index(up.len().max(1)))?;
        let mut after = self.clone();
        let peer = self.cables[&end].0;
        for end in [end, peer] {
            let cable = after.cables.get_mut(&end)?;
            (cable.1, cable.2) = (Capability::default(), false);
        }
        Some((after, end))
    }

    /// The fabric.
    pub(crate) fn build(&self) -> Built {
        let mut builder = Builder::new();
        let nodes: Vec<NodeId> = (0..self.nodes)
            .map(|node| {
                let kind = match node < self.hosts {
                    true => NodeKind::Adapter,
                    false => NodeKind::Switch,
                };
                let spec = NodeSpec {
                    kind,
                    guid: Guid(node as u64 + 1),
                    system: Guid(node as u64 + 1),
                    name: format!("node {node}").into(),
                    ports: self.ports(node),
                };
                builder.node(spec).expect("new")
            })
            .collect();
        for &end in self.lids.values() {
            let of_end = self.lids.iter().filter(|(_, owner)| **owner == end);
            let lids: Vec<u16> = of_end.map(|(&lid, _)| lid).collect();
            let base = Lid(lids[0]);
            let spec = PortSpec {
                lids: LidRange::new(base, lids.len().trailing_zeros() as u8),
                ..PortSpec::default()
            };
            builder.port(nodes[end.0], end.1, &spec).expect("new");
        }
        for (a, (b, carries, up)) in &self.cables {
            let (a, b) = ((nodes[a.0], a.1), (nodes[b.0], b.1));
            builder
                .link(a, b, *carries, *up)
                .expect("the same from both ends");
        }
        for (&(node, from, to), &table) in &self.lanes {
            let said = builder.sl_to_vl(nodes[node], from, to, SlToVl(table));
            said.expect("one table a way");
        }
        builder.terms(PathTerms {
            service_level: self.service_level,
            ..PathTerms::default()
        });
        let mut routing = builder.routing();
        for (&(switch, lid), &port) in &self.tables {
            let lid = Lid(lid);
            routing.route(nodes[switch], lid, port).expect("a switch");
        }
        let mut fabric = routing.finish();
        let risks = self.risks();
        let file = RiskFile::read_from(FilePath::new("risks"), risks.as_bytes());
        let (risks, missing) = file.expect("no contradiction").bind(&fabric);
        assert!(missing.is_empty(), "{missing:?}");
        fabric.set_risks(risks);
        Built { fabric, nodes }
    }
}

/// The fabric of a plan.
pub(crate) struct Built {
    /// It.
    pub fabric: Fabric,
    nodes: Vec<NodeId>,
}

impl Built {
    /// The fabric's name of a port.
    pub(crate) fn port(&self, end: End) -> PortId {
        self.fabric
            .port_of(self.nodes[end.0], end.1)
            .expect("it has it")
    }
}
