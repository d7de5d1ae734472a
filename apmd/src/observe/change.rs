// SPDX-License-Identifier: MIT OR Apache-2.0
//! What operators may want done, and what is answered, as JSON. Described in `docs/apmctl.md`; keys are
//! added, never changed.

use serde::{Deserialize, Serialize};

use super::filter::ConnectionFilter;
use super::model::Path;

/// The longest time for which an order may wait until it can be carried out.
pub(crate) const WITHIN_MAX_MS: u32 = 3_600_000;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Change {
    /// Answered by an `OrderedPage`.
    Migrate {
        connections: ConnectionFilter,
        /// After that it is forgotten; at most [`WITHIN_MAX_MS`].
        within_ms: u32,
    },
    /// Answered by an `OrderedPage`.
    Rearm { connections: ConnectionFilter },
    /// What the policy of one connection, named by its ID, is to be from now on, in the words of
    /// `apmctl conn set`. Answered by a `ConnectionPage` that shows it.
    Set {
        connections: ConnectionFilter,
        policy: String,
    },
    /// Answered by `Drained`.
    Drain { port: String },
    /// Answered by `Drained`.
    Undrain { port: String },
}

/// Of the connections that an order is for, some.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OrderedPage {
    pub(crate) ordered: Vec<Ordered>,
    /// There may be more: go on after this one.
    pub(crate) next: Option<String>,
}

/// An order to one connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Ordered {
    pub(crate) id: String,
    /// Why it is not even tried.
    pub(crate) refused: Option<String>,
    /// As it was before.
    pub(crate) primary: Path,
    pub(crate) migrations: u32,
}

/// A port, and whether it is drained now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Drained {
    pub(crate) port: String,
    pub(crate) drained: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_said_and_nothing_else_is_understood() {
        let change: Change =
            serde_json::from_str(r#"{"do":"migrate","connections":{"pid":7},"within_ms":100}"#)
                .expect("as documented");
        let connections = ConnectionFilter {
            pid: Some(7),
            ..ConnectionFilter::default()
        };
        let within_ms = 100;
        let want = Change::Migrate {
            connections,
            within_ms,
        };
        assert_eq!(change, want);
        for other in [
            r#"{"do":"drain"}"#,
            r#"{"do":"drain","port":"mlx5_0/1","now":true}"#,
            r#"{"do":"destroy","port":"mlx5_0/1"}"#,
            r#"{"do":"rearm","connections":{"pin":7}}"#,
            r#"{"do":"migrate","connections":{},"within_ms":-1}"#,
        ] {
            assert!(serde_json::from_str::<Change>(other).is_err(), "{other}");
        }
    }
}
