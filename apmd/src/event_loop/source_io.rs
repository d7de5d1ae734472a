// SPDX-License-Identifier: MIT OR Apache-2.0
//! Between the list of path sources and the sources.

use statemachine::{Input, Origin, PathQuery};

use super::Daemon;
use crate::source::{Answer, Asker, sa};

impl Daemon {
    /// Puts questions to the sources and takes their answers, until there are none.
    pub(super) fn drain_sources(&mut self) {
        loop {
            while let Some((origin, query)) = self.sources.poll_ask(self.clock.now()) {
                self.ask_source(origin, query);
            }
            if !self.drain_sa() {
                return;
            }
        }
    }

    fn ask_source(&mut self, origin: Origin, query: PathQuery) {
        match origin {
            Origin::Sa => self.sa.ask(sa::ask(&query, &self.config.sa)),
            // The configuration knows no others.
            Origin::Acm | Origin::Ssa | Origin::Static => {}
        }
    }

    /// Who asked is told.
    pub(super) fn path_answer(&mut self, answer: Answer) {
        let Answer {
            asker,
            query,
            origin,
            result,
        } = answer;
        let Asker::Engine = asker else {
            return;
        };
        let input = Input::Paths {
            query,
            result,
            origin,
        };
        self.engine.handle(self.clock.now(), input);
    }
}
