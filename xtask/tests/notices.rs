// SPDX-License-Identifier: MIT OR Apache-2.0
//! The licence texts that are installed are those of the crates that are linked.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const NOTICES: &str = "apmd/dist/third-party-notices.txt";

fn workspace() -> &'static Path {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("a workspace")
}

/// Crates that apmd, apmctl and the library are linked with, as `NAME VERSION`: all that is not this project's.
fn linked() -> BTreeSet<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.current_dir(workspace());
    tree.args(["tree", "--locked", "--offline", "--edges", "normal"]);
    tree.args(["--target", "x86_64-unknown-linux-gnu", "--prefix", "none"]);
    tree.args(["--format", "{p}", "-p", "apmd", "-p", "librdmacm-apm"]);
    let done = tree.output().expect("cargo runs");
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{error}");
    let listed = String::from_utf8(done.stdout).expect("names are UTF-8");
    let crates = listed.lines().filter(|line| !line.contains("(/"));
    let crates = crates.filter_map(|line| line.split_once(" v"));
    let crates = crates.map(|(name, rest)| {
        let version = rest.split_once(' ').map_or(rest, |(version, _)| version);
        format!("{name} {version}")
    });
    crates.collect()
}

#[test]
fn every_crate_that_is_linked_has_its_licence_text_installed() {
    let text = fs::read_to_string(workspace().join(NOTICES)).expect("written");
    let named: BTreeSet<_> = { text.lines() }
        .filter_map(|line| line.strip_prefix("- "))
        .filter(|line| line.split(' ').count() == 2)
        .map(str::to_owned)
        .collect();
    let linked = linked();
    assert!(linked.len() > 20, "cargo lists them");
    let missing: Vec<_> = linked.difference(&named).collect();
    assert!(
        missing.is_empty(),
        "not in {NOTICES}: {missing:?}; run `cargo xtask notices`"
    );
}
