// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices, their ports, and the MADs that go through them.

mod intake;
mod mads;
mod news;
mod scan;

pub(crate) use news::PortNews;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use cm_msgs::{Guid, PKey, Presence, cm};
use mio::{Registry, Waker};
use statemachine::{
    FarPort, MadSource, MadWay, PortId, PortStatus, Probe, ProbePath, Random, Time,
};

use crate::config::Config;
use crate::counters::PortCounters;
use crate::devices::{Devices, Settings};
use crate::io::rtnl::{LinkEvent, Rtnl};
use crate::io::umad::Incoming;
use crate::io::verbs::PortEvent;
use crate::io::watched;
use crate::token::{PortKey, Token};
use intake::Intake;
use scan::Scan;

/// What concerns others.
#[derive(Debug)]
pub(crate) enum Note {
    /// Something about a port is different, or the port is new.
    Changed(Box<PortNews>),
    /// A port is active that was not.
    CameUp(PortId),
    /// A port has gone with its device.
    Gone(PortId),
    /// A port has another subnet manager, or the same one anew.
    SmChanged(PortId),
    /// What was sent by this port's umad file is not answered any more.
    MadsLost(PortId),
    /// Addresses of this host's interfaces are different.
    AddressesChanged,
    Association(MadSource, Box<cm::Message>),
    /// More MADs come in by this port than are handled at once.
    Crowded(PortId),
    /// A peer asks or answers whether a daemon is there.
    Presence(PresenceReceived),
    SaResponse(Box<Incoming>),
    SaTimedOut(u32),
    /// A report that the port's subnet manager sent.
    Report(PortKey, PortId, Box<Incoming>),
}

/// A MAD about presence that came in by QP1.
#[derive(Debug)]
pub(crate) struct PresenceReceived {
    pub(crate) from: FarPort,
    pub(crate) way: MadWay,
    /// The path back, as far as it is one that could have been probed.
    pub(crate) path: Option<ProbePath>,
    pub(crate) transaction_id: u64,
    pub(crate) message: Presence,
}

impl PresenceReceived {
    /// The probes that it may answer. Ports are full or limited members of a partition, and a table may
    /// say both: the kernel names either.
    pub(crate) fn probe_answers(&self) -> [Option<Probe>; 2] {
        let is_answer = matches!(self.message, Presence::Answer { .. });
        let path = self.path.filter(|_| is_answer);
        let answer = |membership: u16| {
            let path = path?;
            let pkey = PKey(path.pkey.0 ^ membership);
            Some(Probe {
                path: ProbePath { pkey, ..path },
                transaction_id: self.transaction_id as u32,
            })
        };
        [answer(0), answer(0x8000)]
    }
}

pub(crate) struct Ports {
    registry: Registry,
    devices: Devices,
    rtnl: Option<Rtnl>,
    settings: Settings,
    scan: Scan,
    /// Ports with more MADs to read than one turn takes.
    unread: BTreeSet<PortKey>,
    /// Association MADs that were read.
    intake: Intake<(MadSource, Box<cm::Message>)>,
    /// Ports that take no association MADs, and until when.
    full: BTreeMap<PortId, Time>,
    notes: VecDeque<Note>,
    counters: PortCounters,
}

impl Ports {
    pub(crate) fn new(
        config: &Config,
        registry: Registry,
        random: Random,
        waker: Arc<Waker>,
    ) -> Self {
        let rtnl = Rtnl::open().and_then(|rtnl| watched(rtnl, &registry, Token::Rtnl));
        let rtnl = rtnl
            .inspect_err(|error| tracing::warn!(%error, "no rtnetlink"))
            .ok();
        Self {
            devices: Devices::new(random, waker),
            rtnl,
            settings: config.into(),
            scan: Scan::new(),
            unread: BTreeSet::new(),
            intake: Intake::new(),
            full: BTreeMap::new(),
            notes: VecDeque::new(),
            counters: PortCounters::default(),
            registry,
        }
    }

    pub(crate) fn configure(&mut self, now: Time, config: &Config) {
        self.settings = config.into();
        // How ports are watched may be different.
        for key in self.devices.keys().collect::<Vec<_>>() {
            self.look_at(now, key);
        }
        // Whoever mends something that keeps a device from being opened may say so with SIGHUP.
        self.devices.retry_unopened();
        self.scan.at_once(now);
    }

    /// A program uses this device.
    pub(crate) fn device_is_used(&mut self, now: Time, node_guid: Guid) {
        if self.devices.by_guid(node_guid).is_none() {
            self.scan.on_demand(now);
        }
    }

    pub(crate) fn devices(&self) -> &Devices {
        &self.devices
    }

    pub(crate) fn rtnl(&self) -> Option<&Rtnl> {
        self.rtnl.as_ref()
    }

    pub(crate) fn counters(&self) -> PortCounters {
        self.counters
    }

    pub(crate) fn poll_note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        if !(self.unread.is_empty() && self.intake.is_empty()) {
            return Some(Time(0));
        }
        let check = |key| self.devices.port(key).map(|port| port.watch.poll_timeout());
        let checks = self.devices.keys().filter_map(check);
        let full = self.full.values().copied();
        checks.chain([self.scan.at()]).chain(full).min()
    }

    /// Reads what was left unread, and lets the engine have some more association MADs.
    pub(crate) fn read_on(&mut self, now: Time) {
        for key in std::mem::take(&mut self.unread) {
            self.handle_mads(now, key);
        }
        self.take_in();
    }

    /// `relied_on`: there are connections. Without any, settled ports are not checked as long as nothing
    /// happens.
    pub(crate) fn handle_time(&mut self, now: Time, relied_on: bool) {
        self.full.retain(|_, until| *until > now);
        if self.scan.at() <= now {
            self.scan(now);
        }
        for key in self.devices.keys().collect::<Vec<_>>() {
            if let Some(port) = self.devices.port_mut(key) {
                port.watch.set_relied_on(now, relied_on);
                port.watch.handle_time(now);
                self.read_port(now, key);
            }
        }
    }

    /// Looks for devices that were not there.
    fn scan(&mut self, now: Time) {
        let found = self.devices.scan(now, &self.settings, &self.registry);
        self.scan.done(now, found.is_news());
        for key in found.renamed {
            // Nothing else about it need be different.
            self.tell_of(key);
            self.read_port(now, key);
        }
        for key in found.ports {
            self.read_port(now, key);
        }
    }

    fn look_at(&mut self, now: Time, key: PortKey) {
        if let Some(port) = self.devices.port_mut(key) {
            port.watch.look();
            self.read_port(now, key);
        }
    }

    /// Asks for PortInfo, if that is wanted.
    fn read_port(&mut self, now: Time, key: PortKey) {
        if let Err(error) = self.devices.read_port(key) {
            tracing::debug!(device = key.device, port = key.port, %error, "PortInfo not read");
            self.unreadable(now, key);
        }
    }

    fn unreadable(&mut self, now: Time, key: PortKey) {
        if self.devices.has_changed(key.device) {
            return self.lose_device(now, key.device);
        }
        self.refresh_facts(key);
        let status = self
            .devices
            .port_mut(key)
            .and_then(|port| port.watch.unreadable(now));
        self.tell(key, status);
    }

    /// Subnet administration says at which port the subnet manager of a port's subnet is.
    pub(crate) fn set_manager(&mut self, id: PortId, guid: Guid) {
        let Some(key) = self.devices.key_of(id) else {
            return;
        };
        let port = self.devices.port_mut(key);
        let status = port.and_then(|port| port.watch.set_manager(guid));
        self.tell(key, status);
    }

    /// Tells of a port, if there is news.
    fn tell(&mut self, key: PortKey, status: Option<PortStatus>) {
        if status.is_some() {
            self.tell_of(key);
        }
    }

    fn tell_of(&mut self, key: PortKey) {
        if let (Some(device), Some(port)) =
            (self.devices.device(key.device), self.devices.port(key))
            && let Some(news) = PortNews::of(device, port)
        {
            self.notes.push_back(Note::Changed(Box::new(news)));
        }
    }

    /// A device may have been tried.
    pub(crate) fn handle_thread(&mut self) {
        for key in self.devices.handle_threads() {
            self.tell_of(key);
        }
    }

    /// A device's asynchronous events.
    pub(crate) fn handle_device(&mut self, now: Time, device: u32) {
        while let Some(opened) = self.devices.device(device) {
            let name = &opened.name;
            let Some(verbs) = &opened.verbs else { return };
            let event = match verbs.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(
                        device = name,
                        %error,
                        "verbs events not read: device is closed, and opened again if it is there"
                    );
                    return self.lose_device(now, device);
                }
            };
            tracing::debug!(device = name, ?event, "verbs event");
            match event {
                // The context is good for nothing any more; a device that recovers is opened anew.
                PortEvent::DeviceFatal => return self.lose_device(now, device),
                PortEvent::Reregister(port) => {
                    let key = PortKey { device, port };
                    let id = self.devices.port(key).map(|port| port.id);
                    self.notes.extend(id.map(Note::SmChanged));
                    self.look_at(now, key);
                }
                PortEvent::Error(port) => self.lost(now, PortKey { device, port }),
                PortEvent::Changed(port) => self.look_at(now, PortKey { device, port }),
            }
        }
    }

    fn lost(&mut self, now: Time, key: PortKey) {
        let status = self
            .devices
            .port_mut(key)
            .and_then(|port| port.watch.lost());
        if status.is_some() {
            self.counters.losses_by_verbs += 1;
        }
        self.tell(key, status);
        self.read_port(now, key);
    }

    fn lose_device(&mut self, now: Time, device: u32) {
        // It may be back at once: a driver is loaded anew, a function reset.
        let gone = self.devices.drop_device(device);
        self.notes.extend(gone.into_iter().map(Note::Gone));
        self.scan.soon(now);
    }

    /// The kernel told of links and addresses.
    pub(crate) fn handle_links(&mut self, now: Time) {
        let Some(rtnl) = self.rtnl.as_mut() else {
            return;
        };
        let events = match rtnl.read() {
            Ok(events) => events,
            Err(error) => {
                tracing::error!(%error, "rtnetlink lost");
                self.rtnl = None;
                return;
            }
        };
        if !events.is_empty() {
            self.notes.push_back(Note::AddressesChanged);
        }
        for event in events {
            let (LinkEvent::Lost(gid) | LinkEvent::Changed(gid)) = event else {
                continue;
            };
            let Some(key) = self.devices.by_gid(gid) else {
                // An interface of a port that is not open: maybe a device has just appeared.
                self.scan.soon(now);
                continue;
            };
            let lost = matches!(event, LinkEvent::Lost(_));
            tracing::debug!(%gid, lost, "link event");
            // IPoIB drops its carrier for a moment on a port that comes up, too: PortInfo decides.
            if lost && let Some(port) = self.devices.port_mut(key) {
                port.watch.suspect();
            }
            self.look_at(now, key);
        }
    }

    fn refresh_facts(&mut self, key: PortKey) {
        let Some(device) = self.devices.device(key.device) else {
            return;
        };
        let Some(verbs) = &device.verbs else { return };
        match verbs.port_facts(key.port) {
            Ok(facts) => {
                if let Some(port) = self.devices.port_mut(key) {
                    port.watch.set_facts(facts);
                }
            }
            Err(error) => {
                tracing::debug!(device = device.name, port = key.port, %error, "port not asked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mio::Poll;

    use super::*;

    const NOW: Time = Time(3_600_000_000);

    /// A host on which no device is wanted, some time after the start.
    fn ports(poll: &Poll) -> (Ports, Config) {
        let config = Config {
            devices: vec!["no such device".to_owned()],
            ..Config::default()
        };
        let registry = poll.registry().try_clone().unwrap();
        let waker = Arc::new(Waker::new(&registry, mio::Token(0)).unwrap());
        let mut ports = Ports::new(&config, registry, Random::new([1; 32]), waker);
        for _ in 0..10 {
            ports.handle_time(NOW, false);
            ports.scan.done(NOW, false);
        }
        assert!(ports.poll_timeout().is_some_and(|at| at > NOW));
        (ports, config)
    }

    #[test]
    fn a_configuration_that_is_read_again_has_devices_looked_for_at_once() {
        let poll = Poll::new().unwrap();
        let (mut ports, config) = ports(&poll);
        ports.configure(NOW, &config);
        assert_eq!(ports.poll_timeout(), Some(NOW));
    }

    #[test]
    fn a_program_on_an_unknown_device_has_devices_looked_for() {
        let poll = Poll::new().unwrap();
        let (mut ports, _) = ports(&poll);
        let before = ports.poll_timeout();
        ports.device_is_used(NOW, Guid(0x11));
        assert!(ports.poll_timeout() < before);
    }
}
