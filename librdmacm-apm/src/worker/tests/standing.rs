// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports that fail under connections with standing orders. An eventfd is the verbs context's descriptor.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use cm_msgs::control::{Cause, FromDaemon, Migrate, MigrationState, Stand};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::{Client, Daemon, commit, connection_on, load_with, nobody};
use crate::commit::{Command, Commit};
use crate::connection::{Connection, ContextKey};
use crate::tests::model::{Model, path};

const CONTEXT: usize = 0x3000;

/// A daemon, its library, and connections on one verbs context.
struct Scene {
    daemon: Daemon,
    client: Client,
    commit: &'static Commit,
    events: EventFd,
    models: Vec<Model>,
    _connections: Vec<Arc<Connection>>,
}

impl Scene {
    /// All are registered, on path 1.
    fn new(count: u64) -> Self {
        let mut daemon = Daemon::new();
        daemon.start();
        let commit = commit(&daemon, nobody);
        let events = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).expect("eventfd");
        let context = ContextKey {
            address: CONTEXT,
            async_fd: events.as_raw_fd(),
        };
        let models: Vec<Model> = (0..count).map(|_| Model::new(path(1))).collect();
        let connections: Vec<_> = (1..)
            .zip(&models)
            .map(|(number, model)| connection_on(context, number, model))
            .collect();
        for connection in &connections {
            commit.send(Command::Register(Arc::clone(connection)));
        }
        let client = daemon.accept();
        client.hello();
        for _ in 0..count {
            client.registration();
        }
        Self {
            daemon,
            client,
            commit,
            events,
            models,
            _connections: connections,
        }
    }

    /// One connection, armed with path 2 by a load that gives a standing order or does not.
    fn armed(standing: bool) -> Self {
        let scene = Self::new(1);
        scene.client.order(load_with(1, 1, 1, 2, standing));
        assert_eq!(scene.client.report().cause, Cause::Done { token: 1 });
        scene.models[0].set(|qp| qp.migration = MigrationState::Armed);
        assert_eq!(scene.client.report().cause, Cause::Armed);
        scene
    }

    /// The ports' own event: the application does not read it.
    fn event(&self) {
        self.events.write(1).expect("eventfd");
    }

    fn fail(&self, port: u8) {
        for model in &self.models {
            model.set_port(port, false);
        }
        self.event();
    }

    /// When this returns, what was sent to the library before has been done.
    fn settle(&self) {
        self.client.order(FromDaemon::Query { conn: 1, token: 99 });
        assert_eq!(self.client.report().cause, Cause::Query { token: 99 });
    }

    fn stand(&self, primary: u8, allowed: bool) {
        let primary = path(primary);
        let stand = Stand { primary, allowed };
        self.client.order(FromDaemon::Stand { conn: 1, stand });
    }
}

#[test]
fn a_failed_port_is_left_at_once_and_only_once() {
    let scene = Scene::armed(true);
    let model = &scene.models[0];
    scene.event();
    scene.settle();
    assert_eq!(
        model.snapshot().primary,
        path(1),
        "an event of another kind"
    );
    scene.fail(1);
    let report = scene.client.report();
    assert_eq!(report.cause, Cause::StandingOrder);
    assert_eq!(report.snapshot.primary, path(2));
    // It comes back and fails again: the order was for the path that was left.
    let modifies = model.modifies();
    model.set_port(1, true);
    scene.event();
    scene.fail(1);
    scene.commit.send(Command::PortFailed(CONTEXT));
    scene.settle();
    assert_eq!(model.modifies(), modifies);
}

#[test]
fn a_blip_that_is_over_moves_nobody() {
    let scene = Scene::armed(true);
    scene.commit.send(Command::PortFailed(CONTEXT));
    scene.event();
    scene.settle();
    assert_eq!(scene.models[0].snapshot().primary, path(1));
    // The order is still there.
    scene.fail(1);
    assert_eq!(scene.client.report().cause, Cause::StandingOrder);
}

#[test]
fn an_event_that_the_application_read_counts_as_well() {
    let scene = Scene::armed(true);
    scene.models[0].set_port(1, false);
    scene.commit.send(Command::PortFailed(CONTEXT));
    assert_eq!(scene.client.report().cause, Cause::StandingOrder);
}

#[test]
fn the_daemons_order_for_the_same_loss_is_stale() {
    let scene = Scene::armed(true);
    scene.fail(1);
    let migrate = Migrate {
        token: 2,
        primary: path(1),
    };
    assert_eq!(scene.client.report().cause, Cause::StandingOrder);
    scene.client.order(FromDaemon::Migrate { conn: 1, migrate });
    let report = scene.client.report();
    assert_eq!(report.cause, Cause::Stale { token: 2 });
    assert_eq!(report.snapshot.primary, path(2));
}

#[test]
fn nobody_moves_without_a_standing_order_or_after_it_is_withdrawn() {
    let scene = Scene::armed(false);
    scene.fail(1);
    scene.settle();
    assert_eq!(scene.models[0].snapshot().primary, path(1));

    let scene = Scene::armed(true);
    scene.stand(1, false);
    scene.settle();
    scene.fail(1);
    scene.settle();
    assert_eq!(scene.models[0].snapshot().primary, path(1));
}

#[test]
fn one_that_is_given_later_counts_for_its_primary_only() {
    let scene = Scene::armed(false);
    scene.stand(2, true);
    scene.settle();
    scene.fail(1);
    scene.settle();
    assert_eq!(scene.models[0].snapshot().primary, path(1));
    scene.models[0].set_port(1, true);
    scene.stand(1, true);
    scene.settle();
    scene.fail(1);
    assert_eq!(scene.client.report().cause, Cause::StandingOrder);
}

#[test]
fn a_load_that_fails_leaves_none() {
    let scene = Scene::armed(true);
    scene.models[0].refuse(Some(Errno::EINVAL));
    scene.client.order(load_with(1, 2, 1, 3, true));
    let failed = Cause::Failed {
        token: 2,
        errno: Errno::EINVAL as u8,
    };
    assert_eq!(scene.client.report().cause, failed);
    scene.models[0].refuse(None);
    scene.fail(1);
    scene.settle();
    assert_eq!(scene.models[0].snapshot().primary, path(1));
}

#[test]
fn it_holds_when_the_daemon_is_killed() {
    let Scene {
        mut daemon,
        client,
        events,
        models,
        ..
    } = Scene::armed(true);
    daemon.kill();
    drop(client);
    models[0].set_port(1, false);
    events.write(1).expect("eventfd");
    // The next daemon is told of the QP as it is then.
    daemon.start();
    let client = daemon.accept();
    client.hello();
    let (_, register) = client.registration();
    if register.snapshot.primary != path(2) {
        assert_eq!(client.report().cause, Cause::StandingOrder);
    }
    assert_eq!(models[0].snapshot().primary, path(2));
}

#[test]
fn a_thousand_leave_one_port() {
    let scene = Scene::new(1000);
    for conn in 1..=1000 {
        scene.client.order(load_with(conn, 1, 1, 2, true));
        assert_eq!(scene.client.report().cause, Cause::Done { token: 1 });
    }
    for model in &scene.models {
        model.set(|qp| qp.migration = MigrationState::Armed);
    }
    // Those that the thread has not seen armed yet go with the others: what counts is the QP.
    scene.fail(1);
    let mut moved = 0;
    while moved < 1000 {
        match scene.client.report().cause {
            Cause::StandingOrder => moved += 1,
            Cause::Armed => {}
            other => panic!("{other:?}"),
        }
    }
    let there = |model: &&Model| model.snapshot().primary == path(2);
    assert_eq!(scene.models.iter().filter(there).count(), 1000);
}
