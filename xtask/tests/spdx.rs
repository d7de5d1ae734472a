// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every file that can carry a comment says in its first line under which licence it is.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

/// Prose, what programs print and write (`txt`, among them proptest's own), and what cargo writes.
const EXEMPT: &[&str] = &["md", "txt", "lock"];

/// What belongs to the project, relative to its root. Git is not asked: it may be missing where the tests run, and an
/// unpacked archive has no repository.
fn own_files(root: &Path) -> Vec<PathBuf> {
    let files = WalkBuilder::new(root)
        .hidden(false)
        .parents(false)
        .git_global(false)
        .git_exclude(false)
        .require_git(false)
        .filter_entry(|entry| entry.file_name() != ".git")
        .build()
        .map(|entry| entry.expect("a directory that can be read"));
    files
        .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()))
        .map(|entry| {
            let path = entry.path().strip_prefix(root).expect("below the root");
            path.to_owned()
        })
        .collect()
}

/// What other programs wrote; a README beside it says whose it is.
const DATA: &str = "tests/data";

fn is_source(path: &Path) -> bool {
    if path.to_str().is_some_and(|path| path.contains(DATA)) {
        return false;
    }
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    !EXEMPT.contains(&extension) && !name.starts_with("LICENSE")
}

#[test]
fn every_source_file_has_an_spdx_line() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a workspace");
    let sources: Vec<_> = own_files(root)
        .into_iter()
        .filter(|path| is_source(path))
        .collect();
    assert!(sources.len() > 20, "the sources are found");
    let without: Vec<_> = sources
        .iter()
        .filter(|path| licence(root, path).is_none())
        .collect();
    assert!(without.is_empty(), "without an SPDX line: {without:?}");
}

/// What the first line says after `SPDX-License-Identifier:`.
fn licence(root: &Path, path: &Path) -> Option<String> {
    let text = fs::read(root.join(path)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines().skip_while(|line| line.starts_with("#!/"));
    let (_, expression) = lines.next()?.split_once("SPDX-License-Identifier: ")?;
    Some(expression.trim_end_matches("*/").trim().to_owned())
}

/// The texts of licences are in the tree: those of the kernel module beside it.
#[test]
fn every_licence_that_is_named_has_its_text() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a workspace");
    let mut named = BTreeSet::new();
    for path in own_files(root).into_iter().filter(|path| is_source(path)) {
        let expression = licence(root, &path).unwrap_or_default();
        named.extend(expression.split(" OR ").map(str::to_owned));
    }
    let text = |name: &str| match name {
        "MIT" => "LICENSE-MIT",
        "Apache-2.0" => "LICENSE-APACHE",
        "GPL-2.0" => "kernel/LICENSE-GPL-2.0",
        "BSD-2-Clause" => "kernel/LICENSE-BSD-2-Clause",
        other => panic!("{other} has no text here"),
    };
    assert_eq!(named.len(), 4, "{named:?}");
    for name in named {
        let length = fs::read_to_string(root.join(text(&name))).map_or(0, |text| text.len());
        assert!(length > 1000, "{name}: {length} bytes");
    }
}
