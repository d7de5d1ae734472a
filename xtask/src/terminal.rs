// SPDX-License-Identifier: MIT OR Apache-2.0
//! The terminal that this process has, by stty(1).

use std::io::{self, IsTerminal};
use std::process::{Command, Stdio};

fn stty(arguments: &[&str]) -> String {
    Command::new("stty")
        .args(arguments)
        .stdin(Stdio::inherit())
        .stderr(Stdio::null())
        .output()
        .map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned())
        .unwrap_or_default()
}

/// Rows and columns; those of a VT100 if there is no terminal.
pub(crate) fn size() -> (u16, u16) {
    let size = stty(&["size"]);
    let numbers = size.split_whitespace().filter_map(|word| word.parse().ok());
    let mut numbers = numbers.filter(|number| *number > 0);
    (numbers.next().unwrap_or(24), numbers.next().unwrap_or(80))
}

/// `TERM`, without anything that a shell could take for more than a word.
pub(crate) fn kind() -> String {
    let term = std::env::var("TERM").unwrap_or_default();
    term.chars()
        .filter(|c| c.is_ascii_alphanumeric() || "-+.".contains(*c))
        .collect()
}

/// The terminal passes every key on as it is; dropped, it is as it was.
pub(crate) struct Raw {
    before: String,
}

impl Raw {
    /// Nothing if standard input is no terminal.
    pub(crate) fn enter() -> Option<Self> {
        if !io::stdin().is_terminal() {
            return None;
        }
        let before = stty(&["-g"]);
        stty(&["raw", "-echo"]);
        Some(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        stty(&[&self.before]);
    }
}
