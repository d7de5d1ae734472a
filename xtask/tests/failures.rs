// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of failures in docs/drills.md: every scenario and drill that it names exists, and every failure
//! has one.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands between backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn is_test(name: &str) -> bool {
    let Some((module, test)) = name.split_once("::") else {
        return false;
    };
    let file = format!("statemachine/tests/scenarios/{module}.rs");
    let function = format!("#[test]\nfn {test}()");
    text(&root().join(file)).contains(&function)
}

/// All sources of the drills.
fn drills() -> String {
    let directory = root().join("testbed/src/drills");
    let entries = fs::read_dir(&directory).expect("the drills");
    let files = entries.map(|entry| {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            path.join("mod.rs")
        } else {
            path
        }
    });
    files.map(|path| text(&path)).collect()
}

#[test]
fn each_failure_has_a_scenario_or_a_drill_that_exists() {
    let drills = drills();
    let is_drill = |name: &str| drills.contains(&format!("Drill = Drill {{\n    name: \"{name}\""));
    let document = text(&root().join("docs/drills.md"));
    let (_, table) = document
        .split_once("| failure | scenario | drill |\n|---|---|---|\n")
        .expect("the table");
    let rows: Vec<&str> = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert!(rows.len() > 20, "{}", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let [_, scenarios, named] = cells[..] else {
            panic!("not three columns: {row}");
        };
        let (scenarios, named) = (quoted(scenarios), quoted(named));
        assert!(
            !(scenarios.is_empty() && named.is_empty()),
            "shown nowhere: {row}"
        );
        for name in scenarios {
            assert!(is_test(name), "no scenario {name}");
        }
        for name in named {
            assert!(is_drill(name), "no drill {name}");
        }
    }
}
