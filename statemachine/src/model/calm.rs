// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a state comes to when nothing more goes wrong: everything that is on its way arrives, libraries
//! obey, applications send, and the clocks of both hosts go on together.

use core::time::Duration;

use cm_msgs::control::MigrationState;

use super::network::{ACTIVE, PASSIVE, is_reverse};
use super::world::{Faults, World};
use crate::time::Time;
use crate::view::{AssociationState, Protection};

/// In a calm that lasts so long, both ends become armed: a pause after failures is 60 s at most.
const ARMED_WITHIN: Duration = Duration::from_secs(70);

/// In a calm that lasts so long, what the peer has closed is forgotten: a check every eight minutes.
const CLOSED_WITHIN: Duration = Duration::from_secs(620);

/// In a calm that lasts so long, what is shown is true: that a peer's daemon was started anew, and could
/// not tell of a lost port, is found out by that check at the latest.
const TRUE_WITHIN: Duration = Duration::from_secs(620);

/// Steps at one moment, fewer than the path queries that a connection may send then come to, and moments at which
/// something is to be done. Where a path source names a dead port of
/// the peer's for ever, the active side proposes it again every three seconds: that is allowed here.
const ENDLESS: usize = 100;
const MOMENTS: usize = 2_000;

/// What is wrong with a state.
pub(super) type Verdict = Result<(), &'static str>;

impl World {
    /// Ports come back, and from then on nothing goes wrong: both ends become armed, or, where an
    /// application has closed, both forget the association.
    pub(super) fn run_calmly(&mut self) -> Verdict {
        self.calm_down();
        for host in [ACTIVE, PASSIVE] {
            for port in [1, 2] {
                if !self.is_up(host, port) {
                    self.set_port(host, port, true);
                }
            }
        }
        let closed = self.hosts.iter().any(|host| !host.registered);
        if closed {
            return self.run_until(CLOSED_WITHIN, Self::is_forgotten);
        }
        self.run_until(ARMED_WITHIN, |world| match world.is_cut() {
            true => Ok(()),
            false => world.is_armed(),
        })
    }

    /// Nothing goes wrong until both ends have an alternate.
    pub(super) fn run_until_loaded(&mut self) -> Verdict {
        self.calm_down();
        self.run_until(ARMED_WITHIN, |world| {
            let mut hosts = world.hosts.iter();
            match hosts.all(|host| host.qp.migration == MigrationState::Rearm) {
                true => Ok(()),
                false => Err("a QP has no alternate"),
            }
        })
    }

    /// Ports stay as they are: no end takes itself for protected that is not.
    pub(super) fn run_to_truth(&mut self) -> Verdict {
        self.calm_down();
        self.run_until(TRUE_WITHIN, |_| Err("")).or_else(|why| {
            if why.is_empty() {
                self.is_true()
            } else {
                Err(why)
            }
        })
    }

    fn calm_down(&mut self) {
        self.left = Faults {
            stale_sa: self.left.stale_sa,
            movable: self.left.movable,
            ..Faults::default()
        };
    }

    fn run_until(&mut self, limit: Duration, is_there: impl Fn(&Self) -> Verdict) -> Verdict {
        let mut left = limit;
        for _ in 0..MOMENTS {
            self.run_moment()?;
            let verdict = is_there(self);
            if verdict.is_ok() {
                return Ok(());
            }
            let waits = self.hosts.iter().filter_map(|host| {
                let at = host.engine.poll_timeout()?;
                Some(at - host.now)
            });
            let Some(wait) = waits.min().filter(|&wait| wait <= left) else {
                return verdict;
            };
            left -= wait;
            let due = [ACTIVE, PASSIVE].map(|host| self.pass(host, wait));
            for host in [ACTIVE, PASSIVE] {
                if due[host] {
                    self.time_out(host);
                }
            }
        }
        Err("timers without end")
    }

    /// Lets a host's clock go on. Whether a timer of its daemon is due then.
    fn pass(&mut self, host: usize, wait: Duration) -> bool {
        let here = self.host(host);
        here.now = here.now + wait;
        let now: Time = here.now;
        here.engine.poll_timeout().is_some_and(|at| at <= now)
    }

    /// Everything that takes no time.
    fn run_moment(&mut self) -> Verdict {
        for _ in 0..ENDLESS {
            if self.broken.is_some() {
                return Err("a rule is broken on the way");
            }
            let busy = [ACTIVE, PASSIVE]
                .into_iter()
                .find(|&host| self.is_library_busy(host));
            if let Some(host) = busy {
                self.obey(host);
                self.report(host);
            } else if !self.mads.is_empty() {
                let mad = self.mads.remove(0);
                self.deliver(&mad);
            } else if !self.send_packets() {
                return Ok(());
            }
        }
        Err("it never comes to rest")
    }

    /// Applications send; retries run out where nothing gets through. Whether that changes anything.
    fn send_packets(&mut self) -> bool {
        for host in [ACTIVE, PASSIVE] {
            let armed = self.hosts[host].is_armed();
            if self.would_change(host) {
                self.packet(host);
                return true;
            }
            if armed && !self.is_heard(host) {
                self.migrate(host);
                return true;
            }
        }
        false
    }

    /// Whether the other QP takes what a host sends.
    fn is_heard(&self, host: usize) -> bool {
        let [here, there] = [host, 1 - host].map(|host| &self.hosts[host].qp);
        self.passes(host) && is_reverse(&here.primary, &there.primary)
    }

    // ---- verdicts ----

    fn is_armed(&self) -> Verdict {
        let [a, b] = [ACTIVE, PASSIVE].map(|host| &self.hosts[host].qp);
        if [a, b]
            .iter()
            .any(|qp| qp.migration != MigrationState::Armed)
        {
            return Err("a QP is not armed");
        }
        if !is_reverse(&a.primary, &b.primary) {
            return Err("the primaries are two paths");
        }
        if !a
            .alternate
            .zip(b.alternate)
            .is_some_and(|(a, b)| is_reverse(&a, &b))
        {
            return Err("the alternates are two paths");
        }
        for host in &self.hosts {
            let mut protections = host.engine.protections(host.now);
            if !protections.all(|(protection, _)| protection == Protection::Armed) {
                return Err("a daemon does not know that it is armed");
            }
        }
        Ok(())
    }

    fn is_forgotten(&self) -> Verdict {
        for host in &self.hosts {
            if !host.registered && !host.engine.has_forgotten_all() {
                return Err("what has closed is not forgotten");
            }
            let mut views = host.engine.connections(host.now);
            if views.any(|view| view.association.state == AssociationState::Established) {
                return Err("an association with nobody stays open");
            }
        }
        Ok(())
    }

    fn is_true(&self) -> Verdict {
        let can_talk = self.up.iter().all(|ports| ports.contains(&true));
        if !can_talk || self.hosts.iter().any(|host| !host.registered) {
            return Ok(());
        }
        for host in [ACTIVE, PASSIVE] {
            let here = &self.hosts[host];
            let armed = here
                .engine
                .protections(here.now)
                .any(|(protection, _)| protection == Protection::Armed);
            if armed {
                self.is_protected(host)?;
            }
        }
        Ok(())
    }

    fn is_protected(&self, host: usize) -> Verdict {
        let [here, there] = [host, 1 - host].map(|host| &self.hosts[host].qp);
        let Some(alternate) = here.alternate else {
            return Err("shown as armed without an alternate");
        };
        if here.migration != MigrationState::Armed {
            return Err("shown as armed and is not");
        }
        if !there
            .alternate
            .is_some_and(|path| is_reverse(&path, &alternate))
        {
            return Err("shown as armed, and the alternates are two paths");
        }
        let up =
            |lid| super::network::port_at(lid).is_some_and(|(host, port)| self.is_up(host, port));
        if !up(alternate.slid) || !up(alternate.dlid) {
            return Err("shown as armed over a port that is down");
        }
        Ok(())
    }
}
