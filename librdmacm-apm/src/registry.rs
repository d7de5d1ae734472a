// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which ids and QPs there are, and which of them are under APM.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cm_msgs::control::Role;

use crate::connection::{Connection, Description, IdKey, QpKey};

/// All ids that were touched and all connections under APM.
#[derive(Default)]
pub(crate) struct Registry {
    tables: Mutex<Tables>,
    /// Connections, for the calls that have nothing to do when there is none.
    connections: AtomicUsize,
}

#[derive(Default)]
struct Tables {
    ids: HashMap<IdKey, Id>,
    by_qp: HashMap<QpKey, Arc<Connection>>,
    last_number: u64,
}

#[derive(Default)]
struct Id {
    /// What the application said by the option, if it said anything.
    asked: Option<bool>,
    /// The application set an ACK timeout of its own.
    own_ack_timeout: bool,
    /// Known from `rdma_connect` or `rdma_accept` on.
    role: Option<Role>,
    established: bool,
    qp: Option<QpKey>,
}

/// What is known of an id.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct IdState {
    pub(crate) asked: Option<bool>,
    pub(crate) own_ack_timeout: bool,
    /// Its role, once it is established.
    pub(crate) established_as: Option<Role>,
}

impl Registry {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the id.
    pub(crate) fn id(&self, key: IdKey) -> IdState {
        let tables = self.tables();
        tables
            .ids
            .get(&key)
            .map_or_else(IdState::default, |id| IdState {
                asked: id.asked,
                own_ack_timeout: id.own_ack_timeout,
                established_as: id.role.filter(|_| id.established),
            })
    }

    /// The application used the option.
    pub(crate) fn ask(&self, key: IdKey, on: bool) {
        self.tables().ids.entry(key).or_default().asked = Some(on);
    }

    /// The application set an ACK timeout.
    pub(crate) fn own_ack_timeout(&self, key: IdKey) {
        self.tables().ids.entry(key).or_default().own_ack_timeout = true;
    }

    /// The application connects or accepts.
    pub(crate) fn set_role(&self, key: IdKey, role: Role) {
        let mut tables = self.tables();
        let id = tables.ids.entry(key).or_default();
        id.role = Some(role);
        id.established = false;
    }

    /// A connection request arrived on a listening id: it has its listener's option.
    pub(crate) fn inherit(&self, key: IdKey, listener: IdKey) {
        let mut tables = self.tables();
        let asked = tables.ids.get(&listener).and_then(|id| id.asked);
        tables.ids.insert(
            key,
            Id {
                asked,
                ..Id::default()
            },
        );
    }

    /// The id's connection is established. Returns its role at the first call.
    pub(crate) fn establish(&self, key: IdKey) -> Option<Role> {
        let mut tables = self.tables();
        let id = tables.ids.get_mut(&key)?;
        if id.established {
            return None;
        }
        id.established = true;
        id.role
    }

    /// Puts a connection under APM. `None` if its QP already is.
    pub(crate) fn add(&self, description: Description) -> Option<Arc<Connection>> {
        let mut tables = self.tables();
        if tables.by_qp.contains_key(&description.qp_key) {
            return None;
        }
        tables.last_number += 1;
        let connection = Arc::new(Connection::new(tables.last_number, description));
        tables
            .by_qp
            .insert(connection.qp_key, Arc::clone(&connection));
        if let Some(id) = connection.id.and_then(|key| tables.ids.get_mut(&key)) {
            id.qp = Some(connection.qp_key);
        }
        self.connections.fetch_add(1, Ordering::Release);
        Some(connection)
    }

    /// The connection of the QP.
    pub(crate) fn by_qp(&self, key: QpKey) -> Option<Arc<Connection>> {
        if self.connections.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.tables().by_qp.get(&key).map(Arc::clone)
    }

    /// The connection of the id.
    pub(crate) fn by_id(&self, key: IdKey) -> Option<Arc<Connection>> {
        let tables = self.tables();
        let qp = tables.ids.get(&key)?.qp?;
        tables.by_qp.get(&qp).map(Arc::clone)
    }

    /// All connections on a verbs context.
    pub(crate) fn on_context(&self, address: usize) -> Vec<Arc<Connection>> {
        let tables = self.tables();
        tables
            .by_qp
            .values()
            .filter(|c| c.context.address == address)
            .cloned()
            .collect()
    }

    /// Takes the connection out, after its QP was released. False if it was not in.
    pub(crate) fn remove(&self, connection: &Connection) -> bool {
        let mut tables = self.tables();
        let same = |have: &Arc<Connection>| have.number == connection.number;
        if !tables.by_qp.get(&connection.qp_key).is_some_and(same) {
            return false;
        }
        tables.by_qp.remove(&connection.qp_key);
        if let Some(id) = connection.id.and_then(|key| tables.ids.get_mut(&key)) {
            id.qp = None;
        }
        self.connections.fetch_sub(1, Ordering::Release);
        true
    }

    /// Forgets an id that is created anew or has been destroyed.
    pub(crate) fn forget_id(&self, key: IdKey) {
        self.tables().ids.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use cm_msgs::Gid;

    use super::*;
    use crate::connection::ContextKey;
    use crate::model::{Model, path};

    const LISTENER: IdKey = IdKey(0x10);
    const ID: IdKey = IdKey(0x20);

    fn description(id: Option<IdKey>, qp: usize) -> Description {
        Description {
            role: Role::Active,
            id,
            qp_key: QpKey(qp),
            context: ContextKey {
                address: 0x100,
                async_fd: -1,
            },
            peer_gid: Gid::default(),
            opted_in: false,
            qp: Box::new(Model::new(path(1))),
        }
    }

    #[test]
    fn a_request_has_its_listeners_option_and_its_own_afterwards() {
        let registry = Registry::default();
        registry.ask(LISTENER, true);
        registry.inherit(ID, LISTENER);
        assert_eq!(registry.id(ID).asked, Some(true));
        registry.ask(ID, false);
        assert_eq!(
            (registry.id(ID).asked, registry.id(LISTENER).asked),
            (Some(false), Some(true))
        );
    }

    #[test]
    fn a_connection_is_established_once_and_again_after_the_next_connect() {
        let registry = Registry::default();
        assert_eq!(registry.establish(ID), None, "nobody called connect");
        registry.set_role(ID, Role::Passive);
        assert_eq!(registry.id(ID).established_as, None);
        assert_eq!(registry.establish(ID), Some(Role::Passive));
        assert_eq!(registry.id(ID).established_as, Some(Role::Passive));
        assert_eq!(registry.establish(ID), None);
        registry.set_role(ID, Role::Active);
        assert_eq!(registry.establish(ID), Some(Role::Active));
    }

    #[test]
    fn a_forgotten_id_leaves_nothing_to_the_next_at_its_address() {
        let registry = Registry::default();
        registry.ask(ID, true);
        registry.own_ack_timeout(ID);
        registry.forget_id(ID);
        assert_eq!(registry.id(ID), IdState::default());
    }

    #[test]
    fn a_qp_is_under_apm_once_and_found_by_all_its_names() {
        let registry = Registry::default();
        registry.set_role(ID, Role::Active);
        let first = registry
            .add(description(Some(ID), 1))
            .expect("the QP is new");
        assert!(registry.add(description(Some(ID), 1)).is_none());
        let second = registry.add(description(None, 2)).expect("the QP is new");
        assert_ne!(first.number, second.number);
        let number = |found: Option<Arc<Connection>>| found.map(|connection| connection.number);
        assert_eq!(number(registry.by_qp(QpKey(1))), Some(first.number));
        assert_eq!(number(registry.by_id(ID)), Some(first.number));
        assert_eq!(registry.on_context(0x100).len(), 2);

        assert!(registry.remove(&first));
        assert!(!registry.remove(&first));
        assert_eq!(number(registry.by_qp(QpKey(1))), None);
        assert_eq!(number(registry.by_id(ID)), None);
        assert_eq!(registry.on_context(0x100).len(), 1);
        // A new QP may have the address of the old one, and the old one's owner may come late.
        let third = registry
            .add(description(Some(ID), 1))
            .expect("the address is free");
        assert!(!registry.remove(&first));
        assert_eq!(number(registry.by_qp(QpKey(1))), Some(third.number));
    }
}
