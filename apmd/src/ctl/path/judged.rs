// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer of `apmctl path show`, as its JSON has it.

use pathdb::{Disjoint, Fabric, Fault, Fitness, Leg, Overlaps, PortId, Shared, Sharing};
use serde::Serialize;

use crate::ctl::fabric::kind;

/// All paths between two hosts, judged beside the primary.
#[derive(Serialize)]
pub(super) struct Judged {
    pub(super) source: Vec<Port>,
    pub(super) destination: Vec<Port>,
    /// The primary first, then the alternates from the best on, then what cannot be one.
    pub(super) candidates: Vec<Candidate>,
    /// Routes of which no two share anything.
    pub(super) disjoint: Bounds,
    pub(super) verdict: Verdict,
}

/// An end port.
#[derive(Serialize)]
pub(super) struct Port {
    pub(super) name: String,
    guid: Option<String>,
    lid: u16,
    lmc: u8,
}

/// A path.
#[derive(Serialize)]
pub(super) struct Candidate {
    pub(super) slid: u16,
    pub(super) dlid: u16,
    pub(super) source_port: String,
    pub(super) destination_port: String,
    pub(super) fitness: &'static str,
    /// Why it cannot be the alternate.
    pub(super) fault: Option<String>,
    pub(super) forward: Option<OneWay>,
    pub(super) reverse: Option<OneWay>,
    /// Those that get through both ways; null if no SL-to-VL table is known.
    service_levels: Option<Vec<u8>>,
    /// The source's P_Keys with which the ports may talk; empty if not known.
    pkeys: Vec<u16>,
    /// What it shares with the primary; null for what does not work and for the primary itself.
    pub(super) score: Option<Sharing>,
    pub(super) shared: Vec<Common>,
}

/// One direction.
#[derive(Serialize)]
pub(super) struct OneWay {
    pub(super) links: u16,
    pub(super) mtu: Option<u16>,
    /// In Gb/s.
    pub(super) rate: Option<&'static str>,
    pub(super) rate_mbps: Option<u32>,
    pub(super) switches: Vec<String>,
}

/// Something shared.
#[derive(Serialize)]
pub(super) struct Common {
    kind: &'static str,
    pub(super) name: String,
    /// The cables leave no way around it.
    pub(super) unavoidable: bool,
}

/// How many disjoint routes there can be and are.
#[derive(Serialize)]
pub(super) struct Bounds {
    pub(super) cables: Disjoint,
    pub(super) tables: Disjoint,
}

/// What an operator can do about it.
#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// The best alternate shares nothing with the primary.
    Disjoint,
    /// It shares what the cables leave no way around.
    CablesForbid,
    /// It shares more, but the forwarding tables have another two paths that share no switch.
    OtherPrimary,
    /// It shares more: other forwarding tables would do better.
    TablesCould,
    /// There is no alternate.
    NoAlternate,
    /// There is none at these devices, and the other ports of the hosts are other devices.
    OtherDevices,
}

impl Judged {
    /// All paths between two places.
    pub(super) fn new(
        fabric: &Fabric,
        from: &pathdb::Place,
        to: &pathdb::Place,
    ) -> Result<Self, Fault> {
        let primary = fabric.primary(from, to)?;
        let (local, remote) = (&from.ports, &to.ports);
        let mut overlaps = Overlaps::new(fabric, local, remote);
        let candidates = fabric.candidates(primary, local, remote)?;
        let mut judged = Vec::new();
        for candidate in &candidates {
            let shared = match candidate.fitness {
                Fitness::Alternate(_) | Fitness::LesserMtu(_) | Fitness::DropsLevel(_) => {
                    overlaps.shared(primary, candidate.path)?
                }
                _ => Vec::new(),
            };
            judged.push(Candidate::new(fabric, candidate, &shared));
        }
        let at_devices = |lid| {
            let port = fabric.port_by_lid(lid);
            port.map_or_else(Vec::new, |port| fabric.ports_beside(port))
        };
        let (at_local, at_remote) = (at_devices(primary.slid), at_devices(primary.dlid));
        let cables = fabric.disjoint_by_cables(&at_local, &at_remote);
        let tables = fabric.disjoint_by_tables(&at_local, &at_remote, cables);
        Ok(Self {
            source: local.iter().map(|&port| Port::new(fabric, port)).collect(),
            destination: remote.iter().map(|&port| Port::new(fabric, port)).collect(),
            verdict: Verdict::of(&judged, tables),
            candidates: judged,
            disjoint: Bounds { cables, tables },
        })
    }
}

impl Verdict {
    fn of(candidates: &[Candidate], tables: Disjoint) -> Self {
        let mut alternates = candidates.iter().filter(|c| c.fitness == "alternate");
        match alternates.next() {
            None if candidates.iter().any(|c| c.fitness == "other_device") => Self::OtherDevices,
            None => Self::NoAlternate,
            Some(best) if best.shared.is_empty() => Self::Disjoint,
            Some(best) if best.shared.iter().all(|shared| shared.unavoidable) => Self::CablesForbid,
            Some(_) if tables.switches > 1 => Self::OtherPrimary,
            Some(_) => Self::TablesCould,
        }
    }
}

impl Port {
    fn new(fabric: &Fabric, port: PortId) -> Self {
        let known = fabric.port(port);
        Self {
            name: fabric.name(port).to_string(),
            guid: known.guid.map(|guid| guid.to_string()),
            lid: known.lids.map_or(0, |lids| lids.base().0),
            lmc: known.lids.map_or(0, pathdb::LidRange::lmc),
        }
    }
}

impl Candidate {
    fn new(fabric: &Fabric, candidate: &pathdb::Candidate, shared: &[Shared]) -> Self {
        let pathdb::Candidate {
            path,
            local,
            remote,
            ..
        } = *candidate;
        let (fitness, alternate, fault) = match candidate.fitness {
            Fitness::Primary(..) => ("primary", None, None),
            Fitness::Alternate(alternate) => ("alternate", Some(alternate), None),
            Fitness::LesserMtu(alternate) => {
                let fault = "a lesser mtu than the primary's".to_owned();
                ("lesser_mtu", Some(alternate), Some(fault))
            }
            Fitness::DropsLevel(alternate) => {
                let fault = "drops the service level of all paths".to_owned();
                ("drops_level", Some(alternate), Some(fault))
            }
            Fitness::NoPartition => {
                let fault = "the ports have no partition in common".to_owned();
                ("no_partition", None, Some(fault))
            }
            Fitness::OtherDevice => {
                let fault = "other device: not by apm".to_owned();
                ("other_device", None, Some(fault))
            }
            Fitness::Fails(fault) => ("fails", None, Some(fault.to_string())),
        };
        let legs = match candidate.fitness {
            Fitness::Primary(there, back) => Some((there, back)),
            _ => alternate.map(|alternate| (alternate.forward, alternate.reverse)),
        };
        Self {
            slid: path.slid.0,
            dlid: path.dlid.0,
            source_port: fabric.name(local).to_string(),
            destination_port: fabric.name(remote).to_string(),
            fitness,
            fault,
            forward: legs.map(|legs| OneWay::new(fabric, local, path.dlid, legs.0)),
            reverse: legs.map(|legs| OneWay::new(fabric, remote, path.slid, legs.1)),
            service_levels: legs.and_then(|_| levels(fabric, path)),
            pkeys: fabric
                .common_pkeys(local, remote)
                .map(|key| key.0)
                .collect(),
            score: alternate.map(|alternate| alternate.shared),
            shared: shared.iter().map(|s| Common::new(fabric, *s)).collect(),
        }
    }
}

fn levels(fabric: &Fabric, path: pathdb::Path) -> Option<Vec<u8>> {
    let levels = fabric.path_service_levels(path).ok()?;
    fabric.knows_sl_to_vl().then(|| levels.iter().collect())
}

impl OneWay {
    fn new(fabric: &Fabric, from: PortId, lid: cm_msgs::Lid, leg: Leg) -> Self {
        // The leg says that it arrives.
        let left = fabric.trace(from, lid).unwrap_or_default();
        let nodes = left.iter().skip(1).map(|&port| fabric.port(port).node);
        Self {
            links: leg.hops,
            mtu: leg.carries.mtu.map(pathdb::Mtu::bytes),
            rate: leg.carries.rate.map(pathdb::Rate::text),
            rate_mbps: leg.carries.rate.map(pathdb::Rate::megabits),
            switches: nodes
                .map(|node| fabric.node(node).name.to_string())
                .collect(),
        }
    }
}

impl Common {
    fn new(fabric: &Fabric, shared: Shared) -> Self {
        Self {
            kind: kind(shared.element),
            name: fabric.element_name(shared.element).to_string(),
            unavoidable: shared.unavoidable,
        }
    }
}
