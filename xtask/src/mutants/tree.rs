// SPDX-License-Identifier: MIT OR Apache-2.0
//! A copy of the workspace with all mutants in the engine's sources, built once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::PACKAGE;
use super::embed::{self, Embedded, Number};
use super::listing::Listed;
use crate::error::{Error, InFile};
use crate::{shell, workspace};

/// What decides which mutant is on.
const SWITCH: &str = include_str!("switch.rs.txt");

/// What declares it.
const SWITCH_MODULE: &str = "#[allow(missing_docs)]\npub mod mutant_switch;\n";

/// What the compiler finds by itself no test need find.
const LINTS: &str = "#![no_std]\n#![allow(arithmetic_overflow, unconditional_panic)]\n";

/// The model checker takes minutes to build and to run.
const MODEL: &str = "#[cfg(test)]\nmod model;\n";

/// A build says of some mutants only that they are wrong after others, that were wrong sooner, are left out.
const ROUNDS: usize = 16;

/// The copy.
pub(super) struct Tree {
    root: PathBuf,
    /// Whether the model checker is in it.
    model: bool,
}

/// Test binaries, and which mutants are in them.
pub(super) struct Built {
    /// The crate's own tests first.
    pub(super) binaries: Vec<PathBuf>,
    /// Those of the list that are in them; the others do not compile, or are constants.
    pub(super) embedded: BTreeSet<Number>,
}

impl Tree {
    /// The copy below the target directory, brought up to date. What has not changed is not written: cargo looks at
    /// times.
    pub(super) fn copy(model: bool) -> Result<Self, Error> {
        let root = workspace::target().join("mutants").join("tree");
        let mut git = Command::new("git");
        git.current_dir(workspace::root());
        git.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
        let files = shell::output("git ls-files", &mut git)?;
        let files: BTreeSet<&str> = files.lines().collect();
        for file in &files {
            let from = workspace::root().join(file);
            // Removed, and not committed.
            if from.is_file() {
                let content = fs::read(&from).in_file(&from)?;
                write(&root.join(file), &content)?;
            }
        }
        let tree = Self { root, model };
        tree.remove_others(&tree.root.join(PACKAGE), &files)?;
        Ok(tree)
    }

    /// Removes from the package what is no longer in the workspace: cargo finds tests by itself.
    fn remove_others(&self, directory: &Path, files: &BTreeSet<&str>) -> Result<(), Error> {
        for entry in fs::read_dir(directory).in_file(directory)? {
            let path = entry.in_file(directory)?.path();
            if path.is_dir() {
                self.remove_others(&path, files)?;
                continue;
            }
            let name = path.strip_prefix(&self.root).unwrap_or(&path);
            let is_wanted = workspace::root().join(name).is_file();
            if !is_wanted || !files.contains(&*name.to_string_lossy()) {
                fs::remove_file(&path).in_file(&path)?;
            }
        }
        Ok(())
    }

    /// Builds the tests with all mutants in them that compile.
    ///
    /// # Errors
    /// The sources do not compile without any mutant either.
    pub(super) fn build(&self, mutants: &[Listed]) -> Result<Built, Error> {
        let mut wanted: BTreeSet<Number> = (0..mutants.len()).collect();
        for _ in 0..ROUNDS {
            let files = self.embed(mutants, &wanted)?;
            let messages = self.cargo(&["check", "--lib"])?;
            let wrong = wrong_ones(&messages, &files)?;
            if wrong.is_empty() {
                let messages = self.cargo(&["test", "--no-run"])?;
                let binaries = messages.iter().filter_map(executable).collect();
                let embedded = files.values().flat_map(|file| file.numbers.iter().copied());
                return Ok(Built {
                    binaries,
                    embedded: embedded.collect(),
                });
            }
            wanted.retain(|number| !wrong.contains(number));
        }
        Err(Error::Other(format!(
            "{} does not compile",
            self.root.display()
        )))
    }

    /// Writes the package's sources, and says what is in them.
    fn embed(
        &self,
        mutants: &[Listed],
        wanted: &BTreeSet<Number>,
    ) -> Result<BTreeMap<String, Embedded>, Error> {
        let mut of_file: BTreeMap<&str, Vec<(Number, &Listed)>> = BTreeMap::new();
        for (number, mutant) in mutants.iter().enumerate() {
            // Written without any as well: it was written with them.
            let of_file = of_file.entry(&mutant.file).or_default();
            if wanted.contains(&number) {
                of_file.push((number, mutant));
            }
        }
        let lib = format!("{PACKAGE}/src/lib.rs");
        of_file.entry(&lib).or_default();
        let mut files = BTreeMap::new();
        for (file, mutants) in of_file {
            let path = workspace::root().join(file);
            let text = fs::read_to_string(&path).in_file(&path)?;
            let mut embedded = embed::embed(&text, &mutants)
                .map_err(|error| Error::Other(format!("{file}: {error}")))?;
            if file == lib {
                embedded.text.push_str(SWITCH_MODULE);
                embedded.text = embedded.text.replace("#![no_std]\n", LINTS);
                if !self.model {
                    embedded.text = embedded.text.replace(MODEL, "");
                }
            }
            write(&self.root.join(file), embedded.text.as_bytes())?;
            files.insert(file.to_owned(), embedded);
        }
        let switch = self.root.join(PACKAGE).join("src").join("mutant_switch.rs");
        write(&switch, SWITCH.as_bytes())?;
        Ok(files)
    }

    /// What cargo reports of the package.
    fn cargo(&self, arguments: &[&str]) -> Result<Vec<Value>, Error> {
        let mut cargo = workspace::cargo(arguments);
        cargo.current_dir(&self.root);
        cargo.args(["--package", PACKAGE, "--profile", "mutants"]);
        cargo.args(["--message-format", "json", "--quiet"]);
        cargo.arg("--target-dir").arg(workspace::target());
        let output = cargo.output().map_err(|source| Error::Start {
            program: "cargo".to_owned(),
            source,
        })?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let messages = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        Ok(messages.collect())
    }
}

impl Built {
    /// Copies the test binaries.
    pub(super) fn copy_binaries(&self, to: &Path) -> Result<Vec<PathBuf>, Error> {
        fs::create_dir_all(to).in_file(to)?;
        let copy = |(number, binary): (usize, &PathBuf)| {
            let copy = to.join(number.to_string());
            fs::copy(binary, &copy).in_file(binary)?;
            Ok(copy)
        };
        self.binaries.iter().enumerate().map(copy).collect()
    }
}

/// Writes a file, if it is not so already.
fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).in_file(directory)?;
    }
    fs::write(path, content).in_file(path)
}

/// The test binary that a message tells of.
fn executable(message: &Value) -> Option<PathBuf> {
    message["executable"].as_str().map(PathBuf::from)
}

/// The mutants that errors are in.
fn wrong_ones(
    messages: &[Value],
    files: &BTreeMap<String, Embedded>,
) -> Result<BTreeSet<Number>, Error> {
    let errors = messages.iter().map(|message| &message["message"]);
    let errors = errors.filter(|message| message["level"] == "error");
    let mut wrong = BTreeSet::new();
    for error in errors {
        let spans = error["spans"].as_array().map(Vec::as_slice);
        let spans = spans.unwrap_or_default();
        let found: BTreeSet<Number> = spans
            .iter()
            .filter_map(|span| mutant_at(span, files))
            .collect();
        if found.is_empty() && !spans.is_empty() {
            let text = error["rendered"].as_str().unwrap_or_default();
            return Err(Error::Other(format!("no mutant's error: {text}")));
        }
        wrong.extend(found);
    }
    Ok(wrong)
}

/// The mutant that a compiler's span is in.
fn mutant_at(span: &Value, files: &BTreeMap<String, Embedded>) -> Option<Number> {
    let file = files.get(span["file_name"].as_str()?)?;
    let number = |name: &str| span[name].as_u64().and_then(|byte| byte.try_into().ok());
    let (start, end): (usize, usize) = (number("byte_start")?, number("byte_end")?);
    let mut pieces = file.pieces.iter();
    let holds =
        |piece: &&(std::ops::Range<usize>, Number)| piece.0.start <= start && end <= piece.0.end;
    pieces.find(holds).map(|(_, number)| *number)
}
