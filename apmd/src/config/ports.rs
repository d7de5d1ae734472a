// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[ports]`: local ports.

use serde::{Deserialize, Serialize};

use super::{Check, millis, want, want_within};

/// `[ports]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ports {
    /// What is listened to for the loss of a port.
    pub sources: Vec<PortSource>,
    /// How long a port must stay up before paths over it are loaded.
    pub hold_off_ms: u64,
}

/// A way to notice that a port is lost. Each is sufficient.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortSource {
    /// Asynchronous events of the verbs device.
    Verbs,
    /// PortInfo read now and then.
    Umad,
    /// Carrier of the port's IPoIB interface.
    Netlink,
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            sources: vec![PortSource::Verbs, PortSource::Umad, PortSource::Netlink],
            hold_off_ms: millis(statemachine::Config::default().port_hold_off),
        }
    }
}

impl Ports {
    pub(super) fn check(&self) -> Check {
        want(
            !self.sources.is_empty(),
            "sources",
            "want at least one of verbs, umad, netlink",
        )?;
        want_within(self.hold_off_ms, 0..=600_000, "hold_off_ms")
    }
}
