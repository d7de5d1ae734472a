// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask deny`: licences, sources and duplicates of the dependencies, and, where the RustSec database
//! can be had, their advisories, all by cargo-deny.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::cargo_tool::CargoTool;
use crate::error::Error;
use crate::{packages, shell, workspace};

const TOOL: CargoTool = CargoTool {
    name: "cargo-deny",
    version: "0.20.2",
    features: &[],
};

/// As `[graph] targets` in deny.toml.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// How the line begins that tells what was left out of the check.
pub(crate) const REMARK: &str = "advisories: ";

/// `cargo xtask deny`.
pub(crate) fn run() -> Result<u8, Error> {
    packages::install(packages::BUILD)?;
    let deny = CargoDeny::provide()?;
    let mut check = deny.check();
    let program = check.get_program().to_string_lossy().into_owned();
    let start = |source| Error::Start { program, source };
    let passed = check.status().map_err(start)?.success();
    if let Some(remark) = deny.remark() {
        println!("{REMARK}{remark}");
    }
    Ok(u8::from(!passed))
}

/// cargo-deny, and what there is of the advisory database.
struct CargoDeny {
    program: PathBuf,
    database: Database,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Database {
    Fetched,
    /// The network does not lead to it, but an older copy is on this machine.
    Old,
    Absent,
}

impl CargoDeny {
    /// cargo-deny of the wanted version: the user's, or one below the target directory, installed
    /// there if need be.
    fn provide() -> Result<Self, Error> {
        let program = TOOL.provide()?;
        provide_crates()?;
        let mut fetch = Command::new(&program);
        fetch.current_dir(workspace::root()).args(["fetch", "db"]);
        let fetched = shell::output("cargo deny fetch db", &mut fetch).is_ok();
        let database = match fetched {
            true => Database::Fetched,
            false if is_copy_there() => Database::Old,
            false => Database::Absent,
        };
        Ok(Self { program, database })
    }

    /// The check, of all that can be checked.
    fn check(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(workspace::root());
        if self.database != Database::Fetched {
            command.arg("--offline");
        }
        command.args(["check", "--hide-inclusion-graph"]);
        command.args(["bans", "licenses", "sources"]);
        if self.database != Database::Absent {
            command.arg("advisories");
        }
        command
    }

    /// What was left out or is not as it should be, to be said at the end.
    fn remark(&self) -> Option<&'static str> {
        match self.database {
            Database::Fetched => None,
            Database::Old => Some(
                "checked against the copy of the RustSec database that is here, since no newer one can be fetched",
            ),
            Database::Absent => Some("SKIPPED, since the RustSec database cannot be fetched"),
        }
    }
}

/// Where cargo-deny keeps databases unless deny.toml says otherwise.
fn is_copy_there() -> bool {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let entries = home.and_then(|home| fs::read_dir(home.join("advisory-dbs")).ok());
    let mut copies = entries.into_iter().flatten().flatten();
    copies.any(|entry| entry.path().join(".git/FETCH_HEAD").exists())
}

/// The crates whose licences are read. Where the database cannot be had cargo-deny runs offline and fetches none.
pub(crate) fn provide_crates() -> Result<(), Error> {
    let mut fetch = workspace::cargo(&["fetch", "--quiet", "--locked", "--target", TARGET]);
    shell::output("cargo fetch", &mut fetch).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_that_are_fetched_are_those_that_are_checked() {
        let configuration = include_str!("../../deny.toml");
        assert!(configuration.contains(&format!("targets = [\"{TARGET}\"]")));
    }

    #[test]
    fn advisories_are_checked_where_there_is_a_database_and_missed_aloud_where_there_is_none() {
        for (database, offline, checked) in [
            (Database::Fetched, false, true),
            (Database::Old, true, true),
            (Database::Absent, true, false),
        ] {
            let deny = CargoDeny {
                program: "cargo-deny".into(),
                database,
            };
            let command = deny.check();
            let has = |word| command.get_args().any(|argument| argument == word);
            assert_eq!((has("--offline"), has("advisories")), (offline, checked));
            let skipped = deny.remark().is_some_and(|text| text.contains("SKIPPED"));
            assert_eq!(skipped, !checked);
        }
    }
}
