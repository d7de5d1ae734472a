// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the attacks meet: daemons with the rights of their unit, ACM served by host A's, and a
//! connection whose cables are pulled.

use std::thread;
use std::time::Duration;

use super::Context;
use super::attacker::{ACM_SOCKET, Attacker};
use crate::clock::{Millis, median};
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::stream::{Options, Streams};
use crate::unit::{self, Rights};

/// Pulls of each kind of which the median is taken; the short form goes on beyond its own only while the goal is missed.
const PULLS: usize = 7;
const SHORT_PULLS: usize = 3;

/// Until what an attack has put into queues is worked off.
const CALM: Duration = Duration::from_secs(1);

/// By how much re-arming may take longer because of an attack.
const FACTOR: f64 = 2.0;

pub(super) struct Scene {
    streams: Streams,
    /// Host A's queue pair of it.
    pub(super) qpn: u32,
    /// Sent half a request to ACM before all else.
    pub(super) half_request: Attacker,
}

impl Scene {
    pub(super) fn set(context: &mut Context<'_>) -> Result<Self, Failure> {
        let with_acm = Policy {
            rights: Rights::UnitForAcm,
            sections: unit::acm_section(),
            ..Policy::default()
        };
        context.world.start_daemon(Host::A, with_acm)?;
        // Both would serve ACM at the same place.
        let without_acm = Policy {
            rights: Rights::Unit,
            ..Policy::default()
        };
        context.world.start_daemon(Host::B, without_acm)?;
        let streams = Streams::start(&context.timeline, Options::default())?;
        let qpn = context.world.wait_disjoint(1)?[0].end(Host::A).qpn;
        let words = ["apm-abuse", "half-request", ACM_SOCKET];
        let mut scene = Self {
            streams,
            qpn,
            half_request: Attacker::start(0, &words)?,
        };
        // The first finds everything cold.
        scene.rearm(context)?;
        Ok(scene)
    }

    /// Ends the streams and the daemons.
    pub(super) fn leave(self, context: &mut Context<'_>) -> Result<(), Failure> {
        context.finish(self.streams)?;
        context.world.stop_daemons()
    }

    /// Pulls the cable of the port of host A that carries the connection, and plugs it when an
    /// alternate path is loaded on both ends again: how long that took.
    pub(super) fn rearm(&mut self, context: &mut Context<'_>) -> Result<Millis, Failure> {
        let world = &*context.world;
        let port = world.wait_disjoint(1)?[0].active_port(Host::A);
        let pulled = world.pull(port)?;
        let loaded = self.streams.wait_loaded(pulled)?;
        context.report.migrations += 1;
        world.plug(port)?;
        world.wait_disjoint(1)?;
        context.report.rearmed += 1;
        self.streams.ensure_healthy()?;
        Ok(loaded.since(pulled).into())
    }

    /// Pulls cables in turn while an attack goes on and while it is paused, and compares: what else the
    /// machine does in the meantime is the same for both.
    pub(super) fn rearm_under(
        &mut self,
        context: &mut Context<'_>,
        attack: &str,
        attackers: &mut [Attacker],
    ) -> Result<(), Failure> {
        let (mut quiet, mut attacked) = (Vec::new(), Vec::new());
        let pulls = match context.options.short {
            true => SHORT_PULLS,
            false => PULLS,
        };
        while quiet.len() < pulls || (quiet.len() < PULLS && is_slower(&quiet, &attacked)) {
            attacked.push(self.rearm(context)?);
            attackers.iter_mut().try_for_each(Attacker::pause)?;
            thread::sleep(CALM);
            quiet.push(self.rearm(context)?);
            attackers.iter_mut().try_for_each(Attacker::resume)?;
        }
        let (quiet, attacked) = (median(quiet), median(attacked));
        let report = &mut *context.report;
        report.set(&format!("{attack}_paused_rearm_ms"), quiet.rounded());
        report.set(&format!("{attack}_rearm_ms"), attacked.rounded());
        let text = format!("armed again within {attacked}, {quiet} while the attack was paused");
        context.timeline.note("drill", text.clone());
        ensure(is_within_goal(quiet, attacked), || text)
    }
}

fn is_within_goal(quiet: Millis, attacked: Millis) -> bool {
    attacked.0 <= quiet.0 * FACTOR
}

fn is_slower(quiet: &[Millis], attacked: &[Millis]) -> bool {
    let of = |times: &[Millis]| median(times.iter().copied());
    !is_within_goal(of(quiet), of(attacked))
}
