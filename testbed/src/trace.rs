// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of the kernel's, by tracefs.

use std::fs;
use std::path::Path;

use crate::command;
use crate::failure::{Failure, ensure};

const TRACEFS: &str = "/sys/kernel/tracing";

/// An event's name, below `events`, and which of it are meant: a filter as `Documentation/trace/events.rst` has it.
pub(crate) type Event<'a> = (&'static str, &'a str);

/// Events are traced from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Trace {
    names: Vec<&'static str>,
}

impl Trace {
    /// Begins with an empty trace.
    ///
    /// # Errors
    /// The kernel does not trace such events.
    pub(crate) fn begin(events: &[Event<'_>]) -> Result<Self, Failure> {
        if !Path::new(TRACEFS).join("events").exists() {
            command::run(&["mount", "-t", "tracefs", "tracefs", TRACEFS])?;
        }
        // For names of tasks the scheduler itself is patched, while it runs. One of QEMU 7.2's processors has stayed at
        // such a place for ever, interrupts off, as if it still met the breakpoint that had stood there.
        write("options/record-cmd", "0")?;
        // The same on all processors: moments are compared.
        write("trace_clock", "mono")?;
        write("trace", "")?;
        for (event, filter) in events {
            write(&format!("events/{event}/filter"), filter)?;
        }
        let trace = Self {
            names: events.iter().map(|(event, _)| *event).collect(),
        };
        trace.switch("1")?;
        Ok(trace)
    }

    /// Returns a line for each event that there was, and comments.
    ///
    /// # Errors
    /// The trace cannot be read, or is not whole: the kernel throws away what is oldest.
    pub(crate) fn end(self) -> Result<String, Failure> {
        self.switch("0")?;
        let trace = command::run(&["cat", &format!("{TRACEFS}/trace")])?;
        ensure(is_whole(&trace), || {
            format!("there was more than is in {TRACEFS}/trace: have fewer events traced")
        })?;
        Ok(trace)
    }

    fn switch(&self, value: &str) -> Result<(), Failure> {
        let enable = |event: &&str| write(&format!("events/{event}/enable"), value);
        self.names.iter().try_for_each(enable)
    }
}

/// Whether as many events are in it as were written. The kernel says both above them.
fn is_whole(trace: &str) -> bool {
    const COUNTS: &str = "# entries-in-buffer/entries-written: ";
    let counts = trace.lines().find_map(|line| line.strip_prefix(COUNTS));
    let pair = counts.and_then(|counts| counts.split_whitespace().next()?.split_once('/'));
    pair.is_some_and(|(there, written)| there == written)
}

fn write(name: &str, value: &str) -> Result<(), Failure> {
    let path = format!("{TRACEFS}/{name}");
    fs::write(&path, value).map_err(|source| Failure::File { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_whose_beginning_is_lost_is_not_whole() {
        let trace = |counts| {
            format!("# tracer: nop\n#\n# entries-in-buffer/entries-written: {counts}   #P:2\n#\n")
        };
        assert!(is_whole(&trace("0/0")));
        assert!(is_whole(&trace("32/32")));
        assert!(!is_whole(&trace("14211/60013")));
        assert!(!is_whole("# tracer: nop\n"));
    }
}
