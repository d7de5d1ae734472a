// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask drill`: runs the drills of the testbed in the VM.

use std::process::Command;
use std::time::Duration;

use clap::Args;

use crate::error::Error;
use crate::{artefacts, packages, shell, vm};

/// The in-VM runner, a program of the testbed crate.
const RUNNER: &str = "apm-drill";

/// How long a drill may take, on a very busy machine, before the VM counts as hung.
const LIMIT: Duration = Duration::from_secs(900);

/// What the command line says.
#[derive(Args)]
pub(crate) struct Options {
    /// Drills to run, one after the other; cable-pull if none is named
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// List the drills
    #[arg(long)]
    list: bool,
    /// One JSON object a drill, as the last lines
    #[arg(long)]
    json: bool,
}

/// `cargo xtask drill`.
pub(crate) fn run(options: &Options) -> Result<u8, Error> {
    if options.list {
        print!("{}", list(options.json)?);
        return Ok(0);
    }
    let mut arguments = options.names.clone();
    if options.json {
        arguments.push("--json".to_owned());
    }
    let quoted: String = arguments
        .iter()
        .map(|argument| format!(" {}", quote(argument)))
        .collect();
    let mut run = vm::Run::script(format!("exec {RUNNER}{quoted}\n"));
    run.limit = Some(LIMIT * options.names.len().max(1) as u32);
    vm::start(&run)
}

/// The names of all drills, in the order of `cargo xtask drill --list`, whose lines begin with them.
pub(crate) fn names() -> Result<Vec<String>, Error> {
    Ok(first_words(&list(false)?))
}

fn first_words(listing: &str) -> Vec<String> {
    listing
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// What the runner lists; it needs no VM for that.
fn list(json: bool) -> Result<String, Error> {
    packages::install(packages::BUILD)?;
    let runner = artefacts::rust()?
        .into_iter()
        .find(|artefact| artefact.from.ends_with(RUNNER))
        .ok_or_else(|| Error::Other(format!("the testbed crate builds no {RUNNER}")))?;
    let mut command = Command::new(runner.from);
    command.arg("--list").args(json.then_some("--json"));
    shell::output(&format!("{RUNNER} --list"), &mut command)
}

/// One word for the shell, whatever is in it.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drills_are_named_by_first_words() {
        let listing = "cable-pull   pulls cables\nblackhole  ...\n\n";
        assert_eq!(first_words(listing), ["cable-pull", "blackhole"]);
    }

    #[test]
    fn quoting_leaves_nothing_to_the_shell() {
        assert_eq!(quote("cable-pull"), "'cable-pull'");
        assert_eq!(quote("a'; reboot"), r"'a'\''; reboot'");
    }
}
