// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests, each run by itself with one mutant on, until one notices it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::embed::Number;
use crate::error::{Error, InFile};
use crate::shell;

/// How often a running test is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// A test takes this often its usual time, and more, only because of a mutant. Other programs slow it down as well.
const PATIENCE: u32 = 20;

/// And never less than this.
const LEAST_PATIENCE: Duration = Duration::from_secs(8);

/// A test that is tried again alone may take this often as long as the first time.
const AGAIN: u32 = 2;

/// An endless loop may also fill the memory.
const MEMORY: &str = "--as=4000000000";

/// One test.
pub(super) struct Test {
    binary: PathBuf,
    name: String,
    /// How long it takes without mutants.
    takes: Duration,
    /// The mutants that it reaches.
    reaches: BTreeSet<Number>,
}

/// What tests said of a mutant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// This test failed.
    Caught,
    /// This test did not end.
    Endless,
    /// All passed.
    Missed,
}

/// All tests of some binaries but those left out by name; each is run once.
///
/// # Errors
/// A test fails without any mutant.
pub(super) fn tests(
    binaries: &[PathBuf],
    left_out: &[String],
    scratch: &Path,
) -> Result<Vec<Test>, Error> {
    let mut tests = Vec::new();
    for binary in binaries {
        let mut list = Command::new(binary);
        let list = shell::output("tests' names", list.args(["--list", "--format", "terse"]))?;
        let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
        for name in names.filter(|name| !left_out.iter().any(|other| name == other)) {
            tests.push(Test::measure(binary, name, scratch)?);
        }
    }
    tests.sort_by_key(|test| test.takes);
    Ok(tests)
}

impl Test {
    fn measure(binary: &Path, name: &str, scratch: &Path) -> Result<Self, Error> {
        let reached = scratch.join("reached");
        fs::write(&reached, "").in_file(&reached)?;
        let mut test = Self {
            binary: binary.to_owned(),
            name: name.to_owned(),
            takes: Duration::from_secs(600),
            reaches: BTreeSet::new(),
        };
        let started = Instant::now();
        let verdict = test.run("MUTANTS_REACHED", reached.as_os_str(), 1)?;
        if verdict != Verdict::Missed {
            return Err(Error::Other(format!("{name} fails without any mutant")));
        }
        test.takes = started.elapsed();
        let text = fs::read_to_string(&reached).in_file(&reached)?;
        test.reaches = text.lines().filter_map(|line| line.parse().ok()).collect();
        Ok(test)
    }

    /// Runs it once, with its usual time limit `times` over.
    fn run(
        &self,
        variable: &str,
        value: impl AsRef<std::ffi::OsStr>,
        times: u32,
    ) -> Result<Verdict, Error> {
        let mut command = Command::new("prlimit");
        command.arg(MEMORY).arg(&self.binary);
        command.args(["--exact", &self.name, "--test-threads", "1"]);
        // A failing property is not made smaller, nor kept.
        command.env("PROPTEST_MAX_SHRINK_ITERS", "0");
        command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
        command.env("RUST_BACKTRACE", "0").env(variable, value);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().map_err(|source| Error::Start {
            program: "prlimit".to_owned(),
            source,
        })?;
        let patience = (self.takes * PATIENCE).max(LEAST_PATIENCE) * times;
        wait(child, patience).in_file(&self.binary)
    }
}

fn wait(mut child: Child, patience: Duration) -> std::io::Result<Verdict> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if status.success() {
                Verdict::Missed
            } else {
                Verdict::Caught
            });
        }
        if started.elapsed() > patience {
            child.kill()?;
            child.wait()?;
            return Ok(Verdict::Endless);
        }
        thread::sleep(LOOK);
    }
}

/// What the tests say of one mutant: those that reach it, the quickest first. And in words: by which test, or how many
/// have been tried.
pub(super) fn judge(tests: &[Test], mutant: Number) -> Result<(Verdict, String), Error> {
    ask(tests, mutant, 1)
}

/// The same of a mutant with which a test did not end. A test that was slowed down, or stopped for a while, does not end
/// in time either: so no other is to run beside it, and its time limit is longer.
pub(super) fn judge_again(tests: &[Test], mutant: Number) -> Result<(Verdict, String), Error> {
    ask(tests, mutant, AGAIN)
}

fn ask(tests: &[Test], mutant: Number, times: u32) -> Result<(Verdict, String), Error> {
    let reaching = || tests.iter().filter(|test| test.reaches.contains(&mutant));
    for test in reaching() {
        let verdict = test.run("MUTANT", mutant.to_string(), times)?;
        if verdict != Verdict::Missed {
            return Ok((verdict, format!("by {}", test.name)));
        }
    }
    let tried = format!("by {} tests that reach it", reaching().count());
    Ok((Verdict::Missed, tried))
}
