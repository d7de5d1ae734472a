// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operators' questions.

use paths::source::Member;
use serde::Serialize;
use statemachine::{Origin, Time};

use super::configuration::Configuration;
use super::parts::Parts;
use crate::counters::{DaemonCounters, PortCounters};
use crate::observe::connections::{self, Connections};
use crate::observe::model::{Counters, Source, Status};
use crate::observe::problems::Problems;
use crate::observe::request::{Refused, Show};
use crate::observe::{fabric, ports, sources};
use crate::parts::operators::Note;

impl Parts {
    pub(super) fn answer_operator(&mut self, now: Time, configuration: &Configuration, note: Note) {
        if let Some(json) = self.show(now, configuration, &note) {
            self.operators.answer(now, note.key, &json);
        }
    }

    /// The answer, unless it comes later.
    fn show(&mut self, now: Time, configuration: &Configuration, note: &Note) -> Option<Vec<u8>> {
        let request = &note.request;
        Some(match request.show {
            Show::Conn => {
                let conns = Connections {
                    now,
                    engine: self.connections.engine(),
                    devices: self.ports.devices(),
                    client: &|key| self.libraries.client(key),
                    ssa: self.fabric.ssa(),
                    observer: note.peer,
                };
                match conns.page(&request.connections) {
                    Ok(page) => json(&page),
                    Err(refused) => json(&refused),
                }
            }
            Show::Port => {
                let ports = self.connections.engine().ports();
                json(&ports::show(
                    self.ports.devices(),
                    &ports,
                    self.ports.rtnl(),
                ))
            }
            Show::Source => json(&self.show_sources(now)),
            Show::Acm => {
                let error = self
                    .acm
                    .show(note.key, request.destinations.clone())
                    .err()?;
                json(&Refused { error })
            }
            Show::Status => json(&self.status(now, configuration)),
            Show::Counters => json(&Counters {
                engine: self.connections.engine().counters(),
                daemon: self.counters(configuration),
            }),
        })
    }

    fn show_sources(&self, now: Time) -> Vec<Source> {
        let (list, devices) = (self.sources.list(), self.ports.devices());
        let fabric = fabric::fabric(now, self.fabric.ssa());
        let detail = |member: &Member| match member.origin() {
            Origin::Ssa => Some(fabric::words(fabric.as_ref(), self.fabric.ssa())),
            _ => self.sources.detail(member),
        };
        let mut shown = sources::sources(now, list, devices, detail);
        let ssa = Origin::Ssa.to_string();
        if let Some(source) = shown.iter_mut().find(|source| source.source == ssa) {
            source.fabric = fabric;
        }
        shown
    }

    fn counters(&self, configuration: &Configuration) -> DaemonCounters {
        let ports = self.ports.counters();
        DaemonCounters {
            ports: PortCounters {
                malformed_mads: ports.malformed_mads + self.sa.malformed(),
                ..ports
            },
            libraries: self.libraries.counters(),
            peers: self.peers.counters(),
            malformed_requests: self.operators.malformed(),
            acm: self.acm.counters(),
            configuration: configuration.counters,
        }
    }

    fn status(&self, now: Time, configuration: &Configuration) -> Status {
        let config = &configuration.config;
        let views = self.connections.engine().ports();
        let connections = connections::sums(self.connections.engine().protections(now));
        let devices: Vec<_> = self
            .ports
            .devices()
            .iter()
            .map(|d| d.verbs.name.clone())
            .collect();
        let ports = ports::show(self.ports.devices(), &views, self.ports.rtnl());
        let Problems {
            mut degraded,
            others,
        } = Problems::find(
            config,
            &configuration.reload,
            &devices,
            &ports,
            &connections,
        );
        degraded.extend(self.sources.all_fail());
        let others = others.into_iter().chain(self.sources.problem());
        let others = others.chain(self.fabric.problem());
        let others = others.chain(self.acm.problems().iter().cloned());
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: now.0 / 1_000_000,
            class: config.association.class,
            ports: ports::sums(&views),
            libraries: self.libraries.len(),
            connections,
            problems: degraded.iter().cloned().chain(others).collect(),
            degraded,
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
