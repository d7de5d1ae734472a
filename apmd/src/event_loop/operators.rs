// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operators' questions.

use serde::Serialize;

use super::{Daemon, descriptors};
use crate::log_limit::Nuisance;
use crate::observe::model::{Counters, Request, Show, Status};
use crate::observe::{FromOperator, show};
use crate::server::Alive;

impl Daemon {
    /// An operator's socket has something to read, or room.
    pub(super) fn operator(&mut self, key: u32) {
        let mut alive = self.observe.flush(key);
        if alive == Alive::Yes {
            alive = match self.observe.read(key) {
                FromOperator::Ask(request) => {
                    let json = self.show(&request);
                    self.observe.answer(key, &json)
                }
                FromOperator::Nothing => Alive::Yes,
                FromOperator::Gone => Alive::No,
                FromOperator::Broken(error) => {
                    self.counters.malformed_requests += 1;
                    let now = self.clock.now();
                    if let Some(more) = self.limit.allow(now, Nuisance::MalformedRequest) {
                        tracing::warn!(error, more, "request not understood");
                    }
                    self.observe.flush(key)
                }
            };
        }
        if alive == Alive::No {
            self.observe.close(key);
        }
    }

    fn show(&self, request: &Request) -> Vec<u8> {
        let now = self.clock.now();
        match request.show {
            Show::Conn => {
                let conns = self.engine.connections(now);
                let conns = conns
                    .map(|view| show::conn(view, now, &self.devices, &self.control, &self.ssa));
                json(&conns.collect::<Vec<_>>())
            }
            Show::Port => {
                let ports = self.engine.ports();
                json(&show::ports(&self.devices, &ports, self.rtnl.as_ref()))
            }
            Show::Source => json(&self.show_sources()),
            Show::Acm => json(&self.show_acm(&request.destinations)),
            Show::Status => json(&self.status()),
            Show::Counters => json(&Counters {
                engine: self.engine.counters().into(),
                daemon: self.counters,
            }),
        }
    }

    fn status(&self) -> Status {
        let now = self.clock.now();
        let views = self.engine.ports();
        let connections = show::conn_sums(self.engine.connections(now).map(|view| view.protection));
        let devices: Vec<_> = self.devices.iter().map(|d| d.verbs.name.clone()).collect();
        let ports = show::ports(&self.devices, &views, self.rtnl.as_ref());
        let mut problems = show::problems(&ports, &connections, &devices, &self.config.devices);
        problems.extend(self.source_problems());
        problems.extend(self.acm_problems());
        problems.extend(descriptors::too_few(&self.config.acm));
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: now.0 / 1_000_000,
            class: self.config.association.class,
            ports: show::port_sums(&views),
            libraries: self.control.len(),
            connections,
            problems,
            devices,
        }
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|error| {
        tracing::error!(%error, "answer not written");
        Vec::new()
    })
}
