// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of path sources, and those of them that are no parts of their own: an ACM service and a
//! file.

use std::collections::BTreeMap;
use std::sync::Arc;

use cm_msgs::sa::PathRecord;
use mio::{Registry, Waker};
use paths::sa::Ask;
use paths::source::{Answer, Member, PathFile, PathFileError, Question, Static, sa};
use statemachine::{Origin, PathQuery, PortId, QueryError, Time};

use super::acm_links::AcmLinks;
use super::ports::PortNews;
use crate::config::Config;
use crate::io::background::Background;
use crate::io::path_file;

/// What concerns others.
#[derive(Debug)]
pub(crate) enum Note {
    AskSa(Box<Ask>),
    /// Nobody waits for the answer to this any more.
    WithdrawSa(u32),
    AskFabric(PathQuery),
    Answered(Answer),
}

pub(crate) struct Sources {
    list: paths::source::Sources,
    fixed: Static,
    path_file: Background<Result<PathFile, PathFileError>>,
    /// Asked of `fixed` before its file was read for the first time.
    waiting: Vec<PathQuery>,
    acm: AcmLinks,
    /// LMC of the local ports, on which it hangs how subnet administration is asked.
    lmcs: BTreeMap<PortId, u8>,
}

impl Sources {
    pub(crate) fn new(config: &Config, registry: Registry, waker: Arc<Waker>) -> Self {
        let mut sources = Self {
            list: paths::source::Sources::new(config.sources()),
            fixed: Static::new(config.fixed.file.clone()),
            path_file: Background::new("path file", waker),
            waiting: Vec::new(),
            acm: AcmLinks::new(&config.acm_client, registry),
            lmcs: BTreeMap::new(),
        };
        sources.read_path_file(config);
        sources
    }

    pub(crate) fn configure(&mut self, now: Time, config: &Config) {
        if *self.fixed.file() != config.fixed.file {
            self.fixed = Static::new(config.fixed.file.clone());
        }
        self.read_path_file(config);
        for query in self.acm.configure(&config.acm_client) {
            let result = Err(QueryError::Unreachable);
            self.list.handle_answer(now, query, result);
        }
        self.list.set_plan(now, config.sources());
    }

    fn read_path_file(&mut self, config: &Config) {
        if config.source.has(Origin::Static) {
            let file = self.fixed.file().clone();
            self.path_file.start(move || path_file::load(&file));
        }
    }

    /// The thread that reads the file of paths may have done so.
    pub(crate) fn handle_thread(&mut self, now: Time) {
        if let Some(read) = self.path_file.poll() {
            self.fixed.take(read);
            for query in std::mem::take(&mut self.waiting) {
                let result = self.fixed.find(&query);
                self.list.handle_answer(now, query.query, result);
            }
        }
    }

    /// The TCP port at which this daemon serves ACM itself.
    pub(crate) fn set_own_acm_port(&mut self, port: Option<u16>) {
        self.acm.set_own_port(port);
    }

    pub(crate) fn list(&self) -> &paths::source::Sources {
        &self.list
    }

    /// What a source is made of, for operators.
    pub(crate) fn detail(&self, member: &Member) -> Option<String> {
        match member.origin() {
            Origin::Static => Some(self.fixed.to_string()),
            Origin::Acm => Some(self.acm.to_string()),
            Origin::Sa | Origin::Ssa => None,
        }
    }

    /// Why no alternate path can be found, if that is so.
    pub(crate) fn all_fail(&self) -> Option<String> {
        let errors = self.list.members().iter().filter_map(|member| {
            let failure = member.health().failure()?;
            Some(format!("{}: {}", member.origin(), failure.error))
        });
        let errors = errors.collect::<Vec<_>>().join("; ");
        self.list.all_fail().then(|| {
            format!("no path source works ({errors}), so there are no alternate paths: see `apmctl source`")
        })
    }

    /// What an operator should look at besides.
    pub(crate) fn problem(&self) -> Option<String> {
        self.fixed.error().map(str::to_owned)
    }

    pub(crate) fn ask(&mut self, now: Time, question: Question) {
        self.list.ask(now, question);
    }

    /// The engine does not wait for the answer to its query any more.
    pub(crate) fn withdraw(&mut self, query: u32) {
        self.list.withdraw(query);
    }

    /// A source answers a query.
    pub(crate) fn handle_answer(
        &mut self,
        now: Time,
        query: u32,
        result: Result<Vec<PathRecord>, QueryError>,
    ) {
        self.list.handle_answer(now, query, result);
    }

    /// A source has nobody to ask, though it goes on trying.
    pub(crate) fn handle_absent(&mut self, now: Time, query: u32) {
        self.list.handle_absent(now, query);
    }

    pub(crate) fn handle_port(&mut self, news: &PortNews) {
        self.lmcs.insert(news.id, news.status.lmc);
        match news.reaches_sm() {
            true => self.list.handle_port_changed(news.id),
            false => self.list.handle_port_lost(news.id),
        }
    }

    pub(crate) fn handle_sm_changed(&mut self, port: PortId) {
        self.list.handle_port_changed(port);
    }

    pub(crate) fn handle_port_gone(&mut self, port: PortId) {
        self.lmcs.remove(&port);
        self.list.handle_port_lost(port);
    }

    /// A connection to the ACM service has something to tell.
    pub(crate) fn handle_acm(&mut self, number: u32) {
        self.acm.handle_ready(number as usize);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let times = [self.list.poll_timeout(), self.acm.poll_timeout()];
        times.into_iter().flatten().min()
    }

    pub(crate) fn handle_time(&mut self, now: Time) {
        self.acm.handle_time(now);
        self.list.handle_time(now);
    }

    pub(crate) fn poll_note(&mut self, now: Time) -> Option<Note> {
        loop {
            if let Some(answer) = self.list.poll_answer() {
                return Some(Note::Answered(answer));
            }
            if let Some((query, result)) = self.acm.poll_answer(now) {
                self.list.handle_answer(now, query, result);
                continue;
            }
            if let Some((origin, query)) = self.list.poll_abandoned() {
                match origin {
                    Origin::Sa => return Some(Note::WithdrawSa(query)),
                    Origin::Acm => self.acm.withdraw(query),
                    // They answer at once.
                    Origin::Ssa | Origin::Static => {}
                }
                continue;
            }
            let (origin, query) = self.list.poll_ask(now)?;
            match origin {
                Origin::Sa => {
                    let lmc = self.lmcs.get(&query.port).copied().unwrap_or(0);
                    return Some(Note::AskSa(Box::new(sa::ask(&query, lmc))));
                }
                Origin::Ssa => return Some(Note::AskFabric(query)),
                Origin::Static if self.fixed.is_unread() => self.waiting.push(query),
                Origin::Static => {
                    let result = self.fixed.find(&query);
                    self.list.handle_answer(now, query.query, result);
                }
                Origin::Acm => self.acm.ask(query),
            }
        }
    }
}
