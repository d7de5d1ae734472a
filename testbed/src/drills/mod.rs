// SPDX-License-Identifier: MIT OR Apache-2.0
//! The drills: one file each, and the registry.

use clap::Args;

use crate::failure::Failure;
use crate::report::Report;
use crate::stream::Streams;
use crate::timeline::Timeline;
use crate::world::{Kind, World};

pub use self::programs::By;

mod abuse;
mod acm_moves;
mod acm_multicast;
mod acm_rights;
mod acm_serve;
mod acm_source;
mod blackhole;
mod cable_pull;
mod disconnect;
mod exchange;
mod first_hundred;
mod flap_storm;
mod forgery;
mod given_away;
mod idle;
mod kernel;
mod kernel_blind;
mod kernel_discovery;
mod kernel_fairness;
mod kernel_ls;
mod kernel_owners;
mod kernel_storm;
mod kernel_ulps;
mod memcheck;
mod neigh;
mod new_lid;
mod no_daemon;
mod odd_devices;
mod one_way;
mod operate;
mod pkey;
mod policy;
mod programs;
mod questions;
mod refused;
mod sa_source;
mod sm_failover;
mod soak;
mod spine;
mod ssa_source;
mod two_subnets;
mod unmodified;
mod unregistered;

/// All drills, in the order in which they are listed and run.
pub static ALL: &[Drill] = &[
    cable_pull::DRILL,
    unmodified::DRILL,
    blackhole::DRILL,
    flap_storm::DRILL,
    no_daemon::DRILL,
    disconnect::DRILL,
    first_hundred::DRILL,
    operate::DRILL,
    questions::DRILL,
    sa_source::DRILL,
    pkey::DRILL,
    acm_source::DRILL,
    sm_failover::DRILL,
    ssa_source::DRILL,
    acm_multicast::DRILL,
    acm_moves::DRILL,
    neigh::DRILL,
    acm_serve::DRILL,
    acm_rights::DRILL,
    kernel_ls::DRILL,
    kernel::DRILL,
    kernel_owners::DRILL,
    kernel_blind::DRILL,
    kernel_discovery::DRILL,
    kernel_fairness::DRILL,
    kernel_ulps::SRP,
    kernel_ulps::NVME,
    kernel_ulps::NFS,
    kernel_ulps::RDS,
    kernel_ulps::SPINE,
    kernel_ulps::TRAPS,
    kernel_storm::DRILL,
    abuse::DRILL,
    programs::DRILL,
    spine::DRILL,
    forgery::DRILL,
    abuse::FROM_ELSEWHERE,
    abuse::SLOW_PEER,
    refused::DRILL,
    odd_devices::DRILL,
    given_away::DRILL,
    unregistered::DRILL,
    one_way::DRILL,
    idle::DRILL,
    policy::DRILL,
    soak::DRILL,
    memcheck::DRILL,
    two_subnets::DRILL,
];

/// What the command line says to the drills themselves.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Rows or families of the drill `programs` to run (repeatable)
    #[arg(long, value_name = "NAME", value_parser = find_program)]
    pub only: Vec<String>,
    /// What protects the rows of the drill `programs`: the kernel module if this is not said; of the
    /// short form's own rows, both
    #[arg(long, value_name = "WAY", value_enum)]
    pub by: Option<By>,
    /// Long drills in their short form
    #[arg(long)]
    pub short: bool,
    /// How many cables the drill `cable-pull` pulls; with 4 each port of each host has its turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(4..=1000))]
    pub pulls: Option<u32>,
    /// How many minutes the drill `kernel-storm` lasts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=600))]
    pub minutes: Option<u32>,
    /// What the drill `kernel-storm` draws its choices from: an earlier run's seed makes them again
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Do not say what happens, only what came of it
    #[arg(long)]
    pub quiet: bool,
}

fn find_program(name: &str) -> Result<String, String> {
    let names = programs();
    if names.contains(&name) {
        return Ok(name.to_owned());
    }
    Err(format!("no such program; there are: {}", names.join(", ")))
}

/// The drill that runs when none is named.
pub const DEFAULT: &str = cable_pull::DRILL.name;

/// A drill: what it shows, and its parts by the world they need.
///
/// The parts share the timeline and the report. Changing worlds takes
/// a while, so the runner runs the flat parts of all drills before the first part in namespaces.
pub struct Drill {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows, in one line.
    pub about: &'static str,
    /// Its parts; none twice for one world.
    pub parts: &'static [Part],
}

/// A part of a drill.
pub struct Part {
    /// Where it runs.
    pub world: Kind,
    /// What it does.
    pub run: fn(&mut Context<'_>) -> Result<(), Failure>,
}

/// What a part of a drill works with.
pub struct Context<'a> {
    /// What it acts on.
    pub world: &'a mut World,
    /// What happened.
    pub timeline: Timeline,
    /// What the command line says.
    pub options: &'a Options,
    /// What was found so far.
    pub report: &'a mut Report,
}

impl Context<'_> {
    /// Ends the streams; what came of them, and their longest stall, is in the report.
    fn finish(&mut self, streams: Streams) -> Result<(), Failure> {
        let longest = streams.finish(&self.timeline, self.report)?;
        self.report.stalled(longest);
        Ok(())
    }
}

impl Drill {
    /// The part for a world, if it has one.
    pub fn part(&self, world: Kind) -> Option<&Part> {
        self.parts.iter().find(|part| part.world == world)
    }

    /// The world of the part that runs last.
    pub fn last_world(&self) -> Option<Kind> {
        self.parts.iter().map(|part| part.world).max()
    }

    /// The names of its worlds, as `flat` or `flat+netns`.
    pub fn worlds(&self) -> String {
        let names: Vec<_> = self.parts.iter().map(|part| part.world.name()).collect();
        names.join("+")
    }

    /// The drill with this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|drill| drill.name == name)
    }
}

/// The rows and families that the drill `programs` has.
pub fn programs() -> Vec<&'static str> {
    programs::names()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_is_sound() {
        assert!(Drill::find(DEFAULT).is_some());
        assert!(Drill::find("no-such-drill").is_none());
        for drill in ALL {
            assert_eq!(
                ALL.iter().filter(|other| other.name == drill.name).count(),
                1
            );
            assert!(!drill.parts.is_empty(), "{}", drill.name);
            assert!(
                drill.parts.is_sorted_by_key(|part| part.world),
                "{}",
                drill.name
            );
            assert!(
                !drill.about.contains('\n') && drill.about.len() <= 80,
                "{}",
                drill.name
            );
        }
    }
}
