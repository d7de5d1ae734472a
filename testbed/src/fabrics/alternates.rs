// SPDX-License-Identifier: MIT OR Apache-2.0
//! The least sharing alternate of two-port hosts: pathdb's held against all there are.

use std::collections::BTreeSet;

use cm_msgs::{Guid, Lid};
use pathdb::{Element, Fabric, Fault, Finder, NodeKind, Pair, Path, PortId, Sharing};

use super::dumped::{Dumped, Link, Way};
use super::records::words;
use super::tally::Tally;
use crate::ibsim::Dice;

/// How many pairs of hosts are tried in one state of a fabric.
const PAIRS: usize = 300;

/// What a path depends on: its way there and its way back.
pub struct Whole {
    switches: BTreeSet<u64>,
    links: BTreeSet<Link>,
}

impl Whole {
    /// Follows packets there and back.
    ///
    /// # Errors
    /// They do not arrive.
    pub fn follow(dumped: &Dumped, path: Path) -> Result<Self, Fault> {
        let (slid, dlid) = (path.slid.0, path.dlid.0);
        let there = dumped.follow(slid, dlid)?;
        let back = dumped.follow(dlid, slid)?;
        let Way {
            mut switches,
            mut links,
            ..
        } = there;
        switches.extend(back.switches);
        links.extend(back.links);
        Ok(Self { switches, links })
    }

    /// What two paths share.
    pub fn shared(&self, other: &Self) -> Sharing {
        Sharing {
            switches: self.switches.intersection(&other.switches).count() as u16,
            links: self.links.intersection(&other.links).count() as u16,
            ..Sharing::default()
        }
    }
}

/// Takes random pairs of hosts and a random primary each, and compares what pathdb finds with the
/// best of all alternates there are, walked by other code. Returns primaries and alternates.
pub fn compare(fabric: &Fabric, dumped: &Dumped, dice: &mut Dice, tally: &mut Tally) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let systems: BTreeSet<u64> = fabric
        .nodes()
        .filter(|(_, node)| node.kind == NodeKind::Adapter)
        .map(|(_, node)| node.system.0)
        .collect();
    let hosts: Vec<Vec<PortId>> = systems
        .into_iter()
        .map(|system| fabric.ports_of_system(Guid(system)))
        .filter(|ports| ports.len() > 1)
        .collect();
    let mut finder = Finder::new(fabric);
    for _ in 0..PAIRS {
        let (a, b) = (dice.below(hosts.len()), dice.below(hosts.len()));
        if a == b {
            continue;
        }
        let (local, remote) = (&hosts[a], &hosts[b]);
        let (locals, remotes) = (lids(fabric, local), lids(fabric, remote));
        let Some((slid, dlid)) = dice.pick(&locals).zip(dice.pick(&remotes)) else {
            continue;
        };
        let primary = Path { slid, dlid };
        let paths = locals
            .iter()
            .flat_map(|&slid| remotes.iter().map(move |&dlid| Path { slid, dlid }));
        let others: Vec<Path> = paths.filter(|&path| path != primary).collect();
        match compare_one(
            fabric,
            dumped,
            &mut finder,
            primary,
            [local, remote],
            &others,
        ) {
            Ok(found) => {
                tally.alternates += 1;
                tally.disjoint += usize::from(found.is_some_and(|pair| pair.shared.is_none()));
                pairs.extend(found);
            }
            Err(problem) => {
                let words = words(fabric, (slid.0, dlid.0));
                tally.differ(|| format!("alternate of {words}: {problem}"));
            }
        }
    }
    pairs
}

fn lids(fabric: &Fabric, ports: &[PortId]) -> Vec<Lid> {
    let ranges = ports.iter().filter_map(|&port| fabric.port(port).lids);
    ranges.flat_map(|range| range.iter()).collect()
}

/// The primary with its best alternate, if there is one.
fn compare_one(
    fabric: &Fabric,
    dumped: &Dumped,
    finder: &mut Finder<'_>,
    primary: Path,
    [local, remote]: [&[PortId]; 2],
    others: &[Path],
) -> Result<Option<Pair>, String> {
    let found = finder.best(primary, local, remote);
    let Ok(whole) = Whole::follow(dumped, primary) else {
        return match found {
            Err(_) => Ok(None),
            Ok(_) => Err("pathdb takes a primary that does not arrive".to_owned()),
        };
    };
    let found = found.map_err(|fault| format!("pathdb says of the primary: {fault}"))?;
    let shares = |&other: &Path| Some(Whole::follow(dumped, other).ok()?.shared(&whole));
    let least = others.iter().filter_map(shares).min();
    let Some(found) = found else {
        return least.map_or(Ok(None), |least| {
            Err(format!("pathdb finds none, there is {least:?}"))
        });
    };
    let own = shares(&found.path);
    if own != least || own != Some(found.shared) {
        return Err(format!(
            "pathdb takes {:?} and says it shares {:?}; it shares {own:?}, the best {least:?}",
            found.path, found.shared
        ));
    }
    compare_names(fabric, dumped, primary, found.path, [local, remote])?;
    Ok(Some(Pair {
        primary,
        alternate: found.path,
        shared: found.shared,
    }))
}

/// Whether what pathdb names as shared is what is shared.
fn compare_names(
    fabric: &Fabric,
    dumped: &Dumped,
    primary: Path,
    alternate: Path,
    [local, remote]: [&[PortId]; 2],
) -> Result<(), String> {
    let wholes = [primary, alternate].map(|path| Whole::follow(dumped, path));
    let [Ok(first), Ok(second)] = wholes else {
        return Err("does not arrive".to_owned());
    };
    let named = fabric
        .shared(primary, alternate, local, remote)
        .map_err(|fault| fault.to_string())?;
    let place = |port: PortId| {
        (
            fabric.node(fabric.port(port).node).guid.0,
            fabric.port_number(port),
        )
    };
    let (mut switches, mut links) = (BTreeSet::new(), BTreeSet::new());
    for shared in &named {
        match shared.element {
            Element::Switch(node) => {
                switches.insert(fabric.node(node).guid.0);
            }
            Element::Link(port) => {
                let peer = fabric.peer(port).map_or((0, 0), place);
                links.insert((place(port).min(peer), place(port).max(peer)));
            }
            Element::Group(group) => return Err(format!("pathdb knows a group {group:?}")),
        }
    }
    let same_switches = first.switches.intersection(&second.switches).eq(&switches);
    let same_links = first.links.intersection(&second.links).eq(&links);
    match same_switches && same_links {
        true => Ok(()),
        false => Err(format!("pathdb names {named:?} as shared")),
    }
}
