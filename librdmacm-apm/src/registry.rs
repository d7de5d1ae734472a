// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which ids and QPs there are, and which of them are under APM.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cm_msgs::Gid;
use cm_msgs::control::{PolicyOverride, Role};

use crate::connection::{Connection, ContextKey, Description, IdKey, QpKey, QpNumber};
use crate::option::Wish;
use crate::queue_pair::QueuePair;

/// All ids that were touched, all QPs that were seen to become ready to send, and all connections
/// under APM.
#[derive(Default)]
pub(crate) struct Registry {
    tables: Mutex<Tables>,
    /// QPs in the tables, for the calls that have nothing to do when there is none.
    qps: AtomicUsize,
}

#[derive(Default)]
struct Tables {
    ids: HashMap<IdKey, Id>,
    by_qp: HashMap<QpKey, Arc<Connection>>,
    /// QPs that became ready to send and still exist: they may be put under APM.
    ready: HashMap<QpKey, ReadyQp>,
    by_number: HashMap<QpNumber, QpKey>,
    /// QPs of ids, which librdmacm connects.
    of_ids: HashMap<QpKey, IdKey>,
    /// Which id connects a QP that librdmacm does not know.
    announced: HashMap<QpNumber, IdKey>,
    /// QPs whose paths the application manages by itself.
    hands_off: HashSet<QpKey>,
    last_number: u64,
    last_attempt: u64,
}

#[derive(Default)]
struct Id {
    /// What the application said by the option, if it said anything.
    asked: Option<bool>,
    /// What it said of the policy, by the same.
    policy: PolicyOverride,
    /// The application set an ACK timeout of its own.
    own_ack_timeout: bool,
    /// Known from `rdma_connect` or `rdma_accept` on.
    connects: Option<Connects>,
    /// Which of all those calls that was. The next id at this address has another.
    attempt: u64,
    established: bool,
    /// Its connection under APM.
    qp: Option<QpKey>,
}

/// What an id connects, as `rdma_connect` or `rdma_accept` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Connects {
    pub(crate) role: Role,
    pub(crate) qp: Announced,
    pub(crate) peer_gid: Gid,
    /// There was no answer about the peer in time.
    pub(crate) answer_came_late: bool,
}

/// The QP that an id connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Announced {
    /// The id's own, on this verbs context.
    OfId(QpKey, ContextKey),
    /// One that the application made by itself; librdmacm knows its number.
    Number(QpNumber),
}

/// A QP that became ready to send.
pub(crate) struct ReadyQp {
    pub(crate) number: QpNumber,
    pub(crate) context: ContextKey,
    pub(crate) qp: Arc<dyn QueuePair>,
}

/// What is known of an id.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct IdState {
    pub(crate) asked: Option<bool>,
    pub(crate) policy: PolicyOverride,
    pub(crate) own_ack_timeout: bool,
    /// Its last call to connect or accept, for [`Registry::establish`].
    pub(crate) attempt: u64,
    /// What it connects, once it is established.
    pub(crate) established: Option<Connects>,
}

/// Whose a QP is that became ready to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// librdmacm connects it, and its id says when that is done.
    Librdmacm,
    /// The application, which tells its number to librdmacm.
    Announced(IdKey, Connects),
    /// The application, by means of its own.
    Application,
}

/// A connection that has just been put under APM.
pub(crate) struct Added {
    pub(crate) connection: Arc<Connection>,
    /// What was known of the same QP before.
    pub(crate) replaced: Option<Arc<Connection>>,
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
                policy: id.policy,
                own_ack_timeout: id.own_ack_timeout,
                attempt: id.attempt,
                established: id.connects.filter(|_| id.established),
            })
    }

    /// The application used the option.
    pub(crate) fn ask(&self, key: IdKey, wish: Wish) {
        let mut tables = self.tables();
        let id = tables.ids.entry(key).or_default();
        id.asked = Some(wish != Wish::Off);
        if let Wish::On(Some(policy)) = wish {
            id.policy = policy;
        }
    }

    /// The application set an ACK timeout.
    pub(crate) fn own_ack_timeout(&self, key: IdKey) {
        self.tables().ids.entry(key).or_default().own_ack_timeout = true;
    }

    /// The application connects or accepts.
    pub(crate) fn connects(&self, key: IdKey, connects: Connects) {
        let mut tables = self.tables();
        tables.forget_announcement(key);
        match connects.qp {
            Announced::OfId(qp, _) => tables.of_ids.insert(qp, key),
            Announced::Number(number) => tables.announced.insert(number, key),
        };
        tables.last_attempt += 1;
        let attempt = tables.last_attempt;
        let id = tables.ids.entry(key).or_default();
        id.connects = Some(connects);
        id.attempt = attempt;
        id.established = false;
    }

    /// A connection request arrived on a listening id: it has its listener's option.
    pub(crate) fn inherit(&self, key: IdKey, listener: IdKey) {
        let mut tables = self.tables();
        let said = tables.ids.get(&listener);
        let (asked, policy) = said.map_or_else(Default::default, |id| (id.asked, id.policy));
        tables.forget_announcement(key);
        tables.ids.insert(
            key,
            Id {
                asked,
                policy,
                ..Id::default()
            },
        );
    }

    /// The connection of this attempt of the id's is established. Returns what it connects at the first
    /// call. Who comes late may mean an id that is gone: its address may be another's, and its QP's as well.
    pub(crate) fn establish(&self, key: IdKey, attempt: u64) -> Option<Connects> {
        let mut tables = self.tables();
        let id = tables.ids.get_mut(&key)?;
        if id.established || id.attempt != attempt {
            return None;
        }
        id.established = true;
        id.connects
    }

    /// A QP became ready to send. Whose it is.
    pub(crate) fn ready(&self, key: QpKey, qp: ReadyQp) -> Owner {
        let mut tables = self.tables();
        let tables = &mut *tables;
        let number = qp.number;
        if tables.of_ids.contains_key(&key) {
            return Owner::Librdmacm;
        }
        tables.by_number.insert(number, key);
        if tables.ready.insert(key, qp).is_none() {
            self.qps.fetch_add(1, Ordering::Release);
        }
        let id = tables.announced.get(&number);
        id.and_then(|&id| Some((id, tables.ids.get(&id)?.connects?)))
            .map_or(Owner::Application, |(id, connects)| {
                Owner::Announced(id, connects)
            })
    }

    /// Which QP has the number, if it is ready to send.
    pub(crate) fn ready_as(&self, number: QpNumber) -> Option<QpKey> {
        self.tables().by_number.get(&number).copied()
    }

    /// The application sets a QP's alternate path or migration state by itself.
    pub(crate) fn hands_off(&self, key: QpKey) {
        if self.tables().hands_off.insert(key) {
            self.qps.fetch_add(1, Ordering::Release);
        }
    }

    /// The application wants a QP under APM after all.
    pub(crate) fn hands_on(&self, key: QpKey) {
        if self.tables().hands_off.remove(&key) {
            self.qps.fetch_sub(1, Ordering::Release);
        }
    }

    /// Puts a connection under APM. `None` if its QP already is, the application manages its paths, or
    /// the id does not have that QP any more: another thread may have destroyed it since it was connected.
    pub(crate) fn add(&self, description: Description) -> Option<Arc<Connection>> {
        let mut tables = self.tables();
        let key = description.qp_key;
        // Under one lock with `unready`, which every destruction goes through first.
        let gone = description
            .id
            .is_some_and(|id| tables.of_ids.get(&key) != Some(&id));
        let known = tables.by_qp.contains_key(&key);
        if gone || known || tables.leave_alone(key, description.opted_in) {
            return None;
        }
        Some(self.insert(&mut tables, description))
    }

    /// Puts a QP that is ready to send under APM. One that already is there is so anew, with what
    /// its id says now. `None`: it is gone, the application manages its paths, or nothing is new.
    pub(crate) fn add_ready(
        &self,
        key: QpKey,
        id: Option<(IdKey, Connects)>,
        opted_in: bool,
    ) -> Option<Added> {
        let mut tables = self.tables();
        let known = tables.by_qp.get(&key);
        let role = id.map(|(_, connects)| connects.role);
        if known.is_some_and(|known| id.is_none() || (known.role == role && known.id.is_some()))
            || tables.leave_alone(key, opted_in)
        {
            return None;
        }
        let ready = tables.ready.get(&key)?;
        let description = Description {
            role,
            id: id.map(|(id, _)| id),
            qp_key: key,
            context: ready.context,
            peer_gid: id.map_or(Gid::default(), |(_, connects)| connects.peer_gid),
            opted_in,
            policy: tables.policy(id.map(|(id, _)| id)),
            answer_came_late: id.is_some_and(|(_, connects)| connects.answer_came_late),
            only_receives: false,
            qp: Arc::clone(&ready.qp),
        };
        // Under the lock throughout: who is about to destroy the QP finds one or the other.
        let replaced = tables.by_qp.remove(&key);
        if let Some(replaced) = &replaced {
            replaced.release_qp();
            tables.unlink(replaced);
            self.qps.fetch_sub(1, Ordering::Release);
        }
        let connection = self.insert(&mut tables, description);
        Some(Added {
            connection,
            replaced,
        })
    }

    /// A QP of the application's own has come to RTR. `None`: librdmacm connects it, the application manages its
    /// paths, or it is known.
    pub(crate) fn add_receiver(
        &self,
        key: QpKey,
        context: ContextKey,
        qp: Arc<dyn QueuePair>,
    ) -> Option<Arc<Connection>> {
        let mut tables = self.tables();
        let is_known = tables.of_ids.contains_key(&key) || tables.by_qp.contains_key(&key);
        if is_known || tables.leave_alone(key, false) {
            return None;
        }
        let description = Description {
            role: None,
            id: None,
            qp_key: key,
            context,
            peer_gid: Gid::default(),
            opted_in: false,
            policy: PolicyOverride::default(),
            answer_came_late: false,
            only_receives: true,
            qp,
        };
        Some(self.insert(&mut tables, description))
    }

    fn insert(&self, tables: &mut Tables, description: Description) -> Arc<Connection> {
        tables.last_number += 1;
        let connection = Arc::new(Connection::new(tables.last_number, description));
        tables
            .by_qp
            .insert(connection.qp_key, Arc::clone(&connection));
        if let Some(id) = connection.id.and_then(|key| tables.ids.get_mut(&key)) {
            id.qp = Some(connection.qp_key);
        }
        self.qps.fetch_add(1, Ordering::Release);
        connection
    }

    fn has_qps(&self) -> bool {
        self.qps.load(Ordering::Acquire) > 0
    }

    /// The connection of the QP.
    pub(crate) fn by_qp(&self, key: QpKey) -> Option<Arc<Connection>> {
        if !self.has_qps() {
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

    /// Whether there are any.
    pub(crate) fn is_on_context(&self, address: usize) -> bool {
        self.has_qps() && {
            let tables = self.tables();
            let mut all = tables.by_qp.values();
            all.any(|connection| connection.context.address == address)
        }
    }

    /// Takes the connection out, after its QP was released. False if it was not in.
    pub(crate) fn remove(&self, connection: &Connection) -> bool {
        let mut tables = self.tables();
        let same = |have: &Arc<Connection>| have.number == connection.number;
        if !tables.by_qp.get(&connection.qp_key).is_some_and(same) {
            return false;
        }
        tables.by_qp.remove(&connection.qp_key);
        tables.unlink(connection);
        self.qps.fetch_sub(1, Ordering::Release);
        true
    }

    /// A QP is not ready to send any more, or about to be destroyed: from now on nobody puts it
    /// under APM.
    pub(crate) fn unready(&self, key: QpKey) {
        // One that librdmacm connects is only in `of_ids`, where a leftover would hide the next QP
        // at the same address.
        let mut tables = self.tables();
        tables.of_ids.remove(&key);
        if !self.has_qps() {
            return;
        }
        let mut gone = usize::from(tables.hands_off.remove(&key));
        if let Some(qp) = tables.ready.remove(&key) {
            gone += 1;
            if tables.by_number.get(&qp.number) == Some(&key) {
                tables.by_number.remove(&qp.number);
            }
        }
        self.qps.fetch_sub(gone, Ordering::Release);
    }

    /// All QPs on a verbs context that may be put under APM.
    pub(crate) fn ready_on_context(&self, address: usize) -> Vec<QpKey> {
        let tables = self.tables();
        let ready = tables.ready.iter();
        ready
            .filter(|(_, qp)| qp.context.address == address)
            .map(|(&key, _)| key)
            .collect()
    }

    /// Forgets an id that is created anew or has been destroyed.
    pub(crate) fn forget_id(&self, key: IdKey) {
        let mut tables = self.tables();
        tables.forget_announcement(key);
        tables.ids.remove(&key);
    }
}

impl Tables {
    /// The application's own path management goes before ours, unless it asked for both.
    fn leave_alone(&self, key: QpKey, opted_in: bool) -> bool {
        !opted_in && self.hands_off.contains(&key)
    }

    /// What the application said of an id's policy.
    fn policy(&self, id: Option<IdKey>) -> PolicyOverride {
        let id = id.and_then(|id| self.ids.get(&id));
        id.map_or_else(PolicyOverride::default, |id| id.policy)
    }

    fn unlink(&mut self, connection: &Connection) {
        if let Some(id) = connection.id.and_then(|key| self.ids.get_mut(&key)) {
            id.qp = None;
        }
    }

    fn forget_announcement(&mut self, key: IdKey) {
        match self.ids.get(&key).and_then(|id| id.connects) {
            Some(Connects {
                qp: Announced::OfId(qp, _),
                ..
            }) if self.of_ids.get(&qp) == Some(&key) => {
                self.of_ids.remove(&qp);
            }
            Some(Connects {
                qp: Announced::Number(number),
                ..
            }) if self.announced.get(&number) == Some(&key) => {
                self.announced.remove(&number);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
