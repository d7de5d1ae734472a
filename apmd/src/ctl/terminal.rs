// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far something is, for who looks on: one line on a terminal, nothing elsewhere.

use std::io::{IsTerminal, StderrLock, Write};

/// A line that is gone when it is dropped.
pub(super) struct Percent {
    terminal: Option<StderrLock<'static>>,
    shown: Option<(String, u64)>,
}

impl Percent {
    pub(super) fn new() -> Self {
        let stderr = std::io::stderr();
        Self {
            terminal: stderr.is_terminal().then(|| stderr.lock()),
            shown: None,
        }
    }

    /// Shows it if it looks different. A terminal that cannot be written to stops nothing.
    pub(super) fn show(&mut self, what: &str, done: u64, all: u64) {
        let percent = (done * 100).checked_div(all).unwrap_or(100);
        let Some(terminal) = &mut self.terminal else {
            return;
        };
        let now = Some((what.to_owned(), percent));
        if self.shown != now {
            let _ = write!(terminal, "\r\x1b[K{what}: {percent} %");
            let _ = terminal.flush();
            self.shown = now;
        }
    }
}

impl Drop for Percent {
    fn drop(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            let _ = write!(terminal, "\r\x1b[K");
        }
    }
}
