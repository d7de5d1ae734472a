// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask drill`: runs the drills of the testbed in the VM.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::error::Error;
use crate::{fabric, kernel, vm};

/// The in-VM runner, a program of the testbed crate.
const RUNNER: &str = "apm-drill";

/// What the runner lists: it need not be built to be asked. A test of the testbed crate holds the two
/// together.
const LISTING: &str = include_str!("../../testbed/drills.txt");

/// Which failure is shown where, in simulated worlds and in this one.
const FAILURES: &str = include_str!("../../docs/drills.md");

/// What `--only` can name; a test of the testbed crate holds it to the table.
const ROWS: &str = include_str!("../../testbed/programs.txt");

/// Fabrics after which the worlds of the drills that need them are named.
const LEAF_SPINE: &str = "leaf-spine";
const TWO_SUBNETS: &str = "two-subnets";

/// Exit status for a command line that makes no sense.
const USAGE: u8 = 2;

/// Stands for all of them.
const ALL: &str = "all";

/// The drill that has rows.
const PROGRAMS: &str = "programs";

/// The drill for which the kernel watches its heap, and how many minutes it lasts if nobody says.
const STORM: &str = "kernel-storm";
const STORM_MINUTES: u32 = 30;

/// How long all rows of `programs` may take.
const TABLE_LIMIT: Duration = Duration::from_secs(6 * 3600);

/// MiB: programs copy files that are kept in memory.
const MEMORY: u32 = 3072;

/// How long a drill may take, on a very busy machine, before the VM counts as hung.
const LIMIT: Duration = Duration::from_secs(900);

/// What the command line says.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Drills to run, one after the other, or `all`; cable-pull if none is named
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// List the drills, and the scenarios of simulated worlds
    #[arg(long)]
    list: bool,
    /// One JSON object a drill on stdout, when it has ended; what happens is on stderr if that is a terminal
    #[arg(long)]
    json: bool,
    /// Rows or families of the drill `programs` to run (repeatable); all without it
    #[arg(long, value_name = "NAME", value_parser = find_row)]
    only: Vec<String>,
    /// What protects the rows of `programs`: the kernel module with nothing preloaded, or the library by
    /// apmctl run. Kernel if this is not said; of the short form's own rows, both
    #[arg(long, value_name = "WAY", value_parser = ["kernel", "library", "both"])]
    by: Option<String>,
    /// Fabric in which `programs` runs; in `leaf-spine` the hosts have one port and lose a spine
    #[arg(long, value_name = "NAME", value_parser = [fabric::DEFAULT, LEAF_SPINE], default_value = fabric::DEFAULT)]
    fabric: String,
    /// Long drills in their short form, as `cargo xtask test` runs them
    #[arg(long)]
    short: bool,
    /// How many cables `cable-pull` pulls: 20 without it; with 4 each port of each host has its turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(4..=1000))]
    pulls: Option<u32>,
    /// How many minutes `kernel-storm` lasts: 30 without it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=600))]
    minutes: Option<u32>,
    /// What `kernel-storm` draws its choices from: the seed that an earlier run has printed
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Bring the files that drills leave (programs.md) to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Which of Debian's kernels to boot
    #[arg(long, value_name = "KERNEL", value_enum, default_value_t)]
    kernel: kernel::Choice,
}

/// `cargo xtask drill`.
pub(crate) fn run(options: &Options) -> Result<u8, Error> {
    if options.list {
        print!("{}", list(options.json));
        return Ok(0);
    }
    let mut options = options.clone();
    if options.names.iter().any(|name| name == ALL) {
        options.names = names().into_iter().map(str::to_owned).collect();
    }
    if let Some(unknown) = options
        .names
        .iter()
        .find(|name| !names().contains(&name.as_str()))
    {
        eprintln!(
            "xtask: no drill is called {unknown}; cargo xtask drill --list says which there are"
        );
        return Ok(USAGE);
    }
    if options.fabric != fabric::DEFAULT && !options.names.iter().any(|name| name == PROGRAMS) {
        eprintln!("xtask: --fabric is for the drill {PROGRAMS}; others have their own");
        return Ok(USAGE);
    }
    let mut status = 0;
    for (fabric, names) in by_fabric(&options.names, &options.fabric) {
        let (storm, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name == STORM);
        let mut machines = vec![(false, others), (true, storm)];
        machines.retain(|(_, of_it)| !of_it.is_empty());
        if machines.is_empty() {
            machines.push((false, Vec::new()));
        }
        for (slab_debug, names) in machines {
            let options = Options {
                names,
                ..options.clone()
            };
            status = status.max(run_in(fabric, slab_debug, &options)?);
        }
    }
    Ok(status)
}

fn find_row(name: &str) -> Result<String, String> {
    let rows: Vec<_> = ROWS.lines().collect();
    if rows.contains(&name) {
        return Ok(name.to_owned());
    }
    Err(format!("no such program; there are: {}", rows.join(", ")))
}

/// The drills by the fabric that they need; `programs` in the fabric `of_programs`. No name at all is
/// left to the runner.
fn by_fabric(names: &[String], of_programs: &str) -> Vec<(&'static str, Vec<String>)> {
    let world_of = |name: &str| drills().find(|drill| drill.name == name).map(|it| it.world);
    let fabric_of = |name: &str| {
        let world = match name {
            PROGRAMS => of_programs,
            name => world_of(name).unwrap_or_default(),
        };
        let others = [LEAF_SPINE, TWO_SUBNETS];
        let named = others.into_iter().find(|fabric| world.starts_with(fabric));
        named.unwrap_or(fabric::DEFAULT)
    };
    let mut groups = Vec::from([fabric::DEFAULT, LEAF_SPINE, TWO_SUBNETS].map(|fabric| {
        let of_it = names.iter().filter(|name| fabric_of(name) == fabric);
        (fabric, of_it.cloned().collect::<Vec<_>>())
    }));
    groups.retain(|(_, of_it)| !of_it.is_empty());
    if groups.is_empty() {
        groups.push((fabric::DEFAULT, Vec::new()));
    }
    groups
}

fn run_in(fabric: &str, slab_debug: bool, options: &Options) -> Result<u8, Error> {
    let quoted: String = arguments(options)
        .iter()
        .map(|argument| format!(" {}", quote(argument)))
        .collect();
    let mut run = vm::Run::script(format!("exec {RUNNER}{quoted}\n"), fabric)?;
    run.kernel = options.kernel;
    run.slab_debug = slab_debug;
    run.limit = Some(limit(options));
    run.memory = MEMORY;
    run.out.clone_from(&options.out);
    vm::start(&run)
}

/// The runner's arguments.
fn arguments(options: &Options) -> Vec<String> {
    let mut arguments = options.names.clone();
    for name in &options.only {
        arguments.extend(["--only".to_owned(), name.clone()]);
    }
    if let Some(by) = &options.by {
        arguments.extend(["--by".to_owned(), by.clone()]);
    }
    let numbers = [
        ("--pulls", options.pulls.map(u64::from)),
        ("--minutes", options.minutes.map(u64::from)),
        ("--seed", options.seed),
    ];
    for (flag, number) in numbers {
        if let Some(number) = number {
            arguments.extend([flag.to_owned(), number.to_string()]);
        }
    }
    // Long work is quiet in a pipe: JSON has its timeline, and whoever has the table of programs in a file wants the
    // table.
    let quiet = match options.json {
        true => !io::stderr().is_terminal(),
        false => is_table(options) && !io::stdout().is_terminal(),
    };
    let flags = [
        ("--json", options.json),
        ("--short", options.short),
        ("--quiet", quiet),
    ];
    let set = flags.iter().filter(|(_, set)| *set);
    arguments.extend(set.map(|(flag, _)| (*flag).to_owned()));
    arguments
}

/// Whether the long table of programs is all that is wanted.
fn is_table(options: &Options) -> bool {
    options.names == [PROGRAMS] && !options.short
}

fn limit(options: &Options) -> Duration {
    let rows_are_named = options.names == [PROGRAMS] && !options.only.is_empty();
    if is_table(options) || rows_are_named {
        return TABLE_LIMIT;
    }
    let storm = match options.names.iter().any(|name| name == STORM) {
        true => 60 * options.minutes.unwrap_or(STORM_MINUTES),
        false => 0,
    };
    LIMIT * options.names.len().max(1) as u32 + Duration::from_secs(storm.into())
}

/// A line of the listing.
struct Listed {
    name: &'static str,
    world: &'static str,
    about: &'static str,
}

fn drills() -> impl Iterator<Item = Listed> {
    LISTING.lines().filter_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        let (world, about) = rest.trim_start().split_once(' ')?;
        let about = about.trim_start();
        Some(Listed { name, world, about })
    })
}

/// The names of all drills, in the order of `cargo xtask drill --list`.
pub(crate) fn names() -> Vec<&'static str> {
    drills().map(|drill| drill.name).collect()
}

/// A failure, and the scenario of a simulated world that shows it: a test of the engine.
struct Scenario {
    name: &'static str,
    failure: &'static str,
}

/// The scenarios in the table of failures; a test holds the table to the tests.
fn scenarios() -> impl Iterator<Item = Scenario> {
    let rows = FAILURES.lines().filter_map(|line| {
        let (failure, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
        let (scenarios, _) = rest.split_once(" | ")?;
        Some((failure, scenarios))
    });
    rows.flat_map(|(failure, scenarios)| {
        let quoted = scenarios.split('`').skip(1).step_by(2);
        let names = quoted.filter(|name| name.contains("::"));
        names.map(move |name| Scenario { name, failure })
    })
}

fn list(json: bool) -> String {
    if json {
        let drills = drills().map(
            |Listed { name, world, about }| json!({"drill": name, "world": world, "about": about}),
        );
        let scenarios = scenarios().map(|Scenario { name, failure }| json!({"scenario": name, "world": "simulated", "about": failure}));
        return drills
            .chain(scenarios)
            .map(|object| object.to_string() + "\n")
            .collect();
    }
    let mut text = LISTING.to_owned();
    text += "\nSimulated worlds (cargo test -p statemachine --test scenarios NAME):\n\n";
    for Scenario { name, failure } in scenarios() {
        text += &format!("{failure}\n    {name}\n");
    }
    text
}

/// One word for the shell, whatever is in it.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_listing_is_a_drill() {
        assert_eq!(drills().count(), LISTING.lines().count());
        assert!(names().contains(&"cable-pull"));
        for line in list(true).lines() {
            let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let name = match object["world"] == "simulated" {
                true => "scenario",
                false => "drill",
            };
            for key in [name, "world", "about"] {
                assert!(
                    object[key].as_str().is_some_and(|text| !text.is_empty()),
                    "{line}"
                );
            }
        }
    }

    #[test]
    fn the_listing_has_both_worlds() {
        assert!(scenarios().count() > 20);
        let text = list(false);
        assert!(text.contains("\ncable-pull ") || text.starts_with("cable-pull "));
        assert!(text.contains("    migration::a_flapping_port_is_not_trusted\n"));
    }

    #[test]
    fn rows_are_known_before_a_vm_is_booted() {
        assert_eq!(find_row("rping").as_deref(), Ok("rping"));
        let refusal = find_row("rpign").expect_err("no such row");
        assert!(refusal.contains("perftest, rdma_cm"), "{refusal}");
    }

    #[test]
    fn drills_are_put_together_by_fabric() {
        let names =
            ["spine", "two-subnets", "blackhole", "neigh", "kernel-spine"].map(str::to_owned);
        assert_eq!(
            by_fabric(&names, fabric::DEFAULT),
            [
                (
                    fabric::DEFAULT,
                    vec!["blackhole".to_owned(), "neigh".to_owned()]
                ),
                (
                    LEAF_SPINE,
                    vec!["spine".to_owned(), "kernel-spine".to_owned()]
                ),
                (TWO_SUBNETS, vec!["two-subnets".to_owned()])
            ]
        );
        assert_eq!(by_fabric(&[], fabric::DEFAULT), [(fabric::DEFAULT, vec![])]);
        assert_eq!(by_fabric(&names[..1], fabric::DEFAULT).len(), 1);
    }

    #[test]
    fn programs_can_be_run_among_spines() {
        let names = ["neigh", PROGRAMS].map(str::to_owned);
        let [neigh, programs] = names.clone();
        assert_eq!(
            by_fabric(&names, LEAF_SPINE),
            [(fabric::DEFAULT, vec![neigh]), (LEAF_SPINE, vec![programs])]
        );
        assert_eq!(by_fabric(&names, fabric::DEFAULT).len(), 1);
    }

    #[test]
    fn quoting_leaves_nothing_to_the_shell() {
        assert_eq!(quote("cable-pull"), "'cable-pull'");
        assert_eq!(quote("a'; reboot"), r"'a'\''; reboot'");
    }
}
