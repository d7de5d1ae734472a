// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a change of the fabric matters to this host.

use std::collections::HashSet;

use cm_msgs::{Guid, Lid};
use pathdb::{Capability, Fabric, Fault, LidRange, PortId, ServiceLevels};

/// A port by what it is, not by its place in one fabric.
type Name = (Guid, u8);

/// What is known of the routes between two ports.
#[derive(PartialEq)]
struct Routes {
    lids: (Option<LidRange>, Option<LidRange>),
    /// By each remote LID and by each local LID.
    routes: Vec<Result<Route, Fault>>,
    /// Where else the two nodes are plugged in: that decides what is avoidable.
    cables: Vec<(Name, Name)>,
}

#[derive(PartialEq)]
struct Route {
    ports: Vec<Name>,
    carries: Capability,
    levels: ServiceLevels,
}

/// Whether any route between one of the ports `local` and one of `remote`, in either direction, is
/// another in `new` than in `old`, comes, or goes.
pub fn matters(old: &Fabric, new: &Fabric, local: &HashSet<Guid>, remote: &HashSet<Guid>) -> bool {
    let mut pairs = local
        .iter()
        .flat_map(|l| remote.iter().map(move |r| (l, r)));
    pairs.any(|(&l, &r)| routes(old, l, r) != routes(new, l, r))
}

fn routes(fabric: &Fabric, local: Guid, remote: Guid) -> Option<Routes> {
    let (local, remote) = (fabric.port_by_guid(local)?, fabric.port_by_guid(remote)?);
    let lids = (fabric.port(local).lids, fabric.port(remote).lids);
    let there = each(lids.1).map(|lid| (local, lid));
    let back = each(lids.0).map(|lid| (remote, lid));
    Some(Routes {
        lids,
        routes: there
            .chain(back)
            .map(|(from, lid)| route(fabric, from, lid))
            .collect(),
        cables: [local, remote]
            .into_iter()
            .flat_map(|port| cables(fabric, port))
            .collect(),
    })
}

fn each(range: Option<LidRange>) -> impl Iterator<Item = Lid> {
    range.into_iter().flat_map(LidRange::iter)
}

fn route(fabric: &Fabric, from: PortId, lid: Lid) -> Result<Route, Fault> {
    let ports = fabric.trace(from, lid)?;
    Ok(Route {
        ports: ports.iter().map(|port| name(fabric, *port)).collect(),
        carries: fabric.leg(from, lid)?.carries,
        levels: fabric.service_levels(from, lid)?,
    })
}

fn cables(fabric: &Fabric, port: PortId) -> impl Iterator<Item = (Name, Name)> {
    let node = fabric.port(port).node;
    let ports = (1..=fabric.node(node).ports).filter_map(move |n| fabric.port_of(node, n));
    ports
        .filter(|port| fabric.is_up(*port))
        .filter_map(|port| Some((name(fabric, port), name(fabric, fabric.peer(port)?))))
}

fn name(fabric: &Fabric, port: PortId) -> Name {
    (
        fabric.node(fabric.port(port).node).guid,
        fabric.port_number(port),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_fabrics::two_rails::{self, Shape};

    fn differ(shape: Shape, local: &[u64], remote: &[u64]) -> bool {
        let set = |guids: &[u64]| guids.iter().copied().map(Guid).collect();
        let (old, new) = (
            two_rails::fabric(Shape::default()),
            two_rails::fabric(shape),
        );
        matters(&old, &new, &set(local), &set(remote))
    }

    #[test]
    fn only_what_lies_between_matters() {
        let down = Shape {
            down: Some((2, 2)),
            ..Shape::default()
        };
        assert!(differ(down, &[11, 12], &[21, 22]));
        assert!(differ(down, &[12], &[22]), "the route is gone");
        assert!(differ(down, &[11], &[21]), "what is avoidable changed");
        assert!(!differ(down, &[11, 12], &[101]), "a route elsewhere");
        assert!(!differ(down, &[11, 12], &[99]), "nobody has this GUID");
        assert!(!differ(down, &[11], &[]), "nobody asked");
        let sl = Shape {
            sl: Some(4),
            ..Shape::default()
        };
        assert!(!differ(sl, &[11, 12], &[21, 22]));
        let dropped = Shape {
            lanes: Some(pathdb::SlToVl([0x0f; 8])),
            ..Shape::default()
        };
        assert!(differ(dropped, &[12], &[22]), "odd service levels are");
        assert!(!differ(dropped, &[11], &[21]));
    }
}
