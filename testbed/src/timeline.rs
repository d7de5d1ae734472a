// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happened in a drill, and when; told while it happens.

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::clock::{Millis, Moment};
use crate::narration::Narration;

/// Something that happened.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Entry {
    /// Milliseconds since the drill began.
    pub t_ms: f64,
    /// Where: `host-a`, `host-b`, `client`, `server`, `cable` or `drill`.
    pub host: String,
    /// What, as a sentence without a full stop.
    pub what: String,
}

struct Record {
    start: Moment,
    narration: Narration,
    entries: Vec<Entry>,
}

/// A drill's record of what happened. Clones share it.
#[derive(Clone)]
pub struct Timeline {
    record: Arc<Mutex<Record>>,
}

impl Timeline {
    /// An empty one that begins now. Entries are told as they are made.
    pub fn new(narration: Narration) -> Self {
        let record = Record {
            start: Moment::now(),
            narration,
            entries: Vec::new(),
        };
        Self {
            record: Arc::new(Mutex::new(record)),
        }
    }

    /// Notes what happens now.
    pub fn note(&self, host: impl ToString, what: impl Into<String>) {
        self.note_at(Moment::now(), host, what);
    }

    /// Notes what happened at `moment`.
    pub fn note_at(&self, moment: Moment, host: impl ToString, what: impl Into<String>) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let since = moment.since(record.start);
        let entry = Entry {
            t_ms: Millis::from(since).rounded(),
            host: host.to_string(),
            what: what.into(),
        };
        record.narration.event(format_args!(
            "{:>9.3} s  {:<7} {}",
            since.as_secs_f64(),
            entry.host,
            entry.what
        ));
        record.entries.push(entry);
    }

    /// Says something that is no event: a table of what came of all.
    pub fn say(&self, text: impl Display) {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.narration.say(text);
    }

    /// When it began.
    pub fn start(&self) -> Moment {
        self.record
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .start
    }

    /// All entries, by time.
    pub fn entries(&self) -> Vec<Entry> {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries = record.entries.clone();
        drop(record);
        entries.sort_by(|a, b| a.t_ms.total_cmp(&b.t_ms));
        entries
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::host::Host;

    #[test]
    fn entries_come_by_time_though_noted_late() {
        let timeline = Timeline::new(Narration::SILENT);
        let start = timeline.start();
        timeline.note_at(start + Duration::from_millis(20), "cable", "pulled shca0/1");
        timeline.note_at(start + Duration::from_micros(10_540), Host::A, "armed");
        timeline.clone().note_at(start, "drill", "began");
        let entries = timeline.entries();
        let seen: Vec<_> = entries
            .iter()
            .map(|entry| (entry.t_ms, entry.host.as_str()))
            .collect();
        assert_eq!(seen, [(0.0, "drill"), (10.5, "host-a"), (20.0, "cable")]);
    }
}
