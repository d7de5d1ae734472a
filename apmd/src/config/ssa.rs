// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[ssa]`: the fabric as data.

use std::path::PathBuf;

use paths::source::ssa::Settings;
use serde::{Deserialize, Serialize};

use super::check::Wrongs;
use super::section::section;

section! {
    /// `[ssa]`
    Ssa {
        /// Snapshot of the fabric: read at start and when it has changed, replaced after each change if
        /// the fabric is read live. Empty: none.
        snapshot: PathBuf = PathBuf::from("/var/lib/apmd/fabric"),
        /// File of shared-risk groups: switches and links that fail together. Read with the fabric.
        /// Empty: none.
        risks: PathBuf = PathBuf::new(),
        /// Read the fabric from subnet administration.
        live: bool = false,
        /// Service level of all paths.
        sl: ServiceLevel = ServiceLevel::Learnt(Auto::Auto),
        /// The key that makes subnet administration show partition tables; 0 for none.
        sm_key: u64 = 0,
        /// Read SL-to-VL tables, too.
        sl2vl: bool = false,
    }
}

/// A service level, or where it comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "want 0 to 15, or \"auto\"")]
pub(crate) enum ServiceLevel {
    /// This one.
    Fixed(u8),
    /// Not said here.
    Learnt(Auto),
}

/// The word for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Auto {
    /// What subnet administration gave all paths when the fabric was read; no answers if they
    /// differed.
    Auto,
}

impl ServiceLevel {
    fn fixed(self) -> Option<u8> {
        match self {
            Self::Fixed(level) => Some(level),
            Self::Learnt(Auto::Auto) => None,
        }
    }
}

impl Ssa {
    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        wrongs.want_absolute_or_none(&self.snapshot, "snapshot");
        wrongs.want_absolute_or_none(&self.risks, "risks");
        let level = self.sl.fixed().unwrap_or(0);
        wrongs.want_number(level <= 15, level, "sl", "want 0 to 15, or \"auto\"");
    }

    pub(crate) fn settings(&self) -> Settings {
        let file = |path: &PathBuf| (!path.as_os_str().is_empty()).then(|| path.clone());
        Settings {
            snapshot: file(&self.snapshot),
            risks: file(&self.risks),
            live: self.live,
            sl: self.sl.fixed(),
            sm_key: self.sm_key,
            sl2vl: self.sl2vl,
            ..Settings::default()
        }
    }
}
