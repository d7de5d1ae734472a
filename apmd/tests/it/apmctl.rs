// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl` as a shell runs it.

use std::process::{Command, Output};

use serde_json::Value;

/// `apmctl` with these arguments, whatever the environment of the test says.
pub(crate) fn apmctl(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_apmctl"));
    command
        .args(arguments)
        .env_remove("APMD_SOCKET")
        .env_remove("APMD_PRELOAD");
    command
}

/// The same command under a limit of prlimit(1)'s.
pub(crate) fn limited(command: Command, limit: &str) -> Command {
    let mut limited = Command::new("prlimit");
    limited.arg(limit).arg(command.get_program());
    limited.args(command.get_args());
    limited
}

/// Exit code, standard output, standard error.
pub(crate) fn outcome(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().expect("not killed"),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Runs it to its end: [`outcome`].
pub(crate) fn run(arguments: &[&str]) -> (i32, String, String) {
    outcome(&apmctl(arguments).output().expect("apmctl starts"))
}

/// Exit code, and what `-j` prints.
pub(crate) fn json(arguments: &[&str]) -> (i32, Value) {
    let (code, out, error) = run(&[&["-j"], arguments].concat());
    let value = serde_json::from_str(&out);
    (code, value.unwrap_or_else(|_| panic!("{out}{error}")))
}
