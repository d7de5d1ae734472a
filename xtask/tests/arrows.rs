// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which crate may use which: the arrows of docs/architecture.md.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Each crate of the workspace and what it may use of the workspace.
const ARROWS: &[(&str, &[&str])] = &[
    ("cm-msgs", &[]),
    ("pathdb", &[]),
    ("statemachine", &["cm-msgs"]),
    ("apmd", &["cm-msgs", "statemachine", "pathdb"]),
    ("librdmacm-apm", &["cm-msgs"]),
    (
        "testbed",
        &["cm-msgs", "pathdb", "statemachine", "apmd", "librdmacm-apm"],
    ),
    ("xtask", &[]),
];

fn cargo(arguments: &[&str]) -> String {
    let done = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8(done.stdout).expect("cargo prints UTF-8")
}

/// Each member of the workspace with the members that it depends on, for whatever purpose.
fn members() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = cargo(&["metadata", "--format-version=1", "--no-deps", "--offline"]);
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo metadata prints JSON");
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().expect("dependencies");
            let ours = dependencies
                .iter()
                .filter(|dependency| !dependency["path"].is_null());
            (name(package), ours.map(name).collect())
        })
        .collect()
}

#[test]
fn crates_use_only_what_the_design_allows() {
    for (member, uses) in members() {
        let (_, allowed) = ARROWS
            .iter()
            .find(|(name, _)| *name == member)
            .unwrap_or_else(|| panic!("{member} is not in the design"));
        for used in uses {
            assert!(
                allowed.contains(&used.as_str()),
                "{member} must not use {used}"
            );
        }
    }
}

#[test]
fn the_members_are_read_at_all() {
    let members = members();
    assert!(members.len() >= 6, "{members:?}");
    assert!(members["statemachine"].contains("cm-msgs"));
}

#[test]
fn the_applications_library_has_no_event_loop() {
    let tree = cargo(&[
        "tree",
        "--offline",
        "--package=librdmacm-apm",
        "--edges=normal",
        "--prefix=none",
    ]);
    assert!(
        tree.lines().any(|line| line.starts_with("cm-msgs ")),
        "{tree}"
    );
    for line in tree.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        assert!(
            !["mio", "tokio", "smol"].contains(&name),
            "librdmacm-apm depends on {name}"
        );
    }
}
