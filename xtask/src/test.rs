// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask test`: everything that must hold, step by step, with a summary at the end.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::workspace::{self, cargo};
use crate::{artefacts, bench, deny, drill, fabrics, packages, shell};

/// What all of it, set-up included, is meant to take at most on two cores; said when it is exceeded, no failure: the
/// machine may have had other things to do.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// Of a clean clone nothing has been compiled that could be used again; without traces for that it takes a seventh less.
const INCREMENTAL: (&str, &str) = ("CARGO_INCREMENTAL", "0");

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
    println!("set-up: {:.0} s", started.elapsed().as_secs_f32());
    let meanwhile = Beside::start(idle_steps(), perform_idly);
    let mut outcomes = perform_all(code())?;
    // Two VMs at a time: the check's rows compare no times, as drills do.
    let newer = Beside::start(newer_kernel_check(), perform_unseen);
    outcomes.extend(perform_all(vm_checks())?);
    outcomes.extend(newer.join()?);
    outcomes.extend(perform_all(second_shell_and_drills())?);
    outcomes.extend(meanwhile.join()?);
    outcomes.extend(perform_all(readme_and_benches())?);
    let time = started.elapsed();
    print_summary(&outcomes, time);
    print_test_runner(&outcomes);
    if time > LIMIT {
        println!("longer than {} minutes", LIMIT.as_secs() / 60);
    }
    print_failures(&outcomes);
    Ok(u8::from(outcomes.iter().any(|outcome| !outcome.passed)))
}

/// This program with other arguments, by cargo: a step may have it built anew.
fn xtask(arguments: &[&str]) -> Command {
    let mut command = cargo(&["run", "--quiet", "--package", "xtask", "--"]);
    command.args(arguments);
    command
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|this| this.uid() == 0)
}

/// What needs no VM.
fn code() -> Vec<Step> {
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast"]);
    tests.env(INCREMENTAL.0, INCREMENTAL.1);
    tests.env("APMD_REQUIRE_TSHARK", "1");
    tests.env("APMD_REQUIRE_IBSIM", "1");
    // Some tests are several users, or mount: nobody else can.
    if is_root() {
        tests.env("APMD_REQUIRE_ROOT", "1");
    }
    vec![
        Step {
            name: "format",
            command: cargo(&["fmt", "--all", "--check"]),
        },
        Step {
            name: "cargo test",
            command: tests,
        },
    ]
}

/// Whether the VM's world is right.
fn vm_checks() -> Vec<Step> {
    // The row as-described holds the fabric against the file's copy.
    let file = workspace::root().join("testbed/vm/fabrics/ring.net");
    let file = file.to_string_lossy();
    vec![
        Step {
            name: "vm --check",
            command: xtask(&["vm", "--check"]),
        },
        Step {
            name: "leaf and spine",
            command: xtask(&["vm", "--check", "--short", "--fabric", "leaf-spine"]),
        },
        Step {
            name: "a file's fabric",
            command: xtask(&[
                "vm", "--check", "--short", "--fabric", &file, "--copy", &file,
            ]),
        },
    ]
}

fn newer_kernel_check() -> Vec<Step> {
    vec![Step {
        name: "newer kernel",
        command: xtask(&["vm", "--check", "--kernel", "backports"]),
    }]
}

/// What the VM's world shows. One VM at a time: the test of the second shell looks for the only one, and drills compare
/// times.
fn second_shell_and_drills() -> Vec<Step> {
    let mut second_shell = cargo(&[
        "test",
        "--quiet",
        "--package=xtask",
        "--test=second_shell",
        "--",
        "--ignored",
    ]);
    second_shell.env(INCREMENTAL.0, INCREMENTAL.1);
    vec![
        Step {
            name: "second shell",
            command: second_shell,
        },
        Step {
            name: "drills",
            // The long ones in their short form.
            command: xtask(&[&["drill", "--short"], &drills()[..]].concat()),
        },
        Step {
            name: "newer kernel, drill",
            command: xtask(&["drill", "--kernel", "backports", "--pulls", "4"]),
        },
    ]
}

/// What needs processors only, of which tests and VMs leave some. The release build is first: of the VM's steps those
/// that run it come last, and wait for it.
fn idle_steps() -> Vec<Step> {
    let mut clippy = cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ]);
    clippy.env(INCREMENTAL.0, INCREMENTAL.1);
    // Cargo does one thing at a time in a directory.
    clippy.env("CARGO_TARGET_DIR", workspace::root().join("target/clippy"));
    vec![
        Step {
            name: "release build",
            command: artefacts::build_rust(),
        },
        Step {
            name: "clippy",
            command: clippy,
        },
        Step {
            name: "fabrics",
            command: xtask(&[&["fabrics"], fabrics::OF_TEST].concat()),
        },
        Step {
            name: "benches' build",
            command: bench::build(),
        },
        Step {
            name: "cargo deny",
            command: xtask(&["deny"]),
        },
        Step {
            name: "sparse",
            command: xtask(&["sparse"]),
        },
        Step {
            name: "cross",
            command: xtask(&["cross"]),
        },
    ]
}

/// Benches have the machine to themselves.
fn readme_and_benches() -> Vec<Step> {
    vec![
        Step {
            name: "README",
            command: xtask(&["readme"]),
        },
        Step {
            name: "benches",
            command: xtask(&[
                "bench", "--short", "pathdb", "sa", "codec", "engine", "rearm", "acm", "connect",
                "failover",
            ]),
        },
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

fn perform_all(steps: Vec<Step>) -> Result<Vec<Outcome>, Error> {
    steps.into_iter().map(perform).collect()
}

/// Runs a step; what it prints is shown at once and kept.
fn perform(step: Step) -> Result<Outcome, Error> {
    println!("\n=== {}", step.name);
    let outcome = timed(step, show)?;
    say(&outcome);
    Ok(outcome)
}

/// Steps that run one after the other beside others.
struct Beside(JoinHandle<Result<Vec<Outcome>, Error>>);

impl Beside {
    fn start(steps: Vec<Step>, perform: fn(Step) -> Result<Outcome, Error>) -> Self {
        Self(thread::spawn(move || {
            steps.into_iter().map(perform).collect()
        }))
    }

    /// Waits for the last, and shows what all have printed.
    fn join(self) -> Result<Vec<Outcome>, Error> {
        let panicked = |_| Error::Other("a step beside others panicked".to_owned());
        let outcomes = self.0.join().map_err(panicked)??;
        for outcome in &outcomes {
            print!("\n=== {}, meanwhile\n{}", outcome.name, outcome.output);
            say(outcome);
        }
        Ok(outcomes)
    }
}

/// Runs a step when the processors have nothing else to do; what it prints is kept only.
fn perform_idly(step: Step) -> Result<Outcome, Error> {
    let mut command = Command::new("chrt");
    command
        .args(["--idle", "0"])
        .arg(step.command.get_program());
    command.args(step.command.get_args());
    let set = step.command.get_envs();
    command.envs(set.filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(workspace::root());
    perform_unseen(Step { command, ..step })
}

/// Runs a step; what it prints is kept only.
fn perform_unseen(mut step: Step) -> Result<Outcome, Error> {
    step.command.stdin(Stdio::null());
    timed(step, |command| {
        let program = command.get_program().to_string_lossy().into_owned();
        let start = |source| Error::Start { program, source };
        let output = command.output().map_err(start)?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok((text, output.status.success()))
    })
}

fn timed(
    mut step: Step,
    run: impl FnOnce(&mut Command) -> Result<(String, bool), Error>,
) -> Result<Outcome, Error> {
    let started = Instant::now();
    let (output, passed) = run(&mut step.command)?;
    Ok(Outcome {
        name: step.name,
        passed,
        time: started.elapsed(),
        output,
    })
}

fn say(outcome: &Outcome) {
    println!(
        "=== {}: {}, {:.0} s",
        outcome.name,
        verdict(outcome.passed),
        outcome.time.as_secs_f32()
    );
}

/// Runs `command`, passing on its output line by line. Both of its streams are one, which keeps
/// their order.
fn show(command: &mut Command) -> Result<(String, bool), Error> {
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
    let mut stdout = io::stdout().lock();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.map_err(start)?;
        let line = String::from_utf8_lossy(&line);
        writeln!(stdout, "{line}").map_err(start)?;
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
        KERNEL_FAULT,
        deny::REMARK,
    ];
    output.lines().filter(|line| {
        let text = line.trim_start();
        STARTS.iter().any(|start| text.starts_with(start))
            || (text.ends_with(": ok") && !text.starts_with("test "))
            || tells_of_failure(text)
    })
}

/// What is said when a kernel complained.
const KERNEL_FAULT: &str = "xtask: kernel fault: ";

/// Whether a runner says by this line that something failed.
fn tells_of_failure(line: &str) -> bool {
    line.starts_with(KERNEL_FAULT)
        || line.starts_with("test result: FAILED")
        || line.starts_with("error: ")
        || line.ends_with("... FAILED")
        || line.contains(": FAILED")
        || line.contains(" FAIL ")
        || line.contains("panicked at")
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

/// The steps that failed and why. This comes last: whoever keeps the end of the output only has it.
fn print_failures(outcomes: &[Outcome]) {
    for Outcome { name, output, .. } in outcomes.iter().filter(|outcome| !outcome.passed) {
        println!("\n=== {name} FAILED");
        for line in failure_lines(output) {
            println!("{line}");
        }
    }
}

/// The lines that tell of a failure, each panic's message, and the last lines.
fn failure_lines(output: &str) -> Vec<&str> {
    const LAST_LINES: usize = 15;
    let lines: Vec<_> = output.lines().collect();
    let (before, last) = lines.split_at(lines.len().saturating_sub(LAST_LINES));
    let is_message = |index: usize| index > 0 && before[index - 1].contains("panicked at");
    let tells = |index: usize| tells_of_failure(before[index].trim_start()) || is_message(index);
    let told = (0..before.len()).filter(|index| tells(*index));
    told.map(|index| before[index])
        .chain(last.iter().copied())
        .collect()
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
    fn what_a_step_beside_others_prints_is_kept_and_its_failure_seen() {
        let step = |script| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            perform_idly(Step {
                name: "a step",
                command,
            })
        };
        let good = step("chrt --pid $$; echo aloud >&2").expect("it starts");
        assert!(good.passed);
        assert!(good.output.contains("SCHED_IDLE") && good.output.ends_with("aloud\n"));
        assert!(!step("exit 3").expect("it starts").passed);
    }

    #[test]
    fn the_test_runners_own_lines_are_found() {
        let output = "   Compiling x\n     Running unittests src/lib.rs (target/x)\n\
                      running 2 tests\ntest a ... x: ok\ntest b ... FAILED\n\
                      cable-pull: ok\nblackhole: FAILED: no migration\n\
                      test result: FAILED. 1 passed; 1 failed\n   Doc-tests x\n\
                      dmesg  dmesg  FAIL  0.0\n    | *** the kernel complains\n";
        assert_eq!(runner_lines(output).count(), 8);
    }

    #[test]
    fn of_a_failed_step_the_reasons_and_the_end_are_shown() {
        let output = [
            "test a ... ok\nthread 'b' panicked at src/b.rs:1:1:\nleft is not right\ntest b ... FAILED\n",
            &"test c ... ok\n".repeat(20),
        ]
        .concat();
        let lines = failure_lines(&output);
        assert_eq!(lines[1..3], ["left is not right", "test b ... FAILED"]);
        assert_eq!(lines.len(), 3 + 15);
        assert_eq!(failure_lines("short").len(), 1);
    }
}
