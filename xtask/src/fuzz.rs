// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask fuzz`: the property tests that give decoders, files and the engine anything, for as
//! long as is asked. `cargo test` runs each a few hundred times. What fails is made small, printed,
//! and kept beside the test (`proptest-regressions`), which tries it first from then on.

use std::process::Stdio;
use std::time::{Duration, Instant};

use clap::Args;

use crate::error::Error;
use crate::{packages, shell, workspace};

/// Property tests of one test program, and nothing else of it.
struct Target {
    /// What is given anything.
    what: &'static str,
    package: &'static str,
    /// As cargo selects the program.
    program: &'static [&'static str],
    /// How the names of the tests begin.
    tests: &'static [&'static str],
}

const TARGETS: &[Target] = &[
    Target {
        what: "decoders of CM, SA, ACM, libraries' messages, private data",
        package: "cm-msgs",
        program: &["--test=wire"],
        tests: &["any_bytes::"],
    },
    Target {
        what: "the engine: events, MADs, programs, sources",
        package: "statemachine",
        program: &["--test=any_events"],
        tests: &["any_"],
    },
    Target {
        what: "fabric files: snapshots, OpenSM's, risks",
        package: "pathdb",
        program: &["--test=any_files"],
        tests: &["any_"],
    },
    Target {
        what: "the SA's answers and reports, an ACM service's, path files",
        package: "paths",
        program: &["--test=any_bytes"],
        tests: &["any_"],
    },
    Target {
        what: "ibacm's files, frames of ACM's socket",
        package: "acm",
        program: &["--test=any_bytes"],
        tests: &["any_"],
    },
    Target {
        what: "the kernel's path requests",
        package: "acm",
        program: &["--lib"],
        tests: &["kernel::tests::any_"],
    },
    Target {
        what: "configuration, operators' requests, netlink",
        package: "apmd",
        program: &["--lib"],
        tests: &[
            "config::any_text::",
            "observe::request::tests::any_",
            "io::any_datagram::",
        ],
    },
];

/// Cases of the first run, by which the others are measured, and of a run at most.
const FIRST: u64 = 32;
const MOST: u64 = 1 << 20;

/// What the command line says.
#[derive(Args)]
pub(crate) struct Options {
    /// How long, in all, not counting the build
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
}

/// `cargo xtask fuzz`.
pub(crate) fn run(options: &Options) -> Result<u8, Error> {
    packages::install(packages::BUILD)?;
    let share = Duration::from_secs(options.seconds) / TARGETS.len() as u32;
    println!(
        "{:>12}  {:>8}  what was given anything",
        "executions", "seconds"
    );
    let mut sum = 0;
    for target in TARGETS {
        target.build()?;
        let started = Instant::now();
        let executions = target.fuzz(share)?;
        sum += executions;
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "{executions:12}  {seconds:8.1}  {}: {}",
            target.package, target.what
        );
    }
    println!("{sum:12}");
    Ok(0)
}

impl Target {
    fn arguments(&self) -> Vec<&'static str> {
        let mut arguments = vec!["test", "--quiet", "--package", self.package];
        arguments.extend(self.program);
        arguments
    }

    fn build(&self) -> Result<(), Error> {
        let mut command = workspace::cargo(&self.arguments());
        shell::output("build", command.arg("--no-run")).map(drop)
    }

    /// Runs until the time is over; how often tests were run.
    fn fuzz(&self, time: Duration) -> Result<u64, Error> {
        let started = Instant::now();
        let (mut cases, mut executions) = (FIRST, 0);
        loop {
            let before = started.elapsed();
            executions += self.once(cases)?;
            let now = started.elapsed();
            let left = time.saturating_sub(now);
            let rate = cases as f64 / (now - before).as_secs_f64();
            cases = ((rate * left.as_secs_f64()) as u64).min(MOST);
            if cases < FIRST {
                return Ok(executions);
            }
        }
    }

    /// Each test so often; what it found is printed.
    fn once(&self, cases: u64) -> Result<u64, Error> {
        let mut command = workspace::cargo(&self.arguments());
        command
            .arg("--")
            .args(self.tests)
            .env("PROPTEST_CASES", cases.to_string())
            .stderr(Stdio::inherit());
        let done = command.output().map_err(|source| Error::Start {
            program: "cargo".to_owned(),
            source,
        })?;
        let text = String::from_utf8_lossy(&done.stdout);
        if !done.status.success() {
            print!("{text}");
            return Err(Error::Failed {
                what: format!("fuzz {}", self.package),
                status: done.status.to_string(),
                output: String::new(),
            });
        }
        match passed(&text) {
            0 => Err(Error::Other(format!(
                "fuzz {}: no such tests",
                self.package
            ))),
            tests => Ok(tests * cases),
        }
    }
}

/// How many tests passed, as the test program says at its end.
fn passed(text: &str) -> u64 {
    let results = text.lines().filter_map(|line| {
        let counts = line.strip_prefix("test result: ok. ")?;
        counts.split(' ').next()?.parse::<u64>().ok()
    });
    results.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted() {
        let text = "\nrunning 2 tests\n..\ntest result: ok. 2 passed; 0 failed; 0 ignored\n";
        assert_eq!(passed(text), 2);
        assert_eq!(passed("test result: FAILED. 1 passed; 1 failed"), 0);
    }
}
