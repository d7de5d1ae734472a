// SPDX-License-Identifier: MIT OR Apache-2.0
//! Short commands: run to their end, with their output.

use std::process::{Command, Output, Stdio};

use crate::failure::Failure;
use crate::host::Host;
use crate::patience;

/// Seconds that a short command may take; it is killed then (by timeout(1)).
const LIMIT: u32 = 30;

/// Runs `words` and returns what it printed, whatever its exit status.
///
/// # Errors
/// [`Failure::Start`] if it does not start.
pub fn attempt(words: &[&str]) -> Result<Output, Failure> {
    Command::new("timeout")
        .arg((LIMIT * patience::factor()).to_string())
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Failure::Start {
            command: words.join(" "),
            source,
        })
}

/// Runs `words` and returns its standard output.
///
/// # Errors
/// [`Failure::Start`] if it does not start, [`Failure::Command`] if it fails.
pub fn run(words: &[&str]) -> Result<String, Failure> {
    let output = attempt(words)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(Failure::Command {
        command: words.join(" "),
        status: output.status.to_string(),
        stderr: stderr.lines().last().unwrap_or("no message").to_owned(),
    })
}

/// Runs `words` as `host`, as [`run`] does.
///
/// # Errors
/// As [`run`].
pub fn run_as(host: Host, words: &[&str]) -> Result<String, Failure> {
    let mut all = vec![host.name()];
    all.extend(words);
    run(&all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_failure_are_told_apart() {
        assert_eq!(run(&["echo", "hello"]).ok().as_deref(), Some("hello\n"));
        let failure = run(&["sh", "-c", "echo first >&2; echo why >&2; exit 3"]);
        let text = failure
            .err()
            .map(|failure| failure.to_string())
            .unwrap_or_default();
        assert!(text.ends_with("exit status: 3: why"), "{text}");
    }
}
