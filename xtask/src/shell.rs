// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running other programs: quietly, with their output kept for the case that they fail, and a line
//! of progress for whoever watches on a terminal.

use std::io::IsTerminal;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::error::Error;

const TAIL_LINES: usize = 25;

/// Tells a person on a terminal what is going on; says nothing into a pipe.
pub(crate) fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("xtask: {text}");
    }
}

/// The last lines of `text`, indented, each after a newline.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    lines[from..]
        .iter()
        .map(|line| format!("\n    {line}"))
        .collect()
}

/// Runs `command` and returns its standard output; its output appears only if it fails.
pub(crate) fn output(what: &str, command: &mut Command) -> Result<String, Error> {
    let started = Instant::now();
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::Start { program, source })?;
    let stdout = String::from_utf8_lossy(&done.stdout).into_owned();
    if done.status.success() {
        if started.elapsed().as_secs() >= 3 {
            progress(&format!("{what}: {:.0} s", started.elapsed().as_secs_f32()));
        }
        return Ok(stdout);
    }
    let all = format!("{stdout}{}", String::from_utf8_lossy(&done.stderr));
    Err(Error::Failed {
        what: what.to_owned(),
        status: done.status.to_string(),
        output: tail(&all),
    })
}
