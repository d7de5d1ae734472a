// SPDX-License-Identifier: MIT OR Apache-2.0
//! What paths share with a connection's primary, found by following packets of both.

use std::collections::HashSet;

use cm_msgs::path::Path;
use cm_msgs::{Gid, Guid, Lid};
use pathdb::{Element, Fabric, NodeId, NodeKind, PortId, RiskId};
use statemachine::{Assess, Overlap};

/// Ports of this host that are down, whatever a fabric says: it may have been read before, and the
/// host knows its own ports by itself.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PortsDown(HashSet<(Guid, u8)>);

impl PortsDown {
    /// A port came up, went down or went away. Whether that is news.
    pub fn set(&mut self, port: statemachine::PortId, active: bool) -> bool {
        let port = (port.node_guid, port.port);
        match active {
            true => self.0.remove(&port),
            false => self.0.insert(port),
        }
    }

    fn contains(&self, fabric: &Fabric, port: PortId) -> bool {
        let node = fabric.node(fabric.port(port).node);
        self.0.contains(&(node.guid, fabric.port_number(port)))
    }
}

/// What a path depends on, there and back: each thing once.
#[derive(Debug, Default, PartialEq, Eq)]
struct Elements {
    switches: Vec<NodeId>,
    /// Each by the lesser of its ports.
    links: Vec<PortId>,
    /// Shared-risk groups that any of them is in.
    groups: Vec<RiskId>,
}

impl Elements {
    fn add(&mut self, fabric: &Fabric, element: Element) {
        match element {
            Element::Switch(node) => insert(&mut self.switches, node),
            Element::Link(port) => insert(&mut self.links, port),
            Element::Group(group) => insert(&mut self.groups, group),
        }
        for group in fabric.groups_of(element) {
            insert(&mut self.groups, group);
        }
    }
}

/// A path by its end ports and the LIDs that choose it.
#[derive(Clone, Copy)]
struct Ends {
    local: PortId,
    remote: PortId,
    slid: Lid,
    dlid: Lid,
}

/// What each of the paths shares with the primary though the cables at the hosts leave a choice, but
/// for those of ports that are `down`. A shared-risk group counts as a switch: what is in it fails
/// together. `None` where the fabric does not know the path, or knows that it does not work.
pub fn assess(fabric: &Fabric, down: &PortsDown, assess: &Assess) -> Vec<Option<Overlap>> {
    let primary = &assess.primary;
    let lids = (Some(primary.slid), Some(primary.dlid));
    let known = ends(fabric, primary.sgid, primary.dgid, lids);
    let elements = known.and_then(|ends| Some((ends, follow(fabric, ends)?)));
    let Some((ends_of_primary, elements)) = elements else {
        return vec![None; assess.paths.len()];
    };
    let only = unavoidable(fabric, down, ends_of_primary);
    let overlap = |path: &statemachine::PathEnds| {
        let ends = ends(fabric, path.sgid, path.dgid, (path.slid, path.dlid))?;
        let own = follow(fabric, ends)?;
        Some(Overlap {
            switches: shared(&elements.switches, &own.switches, &only.switches)
                .saturating_add(shared(&elements.groups, &own.groups, &only.groups)),
            links: shared(&elements.links, &own.links, &only.links),
        })
    };
    assess.paths.iter().map(overlap).collect()
}

/// Something that two paths share, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Common {
    /// Such as `switch leaf3` or `link leaf3/1 - host7 mlx5_0/1`.
    pub name: String,
    /// Whether another way between the two hosts could do without it; only that counts as overlap.
    pub avoidable: bool,
}

/// All that an alternate shares with a primary. `None` where the fabric does not know one of them.
pub fn common(
    fabric: &Fabric,
    down: &PortsDown,
    primary: &Path,
    alternate: &Path,
) -> Option<Vec<Common>> {
    let known = |path: &Path| {
        let lids = (Some(path.slid), Some(path.dlid));
        let ends = ends(fabric, path.sgid, path.dgid, lids)?;
        Some((ends, follow(fabric, ends)?))
    };
    let ((ends, first), (_, second)) = (known(primary)?, known(alternate)?);
    let only = unavoidable(fabric, down, ends);
    let switches = both(
        &first.switches,
        &second.switches,
        &only.switches,
        Element::Switch,
    );
    let groups = both(&first.groups, &second.groups, &only.groups, Element::Group);
    let links = both(&first.links, &second.links, &only.links, Element::Link);
    let common = |(element, avoidable)| Common {
        name: fabric.element_name(element).to_string(),
        avoidable,
    };
    Some(switches.chain(groups).chain(links).map(common).collect())
}

/// What is in `a` and in `b`, and whether it is not in `only`.
fn both<T: Copy + PartialEq>(
    a: &[T],
    b: &[T],
    only: &[T],
    element: fn(T) -> Element,
) -> impl Iterator<Item = (Element, bool)> {
    let both = a.iter().filter(|x| b.contains(x));
    both.map(move |x| (element(*x), !only.contains(x)))
}

fn shared<T: PartialEq>(a: &[T], b: &[T], only: &[T]) -> u8 {
    let both = a.iter().filter(|x| b.contains(x) && !only.contains(x));
    u8::try_from(both.count()).unwrap_or(u8::MAX)
}

/// The ports with these GIDs; LIDs not named are the base LIDs. A remote GID that is not known may
/// be told by its LID.
fn ends(
    fabric: &Fabric,
    sgid: Gid,
    dgid: Gid,
    (slid, dlid): (Option<Lid>, Option<Lid>),
) -> Option<Ends> {
    let port = |gid: Gid, lid: Option<Lid>| {
        let port = if gid.is_unspecified() {
            fabric.port_by_lid(lid?)?
        } else {
            fabric.port_by_guid(gid.interface_id())?
        };
        let range = fabric.port(port).lids?;
        let lid = lid.unwrap_or(range.base());
        range.contains(lid).then_some((port, lid))
    };
    let ((local, slid), (remote, dlid)) = (port(sgid, slid)?, port(dgid, dlid)?);
    Some(Ends {
        local,
        remote,
        slid,
        dlid,
    })
}

/// Follows packets both ways; `None` if they do not arrive.
fn follow(fabric: &Fabric, ends: Ends) -> Option<Elements> {
    let mut elements = Elements::default();
    for (from, lid) in [(ends.local, ends.dlid), (ends.remote, ends.slid)] {
        for port in fabric.trace(from, lid).ok()? {
            let peer = fabric.peer(port)?;
            elements.add(fabric, Element::Link(port.min(peer)));
            let node = fabric.port(peer).node;
            if fabric.node(node).kind == NodeKind::Switch {
                elements.add(fabric, Element::Switch(node));
            }
        }
    }
    Some(elements)
}

/// Paths are so short that looking through the list is the fastest.
fn insert<T: PartialEq>(set: &mut Vec<T>, element: T) {
    if !set.contains(&element) {
        set.push(element);
    }
}

/// The ports of a port's node that have a link which is up, by the port and its peer.
fn cabled(fabric: &Fabric, down: &PortsDown, port: PortId) -> Vec<(PortId, PortId)> {
    let node = fabric.port(port).node;
    let numbers = 1..=fabric.node(node).ports;
    let ports = numbers.filter_map(|number| fabric.port_of(node, number));
    ports
        .filter(|&port| fabric.is_up(port) && !down.contains(fabric, port))
        .filter_map(|port| Some((port, fabric.peer(port)?)))
        .collect()
}

/// What no path between the hosts can do without.
fn unavoidable(fabric: &Fabric, down: &PortsDown, ends: Ends) -> Elements {
    let mut only = Elements::default();
    for leaf in only_leaves(fabric, down, ends) {
        only.add(fabric, Element::Switch(leaf));
    }
    for link in only_links(fabric, down, ends) {
        only.add(fabric, Element::Link(link));
    }
    only
}

/// The leaves that are the only one of a host: all its cables end there.
fn only_leaves(fabric: &Fabric, down: &PortsDown, ends: Ends) -> Vec<NodeId> {
    let of = |port| {
        let peers = cabled(fabric, down, port).into_iter();
        let mut leaves = peers.map(|(_, peer)| fabric.port(peer).node);
        let first = leaves.next()?;
        leaves.all(|leaf| leaf == first).then_some(first)
    };
    [ends.local, ends.remote]
        .into_iter()
        .filter_map(of)
        .collect()
}

/// The links that are the only one of a host.
fn only_links(fabric: &Fabric, down: &PortsDown, ends: Ends) -> Vec<PortId> {
    let of = |port| match cabled(fabric, down, port)[..] {
        [(port, peer)] => Some(port.min(peer)),
        _ => None,
    };
    [ends.local, ends.remote]
        .into_iter()
        .filter_map(of)
        .collect()
}

#[cfg(test)]
mod tests {
    use pathdb::RiskFile;

    use super::*;
    use test_fabrics::two_rails::{self, Shape, way};

    fn overlap(switches: u8, links: u8) -> Option<Overlap> {
        Some(Overlap { switches, links })
    }

    #[test]
    fn rails_share_nothing_and_crossings_one_switch() {
        let fabric = two_rails::fabric(Shape::default());
        let ways = [
            way(12, 22),
            way(12, 21),
            way(11, 22),
            way(11, 21),
            way(12, 99),
        ];
        let found = assess(&fabric, &PortsDown::default(), &two_rails::assess(ways));
        let wanted = [
            overlap(0, 0),
            // From switch 1 over the link to switch 0, and the peer's cable there.
            overlap(1, 1),
            overlap(1, 1),
            overlap(1, 2),
            None,
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_is_shared_has_names() {
        let fabric = two_rails::fabric(Shape {
            down: Some((2, 2)),
            ..Shape::default()
        });
        let primary = two_rails::assess([]).primary;
        let names = |slid: u16, dlid, dgid| {
            let alternate = Path {
                sgid: two_rails::gid(u64::from(slid) + 9),
                dgid: two_rails::gid(dgid),
                slid: Lid(slid),
                dlid: Lid(dlid),
                ..primary
            };
            let common = common(&fabric, &PortsDown::default(), &primary, &alternate)?;
            let name = |common: Common| (common.name, common.avoidable);
            Some(common.into_iter().map(name).collect::<Vec<_>>())
        };
        let leaf = ("switch node 101".to_owned(), false);
        let cable = ("link node 101 port 2 - node 2 port 1".to_owned(), false);
        let own = ("link node 101 port 1 - node 1 port 1".to_owned(), true);
        assert_eq!(names(3, 4, 21), Some(vec![leaf.clone(), cable.clone()]));
        assert_eq!(names(2, 4, 21), Some(vec![leaf, own, cable]));
        assert_eq!(names(3, 5, 22), None, "a cable is down");
    }

    #[test]
    fn what_fails_together_counts_as_a_switch() {
        let mut fabric = two_rails::fabric(Shape::default());
        let text = "[chassis]\nswitch node 101\nswitch node 102\n";
        let file = RiskFile::read_from("risks".as_ref(), text.as_bytes()).unwrap();
        let (risks, missing) = file.bind(&fabric);
        assert!(missing.is_empty(), "{missing:?}");
        fabric.set_risks(risks);
        let question = two_rails::assess([way(12, 22), way(11, 22)]);
        let found = assess(&fabric, &PortsDown::default(), &question);
        assert_eq!(found, [overlap(1, 0), overlap(2, 1)]);
        let primary = question.primary;
        let alternate = Path {
            sgid: two_rails::gid(12),
            dgid: two_rails::gid(22),
            slid: Lid(3),
            dlid: Lid(5),
            ..primary
        };
        let common = common(&fabric, &PortsDown::default(), &primary, &alternate).unwrap();
        let names: Vec<_> = common.iter().map(|c| (&*c.name, c.avoidable)).collect();
        assert_eq!(names, [("group chassis", true)]);
    }

    #[test]
    fn an_only_leaf_is_unavoidable() {
        let down = Some((2, 2));
        let fabric = two_rails::fabric(Shape {
            down,
            ..Shape::default()
        });
        let ways = [way(12, 21), way(12, 22)];
        let found = assess(&fabric, &PortsDown::default(), &two_rails::assess(ways));
        assert_eq!(found, [overlap(0, 0), None], "port 2 of host 2 is down");
    }

    #[test]
    fn nothing_is_known_of_what_shares_with_an_unknown_primary() {
        let fabric = two_rails::fabric(Shape::default());
        let mut question = two_rails::assess([way(12, 22)]);
        question.primary.slid = Lid(3);
        assert_eq!(
            assess(&fabric, &PortsDown::default(), &question),
            [None],
            "the LID of another port"
        );
        question.primary.slid = Lid(2);
        question.primary.dgid = Gid::default();
        assert_eq!(
            assess(&fabric, &PortsDown::default(), &question),
            [overlap(0, 0)],
            "by its LID"
        );
    }
}
