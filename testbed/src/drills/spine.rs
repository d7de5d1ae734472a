// SPDX-License-Identifier: MIT OR Apache-2.0
//! A spine swallows everything while its links stay up. Hosts with one port have no second one to go
//! to, but four LIDs, which the subnet manager routes over different spines.

use std::collections::BTreeSet;

use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::link::Link;
use crate::observe::{Pair, Path};
use crate::stream::{Options, Streams};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "spine",
    about: "a spine is a black hole: hosts with one port and four LIDs go over the other",
    parts: &[Part {
        world: Kind::LeafSpine,
        run,
    }],
};

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    unprotected_dies(context)?;
    protected_lives(context)
}

fn streams(context: &Context<'_>) -> Result<Streams, Failure> {
    let options = Options {
        hosts: context.world.hosts(),
        ..Options::default()
    };
    Streams::start(&context.timeline, options)
}

/// Without daemons the connection ends. Nobody reroutes the fabric meanwhile.
fn unprotected_dies(context: &mut Context<'_>) -> Result<(), Failure> {
    let mut streams = streams(context)?;
    streams.wait_flowing()?;
    let [from, to] = context.world.hosts().map(|host| host.port(1).lid());
    let spine = one_spine(&spines(from?, to?)?)?;
    context.world.stop_subnet_manager()?;
    context.world.blackhole(spine)?;
    let said = streams.wait_broken()?;
    context
        .timeline
        .note("client", format!("without apmd: {said}"));
    context.world.heal(spine)?;
    context.world.start_subnet_manager()?;
    context.world.mend()
}

/// With them it goes on over the other spine, and is armed again when the first one works again.
fn protected_lives(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemons(Policy::LIVE)?;
    let mut streams = streams(context)?;
    let what = "armed over another spine";
    let pair = one(context.world.wait_for(what, 1, Pair::shares_nothing)?)?;
    let lost = one_spine(&both_ways(&pair.ends[0].primary)?)?;
    let left = pair.ends[0].primary.dlid;
    if let Some(alternate) = &pair.ends[0].alternate {
        let spines = both_ways(alternate)?;
        ensure(!spines.contains(&lost.to_string()), || {
            format!("the alternate goes over {spines:?}, and {lost} is to be lost")
        })?;
    }
    context.world.stop_subnet_manager()?;
    context.world.blackhole(lost)?;
    let moved = |pair: &Pair| pair.ends[0].primary.dlid != left && pair.is_on_one_path();
    context
        .world
        .wait_for(&format!("moved away from {lost}"), 1, moved)?;
    context.report.migrations += 1;
    streams.wait_flowing()?;
    context.world.heal(lost)?;
    context.world.start_subnet_manager()?;
    context.world.wait_for(what, 1, Pair::shares_nothing)?;
    context.report.rearmed += 1;
    context.finish(streams)
}

fn one(mut pairs: Vec<Pair>) -> Result<Pair, Failure> {
    pairs
        .pop()
        .ok_or_else(|| Failure::not_shown("there is no connection"))
}

/// The spines of a path, there and back.
pub(super) fn both_ways(path: &Path) -> Result<BTreeSet<String>, Failure> {
    let mut all = spines(path.slid, path.dlid)?;
    all.extend(spines(path.dlid, path.slid)?);
    Ok(all)
}

/// The spines that packets from one LID to another pass, as ibtracert has them.
fn spines(from: u16, to: u16) -> Result<BTreeSet<String>, Failure> {
    let route = command::run(&["ibtracert", &from.to_string(), &to.to_string()])?;
    Ok(spines_in(&route))
}

fn spines_in(route: &str) -> BTreeSet<String> {
    let words = route.split('"').skip(1).step_by(2);
    let spines = words.filter(|name| name.starts_with("spine"));
    spines.map(str::to_owned).collect()
}

/// One of these.
pub(super) fn one_spine(names: &BTreeSet<String>) -> Result<Link, Failure> {
    let number = names.first().and_then(|name| name.strip_prefix("spine"));
    let number = number.and_then(|digits| digits.parse().ok());
    number
        .map(Link::Spine)
        .ok_or_else(|| Failure::not_shown(format!("a path over spines, not over {names:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spines_are_found_in_a_route() {
        let route = "From ca {0x06} portnum 1 lid 8-11 \"shca2\"\n\
            [1] -> switch port {0x06}[3] lid 4-4 \"leaf0\"\n\
            [8] -> switch port {0x06}[1] lid 1-1 \"spine1\"\n";
        let spines = spines_in(route);
        assert_eq!(Vec::from_iter(&spines), ["spine1"]);
        assert_eq!(one_spine(&spines).ok(), Some(Link::Spine(1)));
        assert!(one_spine(&BTreeSet::new()).is_err());
    }
}
