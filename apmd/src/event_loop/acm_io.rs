// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACM served, between the loop, the service and what it asks: the sources and the other hosts.

use std::net::IpAddr;

use cm_msgs::Gid;
use mio::Registry;
use statemachine::{PortId, Time};

use super::Daemon;
use super::acm_files::Files;
use super::acm_streams::{AcmStreams, Going};
use super::ls_io;
use super::opened::Opened;
use super::routes_io;
use super::token::PortKey;
use crate::acm::{Breach, LocalPort, Service};
use crate::config::Config;
use crate::io::ls::Ls;
use crate::io::routes::Routes;
use crate::observe::acm as model;
use crate::observe::destinations::Wanted;
use crate::source::Answer;

/// The traps that say that a port has left the fabric, and that a link of a switch has changed.
const TRAPS: [u16; 2] = [65, 128];

/// ACM served: the service, its clients, and the kernel.
#[derive(Debug)]
pub(super) struct Acm {
    pub(super) service: Service,
    pub(super) streams: AcmStreams,
    pub(super) ls: Opened<Ls>,
    pub(super) routes: Routes,
    pub(super) files: Files,
    /// The ports whose paths were looked for in the file.
    routed: Vec<Gid>,
    output: Vec<u8>,
}

impl Acm {
    /// Listens, as far as that can be done: what fails is logged, and the daemon does without.
    pub(super) fn open(config: &Config, registry: &Registry, seed: u64) -> Option<Self> {
        if !config.acm.serve {
            return None;
        }
        let files = Files::read(&config.acm, &config.acm_multicast);
        let config = &files.config.clone();
        let mut acm = Self {
            service: Service::new(config.settings(), seed as u32),
            streams: AcmStreams::open(config, registry),
            ls: Opened::from(config.kernel.then(|| ls_io::open(registry))),
            routes: routes_io::subscribed(registry),
            files,
            routed: Vec::new(),
            output: Vec::new(),
        };
        acm.take_files();
        Some(acm)
    }

    /// The TCP port at which it is served.
    pub(super) fn tcp_port(&self) -> Option<u16> {
        self.streams.tcp_port()
    }

    /// Opens what could not be opened, or was lost.
    fn open_again(&mut self, registry: &Registry) {
        self.streams.listen_again(&self.files.config, registry);
        if self.ls.failure().is_some() {
            self.ls = Opened::from(Some(ls_io::open(registry)));
        }
    }

    /// Gives the service what the files say.
    fn take_files(&mut self) {
        let host = crate::acm::host_name();
        self.service.set_names(self.files.names.clone(), host);
        self.service.set_known(self.files.addresses());
        self.service.set_routes(self.files.routes(&self.routed));
    }

    /// Looks for the paths of a port that has come up.
    fn route(&mut self, gid: Gid) {
        if !self.routed.contains(&gid) {
            self.routed.push(gid);
            self.service.set_routes(self.files.routes(&self.routed));
        }
    }

    /// Reads what a client has to say, and answers.
    pub(super) fn serve(
        &mut self,
        now: Time,
        key: u32,
        registry: &Registry,
    ) -> Result<Going, Breach> {
        let Self {
            service, routes, ..
        } = self;
        let mut source_of = |to: IpAddr| routes.source_to(now, to);
        self.streams
            .serve(key, registry, |header, message, output| {
                service.handle_request(now, key, header, message, &mut source_of, output);
            })
    }
}

impl Daemon {
    /// Asks what the service wants to know, and gives its answers away. Whether there was nothing of
    /// the kind to do.
    pub(super) fn drain_acm(&mut self) -> bool {
        let mut nothing = true;
        while let Some(acm) = self.acm.as_mut() {
            while let Some(lookup) = acm.service.poll_lookup() {
                nothing = false;
                let now = self.clock.now();
                self.acm_net.net.lookup(now, &lookup);
            }
            self.drain_acm_net();
            let asked = self.ask_for_acm();
            let answered = self.answer_acm();
            if !asked && !answered {
                return nothing;
            }
            nothing = false;
        }
        nothing
    }

    /// Puts the service's questions to the path sources. Whether there were any.
    fn ask_for_acm(&mut self) -> bool {
        let mut any = false;
        while let Some(question) = self
            .acm
            .as_mut()
            .and_then(|acm| acm.service.poll_question())
        {
            any = true;
            self.sources.ask(self.clock.now(), question);
        }
        any
    }

    /// Gives away answers that took a while. Whether there were any.
    fn answer_acm(&mut self) -> bool {
        let registry = self.poll.registry();
        let Some(acm) = self.acm.as_mut() else {
            return false;
        };
        let mut any = false;
        let mut broken = Vec::new();
        while let Some(answer) = acm.service.poll_answer() {
            any = true;
            acm.output.clear();
            if let Some(message) = answer.for_kernel() {
                if let Some(Err(error)) = acm.ls.get().map(|ls| ls.send(&message)) {
                    tracing::debug!(%error, "answer to the kernel not sent");
                }
            } else if let Some(key) = answer.for_client(&mut acm.output)
                && !acm.streams.answer(key, &acm.output, registry)
            {
                broken.push(key);
            }
        }
        for key in broken {
            self.lose_acm_client(key);
        }
        any
    }

    /// The path sources answered the service.
    pub(super) fn acm_path(&mut self, answer: Answer) {
        let Answer {
            query,
            origin,
            result,
            ..
        } = answer;
        let now = self.clock.now();
        if let Some(acm) = self.acm.as_mut() {
            acm.service.handle_paths(now, query, origin, result);
        }
        self.drain_acm();
    }

    /// Tells the service of a port.
    pub(super) fn acm_port(&mut self, key: PortKey) {
        let Some(acm) = self.acm.as_mut() else { return };
        let (Some(device), Some(port)) = (self.devices.device(key.device), self.devices.port(key))
        else {
            return;
        };
        if let Some(status) = port.watch.status().filter(|status| status.infiniband) {
            let local = LocalPort {
                device: device.verbs.name.clone(),
                status: status.clone(),
                rate: port.watch.rate(),
                subnet_timeout: port.watch.subnet_timeout(),
            };
            let (id, active) = (port.id, status.active);
            acm.route(status.gid);
            acm.service.handle_port(id, local);
            if active && self.config.acm.reports {
                self.reports.subscribe(id, &TRAPS);
            }
        }
    }

    /// Tells the service that a port has gone.
    pub(super) fn acm_port_gone(&mut self, id: PortId) {
        if let Some(acm) = self.acm.as_mut() {
            acm.service.handle_port_gone(id);
        }
    }

    /// Something about a port, or the fabric behind it, is different.
    pub(super) fn acm_port_event(&mut self, key: PortKey) {
        let now = self.clock.now();
        let id = self.devices.port(key).map(|port| port.id);
        if let (Some(acm), Some(id)) = (self.acm.as_mut(), id) {
            acm.service.handle_port_event(now, id);
        }
    }

    /// Forwarding tables, switches or links are different.
    pub(super) fn acm_fabric_changed(&mut self) {
        let now = self.clock.now();
        if let Some(acm) = self.acm.as_mut() {
            acm.service.handle_fabric_changed(now);
        }
    }

    /// A link of a switch has changed, as the SA reports.
    pub(super) fn acm_link_report(&mut self) {
        let now = self.clock.now();
        if let Some(acm) = self.acm.as_mut() {
            acm.service.handle_link_report(now);
        }
    }

    /// A port has left the fabric, as the SA reports.
    pub(super) fn acm_gid_gone(&mut self, gid: Gid) {
        if let Some(acm) = self.acm.as_mut() {
            acm.service.handle_gid_gone(gid);
        }
    }

    /// Tells the service of the addresses of this host's interfaces.
    pub(super) fn acm_addresses(&mut self) {
        if let (Some(acm), Some(rtnl)) = (self.acm.as_mut(), self.rtnl.as_ref()) {
            acm.service.set_interfaces(rtnl.addresses());
        }
        self.acm_net_endpoints();
    }

    /// When the service has something to do.
    pub(super) fn acm_timeout(&self) -> Option<Time> {
        self.acm.as_ref()?.service.poll_timeout()
    }

    /// Does what is due.
    pub(super) fn acm_time(&mut self) {
        let now = self.clock.now();
        if self.acm_timeout().is_some_and(|at| at <= now) {
            if let Some(acm) = self.acm.as_mut() {
                acm.service.handle_time(now);
            }
            self.drain_acm();
        }
    }

    /// The served ACM as operators see it.
    pub(super) fn show_acm(&self, wanted: &Wanted) -> Option<model::Acm> {
        let acm = self.acm.as_ref()?;
        Some(model::Acm {
            served_at: acm.streams.served_at(),
            kernel: acm.ls.get().is_some(),
            clients: acm.streams.clients(),
            multicast: self.show_acm_net(),
            ..model::show(self.clock.now(), &acm.service, wanted)
        })
    }

    /// What an operator should look at, in words.
    pub(super) fn acm_problems(&self) -> impl Iterator<Item = String> {
        self.acm.iter().flat_map(|acm| {
            let streams = acm.streams.failures();
            let streams = streams.map(|why| format!("acm is not served at {why}"));
            let kernel = acm.ls.failure();
            let kernel =
                kernel.map(|why| format!("the kernel's path requests are not heard: {why}"));
            streams.chain(kernel)
        })
    }

    /// Takes over what the configuration, which was read again, says of ACM.
    pub(super) fn reload_acm(&mut self) {
        if let Some(acm) = self.acm.as_mut() {
            acm.files = Files::read(&self.config.acm, &self.config.acm_multicast);
            acm.service.set_settings(acm.files.config.settings());
            acm.take_files();
            acm.open_again(self.poll.registry());
            self.acm_client.set_own_port(acm.tcp_port());
        }
        self.configure_acm_net();
    }
}
