// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known not to survive although it is run protected: `known.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::failure::Failure;

const FILE: &str = include_str!("known.toml");

/// Rows, by name.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Known {
    rows: BTreeMap<String, Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    reason: String,
}

impl Known {
    /// What this program was built with.
    pub(super) fn read() -> Result<Self, Failure> {
        Self::parse(FILE)
    }

    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        toml::from_str(text).map_err(|error| Failure::Output {
            source_name: "known.toml".to_owned(),
            problem: error.to_string(),
        })
    }

    /// Why the row does not survive, if that is known.
    pub(super) fn reason(&self, row: &str) -> Option<&str> {
        self.rows.get(row).map(|entry| entry.reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drills::programs::table;

    /// The part of the users' manual that is this list.
    fn of_the_manual() -> BTreeMap<String, String> {
        const MANUAL: &str = include_str!("../../../../docs/programs.md");
        let (_, part) = MANUAL
            .split_once("## Known not to survive")
            .expect("the manual has that part");
        let rows = part.lines().take_while(|line| !line.starts_with("## "));
        rows.filter_map(|line| line.strip_prefix("| `"))
            .filter_map(|line| line.strip_suffix(" |")?.split_once("` | "))
            .map(|(row, reason)| (row.to_owned(), reason.to_owned()))
            .collect()
    }

    #[test]
    fn the_list_is_of_rows_and_has_reasons() {
        let known = Known::read().expect("well formed");
        for (name, entry) in &known.rows {
            assert!(table::find(name).is_some(), "no row {name}");
            assert!(!entry.reason.trim().is_empty(), "{name}");
        }
    }

    #[test]
    fn the_manual_has_the_same_list() {
        let known = Known::read().expect("well formed");
        let listed: BTreeMap<_, _> = known
            .rows
            .into_iter()
            .map(|(row, entry)| (row, entry.reason))
            .collect();
        assert_eq!(of_the_manual(), listed);
    }
}
