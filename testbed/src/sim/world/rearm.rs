// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a connection is without protection after one failure, and what calm costs.

use cm_msgs::control::{PolicyOverride, QpState};

use super::{Keep, World};
use crate::sim::addresses::Subnets;
use crate::sim::fabric::{Element, Failure, PortOf};
use crate::sim::plan::Plan;
use crate::sim::profile::{Named, Profile};
use crate::sim::queue::{MS, SECOND};

/// A connection has this long to be armed before the failure.
const BEFORE: u64 = 60 * SECOND;
/// The failure comes within this time after that.
const PHASE: u32 = 2 * SECOND as u32;
/// What is not armed again by then never is.
const LIMIT: u64 = 20 * SECOND;
/// Packets come so often while it is measured: QPs see each other's state by them. As many are lost
/// before a QP gives up as take half a second, as elsewhere.
const PACKET: u64 = MS;
/// The same of many connections, which are looked at as often.
const MANY_PACKETS: u64 = 10 * MS;
/// Time that a QP's retries last.
const RETRIES: u64 = 500 * MS;
/// In this time many paths are all probed.
const SETTLED: u64 = 15 * SECOND;

/// Which path of a connection fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// The one it uses.
    Primary,
    /// The one it has armed.
    Alternate,
}

/// Who arms connections again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// The engine.
    Apmd,
    /// Oracle UEK's kernel, as published.
    Uek,
}

/// One failure of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trial {
    /// Whose policy.
    pub policy: Policy,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// The side whose cable fails; 0 is the active one.
    pub side: usize,
    /// The path whose cable there it is.
    pub which: Which,
    /// How it fails.
    pub failure: Failure,
    /// MADs lost, of a thousand.
    pub loss: u32,
    /// Hosts that the active side's has a connection to, one each.
    pub peers: usize,
}

/// A connection between two hosts was not armed though nothing was wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("seed {0}: not armed within a minute of peace")]
pub struct NeverArmed(u64);

/// Hosts with these connections, and nothing planned.
fn peace(seed: u64, connections: Vec<(usize, usize)>) -> Plan {
    let hosts = connections.iter().map(|&(_, passive)| passive + 1).max();
    let hosts = hosts.unwrap_or(0).max(2);
    Plan {
        seed,
        hosts,
        groups: 1,
        spines: 2,
        lmc: 0,
        subnets: Subnets::One,
        quiet: vec![false; connections.len()],
        movable: vec![false; hosts],
        connections,
        faults: Vec::new(),
        policies: vec![PolicyOverride::default(); hosts],
    }
}

/// Microseconds from the failure until both ends are armed again, over paths that both pass packets;
/// `None`: they never were.
///
/// # Errors
/// [`NeverArmed`] before it.
pub fn time_without_protection(trial: &Trial) -> Result<Option<u64>, NeverArmed> {
    let plan = peace(trial.seed, vec![(0, 1)]);
    let profile = Profile::new(Named::All, &[], &[]);
    let mut world = World::new(&plan, &profile, Keep::Nothing);
    world.weather.loss = trial.loss;
    world.prepare();
    if trial.policy == Policy::Uek {
        world.start_uek();
    }
    let phase = u64::from(world.dice.below(PHASE));
    let armed = world.run_until(BEFORE, |world| world.is_protected(0));
    armed.ok_or(NeverArmed(trial.seed))?;
    world.run_until(phase, |_| false);
    let armed = world.run_until(BEFORE, |world| world.is_protected(0));
    armed.ok_or(NeverArmed(trial.seed))?;
    world.look_closely(PACKET);
    let begun = world.queue.now();
    world.fail(trial);
    let end = world.run_until(LIMIT, |world| world.is_protected(0));
    Ok(end.map(|end| end - begun))
}

/// The same of one host that has a connection to each of many others: of all connections whose path fails.
///
/// # Errors
/// [`NeverArmed`] before it.
pub fn times_of_many(trial: &Trial) -> Result<Vec<Option<u64>>, NeverArmed> {
    let plan = peace(
        trial.seed,
        (1..=trial.peers).map(|peer| (0, peer)).collect(),
    );
    let profile = Profile::new(Named::All, &[], &[]);
    let mut world = World::new(&plan, &profile, Keep::Nothing);
    world.weather.loss = trial.loss;
    world.prepare();
    let all: Vec<usize> = (0..trial.peers).collect();
    // Until probes of so many paths have come round.
    let phase = SETTLED + u64::from(world.dice.below(PHASE));
    for span in [0, phase] {
        world.run_until(span, |_| false);
        let armed = world.when_protected(&all, BEFORE);
        if armed.contains(&None) {
            return Err(NeverArmed(trial.seed));
        }
    }
    world.look_closely(MANY_PACKETS);
    let port = world.port_on_trial(0, trial);
    let loses = |&conn: &usize| world.port_on_trial(conn, trial) == port;
    let losing: Vec<usize> = all.into_iter().filter(loses).collect();
    let begun = world.queue.now();
    world.fail(trial);
    let ends = world.when_protected(&losing, LIMIT);
    Ok(ends.into_iter().map(|end| Some(end? - begun)).collect())
}

/// The most MADs that a host sends in a second of peace, with connections that have long been armed.
///
/// # Errors
/// [`NeverArmed`] if they are not.
pub fn mads_in_peace(seed: u64, connections: usize) -> Result<u32, NeverArmed> {
    const WATCHED: u64 = 10 * SECOND;
    let plan = peace(seed, vec![(0, 1); connections]);
    let profile = Profile::new(Named::All, &[], &[]);
    let mut world = World::new(&plan, &profile, Keep::Nothing);
    world.prepare();
    let all = |world: &World<'_>| (0..connections).all(|conn| world.is_protected(conn));
    world.run_until(BEFORE, all).ok_or(NeverArmed(seed))?;
    // The second in which they were armed is not of peace.
    world.run_until(2 * SECOND, |_| false);
    let mut most = 0;
    let since = world.queue.now() / SECOND;
    world.run_until(WATCHED, |world| {
        let second = world.queue.now() / SECOND;
        if second > since {
            let hosts = world.hosts.iter();
            let seen = hosts.map(|host| host.mads.seen(second) + host.probes.seen(second));
            most = most.max(seen.max().unwrap_or(0));
        }
        false
    });
    Ok(most)
}

impl World<'_> {
    /// Lets happen what happens until something is so, and says when; `None`: not for so long.
    fn run_until(&mut self, span: u64, mut is_so: impl FnMut(&Self) -> bool) -> Option<u64> {
        let deadline = self.queue.now() + span;
        loop {
            if is_so(self) {
                return Some(self.queue.now());
            }
            if self.queue.now() > deadline {
                return None;
            }
            let event = self.queue.pop()?;
            self.happen(event);
        }
    }

    fn is_protected(&self, conn: usize) -> bool {
        let ends = &self.connections[conn].ends;
        let alive = ends.iter().all(|end| end.qp.state == QpState::Rts);
        let passes = [0, 1].map(|side| self.passes_both_ways(conn, side, &ends[side].qp.primary));
        alive && passes == [true; 2] && self.live_alternate(conn, 0).is_some()
    }

    /// When each of these connections is protected; `None`: not for so long.
    fn when_protected(&mut self, connections: &[usize], span: u64) -> Vec<Option<u64>> {
        let mut ends = vec![None; connections.len()];
        let mut next = 0;
        self.run_until(span, |world| {
            let now = world.queue.now();
            if now < next {
                return false;
            }
            next = now + MANY_PACKETS;
            for (end, &conn) in ends.iter_mut().zip(connections) {
                if end.is_none() && world.is_protected(conn) {
                    *end = Some(now);
                }
            }
            !ends.contains(&None)
        });
        ends
    }

    fn look_closely(&mut self, packet: u64) {
        self.packet_every = packet;
        for end in self.connections.iter_mut().flat_map(|conn| &mut conn.ends) {
            end.qp.retries = (RETRIES / packet) as u16;
        }
    }

    /// The port of a connection's path that a trial is about, at the side that it is about.
    fn port_on_trial(&self, conn: usize, trial: &Trial) -> Option<PortOf> {
        let end = &self.connections[conn].ends[trial.side];
        let path = match trial.which {
            Which::Primary => end.qp.primary,
            Which::Alternate => end.qp.loaded()?,
        };
        Some((end.host, path.port))
    }

    /// The first connection's cable fails.
    fn fail(&mut self, trial: &Trial) {
        if let Some(port) = self.port_on_trial(0, trial) {
            self.fabric_changes(Element::Cable(port), trial.failure, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(policy: Policy, side: usize, which: Which) -> Option<u64> {
        let trial = Trial {
            policy,
            seed: 1,
            side,
            which,
            failure: Failure::Dead,
            loss: 0,
            peers: 1,
        };
        time_without_protection(&trial).expect("armed before")
    }

    #[test]
    fn a_pulled_cable_leaves_a_gap_that_ends() {
        for side in [0, 1] {
            for which in [Which::Primary, Which::Alternate] {
                let gap = trial(Policy::Apmd, side, which);
                assert!(gap.is_some_and(|gap| gap > MS), "{side} {which:?}: {gap:?}");
                // A second from LAP to load at least, and one more from PATH_MIG on.
                let slower = trial(Policy::Uek, side, which);
                let least = if which == Which::Primary { 2 } else { 1 };
                assert!(
                    slower.is_none_or(|slower| slower >= least * SECOND),
                    "{side} {which:?}: {slower:?}"
                );
            }
        }
    }

    /// The average time until connections are armed again after the far port of their alternate has become a black hole.
    fn mean_gap(peers: usize) -> u64 {
        let gaps = (0..30).flat_map(|seed| {
            let trial = Trial {
                policy: Policy::Apmd,
                seed,
                side: 1,
                which: Which::Alternate,
                failure: Failure::BlackHole,
                loss: 0,
                peers,
            };
            times_of_many(&trial).expect("armed before")
        });
        let gaps: Vec<u64> = gaps.map(|gap| gap.expect("armed again")).collect();
        gaps.iter().sum::<u64>() / gaps.len() as u64
    }

    /// The local port carries probes to other peers, so the far port has failed and is not tried again by another path.
    /// With one peer the active end cannot know that: half of its next tries fail, which takes 0.4 s.
    #[test]
    fn who_has_other_peers_knows_which_end_of_a_path_has_failed() {
        let (others, none) = (mean_gap(4), mean_gap(1));
        assert!(others + 150 * MS < none, "{others} {none}");
    }

    /// More paths than can be probed in a second: an alternate over a port that carries nothing waits for no probe of each.
    #[test]
    fn alternates_to_many_peers_over_a_black_hole_are_replaced_in_two_seconds() {
        let trial = Trial {
            policy: Policy::Apmd,
            seed: 1,
            side: 0,
            which: Which::Alternate,
            failure: Failure::BlackHole,
            loss: 0,
            peers: 433,
        };
        let gaps = times_of_many(&trial).expect("armed before");
        let worst = gaps.into_iter().map(|gap| gap.unwrap_or(u64::MAX)).max();
        assert!(worst.is_some_and(|worst| worst < 2 * SECOND), "{worst:?}");
    }

    #[test]
    fn without_connections_nothing_is_sent() {
        assert_eq!(mads_in_peace(1, 0), Ok(0));
    }
}
