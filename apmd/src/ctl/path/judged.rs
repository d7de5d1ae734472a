// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer of `apmctl path show`, as its JSON has it.

use pathdb::{Disjoint, Fabric, Fault, Fitness, Leg, Overlaps, PortId, Shared};
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
    pub(super) forward: Option<Way>,
    pub(super) reverse: Option<Way>,
    /// Those that get through both ways; null if no SL-to-VL table is known.
    service_levels: Option<Vec<u8>>,
    /// The source's P_Keys with which the ports may talk; empty if not known.
    pkeys: Vec<u16>,
    /// What it shares with the primary; null for what does not work and for the primary itself.
    pub(super) score: Option<Score>,
    pub(super) shared: Vec<Common>,
}

/// One direction.
#[derive(Serialize)]
pub(super) struct Way {
    pub(super) links: u16,
    pub(super) mtu: Option<u16>,
    pub(super) rate: Option<&'static str>,
    pub(super) switches: Vec<String>,
}

/// How much is shared.
#[derive(Serialize)]
pub(super) struct Score {
    pub(super) switches: u16,
    pub(super) groups: u16,
    pub(super) links: u16,
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
    pub(super) cables: Routes,
    pub(super) tables: Routes,
}

#[derive(Serialize, Clone, Copy, PartialEq)]
pub(super) struct Routes {
    pub(super) switches: u16,
    pub(super) links: u16,
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
        let cables = fabric.disjoint_by_cables(local, remote);
        let tables = fabric.disjoint_by_tables(local, remote, cables);
        Ok(Self {
            source: local.iter().map(|&port| Port::new(fabric, port)).collect(),
            destination: remote.iter().map(|&port| Port::new(fabric, port)).collect(),
            verdict: Verdict::of(&judged, tables),
            candidates: judged,
            disjoint: Bounds {
                cables: cables.into(),
                tables: tables.into(),
            },
        })
    }
}

impl Verdict {
    fn of(candidates: &[Candidate], tables: Disjoint) -> Self {
        let mut alternates = candidates.iter().filter(|c| c.fitness == "alternate");
        match alternates.next() {
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
            lid: known.lids.map_or(0, |lids| lids.base().get()),
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
        let (fitness, legs, score, fault) = match candidate.fitness {
            Fitness::Primary(there, back) => ("primary", Some((there, back)), None, None),
            Fitness::Alternate(alternate) => {
                let legs = (alternate.forward, alternate.reverse);
                ("alternate", Some(legs), Some(alternate.shared), None)
            }
            Fitness::LesserMtu(alternate) => {
                let fault = "a lesser mtu than the primary's".to_owned();
                let legs = (alternate.forward, alternate.reverse);
                (
                    "lesser_mtu",
                    Some(legs),
                    Some(alternate.shared),
                    Some(fault),
                )
            }
            Fitness::DropsLevel(alternate) => {
                let fault = "drops the service level of all paths".to_owned();
                let legs = (alternate.forward, alternate.reverse);
                (
                    "drops_level",
                    Some(legs),
                    Some(alternate.shared),
                    Some(fault),
                )
            }
            Fitness::NoPartition => {
                let fault = "the ports have no partition in common".to_owned();
                ("no_partition", None, None, Some(fault))
            }
            Fitness::Fails(fault) => ("fails", None, None, Some(fault.to_string())),
        };
        Self {
            slid: path.slid.get(),
            dlid: path.dlid.get(),
            source_port: fabric.name(local).to_string(),
            destination_port: fabric.name(remote).to_string(),
            fitness,
            fault,
            forward: legs.map(|legs| Way::new(fabric, local, path.dlid, legs.0)),
            reverse: legs.map(|legs| Way::new(fabric, remote, path.slid, legs.1)),
            service_levels: legs.and_then(|_| levels(fabric, path)),
            pkeys: fabric
                .common_pkeys(local, remote)
                .map(|key| key.0)
                .collect(),
            score: score.map(|shared| Score {
                switches: shared.switches,
                groups: shared.groups,
                links: shared.links,
            }),
            shared: shared.iter().map(|s| Common::new(fabric, *s)).collect(),
        }
    }
}

fn levels(fabric: &Fabric, path: pathdb::Path) -> Option<Vec<u8>> {
    let levels = fabric.path_service_levels(path).ok()?;
    fabric.knows_lanes().then(|| levels.iter().collect())
}

impl Way {
    fn new(fabric: &Fabric, from: PortId, lid: pathdb::Lid, leg: Leg) -> Self {
        // The leg says that it arrives.
        let left = fabric.trace(from, lid).unwrap_or_default();
        let nodes = left.iter().skip(1).map(|&port| fabric.port(port).node);
        Self {
            links: leg.hops,
            mtu: leg.carries.mtu.map(pathdb::Mtu::bytes),
            rate: leg.carries.rate.map(pathdb::Rate::text),
            switches: nodes.map(|node| fabric.node(node).name.clone()).collect(),
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

impl From<Disjoint> for Routes {
    fn from(disjoint: Disjoint) -> Self {
        Self {
            switches: disjoint.switches,
            links: disjoint.links,
        }
    }
}
