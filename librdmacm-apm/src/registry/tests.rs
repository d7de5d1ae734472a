// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which QPs are put under APM, once, and when they are taken out again.

use cm_msgs::{Guid, Qpn};

use super::*;
use crate::tests::model::{Model, path};

const LISTENER: IdKey = IdKey(0x10);
const ID: IdKey = IdKey(0x20);

const CONTEXT: ContextKey = ContextKey {
    address: 0x100,
    async_fd: -1,
};

fn number(qpn: u32) -> QpNumber {
    QpNumber {
        node_guid: Guid(1),
        qpn: Qpn(qpn),
    }
}

fn connects(role: Role, qp: Announced) -> Connects {
    Connects {
        role,
        qp,
        peer_gid: Gid([9; 16]),
        answer_came_late: false,
    }
}

/// As `rdma_connect` or `rdma_accept` of an id with a QP.
fn with_qp(role: Role) -> Connects {
    connects(role, Announced::OfId(QpKey(0x40), CONTEXT))
}

fn ready(qpn: u32) -> ReadyQp {
    ReadyQp {
        number: number(qpn),
        context: CONTEXT,
        qp: Arc::new(Model::new(path(1))),
    }
}

fn description(id: Option<IdKey>, qp: usize) -> Description {
    Description {
        role: Some(Role::Active),
        id,
        qp_key: QpKey(qp),
        context: CONTEXT,
        peer_gid: Gid::default(),
        opted_in: false,
        policy: PolicyOverride::default(),
        answer_came_late: false,
        only_receives: false,
        qp: Arc::new(Model::new(path(1))),
    }
}

#[test]
fn a_request_has_its_listeners_option_and_its_own_afterwards() {
    let registry = Registry::default();
    let policy = PolicyOverride {
        mode: Some(cm_msgs::control::Mode::Lid),
        ..PolicyOverride::default()
    };
    registry.ask(LISTENER, Wish::On(Some(policy)));
    registry.inherit(ID, LISTENER);
    assert_eq!(registry.id(ID).asked, Some(true));
    assert_eq!(registry.id(ID).policy, policy);
    registry.ask(ID, Wish::On(None));
    assert_eq!(registry.id(ID).policy, policy, "nothing else was said");
    registry.ask(ID, Wish::Off);
    assert_eq!(
        (registry.id(ID).asked, registry.id(LISTENER).asked),
        (Some(false), Some(true))
    );
}

#[test]
fn a_connection_is_established_once_and_again_after_the_next_connect() {
    let registry = Registry::default();
    let establish = || registry.establish(ID, registry.id(ID).attempt);
    assert_eq!(establish(), None, "nobody called connect");
    let passive = with_qp(Role::Passive);
    registry.connects(ID, passive);
    assert_eq!(registry.id(ID).established, None);
    assert_eq!(establish(), Some(passive));
    assert_eq!(registry.id(ID).established, Some(passive));
    assert_eq!(establish(), None);
    registry.connects(ID, with_qp(Role::Active));
    assert_eq!(establish(), Some(with_qp(Role::Active)));
}

#[test]
fn who_comes_late_does_not_establish_the_next_id_at_the_address() {
    let registry = Registry::default();
    registry.connects(ID, with_qp(Role::Passive));
    let gone = registry.id(ID).attempt;
    registry.forget_id(ID);
    assert_eq!(registry.establish(ID, gone), None);
    let active = with_qp(Role::Active);
    registry.connects(ID, active);
    assert_eq!(registry.establish(ID, gone), None);
    assert_eq!(registry.id(ID).established, None);
    let attempt = registry.id(ID).attempt;
    assert_eq!(registry.establish(ID, attempt), Some(active));
}

#[test]
fn a_forgotten_id_leaves_nothing_to_the_next_at_its_address() {
    let registry = Registry::default();
    registry.ask(ID, Wish::On(None));
    registry.own_ack_timeout(ID);
    registry.forget_id(ID);
    assert_eq!(registry.id(ID), IdState::default());
}

#[test]
fn a_qp_is_under_apm_once_and_found_by_all_its_names() {
    let registry = Registry::default();
    registry.connects(ID, with_qp(Role::Active));
    let first = registry
        .add(description(Some(ID), 0x40))
        .expect("the QP is new");
    assert!(registry.add(description(Some(ID), 0x40)).is_none());
    let second = registry.add(description(None, 2)).expect("the QP is new");
    assert_ne!(first.number, second.number);
    let number = |found: Option<Arc<Connection>>| found.map(|connection| connection.number);
    assert_eq!(number(registry.by_qp(QpKey(0x40))), Some(first.number));
    assert_eq!(number(registry.by_id(ID)), Some(first.number));
    assert_eq!(registry.on_context(0x100).len(), 2);

    assert!(registry.remove(&first));
    assert!(!registry.remove(&first));
    assert_eq!(number(registry.by_qp(QpKey(0x40))), None);
    assert_eq!(number(registry.by_id(ID)), None);
    assert_eq!(registry.on_context(0x100).len(), 1);
    // A new QP may have the address of the old one, and the old one's owner may come late.
    let third = registry
        .add(description(Some(ID), 0x40))
        .expect("the address is free");
    assert!(!registry.remove(&first));
    assert_eq!(number(registry.by_qp(QpKey(0x40))), Some(third.number));
}

#[test]
fn a_qp_in_rtr_is_a_receiver_unless_librdmacm_connects_it_or_it_is_known() {
    let add = |registry: &Registry, qp| {
        let model = Arc::new(Model::new(path(1)));
        registry.add_receiver(QpKey(qp), CONTEXT, model)
    };
    let registry = Registry::default();
    registry.connects(ID, with_qp(Role::Passive));
    assert!(add(&registry, 0x40).is_none(), "librdmacm connects it");
    let receiver = add(&registry, 2).expect("the QP is new");
    assert!(receiver.only_receives);
    assert!(add(&registry, 2).is_none(), "it is known");
    registry.hands_off(QpKey(3));
    assert!(add(&registry, 3).is_none(), "its application does APM");
    assert!(registry.remove(&receiver));
    assert!(add(&registry, 2).is_some());
}

#[test]
fn what_is_destroyed_while_its_id_connects_is_not_put_under_apm() {
    let add = |registry: &Registry| registry.add(description(Some(ID), 0x40));
    let registry = Registry::default();
    registry.connects(ID, with_qp(Role::Passive));
    registry.unready(QpKey(0x40));
    assert!(add(&registry).is_none(), "the QP is gone");
    registry.connects(ID, with_qp(Role::Passive));
    registry.forget_id(ID);
    assert!(add(&registry).is_none(), "the id is gone");
    registry.connects(LISTENER, with_qp(Role::Passive));
    assert!(add(&registry).is_none(), "the address is another's now");
    registry.connects(ID, with_qp(Role::Passive));
    assert!(add(&registry).is_some());
}

#[test]
fn a_qp_that_librdmacm_connects_is_its_ids_until_it_goes() {
    let registry = Registry::default();
    registry.connects(ID, with_qp(Role::Passive));
    assert_eq!(registry.ready(QpKey(0x40), ready(7)), Owner::Librdmacm);
    assert!(registry.add_ready(QpKey(0x40), None, false).is_none());
    // The next QP may have its address.
    registry.unready(QpKey(0x40));
    assert_eq!(registry.ready(QpKey(0x40), ready(8)), Owner::Application);
}

#[test]
fn a_qp_of_ones_own_is_its_ids_by_its_number() {
    let registry = Registry::default();
    let active = connects(Role::Active, Announced::Number(number(7)));
    registry.connects(ID, active);
    assert_eq!(
        registry.ready(QpKey(1), ready(7)),
        Owner::Announced(ID, active)
    );
    assert_eq!(registry.ready(QpKey(2), ready(8)), Owner::Application);
    registry.forget_id(ID);
    assert_eq!(registry.ready(QpKey(1), ready(7)), Owner::Application);
}

#[test]
fn what_an_id_says_goes_before_a_guess() {
    let registry = Registry::default();
    registry.ready(QpKey(1), ready(7));
    let guessed = registry
        .add_ready(QpKey(1), None, false)
        .expect("it is ready")
        .connection;
    assert_eq!(guessed.role, None);
    assert!(registry.add_ready(QpKey(1), None, false).is_none());

    let passive = connects(Role::Passive, Announced::Number(number(7)));
    registry.connects(ID, passive);
    assert_eq!(registry.ready_as(number(7)), Some(QpKey(1)));
    let told = registry
        .add_ready(QpKey(1), Some((ID, passive)), false)
        .expect("its role is new");
    let replaced = told.replaced.expect("the guess");
    assert_eq!(replaced.number, guessed.number);
    assert!(guessed.with_qp(|_| ()).is_none(), "nobody uses it any more");
    assert_eq!(told.connection.role, Some(Role::Passive));
    assert_eq!(
        registry.by_id(ID).map(|c| c.number),
        Some(told.connection.number)
    );
    assert!(
        registry
            .add_ready(QpKey(1), Some((ID, passive)), false)
            .is_none(),
        "nothing is new"
    );
    assert!(!registry.remove(&guessed));
    assert!(registry.remove(&told.connection));
}

#[test]
fn a_qp_that_is_gone_is_never_put_under_apm() {
    let registry = Registry::default();
    registry.ready(QpKey(1), ready(7));
    registry.unready(QpKey(1));
    assert_eq!(registry.ready_as(number(7)), None);
    assert!(registry.add_ready(QpKey(1), None, false).is_none());
    assert!(!registry.has_qps());
}

#[test]
fn an_application_that_manages_its_paths_is_left_alone_unless_it_asked() {
    let registry = Registry::default();
    registry.ready(QpKey(1), ready(7));
    registry.hands_off(QpKey(1));
    assert!(registry.add_ready(QpKey(1), None, false).is_none());
    let asked = connects(Role::Active, Announced::Number(number(7)));
    assert!(
        registry
            .add_ready(QpKey(1), Some((ID, asked)), true)
            .is_some()
    );
    // The next QP at the address is another one.
    registry.unready(QpKey(2));
    registry.hands_off(QpKey(2));
    registry.unready(QpKey(2));
    let connection = registry.add(description(None, 2)).expect("it may be");
    registry.remove(&connection);
    registry.hands_off(QpKey(2));
    assert!(registry.add(description(None, 2)).is_none());
    registry.hands_on(QpKey(2));
    registry.hands_on(QpKey(2));
    let connection = registry.add(description(None, 2)).expect("its last word");
    registry.remove(&connection);
}
