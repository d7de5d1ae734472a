// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of the kernel's, by tracefs.

use std::fs;
use std::path::Path;

use crate::command;
use crate::failure::Failure;

const TRACEFS: &str = "/sys/kernel/tracing";

/// An event's name, below `events`, and which of it are meant: a filter as `Documentation/trace/events.rst` has it.
pub(crate) type Event = (&'static str, &'static str);

/// As a filter: all.
pub(crate) const ALL: &str = "0";

/// Events are traced from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Trace {
    events: &'static [Event],
}

impl Trace {
    /// Begins with an empty trace.
    ///
    /// # Errors
    /// The kernel does not trace such events.
    pub(crate) fn begin(events: &'static [Event]) -> Result<Self, Failure> {
        if !Path::new(TRACEFS).join("events").exists() {
            command::run(&["mount", "-t", "tracefs", "tracefs", TRACEFS])?;
        }
        // For names of tasks the scheduler itself is patched, while it runs. One of QEMU 7.2's processors has stayed at
        // such a place for ever, interrupts off, as if it still met the breakpoint that had stood there.
        write("options/record-cmd", "0")?;
        write("trace", "")?;
        for (event, filter) in events {
            write(&format!("events/{event}/filter"), filter)?;
        }
        let trace = Self { events };
        trace.switch("1")?;
        Ok(trace)
    }

    /// Returns a line for each event that there was, and comments.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub(crate) fn end(self) -> Result<String, Failure> {
        self.switch("0")?;
        command::run(&["cat", &format!("{TRACEFS}/trace")])
    }

    fn switch(&self, value: &str) -> Result<(), Failure> {
        let enable = |(event, _): &Event| write(&format!("events/{event}/enable"), value);
        self.events.iter().try_for_each(enable)
    }
}

fn write(name: &str, value: &str) -> Result<(), Failure> {
    let path = format!("{TRACEFS}/{name}");
    fs::write(&path, value).map_err(|source| Failure::File { path, source })
}
