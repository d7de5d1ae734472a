// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which Rust is needed is said in four places, and is the same in each.

use std::fs;
use std::path::Path;

fn of_workspace(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let path = root.expect("a workspace").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The number after the first `before` in a file.
fn version_after(name: &str, before: &str) -> String {
    let text = of_workspace(name);
    let (_, rest) = text
        .split_once(before)
        .unwrap_or_else(|| panic!("{name} says nothing of {before}"));
    let is_number = |c: &char| c.is_ascii_digit() || *c == '.';
    let number: String = rest.chars().take_while(is_number).collect();
    number.trim_end_matches('.').to_owned()
}

#[test]
fn the_rust_that_is_needed_is_the_same_everywhere() {
    let needed = version_after("Cargo.toml", "rust-version = \"");
    assert_eq!(version_after("README.md", "Rust "), needed);
    assert_eq!(version_after("docs/install.md", "Rust "), needed);
    assert_eq!(version_after("rust-toolchain.toml", "Rust "), needed);
}

/// A named channel is fetched where it is missing: without a network nothing would build.
#[test]
fn no_channel_is_forced_on_a_machine() {
    let text = of_workspace("rust-toolchain.toml");
    let mut settings = text.lines().filter(|line| !line.starts_with('#'));
    assert!(settings.all(|line| !line.trim_start().starts_with("channel")));
}
