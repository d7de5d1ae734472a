// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[source]`: the list of path sources.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use statemachine::Origin;

use super::{Check, Config, want, want_within};
use crate::source::{Limits, Plan};

/// `[source]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Source {
    /// The path sources, in the order in which they are asked.
    pub order: Vec<SourceName>,
    /// How long a source may be silent before the next is asked as well.
    pub patience_ms: u64,
}

/// A path source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceName {
    /// Subnet administration.
    Sa,
    /// An ACM service.
    Acm,
    /// A file.
    Static,
    /// The fabric as data.
    Ssa,
}

impl From<SourceName> for Origin {
    fn from(name: SourceName) -> Self {
        match name {
            SourceName::Sa => Self::Sa,
            SourceName::Acm => Self::Acm,
            SourceName::Static => Self::Static,
            SourceName::Ssa => Self::Ssa,
        }
    }
}

impl Default for Source {
    fn default() -> Self {
        Self {
            order: vec![SourceName::Sa],
            patience_ms: 2000,
        }
    }
}

impl Source {
    pub(super) fn check(&self) -> Check {
        want(!self.order.is_empty(), "order", "want at least one source")?;
        let twice = (1..self.order.len()).any(|at| self.order[..at].contains(&self.order[at]));
        want(!twice, "order", "want every source once")?;
        want_within(self.patience_ms, 1..=600_000, "patience_ms")
    }

    /// Whether a source is on the list.
    pub fn has(&self, name: SourceName) -> bool {
        self.order.contains(&name)
    }
}

impl Config {
    /// The path sources and their limits.
    pub fn sources(&self) -> Plan {
        let limits = |name| match name {
            SourceName::Sa => Limits {
                in_flight: self.sa.in_flight,
                timeout: self.sa.longest(),
            },
            SourceName::Acm => Limits {
                in_flight: self.acm_client.connections,
                timeout: self.acm_client.timeout(),
            },
            // It answers at once.
            SourceName::Ssa | SourceName::Static => Limits {
                in_flight: 1024,
                timeout: Duration::from_secs(1),
            },
        };
        let order = self.source.order.iter();
        Plan {
            order: order.map(|&name| (name.into(), limits(name))).collect(),
            patience: Duration::from_millis(self.source.patience_ms),
        }
    }
}
