// SPDX-License-Identifier: MIT OR Apache-2.0
//! Between the list of path sources and the sources.

use statemachine::{Input, Origin, PathQuery};

use super::Daemon;
use crate::config::SourceName;
use crate::observe::sources::sources as show_sources;
use crate::observe::{fabric, model};
use crate::source::{Answer, Asker, Member, PathFile, Static, sa};

impl Daemon {
    /// Puts questions to the sources and takes their answers, until there are none.
    pub(super) fn drain_sources(&mut self) {
        loop {
            while let Some((origin, query)) = self.sources.poll_ask(self.clock.now()) {
                self.ask_source(origin, query);
            }
            let (sa, acm) = (self.drain_sa(), self.drain_acm_client());
            if !sa && !acm {
                return;
            }
        }
    }

    fn ask_source(&mut self, origin: Origin, query: PathQuery) {
        match origin {
            Origin::Sa => {
                let lmc = self.devices.status(query.port).map_or(0, |port| port.lmc);
                self.sa.ask(sa::ask(&query, lmc, &self.config.sa));
            }
            Origin::Ssa => self.ask_ssa(&query),
            Origin::Static => {
                let result = self.fixed.find(&query);
                self.sources
                    .handle_answer(self.clock.now(), query.query, result);
            }
            Origin::Acm => self.acm_client.client.ask(query),
        }
    }

    /// Takes over what the configuration, which was read again, says of sources.
    pub(super) fn reload_sources(&mut self) {
        if *self.fixed.file() != self.config.fixed.file {
            self.fixed = Static::new(self.config.fixed.file.clone());
        }
        self.read_path_file();
        self.reload_acm_client();
        let plan = self.config.sources();
        self.sources.set_plan(self.clock.now(), plan);
    }

    /// Reads the file of the source `static`, if that is wanted.
    pub(super) fn read_path_file(&mut self) {
        if self.config.source.has(SourceName::Static) {
            self.fixed.take(PathFile::load(self.fixed.file()));
        }
    }

    /// The sources as operators see them.
    pub(super) fn show_sources(&self) -> Vec<model::Source> {
        let now = self.clock.now();
        let fabric = fabric::fabric(now, &self.ssa);
        let detail = |member: &Member| match member.origin() {
            Origin::Static => Some(self.fixed.to_string()),
            Origin::Acm => Some(self.acm_client.to_string()),
            Origin::Ssa => Some(fabric::words(fabric.as_ref(), &self.ssa)),
            Origin::Sa => None,
        };
        let mut shown = show_sources(now, &self.sources, &self.devices, detail);
        let ssa = Origin::Ssa.to_string();
        if let Some(source) = shown.iter_mut().find(|source| source.source == ssa) {
            source.fabric = fabric;
        }
        shown
    }

    /// What an operator should look at, in words.
    pub(super) fn source_problems(&self) -> impl Iterator<Item = String> {
        let all_fail = self.sources.all_fail().then(|| {
            let errors = self.sources.members().iter().filter_map(|member| {
                let failure = member.health().failure()?;
                Some(format!("{}: {}", member.origin(), failure.error))
            });
            let errors: Vec<_> = errors.collect();
            format!("no path source works ({})", errors.join("; "))
        });
        let file = self.fixed.error();
        let fabric = self.ssa.last_error();
        let fabric = fabric.map(|error| format!("the fabric is not read: {error}"));
        all_fail
            .into_iter()
            .chain(file.map(str::to_owned))
            .chain(fabric)
    }

    /// Who asked is told.
    pub(super) fn path_answer(&mut self, answer: Answer) {
        if let Asker::Acm(_) = answer.asker {
            return self.acm_path(answer);
        }
        let Answer {
            query,
            origin,
            result,
            ..
        } = answer;
        let input = Input::Paths {
            query,
            result,
            origin,
        };
        self.engine.handle(self.clock.now(), input);
    }
}
