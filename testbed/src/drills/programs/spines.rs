// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spines: whether the fabric has any, and which one carries the traffic, by the switches' own counters.

use std::thread;
use std::time::Duration;

use crate::command;
use crate::failure::Failure;
use crate::link::Link;

/// For how long packets are counted.
const WHILE: Duration = Duration::from_secs(1);

/// A spine and the LID of its management.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Spine {
    number: u8,
    lid: u16,
}

/// Whether the fabric has spines.
pub(super) fn has_fabric() -> Result<bool, Failure> {
    Ok(!all()?.is_empty())
}

/// The spine over which most packets go.
pub(super) fn carrying() -> Result<Link, Failure> {
    let spines = all()?;
    let before = counted(&spines)?;
    thread::sleep(WHILE);
    let after = counted(&spines)?;
    let came = before.iter().zip(&after);
    let came: Vec<_> = came
        .map(|(before, after)| after.saturating_sub(*before))
        .collect();
    busiest(&spines, &came)
        .map(Link::Spine)
        .ok_or_else(|| Failure::not_shown("no packet goes over a spine"))
}

fn busiest(spines: &[Spine], came: &[u64]) -> Option<u8> {
    let carrying = spines.iter().zip(came).filter(|(_, came)| **came > 0);
    let (spine, _) = carrying.max_by_key(|(_, came)| **came)?;
    Some(spine.number)
}

fn all() -> Result<Vec<Spine>, Failure> {
    Ok(spines_in(&command::run(&["ibswitches"])?))
}

/// Lines are `Switch : 0x... ports 4 "spine0" enhanced port 0 lid 3 lmc 0`.
fn spines_in(switches: &str) -> Vec<Spine> {
    let spine = |line: &str| {
        let name = line.split('"').nth(1)?;
        let (_, lid) = line.split_once(" lid ")?;
        Some(Spine {
            number: name.strip_prefix("spine")?.parse().ok()?,
            lid: lid.split_whitespace().next()?.parse().ok()?,
        })
    };
    switches.lines().filter_map(spine).collect()
}

/// Packets that each has received at all its ports, ever.
fn counted(spines: &[Spine]) -> Result<Vec<u64>, Failure> {
    let count = |spine: &Spine| {
        let counters = command::run(&["perfquery", "-x", "-a", &spine.lid.to_string()])?;
        received(&counters).ok_or_else(|| Failure::Output {
            source_name: format!("perfquery of spine{}", spine.number),
            problem: format!("no PortRcvPkts: {counters}"),
        })
    };
    spines.iter().map(count).collect()
}

fn received(counters: &str) -> Option<u64> {
    let line = counters
        .lines()
        .find_map(|line| line.strip_prefix("PortRcvPkts:"))?;
    line.trim_start_matches('.').trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCHES: &str = "Switch\t: 0x0653484301000003 ports 8 \"leaf0\" enhanced port 0 lid 4 lmc 0\n\
        Switch\t: 0x0653484301000005 ports 4 \"spine1\" enhanced port 0 lid 1 lmc 0\n\
        Switch\t: 0x0653484301000004 ports 4 \"spine0\" enhanced port 0 lid 33 lmc 0\n";

    #[test]
    fn spines_are_told_from_leaves() {
        let spine = |number, lid| Spine { number, lid };
        assert_eq!(spines_in(SWITCHES), [spine(1, 1), spine(0, 33)]);
        let rails = "Switch\t: 0x06 ports 9 \"switch0\" enhanced port 0 lid 2 lmc 0\n";
        assert!(spines_in(rails).is_empty());
    }

    #[test]
    fn the_busiest_spine_carries_the_traffic() {
        let spines = spines_in(SWITCHES);
        assert_eq!(busiest(&spines, &[3, 4_000]), Some(0));
        assert_eq!(busiest(&spines, &[4_000, 3]), Some(1));
        assert_eq!(busiest(&spines, &[0, 0]), None);
    }

    #[test]
    fn counters_are_read() {
        let counters =
            "PortXmitPkts:....................7\nPortRcvPkts:.....................4113\n";
        assert_eq!(received(counters), Some(4113));
        assert_eq!(received("PortXmitPkts:....7\n"), None);
    }
}
