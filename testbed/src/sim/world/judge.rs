// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether what happens may happen.

use cm_msgs::Lid;
use cm_msgs::control::Placement;
use cm_msgs::path::Path;

use super::World;
use crate::sim::addresses::Subnets;
use crate::sim::profile::Profile;
use crate::sim::queue::SECOND;
use crate::sim::verdict::Rule;

/// So long may the ends' alternates differ while the network is calm: a LAP and its backoff.
const DIFFERENT: u64 = 75 * SECOND;

/// Where more of 1,000 MADs are lost, one question in nine is answered: what is a hole and what is chance
/// cannot be told apart in the time that a QP's retries give, nor can two ends agree on an alternate.
const DEAF: u32 = 667;

/// Losses in a row.
#[derive(Clone, Copy)]
struct Trial {
    /// At the first both ends were armed with this alternate, this end's first; since then a packet would have got to
    /// and fro by it, and no policy has put another alternate in its place.
    alternate: Option<[Path; 2]>,
}

/// The ends of a path of `side`, the first side's first.
fn from_first(side: usize, (from, to): (Lid, Lid)) -> (Lid, Lid) {
    match side {
        0 => (from, to),
        _ => (to, from),
    }
}

/// What is judged, and what it takes to judge it.
pub(super) struct Judge {
    rules: Vec<Rule>,
    /// The last fault's begin or end.
    changed: u64,
    /// Faults that hold.
    faults: u32,
    trials: Vec<[Option<Trial>; 2]>,
    /// Since when both ends of a connection have been Armed with different alternates.
    different: Vec<Option<u64>>,
}

impl Judge {
    pub(super) fn new(profile: &Profile, connections: usize) -> Self {
        Self {
            rules: profile.rules.clone(),
            changed: 0,
            faults: 0,
            trials: vec![[None; 2]; connections],
            different: vec![None; connections],
        }
    }

    pub(super) fn judges(&self, rule: Rule) -> bool {
        self.rules.contains(&rule)
    }

    /// A fault begins or ends.
    pub(super) fn changed(&mut self, now: u64, begins: bool) {
        self.changed = now;
        self.faults = if begins {
            self.faults + 1
        } else {
            self.faults - 1
        };
    }

    /// Whether no fault holds, and none has begun or ended for as long; before the first one nothing is wrong.
    pub(super) fn is_quiet(&self, now: u64, long: u64) -> bool {
        self.faults == 0 && (self.changed == 0 || now >= self.changed + long)
    }

    pub(super) fn acknowledged(&mut self, conn: usize, side: usize) {
        self.trials[conn][side] = None;
    }
}

impl World<'_> {
    /// The places of a path's ends, if it leads to the connection's other host: a LID may have become another's.
    pub(super) fn ends_of(&self, conn: usize, side: usize, path: &Path) -> Option<(Lid, Lid)> {
        let ends = &self.connections[conn].ends;
        let (here, there) = (ends[side].host, ends[1 - side].host);
        let (from, to) = self.addresses.ends(here, path)?;
        let leads_there = self
            .fabric
            .port_at(to)
            .is_some_and(|(host, _)| host == there);
        leads_there.then_some((from, to))
    }

    pub(super) fn passes_both_ways(&self, conn: usize, side: usize, path: &Path) -> bool {
        let ends = self.ends_of(conn, side, path);
        ends.is_some_and(|(from, to)| self.fabric.passes(from, to) && self.fabric.passes(to, from))
    }

    /// Whether the paths of two ends join the same ports; `None`: one of them leads nowhere.
    pub(super) fn are_reversed(&self, conn: usize, side: usize, paths: [&Path; 2]) -> Option<bool> {
        let here = self.ends_of(conn, side, paths[0])?;
        let there = self.ends_of(conn, 1 - side, paths[1])?;
        Some(here == (there.1, there.0))
    }

    /// Whether two ends, of which each uses its path, would hear each other.
    fn joins(&self, conn: usize, side: usize, [here, there]: [&Path; 2]) -> bool {
        self.are_reversed(conn, side, [here, there]) == Some(true)
            && self.passes_both_ways(conn, side, here)
    }

    /// The alternate that both ends have armed, if it would carry packets, from `side`'s end and from the other.
    pub(super) fn live_alternate(&self, conn: usize, side: usize) -> Option<[Path; 2]> {
        let [one, other] = [side, 1 - side].map(|side| &self.connections[conn].ends[side].qp);
        let (here, there) = (one.alternate?, other.alternate?);
        let armed = one.is_armed() && other.is_armed();
        (armed && self.joins(conn, side, [&here, &there])).then_some([here, there])
    }

    /// A packet was not acknowledged.
    pub(super) fn lost(&mut self, conn: usize, side: usize) {
        let alternate = match self.judge.trials[conn][side] {
            Some(trial) => trial.alternate,
            None => self.live_alternate(conn, side),
        };
        let hears = self.weather.loss < DEAF && !self.was_hole_lately(conn);
        let alternate = alternate.filter(|[here, there]| {
            hears
                && self.joins(conn, side, [here, there])
                && !self.is_replaced_by_policy(conn, side, [here, there])
        });
        self.judge.trials[conn][side] = Some(Trial { alternate });
    }

    /// Whether an end has another alternate than `armed`, at another port, where a policy may want the connection. It
    /// migrates to its alternate only, so that leads there first, whatever it shares with the primary; and that the
    /// primary has failed no daemon knows before a QP gives up.
    fn is_replaced_by_policy(&self, conn: usize, side: usize, armed: [&Path; 2]) -> bool {
        [side, 1 - side].into_iter().zip(armed).any(|(end, armed)| {
            let loaded = self.connections[conn].ends[end].qp.alternate;
            let loaded = loaded.and_then(|path| self.ends_of(conn, end, &path));
            let armed = self.ends_of(conn, end, armed);
            armed.zip(loaded).is_some_and(|(armed, loaded)| {
                !self.leads_alike(conn, from_first(end, armed), from_first(end, loaded))
            })
        })
    }

    /// A QP's retries are used up, and it had no alternate.
    pub(super) fn died(&mut self, conn: usize, side: usize) {
        self.outcome.deaths += 1;
        let peer = &self.connections[conn].ends[1 - side].qp;
        let peer_lives = peer.is_alive();
        let trial = self.judge.trials[conn][side].filter(|_| peer_lives);
        if let Some([path, _]) = trial.and_then(|trial| trial.alternate) {
            self.violated(Rule::ArmedDeath, || {
                let (slid, dlid) = (path.slid, path.dlid);
                format!(
                    "connection {conn} side {side} died; it was armed, and from LID {slid} to LID \
                     {dlid} packets would have passed all the time"
                )
            });
        }
        self.must_not_have_been_sent_into_a_hole(conn);
        if peer_lives && let Some(words) = self.saved_by(conn) {
            self.violated(Rule::CalmDeath, || {
                format!("connection {conn} side {side} died of one fault after a calm: {words}")
            });
        }
        self.close_soon(conn);
    }

    /// Checks the alternates of a connection whose ends both are Armed.
    pub(super) fn must_be_reversed(&mut self, conn: usize) {
        let [one, other] = [0, 1].map(|side| &self.connections[conn].ends[side].qp);
        let differ = match (one.loaded(), other.loaded()) {
            (Some(here), Some(there)) if one.is_armed() && other.is_armed() => {
                self.are_reversed(conn, 0, [&here, &there]) == Some(false)
            }
            _ => false,
        };
        let now = self.queue.now();
        if !differ {
            self.judge.different[conn] = None;
            return;
        }
        let since = *self.judge.different[conn].get_or_insert(now);
        let since = since.max(self.judge.changed);
        if self.judge.faults == 0 && now > since + DIFFERENT {
            self.violated(Rule::Reversed, || {
                format!("connection {conn}: both ends Armed with different alternates")
            });
        }
    }

    /// Every connection that lives is armed.
    pub(super) fn must_be_armed(&mut self) {
        for conn in 0..self.connections.len() {
            let (closed, armed) = (self.connections[conn].closed, self.live_alternate(conn, 0));
            if !closed && armed.is_none() && self.could_be_armed(conn) {
                let ends = [0, 1].map(|side| {
                    let end = &self.connections[conn].ends[side];
                    let engine = self.hosts[end.host].engine.as_ref();
                    let now = statemachine::Time(self.queue.now());
                    let view = engine.and_then(|engine| {
                        engine
                            .connections(now)
                            .find(|view| view.id.conn == conn as u32)
                    });
                    let state = end.qp.migration;
                    match view.map(|view| (view.protection, view.reason)) {
                        Some((to, Some(reason))) => format!("{state}, {to}: {reason}"),
                        Some((to, None)) => format!("{state}, {to}"),
                        None => format!("{state}, not known to its daemon"),
                    }
                });
                self.violated(Rule::Liveness, || {
                    format!("connection {conn}: active {}; passive {}", ends[0], ends[1])
                });
            }
        }
    }

    /// Every connection that lives is on the port that its active side's host prefers.
    pub(super) fn must_be_home(&mut self) {
        for conn in 0..self.connections.len() {
            let end = &self.connections[conn].ends[0];
            let wanted = match self.plan.policies[end.host].placement {
                Some(Placement::Prefer(port)) => port.get(),
                Some(Placement::Stay | Placement::Spread) | None => continue,
            };
            let port = end.qp.primary.port;
            let closed = self.connections[conn].closed;
            let judged = !closed && !self.wishes_conflict(conn);
            if judged && port != wanted && self.could_be_on(conn, wanted) {
                self.violated(Rule::Failback, || {
                    format!("connection {conn}: on port {port}, and port {wanted} is preferred")
                });
            }
        }
    }

    /// Whether both hosts may want the connection somewhere, and not every pair of ports is joined by a path: one
    /// of them cannot have it.
    fn wishes_conflict(&self, conn: usize) -> bool {
        let wants = |end: &super::End| {
            let placement = self.plan.policies[end.host].placement;
            !matches!(placement, None | Some(Placement::Stay))
        };
        self.plan.subnets != Subnets::One && self.connections[conn].ends.iter().all(wants)
    }

    /// Nothing is left of connections that are closed.
    pub(super) fn must_be_forgotten(&mut self) {
        let now = statemachine::Time(self.queue.now());
        for host in 0..self.hosts.len() {
            let Some(engine) = &self.hosts[host].engine else {
                continue;
            };
            let (left, timer) = (engine.connections(now).count(), engine.poll_timeout());
            if left > 0 || timer.is_some() {
                self.violated(Rule::Leak, || {
                    format!("host {host}: {left} connections left, next timer {timer:?}")
                });
            }
        }
    }
}
