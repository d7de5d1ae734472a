// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask test`: everything that must hold, step by step, with a summary at the end.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::deny::CargoDeny;
use crate::error::Error;
use crate::workspace::{self, cargo};
use crate::{drill, fabrics, packages, shell};

/// What all of it, set-up included, is meant to take at most on two cores; said when it is exceeded, no failure: the
/// machine may have had other things to do.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// Drills that are run by name only.
const BY_NAME_ONLY: &[&str] = &[
    "kernel-srp",
    "kernel-nvme",
    "kernel-nfs",
    "kernel-rds",
    "kernel-spine",
];

/// One thing to be done and how.
struct Step {
    name: &'static str,
    command: Command,
}

/// What is run how.
struct Plan {
    /// These first, one after the other: each of them keeps all cores busy.
    alone: Vec<Step>,
    /// Then these, side by side, each row in its order: a VM waits for its programs' timers for half of its time.
    side_by_side: [Vec<Step>; 2],
}

/// What becomes of a step's output while it runs.
#[derive(Clone, Copy)]
enum Show {
    /// It is shown line by line.
    AtOnce,
    /// It is shown when the step has ended, so that steps side by side do not mix.
    AtTheEnd,
}

/// How a step went.
struct Outcome {
    name: &'static str,
    passed: bool,
    time: Duration,
    output: String,
}

/// `cargo xtask test`.
pub(crate) fn run() -> Result<u8, Error> {
    let started = Instant::now();
    packages::install(&packages::all())?;
    provide_components()?;
    let deny = CargoDeny::provide()?;
    println!("set-up: {:.0} s", started.elapsed().as_secs_f32());
    let plan = plan(&deny);
    let mut outcomes = perform_all(plan.alone, Show::AtOnce)?;
    for row in perform_side_by_side(plan.side_by_side) {
        outcomes.extend(row?);
    }
    let time = started.elapsed();
    print_summary(&outcomes, time);
    print_test_runner(&outcomes);
    if let Some(remark) = deny.remark() {
        println!("{remark}");
    }
    if time > LIMIT {
        println!("longer than {} minutes", LIMIT.as_secs() / 60);
    }
    Ok(u8::from(outcomes.iter().any(|outcome| !outcome.passed)))
}

/// This program with other arguments, by cargo: a step may have it built anew.
fn xtask(arguments: &[&str]) -> Command {
    let mut command = cargo(&["run", "--quiet", "--package", "xtask", "--"]);
    command.args(arguments);
    command
}

/// All steps.
fn plan(deny: &CargoDeny) -> Plan {
    Plan {
        alone: without_vm(deny),
        side_by_side: [vec![drills_of_all()], other_vms()],
    }
}

fn step(name: &'static str, command: Command) -> Step {
    Step { name, command }
}

/// What runs on this machine only.
fn without_vm(deny: &CargoDeny) -> Vec<Step> {
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast"]);
    tests.env("APMD_REQUIRE_TSHARK", "1");
    tests.env("APMD_REQUIRE_IBSIM", "1");
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ];
    vec![
        step("format", cargo(&["fmt", "--all", "--check"])),
        step("clippy", cargo(&clippy)),
        step("cargo deny", deny.check()),
        step("cargo test", tests),
    ]
}

/// The long ones in their short form.
fn drills_of_all() -> Step {
    let words = [&["drill", "--short"], &drills()[..]].concat();
    step("drills", xtask(&words))
}

/// The world's own check, and what else boots VMs or takes long.
fn other_vms() -> Vec<Step> {
    // The row as-described holds the fabric against the file's copy.
    let file = workspace::root().join("testbed/vm/fabrics/ring.net");
    let file = file.to_string_lossy();
    let short = |options: &[&str]| xtask(&[&["vm", "--check", "--short"], options].concat());
    let second_shell = [
        "test",
        "--quiet",
        "--package=xtask",
        "--test=second_shell",
        "--",
        "--ignored",
    ];
    let benches = [
        "bench", "--short", "pathdb", "sa", "codec", "engine", "rearm", "acm", "connect",
        "failover", "overhead",
    ];
    vec![
        step("vm --check", xtask(&["vm", "--check"])),
        step("leaf and spine", short(&["--fabric", "leaf-spine"])),
        step(
            "a file's fabric",
            short(&["--fabric", &file, "--copy", &file]),
        ),
        step(
            "newer kernel",
            xtask(&["vm", "--check", "--kernel", "backports"]),
        ),
        step("second shell", cargo(&second_shell)),
        step("fabrics", xtask(&[&["fabrics"], fabrics::OF_TEST].concat())),
        step("benches", xtask(&benches)),
        step("README", xtask(&["readme"])),
        step(
            "newer kernel, drill",
            xtask(&["drill", "--kernel", "backports", "--pulls", "4"]),
        ),
    ]
}

/// All drills but those of which the tests have a like one: kernel ULPs differ in what they make of the same queue
/// pairs' care.
fn drills() -> Vec<&'static str> {
    let is_left_out = |name: &&str| BY_NAME_ONLY.contains(name);
    let mut names = drill::names();
    names.retain(|name| !is_left_out(name));
    names
}

/// Runs steps one after the other.
fn perform_all(steps: Vec<Step>, show: Show) -> Result<Vec<Outcome>, Error> {
    steps.into_iter().map(|step| perform(step, show)).collect()
}

fn perform_side_by_side(rows: [Vec<Step>; 2]) -> [Result<Vec<Outcome>, Error>; 2] {
    let start = |steps| thread::spawn(|| perform_all(steps, Show::AtTheEnd));
    let end = |row: thread::JoinHandle<_>| {
        let panicked = |_| Err(Error::Other("a row of steps panicked".to_owned()));
        row.join().unwrap_or_else(panicked)
    };
    rows.map(start).map(end)
}

/// Runs a step; what it prints is shown and kept.
fn perform(step: Step, show: Show) -> Result<Outcome, Error> {
    println!("\n=== {}", step.name);
    let started = Instant::now();
    let mut command = step.command;
    let (output, passed) = run_command(&mut command, show)?;
    let time = started.elapsed();
    let mut stdout = io::stdout().lock();
    let said = match show {
        Show::AtOnce => "",
        Show::AtTheEnd => &output,
    };
    writeln!(
        stdout,
        "{said}=== {}: {}, {:.0} s",
        step.name,
        verdict(passed),
        time.as_secs_f32()
    )
    .map_err(|source| Error::Start {
        program: "standard output".to_owned(),
        source,
    })?;
    Ok(Outcome {
        name: step.name,
        passed,
        time,
        output,
    })
}

/// Runs `command`, keeping its output. Both of its streams are one, which keeps their order.
fn run_command(command: &mut Command, show: Show) -> Result<(String, bool), Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let start = |source| Error::Start {
        program: program.clone(),
        source,
    };
    let (reader, writer) = io::pipe().map_err(start)?;
    command.stdin(Stdio::null());
    command
        .stdout(writer.try_clone().map_err(start)?)
        .stderr(writer);
    let mut child = command.spawn().map_err(start)?;
    // The pipe ends when nobody holds its other end any more: not this process either.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut output = String::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.map_err(start)?;
        let line = String::from_utf8_lossy(&line);
        if let Show::AtOnce = show {
            writeln!(io::stdout(), "{line}").map_err(start)?;
        }
        output.push_str(&line);
        output.push('\n');
    }
    let status = child.wait().map_err(start)?;
    Ok((output, status.success()))
}

fn verdict(passed: bool) -> &'static str {
    if passed { "passed" } else { "FAILED" }
}

/// The lines by which the test runners say what they ran and what came out, and why it failed: of
/// a long run, often nothing but its end is kept.
fn runner_lines(output: &str) -> impl Iterator<Item = &str> {
    const STARTS: &[&str] = &[
        "Running ",
        "Doc-tests ",
        "test result: ",
        "vm --check: ",
        "fabrics: ",
        // What a failed row of the check printed.
        "| ",
        "xtask: kernel fault: ",
    ];
    output.lines().filter(|line| {
        let text = line.trim_start();
        STARTS.iter().any(|start| text.starts_with(start))
            || (text.ends_with(": ok") && !text.starts_with("test "))
            || text.ends_with("... FAILED")
            || text.contains(": FAILED")
    })
}

fn print_summary(outcomes: &[Outcome], total: Duration) {
    println!("\n{:<22} {:<7} {:>8}", "step", "result", "seconds");
    for Outcome {
        name, passed, time, ..
    } in outcomes
    {
        println!(
            "{name:<22} {:<7} {:>8.0}",
            verdict(*passed),
            time.as_secs_f32()
        );
    }
    let passed = outcomes.iter().all(|outcome| outcome.passed);
    println!(
        "{:<22} {:<7} {:>8.0}",
        "all",
        verdict(passed),
        total.as_secs_f32()
    );
}

fn print_test_runner(outcomes: &[Outcome]) {
    println!("\n=== what ran");
    for outcome in outcomes {
        for line in runner_lines(&outcome.output) {
            println!("{line}");
        }
    }
}

/// rustup's minimal profile lacks them.
fn provide_components() -> Result<(), Error> {
    let there =
        |subcommand| shell::output(subcommand, &mut cargo(&[subcommand, "--version"])).is_ok();
    if there("fmt") && there("clippy") {
        return Ok(());
    }
    let mut add = Command::new("rustup");
    add.args(["component", "add", "rustfmt", "clippy"]);
    shell::output("rustup component add rustfmt clippy", &mut add).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_runners_own_lines_are_found() {
        let output = "   Compiling x\n     Running unittests src/lib.rs (target/x)\n\
                      running 2 tests\ntest a ... x: ok\ntest b ... FAILED\n\
                      cable-pull: ok\nblackhole: FAILED: no migration\n\
                      test result: FAILED. 1 passed; 1 failed\n   Doc-tests x\n\
                      dmesg  dmesg  FAIL  0.0\n    | *** the kernel complains\n";
        assert_eq!(runner_lines(output).count(), 7);
    }
}
