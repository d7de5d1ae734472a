// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults begin and end.

use cm_msgs::control::{Cause, QpState};
use statemachine::Input;

use super::{Event, World};
use crate::sim::addresses::Change;
use crate::sim::fabric::{Element, Failure};
use crate::sim::fault::What;
use crate::sim::queue::{MS, SECOND};

/// A port's loss is seen after this, and its return after that.
const LOSS_SEEN: u64 = MS;
const RETURN_SEEN: u64 = 50 * MS;
/// The subnet manager has routed around a change after this.
const SWEEP: u64 = 1_500 * MS;
/// A subnet manager has set the addresses of all ports within this time.
const READDRESSED: u64 = 500 * MS;

impl World<'_> {
    pub(super) fn begin(&mut self, index: usize) {
        let fault = self.plan.faults[index];
        self.tell(|| format!("begins: {fault}"));
        self.judge.changed(self.queue.now(), true);
        self.holes.changed(fault.what, self.queue.now(), true);
        self.calm_ends();
        match fault.what {
            What::Forgery(count) => {
                for _ in 0..count {
                    let delay = u64::from(self.dice.below((fault.end - fault.begin) as u32));
                    self.queue.after(delay, Event::Forge);
                }
            }
            What::LateLibrary(host) => {
                let still = &mut self.hosts[host].still_until;
                *still = fault.end.max(*still);
            }
            What::Crash(host) => {
                self.hosts[host].killed += 1;
                self.kill(host);
            }
            What::Close(conn, side) => self.close(conn, side),
            What::Addresses(change) => self.readdress(fault.number, change, true),
            What::Sqd(conn, side) => self.drain_qp(conn, side, true),
            what => self.shift(what, true),
        }
        self.fault_changed(fault.what, true);
    }

    pub(super) fn end(&mut self, index: usize) {
        let fault = self.plan.faults[index];
        self.tell(|| format!("ends:   {fault}"));
        self.judge.changed(self.queue.now(), false);
        self.holes.changed(fault.what, self.queue.now(), false);
        match fault.what {
            What::Forgery(_) | What::LateLibrary(_) => {}
            What::Crash(host) => {
                self.hosts[host].killed -= 1;
                if self.hosts[host].killed == 0 {
                    self.start(host);
                }
            }
            What::Close(conn, side) => self.close(conn, 1 - side),
            What::Addresses(change) => self.readdress(fault.number, change, false),
            What::Sqd(conn, side) => self.drain_qp(conn, side, false),
            What::MuteLibrary(host) => {
                self.shift(fault.what, false);
                self.resume(host);
            }
            what => self.shift(what, false),
        }
        self.fault_changed(fault.what, false);
    }

    /// The libraries' processes go on, if nothing else has stopped them.
    fn resume(&mut self, host: usize) {
        if self.hosts[host].mute > 0 {
            return;
        }
        for port in std::mem::take(&mut self.hosts[host].unseen) {
            self.port_failed((host, port));
        }
        for sent in std::mem::take(&mut self.hosts[host].unread) {
            self.obey(host, sent);
        }
    }

    /// What is there or not, and may be there several times.
    fn shift(&mut self, what: What, worse: bool) {
        let by = |count: &mut u32, by: u32| *count = if worse { *count + by } else { *count - by };
        let weather = &mut self.weather;
        match what {
            What::Fabric(element, failure) => self.fabric_changes(element, failure, worse),
            What::MadLoss(share) => by(&mut weather.loss, share),
            What::MadCopy(share) => by(&mut weather.copies, share),
            What::MadDelay(us) => by(&mut weather.delay, us),
            What::SlowSa(us) if worse => weather.sa_delay += u64::from(us),
            What::SlowSa(us) => weather.sa_delay -= u64::from(us),
            What::NoSa => by(&mut weather.no_sa, 1),
            What::BusySa => by(&mut weather.busy_sa, 1),
            What::StaleSa => {
                by(&mut weather.stale_sa, 1);
                self.queue.after(SWEEP, Event::Sweep);
            }
            What::MuteLibrary(host) => by(&mut self.hosts[host].mute, 1),
            What::Redirect(host) => by(&mut self.hosts[host].redirects, 1),
            What::Forgery(_)
            | What::LateLibrary(_)
            | What::Crash(_)
            | What::Close(..)
            | What::Addresses(_)
            | What::Sqd(..) => {}
        }
    }

    /// A subnet manager gives out other addresses, or those of before. Each port's host sees it when the subnet
    /// manager gets there.
    fn readdress(&mut self, number: usize, change: Change, begins: bool) {
        self.addresses.change(number, change, begins);
        for port in self.addresses.concerned(change) {
            let seen = MS + u64::from(self.dice.below(READDRESSED as u32));
            self.queue.after(seen, Event::Port(port));
        }
    }

    /// An application has its QP drained, or goes on.
    fn drain_qp(&mut self, conn: usize, side: usize, begins: bool) {
        let (from, to) = match begins {
            true => (QpState::Rts, QpState::Sqd),
            false => (QpState::Sqd, QpState::Rts),
        };
        let end = &mut self.connections[conn].ends[side];
        if end.qp.state == from {
            end.qp.state = to;
            let host = end.host;
            self.report(host, conn, Cause::Changed);
        }
    }

    pub(super) fn fabric_changes(&mut self, element: Element, failure: Failure, worse: bool) {
        self.fabric.change(element, failure, worse);
        if failure != Failure::Dead {
            return;
        }
        let seen = if worse { LOSS_SEEN } else { RETURN_SEEN };
        let hosts = 0..self.hosts.len();
        for port in hosts.flat_map(|host| [(host, 1), (host, 2)]) {
            let concerned = match element {
                Element::Cable(of) => of == port,
                Element::Leaf(leaf) => self.fabric.leaf(port) == leaf,
                Element::Trunk(..) | Element::Spine(_) => false,
            };
            if concerned {
                self.queue.after(seen, Event::Port(port));
                if worse {
                    self.libraries_will_see(port);
                }
            }
        }
        let sweep = SWEEP + u64::from(self.dice.below(SECOND as u32));
        self.queue.after(sweep, Event::Sweep);
    }

    pub(super) fn sweep(&mut self) {
        if self.weather.stale_sa > 0 || !self.fabric.sweep() {
            return;
        }
        self.network_changed(0);
        for host in 0..self.hosts.len() {
            self.input(host, Input::FabricChanged);
        }
    }
}
