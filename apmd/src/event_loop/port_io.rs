// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices, ports and MADs.

use std::io::{Error, ErrorKind};

use cm_msgs::cm;
use cm_msgs::smp::Smp;
use statemachine::{Input, MadSource, PortStatus, Time};

use super::token::{PortKey, Token};
use super::{Daemon, RETRY, SCAN_MAX, TURN};
use crate::config::PortSource;
use crate::devices::Agent;
use crate::io::rtnl::LinkEvent;
use crate::io::umad::{AgentId, Incoming, Received};
use crate::io::verbs::PortEvent;
use crate::log_limit::Nuisance;
use crate::ports::Checking;
use crate::sa::User;

impl Daemon {
    /// Looks for devices that were not there; again later while some are missing.
    pub(super) fn scan(&mut self) {
        let news = self.devices.scan(&self.config, self.poll.registry());
        for key in &news {
            self.read_port(*key);
        }
        if !news.is_empty() {
            self.scan_pause = RETRY;
        }
        self.scan_at = self.devices.is_incomplete(&self.config).then(|| {
            let at = self.clock.now() + self.scan_pause;
            self.scan_pause = (self.scan_pause * 2).min(SCAN_MAX);
            at
        });
    }

    fn scan_soon(&mut self) {
        self.scan_pause = RETRY;
        self.scan_at = Some(self.clock.now() + RETRY);
    }

    fn checking(&self) -> Checking {
        let by = |source| self.config.watches_by(source);
        match (
            by(PortSource::Umad),
            by(PortSource::Verbs) || by(PortSource::Netlink) && self.rtnl.is_some(),
        ) {
            (false, _) => Checking::Unsettled,
            (true, true) => Checking::Net,
            (true, false) => Checking::Alone,
        }
    }

    /// When the next port is to be checked.
    pub(super) fn ports_timeout(&self) -> Option<Time> {
        let timeout = |key| self.devices.port(key).map(|port| port.watch.poll_timeout());
        self.devices.keys().filter_map(timeout).min()
    }

    /// Reads the ports whose check is due.
    pub(super) fn check_ports(&mut self, now: Time) {
        let keys: Vec<_> = self.devices.keys().collect();
        for key in keys {
            if let Some(port) = self.devices.port_mut(key) {
                port.watch.handle_time(now);
                self.read_port(key);
            }
        }
    }

    /// Reads all ports again, because how they are watched may have changed.
    pub(super) fn look_at_all_ports(&mut self) {
        let keys: Vec<_> = self.devices.keys().collect();
        for key in keys {
            self.look_at(key);
        }
    }

    fn look_at(&mut self, key: PortKey) {
        if let Some(port) = self.devices.port_mut(key) {
            port.watch.look();
            self.read_port(key);
        }
    }

    /// Asks for PortInfo, if that is wanted.
    fn read_port(&mut self, key: PortKey) {
        if let Err(error) = self.devices.read_port(key) {
            tracing::debug!(device = key.device, port = key.port, %error, "PortInfo not read");
            self.unreadable(key);
        }
    }

    fn unreadable(&mut self, key: PortKey) {
        let (now, checking) = (self.clock.now(), self.checking());
        self.refresh_facts(key);
        let status = self
            .devices
            .port_mut(key)
            .and_then(|port| port.watch.unreadable(now, checking));
        self.tell(key, status);
    }

    /// Tells the engine of a port, if there is news.
    fn tell(&mut self, key: PortKey, status: Option<PortStatus>) {
        if let (Some(status), Some(port)) = (status, self.devices.port(key)) {
            let (id, active) = (port.id, status.active);
            self.sources.handle_port_changed(id);
            let look_again = self.ssa.handle_port(self.clock.now(), id, active);
            self.acm_port(key);
            self.acm_net_port(key);
            self.engine
                .handle(self.clock.now(), Input::Port(id, Some(status)));
            if look_again {
                self.engine.handle(self.clock.now(), Input::FabricChanged);
            }
        }
    }

    /// A source says that a port is lost.
    fn lost(&mut self, key: PortKey) {
        let status = self
            .devices
            .port_mut(key)
            .and_then(|port| port.watch.lost());
        if status.is_some() {
            self.counters.losses_by_verbs += 1;
        }
        self.tell(key, status);
        self.read_port(key);
    }

    /// A device's asynchronous events.
    pub(super) fn device_events(&mut self, device: u32) {
        loop {
            let Some(opened) = self.devices.device(device) else {
                return;
            };
            let name = &opened.verbs.name;
            let event = match opened.verbs.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(device = name, %error, "no more events");
                    return self.lose_device(device);
                }
            };
            tracing::debug!(device = name, ?event, "verbs event");
            match event {
                PortEvent::DeviceFatal => return self.lose_device(device),
                PortEvent::Reregister(port) => self.reregister(PortKey { device, port }),
                _ if !self.config.watches_by(PortSource::Verbs) => {}
                PortEvent::Error(port) => self.lost(PortKey { device, port }),
                PortEvent::Changed(port) => self.look_at(PortKey { device, port }),
            }
        }
    }

    /// The subnet manager of a port has started anew, or another has taken over: what the old one
    /// was asked or told is forgotten.
    fn reregister(&mut self, key: PortKey) {
        if let Some(id) = self.devices.port(key).map(|port| port.id) {
            self.sa.handle_sm_changed(id);
            self.reports.handle_forgotten(id);
            self.sources.handle_port_changed(id);
            self.acm_net_reregister(id);
        }
        self.acm_port_event(key);
        self.look_at(key);
    }

    fn lose_device(&mut self, device: u32) {
        for id in self.devices.drop_device(device) {
            self.sa.handle_port_gone(id);
            self.reports.handle_port_gone(id);
            self.sources.handle_port_changed(id);
            self.acm_port_gone(id);
            self.acm_net_port_gone(id);
            let look_again = self.ssa.handle_port(self.clock.now(), id, false);
            self.engine.handle(self.clock.now(), Input::Port(id, None));
            if look_again {
                self.engine.handle(self.clock.now(), Input::FabricChanged);
            }
        }
        self.scan_soon();
    }

    /// The kernel told of links.
    pub(super) fn links_changed(&mut self) {
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
            self.acm_addresses();
        }
        for event in events {
            let (LinkEvent::Lost(gid) | LinkEvent::Changed(gid)) = event else {
                continue;
            };
            let Some(key) = self.devices.by_gid(gid) else {
                // An interface of a port that is not open: maybe a device has just appeared.
                self.scan_soon();
                continue;
            };
            if !self.config.watches_by(PortSource::Netlink) {
                continue;
            }
            let lost = matches!(event, LinkEvent::Lost(_));
            tracing::debug!(%gid, lost, "link event");
            // IPoIB drops its carrier for a moment on a port that comes up, too: PortInfo decides.
            if lost && let Some(port) = self.devices.port_mut(key) {
                port.watch.suspect();
            }
            self.look_at(key);
        }
    }

    fn is_up(&self, key: PortKey) -> bool {
        let status = self.devices.port(key).and_then(|port| port.watch.status());
        status.is_some_and(|status| status.active)
    }

    /// A port's umad file has something to read.
    pub(super) fn receive_mads(&mut self, key: PortKey) {
        for _ in 0..TURN {
            let Some(mad_port) = self
                .devices
                .port_mut(key)
                .and_then(|port| port.mad.as_mut())
            else {
                return;
            };
            match mad_port.receive() {
                Ok(None) => return,
                Ok(Some(Received::Mad(mad))) => self.received(key, mad.agent, &mad),
                Ok(Some(Received::TimedOut {
                    agent,
                    transaction_id,
                })) => {
                    self.timed_out(key, agent, transaction_id);
                }
                Err(error) if error.kind() == ErrorKind::FileTooLarge => self.reopen_umad(key),
                Err(error) => return self.lose_umad(key, &error),
            }
            self.drain_engine();
        }
        self.unread.push(Token::Umad(key));
    }

    /// A transfer is too long to be taken: the file is opened anew without it.
    fn reopen_umad(&mut self, key: PortKey) {
        tracing::error!(
            device = key.device,
            port = key.port,
            "transfer longer than 64 MB dropped"
        );
        self.devices.drop_umad(key);
        if let Some(port) = self.devices.port(key) {
            self.sa.handle_port_gone(port.id);
        }
        self.scan();
    }

    fn lose_umad(&mut self, key: PortKey, error: &Error) {
        tracing::warn!(device = key.device, port = key.port, %error, "umad lost");
        self.devices.drop_umad(key);
        if let Some(port) = self.devices.port(key) {
            self.sa.handle_port_gone(port.id);
        }
        self.read_port(key);
        self.scan_soon();
    }

    fn agent(&self, key: PortKey, agent: AgentId) -> Option<Agent> {
        Some(self.devices.port(key)?.mad.as_ref()?.agent(agent))
    }

    fn timed_out(&mut self, key: PortKey, agent: AgentId, transaction_id: u32) {
        match self.agent(key, agent) {
            Some(Agent::Sa) => self.sa.handle_timeout(transaction_id),
            Some(Agent::Smp) => {
                let Some(port) = self.devices.port_mut(key) else {
                    return;
                };
                if !port.watch.end_read(transaction_id) {
                    return;
                }
                tracing::warn!(port = key.port, "PortInfo not answered");
                if port.watch.try_again() {
                    self.read_port(key);
                } else {
                    self.unreadable(key);
                }
            }
            Some(Agent::Association | Agent::Reports) | None => {}
        }
    }

    fn received(&mut self, key: PortKey, agent: AgentId, mad: &Incoming) {
        let malformed = match self.agent(key, agent) {
            Some(Agent::Sa) => match self.sa.handle_response(self.clock.now(), &mad.bytes) {
                Ok(()) => return,
                Err(error) => error.to_string(),
            },
            Some(Agent::Reports) => match self.report(key, mad) {
                Ok(()) => return,
                Err(error) => error,
            },
            Some(Agent::Smp) => match Smp::decode(&mad.bytes) {
                Ok(answer) => return self.port_read(key, &answer),
                Err(error) => error.to_string(),
            },
            Some(Agent::Association) => match self.association_mad(key, mad) {
                Ok(()) => return,
                Err(error) => error,
            },
            None => return,
        };
        self.counters.malformed_mads += 1;
        if let Some(more) = self.limit.allow(self.clock.now(), Nuisance::MalformedMad) {
            let (lid, qpn) = (mad.lid.0, mad.qpn);
            tracing::warn!(
                port = key.port,
                lid,
                qpn,
                error = malformed,
                more,
                "malformed MAD"
            );
        }
    }

    fn association_mad(&mut self, key: PortKey, mad: &Incoming) -> Result<(), String> {
        let (header, message) =
            cm::Message::decode(&mad.bytes).map_err(|error| error.to_string())?;
        if mad.qpn != 1 {
            return Err(format!(
                "{} from queue pair {}, want 1",
                message.name(),
                mad.qpn
            ));
        }
        let Some(port) = self.devices.port(key) else {
            return Ok(());
        };
        let transaction_id = header.transaction_id as u32;
        tracing::trace!(
            port = key.port,
            lid = mad.lid.0,
            message = message.name(),
            transaction = transaction_id,
            "received"
        );
        let source = MadSource {
            port: port.id,
            lid: mad.lid,
            gid: mad.gid,
            qpn: mad.qpn,
            transaction_id,
        };
        self.engine
            .handle(self.clock.now(), Input::Mad(source, message));
        Ok(())
    }

    /// PortInfo was read.
    fn port_read(&mut self, key: PortKey, answer: &Smp) {
        let (now, checking) = (self.clock.now(), self.checking());
        let Some(port) = self.devices.port_mut(key) else {
            return;
        };
        if !port.watch.end_read(answer.header.transaction_id as u32) {
            return;
        }
        let info = match answer.port_info() {
            Ok(info) => info,
            Err(error) => {
                tracing::warn!(port = key.port, %error, "PortInfo not read");
                return self.unreadable(key);
            }
        };
        if port.watch.needs_facts(&info) {
            self.refresh_facts(key);
        }
        let was_up = self.is_up(key);
        let Some(port) = self.devices.port_mut(key) else {
            return;
        };
        let old_sm = port.watch.status().map(|status| status.sm_lid);
        let status = port.watch.answered(now, checking, &info);
        let suspected = port.watch.end_suspicion();
        if old_sm.is_some_and(|old| old != info.master_sm_lid) {
            let again = self.sa.handle_sm_changed(port.id);
            self.reports.handle_forgotten(port.id);
            let is_path = |user: &&User| matches!(user, User::Paths(_));
            let paths = again.iter().filter(is_path).count();
            let (lid, others) = (info.master_sm_lid.0, again.len() - paths);
            tracing::info!(
                port = key.port,
                lid,
                paths,
                others,
                "subnet manager changed; requests repeated"
            );
        }
        if !was_up && status.as_ref().is_some_and(|status| status.active) {
            self.reports.handle_forgotten(port.id);
        }
        if was_up && status.as_ref().is_some_and(|status| !status.active) {
            *match suspected {
                true => &mut self.counters.losses_by_netlink,
                false => &mut self.counters.losses_by_check,
            } += 1;
        }
        self.tell(key, status);
        // A source may have spoken while the answer was under way.
        self.read_port(key);
    }

    fn refresh_facts(&mut self, key: PortKey) {
        let Some(device) = self.devices.device(key.device) else {
            return;
        };
        match device.verbs.port_facts(key.port) {
            Ok(facts) => {
                if let Some(port) = self.devices.port_mut(key) {
                    port.watch.set_facts(facts);
                }
            }
            Err(error) => {
                tracing::debug!(device = device.verbs.name, port = key.port, %error, "port not asked");
            }
        }
    }
}
