// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fabric as data, and the thread that reads it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use cm_msgs::Gid;
use cm_msgs::sa::PathRecord;
use mio::Waker;
use paths::fabric::Outcome;
use paths::sa::{Ask, Failure, Response};
use paths::source::Ssa;
use statemachine::{Assess, Overlap, PathQuery, PortId, QueryError, Time};

use super::fabric_worker::{Ended, FabricWorker, FromThread};
use super::ports::PortNews;
use crate::config::Config;

/// What concerns others.
#[derive(Debug)]
pub(crate) enum Note {
    AskSa(Box<Ask>),
    /// Forwarding tables, switches or links are different.
    Changed,
    /// What connections' paths share may be different.
    OverlapChanged,
}

pub(crate) struct Fabric {
    ssa: Ssa,
    /// `None`: it has ended, which it must not.
    worker: Option<FabricWorker>,
    /// Local ports that can ask subnet administration.
    ports: BTreeMap<PortId, Gid>,
    notes: VecDeque<Note>,
}

impl Fabric {
    /// Starts the thread.
    pub(crate) fn new(config: &Config, waker: Arc<Waker>) -> io::Result<Self> {
        Ok(Self {
            ssa: Ssa::new(config.ssa.settings()),
            worker: Some(FabricWorker::start(waker)?),
            ports: BTreeMap::new(),
            notes: VecDeque::new(),
        })
    }

    pub(crate) fn configure(&mut self, now: Time, config: &Config) {
        self.ssa.set_settings(now, config.ssa.settings());
    }

    pub(crate) fn ssa(&self) -> &Ssa {
        &self.ssa
    }

    /// What an operator should look at, in words.
    pub(crate) fn problem(&self) -> Option<String> {
        let error = self.ssa.last_error()?;
        Some(format!("the fabric is not read: {error}"))
    }

    /// What paths share with a primary.
    pub(crate) fn assess(&mut self, assess: &Assess) -> Vec<Option<Overlap>> {
        self.ssa.assess(assess)
    }

    pub(crate) fn find(&self, query: &PathQuery) -> Result<Vec<PathRecord>, QueryError> {
        self.ssa.paths(query)
    }

    /// The SA reports that something is different.
    pub(crate) fn handle_report(&mut self, now: Time) {
        self.ssa.handle_report(now);
    }

    pub(crate) fn handle_port(&mut self, now: Time, news: &PortNews) {
        if news.reaches_sm() {
            self.ports.insert(news.id, news.status.gid);
        } else {
            self.ports.remove(&news.id);
        }
        self.port(now, news.id, news.status.active);
    }

    pub(crate) fn handle_port_gone(&mut self, now: Time, port: PortId) {
        self.ports.remove(&port);
        self.port(now, port, false);
    }

    fn port(&mut self, now: Time, port: PortId, active: bool) {
        if self.ssa.handle_port(now, port, active) {
            self.notes.push_back(Note::OverlapChanged);
        }
    }

    /// The SA replies to the thread.
    pub(crate) fn handle_reply(&mut self, number: u32, reply: Result<Response, Failure>) {
        if let Some(worker) = &self.worker {
            worker.reply(number, reply);
        }
    }

    /// The thread has something to say.
    pub(crate) fn handle_thread(&mut self, now: Time) {
        while let Some(worker) = &self.worker {
            match worker.hear() {
                Ok(Some(FromThread::Ask(ask))) => self.notes.push_back(Note::AskSa(ask)),
                Ok(Some(FromThread::Progress(progress))) => self.ssa.handle_progress(progress),
                Ok(Some(FromThread::Done(outcome))) => self.done(now, outcome),
                Ok(None) => return,
                Err(Ended) => {
                    tracing::error!("the thread that reads the fabric has ended");
                    self.worker = None;
                    let error = "the thread that reads the fabric has ended".to_owned();
                    self.done(now, Outcome::Failed(error));
                }
            }
        }
    }

    fn done(&mut self, now: Time, outcome: Outcome) {
        match &outcome {
            Outcome::Failed(error) => tracing::warn!(error, "fabric not read"),
            Outcome::Unrouted(reason) => tracing::info!(reason, "fabric not read yet"),
            Outcome::New(..) => self.notes.push_back(Note::Changed),
            Outcome::Same | Outcome::NoSnapshot => {}
        }
        if self.ssa.handle_outcome(now, outcome) {
            self.notes.push_back(Note::OverlapChanged);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.ssa.poll_timeout()
    }

    /// Gives the thread its next job, if one is due.
    pub(crate) fn handle_time(&mut self, now: Time) {
        if self.ssa.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        let ports: Vec<_> = self.ports.iter().map(|(port, gid)| (*port, *gid)).collect();
        if let (Some(worker), Some(job)) = (&self.worker, self.ssa.poll_job(now, &ports)) {
            worker.job(job);
        }
    }

    pub(crate) fn poll_note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }
}
