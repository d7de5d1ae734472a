// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the attacks meet: daemons with the rights of their unit, ACM served by host A's, and a
//! connection whose cables are pulled.

use std::thread;
use std::time::Duration;

use super::Context;
use super::attacker::{ACM_SOCKET, Attacker};
use crate::clock::{Millis, Moment, median};
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

/// Until the full protection is back after a port is: the port's hold-off alone is half a second.
const LEAST_FULL: Millis = Millis(1_000.0);

/// How long it took after a pulled cable.
#[derive(Clone, Copy)]
pub(super) struct Rearmed {
    /// When the cable was pulled.
    pub(super) pulled: Moment,
    /// Until an alternate was loaded again.
    loaded: Millis,
    /// From when the port was back until the paths had no port in common again.
    full: Millis,
}

pub(super) struct Scene {
    streams: Streams,
    /// Host A's queue pair of it.
    pub(super) qpn: u32,
    /// Sent half a request to ACM before all else.
    pub(super) half_request: Attacker,
}

impl Scene {
    /// Host A's daemon logs at the level `log`.
    pub(super) fn set(context: &mut Context<'_>, log: &'static str) -> Result<Self, Failure> {
        let with_acm = Policy {
            rights: Rights::UnitForAcm,
            sections: unit::acm_section(),
            log,
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
    pub(super) fn rearm(&mut self, context: &mut Context<'_>) -> Result<Rearmed, Failure> {
        let world = &*context.world;
        let port = world.wait_disjoint(1)?[0].active_port(Host::A);
        let pulled = world.pull(port)?;
        let loaded = self.streams.wait_loaded(pulled)?;
        context.report.migrations += 1;
        let plugged = Moment::now();
        world.plug(port)?;
        world.wait_disjoint(1)?;
        // The daemons may have been too busy to tell that at once.
        let full = self.streams.last_loaded(plugged)?;
        context.report.rearmed += 1;
        self.streams.ensure_healthy()?;
        Ok(Rearmed {
            pulled,
            loaded: loaded.since(pulled).into(),
            full: full.since(plugged).into(),
        })
    }

    /// When host A's program was told, after `since`, that its connection has migrated: its daemon knew it then.
    pub(super) fn told_of_migration(&self, since: Moment) -> Result<Moment, Failure> {
        let told = self.streams.client_migrated(since);
        told.ok_or_else(|| Failure::not_shown("the client was not told of the migration"))
    }

    /// The same a number of times.
    pub(super) fn rearm_times(
        &mut self,
        context: &mut Context<'_>,
        times: usize,
    ) -> Result<Vec<Rearmed>, Failure> {
        (0..times).map(|_| self.rearm(context)).collect()
    }

    /// Pulls cables in turn while an attack goes on and while it is paused, and compares: what else the
    /// machine does in the meantime is the same for both.
    pub(super) fn rearm_under(
        &mut self,
        context: &mut Context<'_>,
        attack: &str,
        attackers: &mut [Attacker],
    ) -> Result<(), Failure> {
        self.compare(context, attack, |on| {
            let switch = if on {
                Attacker::resume
            } else {
                Attacker::pause
            };
            attackers.iter_mut().try_for_each(switch)
        })
    }

    /// The same; `switch` has the attack begin, or end.
    pub(super) fn compare(
        &mut self,
        context: &mut Context<'_>,
        attack: &str,
        mut switch: impl FnMut(bool) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (mut quiet, mut attacked) = (Vec::new(), Vec::new());
        let pulls = match context.options.short {
            true => SHORT_PULLS,
            false => PULLS,
        };
        while quiet.len() < pulls || (quiet.len() < PULLS && is_slower(&quiet, &attacked)) {
            switch(true)?;
            attacked.push(self.rearm(context)?);
            switch(false)?;
            thread::sleep(CALM);
            quiet.push(self.rearm(context)?);
        }
        tell(context, &format!("{attack}_paused"), &quiet);
        tell(context, attack, &attacked);
        context
            .timeline
            .note("drill", comparison(&quiet, &attacked));
        ensure_no_slower(&quiet, &attacked)
    }
}

fn comparison(quiet: &[Rearmed], attacked: &[Rearmed]) -> String {
    let [[quiet_loaded, loaded], [quiet_full, full]] = medians(quiet, attacked);
    format!(
        "armed again within {loaded}, {quiet_loaded} without the attack; \
         fully within {full} and {quiet_full} of a port's return"
    )
}

/// Fails if the medians under an attack are more than twice those without.
pub(super) fn ensure_no_slower(quiet: &[Rearmed], attacked: &[Rearmed]) -> Result<(), Failure> {
    ensure(!is_slower(quiet, attacked), || comparison(quiet, attacked))
}

/// Reports the medians of both times.
pub(super) fn tell(context: &mut Context<'_>, name: &str, times: &[Rearmed]) {
    let loaded = median(times.iter().map(|it| it.loaded));
    let full = median(times.iter().map(|it| it.full));
    for (what, time) in [("rearm", loaded), ("full", full)] {
        context
            .report
            .set(&format!("{name}_{what}_ms"), time.rounded());
    }
    let text = format!("{name}: armed again within {loaded}, fully within {full}");
    context.timeline.note("drill", text);
}

/// Medians of both times, each without the attack and with it.
fn medians(quiet: &[Rearmed], attacked: &[Rearmed]) -> [[Millis; 2]; 2] {
    let times: [fn(&Rearmed) -> Millis; 2] = [|it| it.loaded, |it| it.full];
    times.map(|time| [quiet, attacked].map(|all| median(all.iter().map(time))))
}

fn is_slower(quiet: &[Rearmed], attacked: &[Rearmed]) -> bool {
    let [[quiet_loaded, loaded], [quiet_full, full]] = medians(quiet, attacked);
    loaded.0 > quiet_loaded.0 * FACTOR || full.0 > quiet_full.max(LEAST_FULL).0 * FACTOR
}
