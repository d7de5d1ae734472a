// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a drill found, as one JSON object or one line.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::clock::Millis;
use crate::timeline::Entry;

/// What a drill found. Its JSON is one line with these keys, and those of `more`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The drill's name.
    pub drill: String,
    /// It showed what it is there to show.
    pub ok: bool,
    /// Where it ran, as `flat` or `flat+netns`.
    pub world: String,
    /// Connections that were watched.
    pub connections: u64,
    /// Times that a connection was seen to move to its alternate path.
    pub migrations: u64,
    /// Times that it was seen armed on both ends after that.
    pub rearmed: u64,
    /// Messages that never arrived.
    pub lost: u64,
    /// Messages that arrived more than once.
    pub duplicated: u64,
    /// The longest time that a program stood still.
    pub max_stall_ms: f64,
    /// What this drill has to say beyond that; `why` if it is not ok.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
    /// What happened.
    pub timeline: Vec<Entry>,
}

impl Report {
    /// Notes that a program stood still for `stall`.
    pub fn stalled(&mut self, stall: Millis) {
        self.max_stall_ms = Millis(self.max_stall_ms).max(stall).rounded();
    }

    /// Sets a key of the drill's own.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.more.insert(key.to_owned(), value.into());
    }

    /// `cable-pull: ok` or `cable-pull: FAILED: why`.
    pub fn verdict(&self) -> String {
        if self.ok {
            return format!("{}: ok", self.drill);
        }
        let why = self
            .more
            .get("why")
            .and_then(Value::as_str)
            .unwrap_or("no reason given");
        format!("{}: FAILED: {why}", self.drill)
    }

    /// One line of JSON.
    ///
    /// # Errors
    /// Never for what a report can hold.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            drill: "cable-pull".to_owned(),
            ok: true,
            world: "flat".to_owned(),
            connections: 1,
            migrations: 20,
            rearmed: 20,
            timeline: vec![Entry {
                t_ms: 12.5,
                host: "cable".to_owned(),
                what: "pulled shca0/1".to_owned(),
            }],
            ..Report::default()
        }
    }

    #[test]
    fn json_is_one_object_on_one_line_with_the_documented_keys() {
        let mut report = report();
        report.stalled(Millis(41.26));
        report.stalled(Millis(7.0));
        report.set("retry_exhaustion_ms", 640.5);
        let json = report.json().unwrap_or_default();
        assert_eq!(
            json,
            "{\"drill\":\"cable-pull\",\"ok\":true,\"world\":\"flat\",\"connections\":1,\
             \"migrations\":20,\"rearmed\":20,\"lost\":0,\"duplicated\":0,\"max_stall_ms\":41.3,\
             \"retry_exhaustion_ms\":640.5,\
             \"timeline\":[{\"t_ms\":12.5,\"host\":\"cable\",\"what\":\"pulled shca0/1\"}]}"
        );
    }

    #[test]
    fn the_verdict_is_one_line() {
        let mut report = report();
        assert_eq!(report.verdict(), "cable-pull: ok");
        report.ok = false;
        report.set("why", "the sky fell");
        assert_eq!(report.verdict(), "cable-pull: FAILED: the sky fell");
    }
}
