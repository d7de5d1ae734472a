// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[ssa]`: the fabric as data.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Check, want_absolute_or_none, want_within};

/// `[ssa]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ssa {
    /// Snapshot of the fabric: read at start and when it has changed, replaced after each change if
    /// the fabric is read live. Empty: none.
    pub snapshot: PathBuf,
    /// File of shared-risk groups: switches and links that fail together. Read with the fabric.
    /// Empty: none.
    pub risks: PathBuf,
    /// Read the fabric from subnet administration.
    pub live: bool,
    /// How often the fabric (the snapshot, unless live) is looked at again although nothing
    /// happened.
    pub reread_ms: u64,
    /// Pause after a report of a change, before the fabric is read: more changes may follow.
    pub settle_ms: u64,
    /// Requests under way at the same time while the fabric is read.
    pub in_flight: usize,
    /// Service level of all paths; if not given, what subnet administration gave all paths when the
    /// fabric was read, and no answers if they differed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sl: Option<u8>,
    /// The key that makes subnet administration show partition tables; 0 for none.
    pub sm_key: u64,
    /// Read SL-to-VL tables, too.
    pub sl2vl: bool,
}

impl Default for Ssa {
    fn default() -> Self {
        Self {
            snapshot: PathBuf::from("/var/lib/apmd/fabric"),
            risks: PathBuf::new(),
            live: false,
            reread_ms: 300_000,
            settle_ms: 1_000,
            in_flight: 4,
            sl: None,
            sm_key: 0,
            sl2vl: false,
        }
    }
}

impl Ssa {
    pub(super) fn check(&self) -> Check {
        want_within(self.reread_ms, 1_000..=86_400_000, "reread_ms")?;
        want_within(self.settle_ms, 10..=600_000, "settle_ms")?;
        want_within(self.in_flight, 1..=64, "in_flight")?;
        want_absolute_or_none(&self.snapshot, "snapshot")?;
        want_absolute_or_none(&self.risks, "risks")?;
        want_within(self.sl.unwrap_or(0), 0..=15, "sl")
    }

    /// The file of the snapshot, if there is to be one.
    pub fn snapshot(&self) -> Option<&Path> {
        let path = self.snapshot.as_path();
        (!path.as_os_str().is_empty()).then_some(path)
    }

    /// The file of shared-risk groups, if there is one.
    pub fn risks(&self) -> Option<&Path> {
        let path = self.risks.as_path();
        (!path.as_os_str().is_empty()).then_some(path)
    }

    /// How often the fabric is looked at again.
    pub fn reread(&self) -> Duration {
        Duration::from_millis(self.reread_ms)
    }

    /// The pause after a report of a change.
    pub fn settle(&self) -> Duration {
        Duration::from_millis(self.settle_ms)
    }
}
