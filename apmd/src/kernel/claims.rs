// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs that libraries have registered.

use std::collections::BTreeMap;

use cm_msgs::{Guid, Qpn};
use statemachine::ConnId;

/// By queue pair and by connection.
#[derive(Debug, Default)]
pub(super) struct Claims {
    by_number: BTreeMap<(Guid, Qpn), ConnId>,
    by_conn: BTreeMap<ConnId, (Guid, Qpn)>,
}

impl Claims {
    /// Whose it is.
    pub(super) fn of(&self, number: (Guid, Qpn)) -> Option<ConnId> {
        self.by_number.get(&number).copied()
    }

    pub(super) fn add(&mut self, number: (Guid, Qpn), id: ConnId) {
        if let Some(before) = self.by_number.insert(number, id) {
            self.by_conn.remove(&before);
        }
        self.by_conn.insert(id, number);
    }

    /// What this connection was, if it was any.
    pub(super) fn remove(&mut self, id: ConnId) -> Option<(Guid, Qpn)> {
        let number = self.by_conn.remove(&id)?;
        self.by_number.remove(&number);
        Some(number)
    }

    pub(super) fn of_client(&self, client: u32) -> Vec<ConnId> {
        let all = self.by_conn.range(ConnId::of_client(client));
        all.map(|(id, _)| *id).collect()
    }
}
