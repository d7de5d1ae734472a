// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[source]`: the list of path sources.

use statemachine::Origin;

use super::Config;
use super::check::Wrongs;
use super::section::section;
use paths::source::Plan;

section! {
    /// `[source]`
    Source {
        /// The path sources, in the order in which they are asked.
        order: Vec<Origin> = vec![Origin::Sa],
    }
}

impl Source {
    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        wrongs.want(!self.order.is_empty(), "order", "want at least one source");
        let twice = (1..self.order.len()).any(|at| self.order[..at].contains(&self.order[at]));
        wrongs.want(!twice, "order", "want every source once");
    }

    /// Whether a source is on the list.
    pub(crate) fn has(&self, name: Origin) -> bool {
        self.order.contains(&name)
    }
}

impl Config {
    /// The path sources.
    pub(crate) fn sources(&self) -> Plan {
        Plan::new(self.source.order.iter().copied())
    }
}
