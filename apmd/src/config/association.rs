// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[association]`: the daemons' talk with each other.

use serde::{Deserialize, Serialize};

use super::{Check, millis, want_number, want_within};

/// `[association]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Association {
    /// Management class of the association MADs; the same on all hosts. Takes effect at start.
    pub class: u8,
    /// REQs kept for applications that have not registered yet.
    pub parked_limit: usize,
    /// How long such a REQ is kept.
    pub parked_ms: u64,
}

impl Default for Association {
    fn default() -> Self {
        let engine = statemachine::Config::default();
        Self {
            class: cm_msgs::mad::CLASS_APM,
            parked_limit: engine.parked_limit,
            parked_ms: millis(engine.parked_for),
        }
    }
}

impl Association {
    pub(super) fn check(&self) -> Check {
        // IBA table 102: 0x09..=0x0f are vendors' and 0x10..=0x2f applications' classes. Vendors'
        // 0x30..=0x4f would need an OUI. The CM's own, 0x07, is for kernels that leave it free.
        let is_class = matches!(self.class, 0x07 | 0x09..=0x2f);
        want_number(
            is_class,
            format_args!("{:#04x}", self.class),
            "class",
            || "want an application class, 0x09 to 0x2f, or 0x07".into(),
        )?;
        want_within(self.parked_limit, 0..=65_536, "parked_limit")?;
        want_within(self.parked_ms, 0..=600_000, "parked_ms")
    }
}
