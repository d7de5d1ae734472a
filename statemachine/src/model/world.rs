// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two hosts and all between them: what can happen, and what comes of it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use cm_msgs::PKey;
use cm_msgs::control::Cause;
use cm_msgs::sa::PathRecord;

use super::fingerprint::fingerprint;
use super::forger::{self, Forgery};
use super::host::Host;
use super::network::{
    ACTIVE, Mad, PASSIVE, is_reverse, lid, port_at, port_id, port_of, port_status,
};
use super::qp::Event;
use super::rules::Rule;
use crate::guard::{Guard, without};
use crate::id::Payer;
use crate::input::{Input, MadSource, Origin, PortStatus, QueryError};
use crate::output::{Query, Transmit};

/// How much may go wrong from here on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Faults {
    /// MADs that are lost.
    pub(super) losses: u8,
    /// Copies of earlier MADs that come (again).
    pub(super) copies: u8,
    /// Ports that go down; each comes back when it likes.
    pub(super) ports: u8,
    /// Migrations by hardware though the path works.
    pub(super) migrations: u8,
    pub(super) restarts: u8,
    /// Messages of a stranger.
    pub(super) forgeries: u8,
    /// Applications that close.
    pub(super) closes: u8,
    /// Timers that run out, whatever is on its way.
    pub(super) timers: u8,
    /// Orders wait in the library, and reports on their way to the daemon, for any time.
    pub(super) slow_library: bool,
    /// The SA says that there is a path though a port of it is down.
    pub(super) stale_sa: bool,
    /// Whether each host's queue pair can be moved while it waits for traffic.
    pub(super) movable: [bool; 2],
}

/// One thing that happens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Action {
    Deliver(usize),
    Lose(usize),
    /// Of the MADs that were sent earlier.
    DeliverCopy(usize),
    /// The library carries its next order out.
    Obey(usize),
    /// The daemon reads the library's next report.
    Report(usize),
    /// A host's next timer runs out.
    Timer(usize),
    /// A packet of a host's application reaches the other.
    Packet(usize),
    /// A QP goes over to its alternate by itself.
    Migrate(usize),
    PortDown(usize, u8),
    PortUp(usize, u8),
    Restart(usize),
    Close(usize),
    Forge(usize, Forgery),
}

/// Earlier MADs of which a copy may still come.
const REMEMBERED: usize = 12;

/// MADs that one input may cause: what somebody can make a daemon send is in proportion.
pub(super) const MADS_FOR_AN_INPUT: usize = 3;

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) hosts: [Arc<Host>; 2],
    /// Fingerprints of the hosts.
    prints: [u64; 2],
    /// Whether ports are up: of each host, of each number.
    pub(super) up: [[bool; 2]; 2],
    pub(super) mads: Vec<Arc<Mad>>,
    sent: Vec<Arc<Mad>>,
    pub(super) left: Faults,
    /// The check that is left out.
    removed: Option<Guard>,
    /// The applications send nothing yet.
    silent: bool,
    pub(super) broken: Option<Rule>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.prints.hash(state);
        self.up.hash(state);
        for mad in self.mads.iter().chain(&self.sent) {
            mad.fingerprint.hash(state);
        }
        self.mads.len().hash(state);
        self.left.hash(state);
        self.broken.hash(state);
    }
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint() == other.fingerprint()
    }
}

impl World {
    /// Two daemons that have just started, and two applications that have just connected.
    pub(super) fn new(left: Faults, removed: Option<Guard>) -> Self {
        let mut world = Self {
            hosts: [ACTIVE, PASSIVE].map(|host| Arc::new(Host::new(host))),
            prints: [0; 2],
            up: [[true; 2]; 2],
            mads: Vec::new(),
            sent: Vec::new(),
            left,
            removed,
            silent: false,
            broken: None,
        };
        for host in [PASSIVE, ACTIVE] {
            world.start(host);
            world.register(host);
        }
        world.seal([true; 2]);
        world
    }

    /// The same a little later, when both QPs have an alternate and wait for traffic.
    pub(super) fn idle(left: Faults, removed: Option<Guard>) -> Self {
        let mut world = Self::new(left, None);
        world.silent = true;
        assert_eq!(world.run_until_loaded(), Ok(()));
        world.silent = false;
        world.left = left;
        world.removed = removed;
        world.seal([true; 2]);
        world
    }

    /// The same a little later, when both QPs are armed.
    pub(super) fn armed(left: Faults, removed: Option<Guard>) -> Self {
        let mut world = Self::new(left, None);
        assert_eq!(world.run_calmly(), Ok(()));
        world.left = left;
        world.removed = removed;
        world.seal([true; 2]);
        world
    }

    pub(super) fn host(&mut self, host: usize) -> &mut Host {
        Arc::make_mut(&mut self.hosts[host])
    }

    pub(super) fn is_up(&self, host: usize, port: u8) -> bool {
        self.up[host][usize::from(port) - 1]
    }

    /// Puts things into the form in which states are compared.
    fn seal(&mut self, changed: [bool; 2]) {
        for host in [ACTIVE, PASSIVE].into_iter().filter(|&host| changed[host]) {
            self.prints[host] = fingerprint(self.hosts[host].now, &*self.hosts[host]);
        }
        self.mads.sort_by_key(|mad| mad.fingerprint);
        if self.left.copies == 0 {
            self.sent.clear();
        }
        self.sent.sort_by_key(|mad| mad.fingerprint);
    }

    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    // ---- what can happen ----

    pub(super) fn actions(&self, actions: &mut Vec<Action>) {
        let left = &self.left;
        // Of equal MADs one is as good as the other.
        let first =
            |&at: &usize| at == 0 || self.mads[at].fingerprint != self.mads[at - 1].fingerprint;
        for at in (0..self.mads.len()).filter(first) {
            actions.push(Action::Deliver(at));
            if left.losses > 0 {
                actions.push(Action::Lose(at));
            }
        }
        if left.copies > 0 {
            actions.extend((0..self.sent.len()).map(Action::DeliverCopy));
        }
        for host in [ACTIVE, PASSIVE] {
            self.actions_of(host, actions);
        }
    }

    fn actions_of(&self, host: usize, actions: &mut Vec<Action>) {
        let (here, left) = (&self.hosts[host], &self.left);
        let mut may = |allowed: bool, action| {
            if allowed {
                actions.push(action);
            }
        };
        may(!here.orders.is_empty(), Action::Obey(host));
        may(!here.reports.is_empty(), Action::Report(host));
        let timer = here.engine.poll_timeout().is_some();
        may(left.timers > 0 && timer, Action::Timer(host));
        may(self.would_change(host), Action::Packet(host));
        let armed = here.is_armed();
        let dead = !self.passes(host);
        may(
            armed && (dead || left.migrations > 0),
            Action::Migrate(host),
        );
        for port in [1, 2] {
            let up = self.is_up(host, port);
            may(up && left.ports > 0, Action::PortDown(host, port));
            may(!up, Action::PortUp(host, port));
        }
        may(left.restarts > 0, Action::Restart(host));
        may(left.closes > 0 && here.registered, Action::Close(host));
        for forgery in Forgery::ALL {
            may(left.forgeries > 0, Action::Forge(host, forgery));
        }
    }

    pub(super) fn happen(&mut self, action: Action) {
        let before = self.hosts.clone();
        match action {
            Action::Deliver(at) => {
                let mad = self.mads.remove(at);
                self.deliver(&mad);
            }
            Action::Lose(at) => {
                self.left.losses -= 1;
                self.mads.remove(at);
            }
            Action::DeliverCopy(at) => {
                self.left.copies -= 1;
                let mad = Arc::clone(&self.sent[at]);
                self.deliver(&mad);
            }
            Action::Obey(host) => self.obey(host),
            Action::Report(host) => self.report(host),
            Action::Timer(host) => {
                self.left.timers -= 1;
                self.time_out(host);
            }
            Action::Packet(host) => self.packet(host),
            Action::Migrate(host) => {
                if self.passes(host) {
                    self.left.migrations -= 1;
                }
                self.migrate(host);
            }
            Action::PortDown(host, port) => {
                self.left.ports -= 1;
                self.set_port(host, port, false);
            }
            Action::PortUp(host, port) => self.set_port(host, port, true),
            Action::Restart(host) => {
                self.left.restarts -= 1;
                self.restart(host);
            }
            Action::Close(host) => {
                self.left.closes -= 1;
                self.close(host);
            }
            Action::Forge(host, forgery) => {
                self.left.forgeries -= 1;
                let mad = forger::forge(self, host, forgery);
                self.deliver(&mad);
            }
        }
        let changed = |host: usize| !Arc::ptr_eq(&before[host], &self.hosts[host]);
        self.seal([ACTIVE, PASSIVE].map(changed));
    }

    // ---- daemons ----

    fn start(&mut self, host: usize) {
        for port in [1, 2] {
            self.tell_port(host, port);
        }
    }

    fn register(&mut self, host: usize) {
        let register = self.host(host).register();
        let id = self.hosts[host].id();
        if self.left.movable[host] {
            self.tell(host, Input::MovesIdle(id.client));
        }
        self.tell(host, Input::Register(id, Payer(1), register));
        self.note_place(host, true);
    }

    fn restart(&mut self, host: usize) {
        self.host(host).restart();
        self.start(host);
        if self.hosts[host].registered {
            self.register(host);
        }
    }

    fn close(&mut self, host: usize) {
        let id = self.hosts[host].id();
        let here = self.host(host);
        here.registered = false;
        here.orders.clear();
        here.reports.clear();
        here.qp.state = cm_msgs::control::QpState::Reset;
        self.tell(host, Input::Close(id));
    }

    fn tell_port(&mut self, host: usize, port: u8) {
        let status = PortStatus {
            moves_idle: self.left.movable[host],
            ..port_status(host, port, self.is_up(host, port))
        };
        self.tell(host, Input::Port(port_id(host, port), Some(status)));
    }

    pub(super) fn time_out(&mut self, host: usize) {
        let here = self.host(host);
        if let Some(at) = here.engine.poll_timeout() {
            here.now = here.now.max(at);
        }
        self.tell(host, Input::Timeout);
    }

    /// Hands an engine an input, and does what it wants done.
    fn tell(&mut self, host: usize, input: Input) {
        let removed = self.removed;
        without(removed, || self.tell_engine(host, input));
        self.check(host);
    }

    fn tell_engine(&mut self, host: usize, input: Input) {
        let mut inputs = vec![input];
        let mut mads = 0;
        while let Some(input) = inputs.pop() {
            self.note_input(host, &input);
            let here = self.host(host);
            here.engine.handle(here.now, input);
            while let Some((_, order)) = self.host(host).engine.poll_order() {
                self.check_order(host, &order);
                self.host(host).orders.push_back(order);
            }
            while let Some(mad) = self.host(host).engine.poll_transmit(|_| true) {
                mads += 1;
                self.send(host, mad);
            }
            while let Some(query) = self.host(host).engine.poll_query() {
                inputs.extend(self.answer(&query));
            }
            if mads > MADS_FOR_AN_INPUT {
                return self.breaks(Rule::Traffic);
            }
        }
        if !self.left.slow_library {
            while self.is_library_busy(host) {
                self.obey(host);
                self.report(host);
            }
        }
    }

    /// Paths are asked for and told at once: when an SA answers changes little, and much what it says.
    fn answer(&self, query: &Query) -> Option<Input> {
        let answer = match query {
            Query::Withdraw(_) => return None,
            Query::Assess(assess) => Input::Assessed {
                query: assess.query,
                overlaps: vec![None; assess.paths.len()],
            },
            Query::Paths(asked) => {
                let known =
                    |gid| port_of(gid).filter(|&(h, p)| self.left.stale_sa || self.is_up(h, p));
                let path = known(asked.sgid).zip(known(asked.dgid));
                let record = path.map(|(from, to)| PathRecord {
                    sgid: asked.sgid,
                    dgid: asked.dgid,
                    slid: lid(from.0, from.1),
                    dlid: lid(to.0, to.1),
                    pkey: asked.pkey,
                    reversible: true,
                    mtu: 4,
                    rate: 7,
                    packet_life_time: 13,
                    ..PathRecord::default()
                });
                Input::Paths {
                    query: asked.query,
                    result: record.map(|record| vec![record]).ok_or(QueryError::NoPath),
                    origin: Some(Origin::Sa),
                }
            }
        };
        Some(answer)
    }

    // ---- MADs ----

    fn send(&mut self, host: usize, mad: Transmit) {
        self.check_mad(host, &mad);
        let up = |(host, port)| self.is_up(host, port);
        let Some(to) = port_at(mad.lid).filter(|&to| up(to)) else {
            return;
        };
        if !up((host, mad.port.port)) {
            return;
        }
        let from = lid(host, mad.port.port);
        let mad = Arc::new(Mad::new(to, from, mad.transaction_id, mad.message));
        if self.left.copies > 0
            && self
                .sent
                .iter()
                .all(|old| old.fingerprint != mad.fingerprint)
        {
            self.sent.push(Arc::clone(&mad));
            let surplus = self.sent.len().saturating_sub(REMEMBERED);
            self.sent.drain(..surplus);
        }
        self.mads.push(mad);
    }

    pub(super) fn deliver(&mut self, mad: &Mad) {
        if !self.is_up(mad.to, mad.port) {
            return;
        }
        let source = MadSource {
            port: port_id(mad.to, mad.port),
            lid: mad.from,
            qpn: 1,
            sl: 0,
            path_bits: 0,
            pkey: PKey::DEFAULT_FULL,
            transaction_id: mad.transaction,
        };
        self.tell(mad.to, Input::Mad(source, mad.message.clone()));
    }

    // ---- libraries and QPs ----

    pub(super) fn is_library_busy(&self, host: usize) -> bool {
        let here = &self.hosts[host];
        !here.orders.is_empty() || !here.reports.is_empty()
    }

    pub(super) fn obey(&mut self, host: usize) {
        let here = self.host(host);
        if let Some(order) = here.orders.pop_front() {
            here.obey(order);
            self.note_places();
        }
    }

    pub(super) fn report(&mut self, host: usize) {
        let here = self.host(host);
        let id = here.id();
        let Some(report) = here.reports.pop_front() else {
            return;
        };
        let changed = here.told != report.snapshot;
        here.told = report.snapshot;
        match report.cause {
            Cause::Done { token } | Cause::Stale { token } if here.unanswered == Some(token) => {
                here.unanswered = None;
            }
            // Orders are carried out one after the other: what came before the question is over.
            Cause::Query { token: 1.. } => here.unanswered = None,
            _ => {}
        }
        if changed {
            self.note_place(host, true);
        }
        self.tell(host, Input::Report(id, report));
    }

    /// Whether packets get from a host's QP to the far end of its primary.
    pub(super) fn passes(&self, host: usize) -> bool {
        let primary = &self.hosts[host].qp.primary;
        let up = |(host, port)| self.is_up(host, port);
        port_at(primary.slid).is_some_and(up) && port_at(primary.dlid).is_some_and(up)
    }

    pub(super) fn would_change(&self, from: usize) -> bool {
        let sender = &self.hosts[from].qp;
        let mut receiver = self.hosts[1 - from].qp.clone();
        !self.silent
            && self.passes(from)
            && receiver
                .receive(&sender.primary, sender.migreq())
                .1
                .is_some()
    }

    pub(super) fn packet(&mut self, from: usize) {
        let sender = &self.hosts[from].qp;
        let (path, migreq) = (sender.primary, sender.migreq());
        let to = self.host(1 - from);
        match to.qp.receive(&path, migreq).1 {
            Some(Event::Migrated) => to.report(Cause::PathMigrated),
            Some(Event::Armed) => to.report(Cause::Armed),
            Some(Event::Broken) | None => {}
        }
        self.note_places();
        self.hurry(1 - from);
    }

    pub(super) fn migrate(&mut self, host: usize) {
        let here = self.host(host);
        here.qp.order_migration();
        here.report(Cause::PathMigrated);
        self.note_places();
        self.hurry(host);
    }

    fn hurry(&mut self, host: usize) {
        if !self.left.slow_library {
            self.report(host);
        }
    }

    pub(super) fn set_port(&mut self, host: usize, port: u8, up: bool) {
        self.up[host][usize::from(port) - 1] = up;
        if !up {
            // What was on its way through it is lost.
            let at = lid(host, port);
            self.mads
                .retain(|mad| mad.from != at && (mad.to, mad.port) != (host, port));
        }
        self.tell_port(host, port);
    }

    // ---- what rules have to remember ----

    fn note_places(&mut self) {
        for host in [ACTIVE, PASSIVE] {
            self.note_place(host, false);
        }
    }

    /// Remembers whether the peer has been on this host's alternate.
    fn note_place(&mut self, host: usize, anew: bool) {
        let peer = self.hosts[1 - host].qp.primary;
        let here = &self.hosts[host];
        let there = here
            .told_alternate()
            .is_some_and(|path| is_reverse(&path, &peer));
        let was = there || (!anew && here.peer_was_there);
        if was != here.peer_was_there {
            self.host(host).peer_was_there = was;
        }
    }

    /// Whether nothing can save the connection: the two QPs are on two paths, and neither is armed. IBA
    /// lets nobody leave a path otherwise. That is so where one end leaves while the other is not armed
    /// yet: by hardware, or because its port was lost.
    pub(super) fn is_cut(&self) -> bool {
        let [a, b] = &self.hosts;
        !is_reverse(&a.qp.primary, &b.qp.primary) && !a.is_armed() && !b.is_armed()
    }

    pub(super) fn breaks(&mut self, rule: Rule) {
        self.broken = self.broken.or(Some(rule));
    }
}
