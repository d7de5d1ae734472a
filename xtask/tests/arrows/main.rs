// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which crate may use which: the arrows of docs/architecture.md. Also that no modules of a crate use
//! each other in a circle, that the crates without I/O do none, and that the daemon has no type that
//! sees everything.

mod circles;
mod resolve;
mod sans_io;
mod small_trees;
mod source;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::source::Crate;

/// Each crate of the workspace and what it may use of the workspace.
const ARROWS: &[(&str, &[&str])] = &[
    ("cm-msgs", &[]),
    ("pathdb", &["cm-msgs"]),
    ("statemachine", &["cm-msgs"]),
    ("paths", &["cm-msgs", "statemachine", "pathdb"]),
    ("acm", &["cm-msgs", "statemachine", "pathdb", "paths"]),
    (
        "apmd",
        &[
            "cm-msgs",
            "statemachine",
            "pathdb",
            "paths",
            "acm",
            "rdma-sys",
        ],
    ),
    ("librdmacm-apm", &["cm-msgs", "rdma-sys"]),
    ("rdma-sys", &[]),
    (
        "testbed",
        &[
            "cm-msgs",
            "pathdb",
            "statemachine",
            "paths",
            "acm",
            "apmd",
            "librdmacm-apm",
        ],
    ),
    (FOR_TESTS, &["cm-msgs", "statemachine", "pathdb"]),
    ("xtask", &[]),
];

/// What tests and benches of any crate may use besides.
const FOR_TESTS: &str = "test-fabrics";

/// The crates without I/O, clock, descriptors, threads and randomness.
const SANS_IO: &[&str] = &["cm-msgs", "statemachine", "paths", "acm"];

/// A type of the daemon with more fields, or with methods in more files, sees too much.
const FIELDS: usize = 12;
const FILES: usize = 3;

/// Modules that use each other in circles still.
const CIRCLES: &[&str] = &[];

/// Types of the daemon that are too large still.
const LARGE: &[&str] = &[];

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

/// Each member of the workspace with the members that it depends on, for whatever purpose but
/// [`FOR_TESTS`].
fn members() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = cargo(&["metadata", "--format-version=1", "--no-deps", "--offline"]);
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo metadata prints JSON");
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().expect("dependencies");
            let ours = dependencies.iter().filter(|dependency| {
                let for_tests = dependency["kind"] == "dev" && dependency["name"] == FOR_TESTS;
                !dependency["path"].is_null() && !for_tests
            });
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

/// The libraries and programs of a member of the workspace.
fn sources(member: &str) -> Vec<Crate> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.expect("a workspace");
    let directory = match member {
        FOR_TESTS => root.join("testbed").join(member),
        "rdma-sys" => root.join("librdmacm-apm").join(member),
        _ => root.join(member),
    };
    source::package(&directory)
}

/// Fails on what is not listed as known, and on what is listed and no longer so.
fn ensure_known(known: &[&str], found: &BTreeMap<String, String>) {
    let new = found
        .iter()
        .filter(|(name, _)| !known.contains(&name.as_str()));
    let (names, what): (BTreeSet<_>, BTreeSet<_>) = new.unzip();
    let gone = known.iter().filter(|name| !found.contains_key(**name));
    let gone: Vec<_> = gone.collect();
    let what: String = what.into_iter().map(|what| format!("{what}\n")).collect();
    assert!(
        names.is_empty() && gone.is_empty(),
        "new: {names:?}\n{what}no longer, so take them off the list: {gone:?}"
    );
}

#[test]
fn modules_do_not_use_each_other_in_circles() {
    let mut found = BTreeMap::new();
    for member in members().keys() {
        for circle in sources(member).iter().flat_map(circles::circles) {
            let uses = circle.uses.join("\n");
            found.extend(circle.modules.into_iter().map(|name| (name, uses.clone())));
        }
    }
    ensure_known(CIRCLES, &found);
}

#[test]
fn crates_without_io_do_none() {
    let members = members();
    for member in SANS_IO.iter().filter(|name| members.contains_key(**name)) {
        let offences: Vec<_> = sources(member).iter().flat_map(sans_io::offences).collect();
        assert!(offences.is_empty(), "{member}:\n{}", offences.join("\n"));
    }
}

#[test]
fn no_type_of_the_daemon_sees_everything() {
    let mut found = BTreeMap::new();
    for (name, size) in sources("apmd").iter().flat_map(types::sizes) {
        if size.fields > FIELDS || size.files.len() > FILES {
            found.insert(name, format!("{size:#?}"));
        }
    }
    ensure_known(LARGE, &found);
}
