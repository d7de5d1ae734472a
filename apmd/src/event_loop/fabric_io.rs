// SPDX-License-Identifier: MIT OR Apache-2.0
//! Between the fabric as data, the thread that reads it, and who asks it.

use std::io;
use std::sync::Arc;

use cm_msgs::Gid;
use mio::{Registry, Waker};
use statemachine::{Assess, Input, PathQuery, PortId, Time};

use super::Daemon;
use super::fabric_worker::{Ended, FabricWorker, FromThread};
use super::token::Token;
use crate::fabric::Outcome;
use crate::sa::{Failure, Response};

/// What tells that the fabric may have changed: a port is reachable, or no longer; a switch's link
/// went up or down; a port's capabilities or link changed.
const TRAPS: [u16; 4] = [64, 65, 128, 144];

/// Starts the thread.
pub(super) fn start(registry: &Registry) -> io::Result<FabricWorker> {
    let waker = Waker::new(registry, Token::Fabric.into())?;
    FabricWorker::start(Arc::new(waker))
}

impl Daemon {
    /// Gives the thread its next job, if one is due.
    pub(super) fn work_on_fabric(&mut self, now: Time) {
        if self.ssa.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        let ports = self.ports_with_sm();
        if self.config.ssa.live {
            for (port, _) in &ports {
                self.reports.subscribe(*port, &TRAPS);
            }
        }
        if let (Some(worker), Some(job)) = (&self.fabric_worker, self.ssa.poll_job(now, &ports)) {
            worker.job(job);
        }
    }

    /// The local ports that can reach a subnet manager, and their GIDs.
    fn ports_with_sm(&self) -> Vec<(PortId, Gid)> {
        let ports = self.devices.keys().filter_map(|key| {
            let port = self.devices.port(key)?;
            let status = port.watch.status()?;
            let usable = status.active && status.sm_lid.is_unicast() && port.mad.is_some();
            usable.then_some((port.id, status.gid))
        });
        ports.collect()
    }

    /// The thread has something to say.
    pub(super) fn hear_of_fabric(&mut self) {
        while let Some(worker) = &self.fabric_worker {
            match worker.hear() {
                Ok(Some(said)) => self.fabric_thread_says(said),
                Ok(None) => return,
                Err(Ended) => {
                    tracing::error!("the thread that reads the fabric has ended");
                    self.fabric_worker = None;
                    let error = "the thread that reads the fabric has ended".to_owned();
                    self.fabric_done(Outcome::Failed(error));
                }
            }
        }
    }

    fn fabric_thread_says(&mut self, said: FromThread) {
        match said {
            FromThread::Ask(ask) => self.sa.ask(*ask),
            FromThread::Progress(progress) => self.ssa.handle_progress(progress),
            FromThread::Done(outcome) => self.fabric_done(outcome),
        }
    }

    fn fabric_done(&mut self, outcome: Outcome) {
        match &outcome {
            Outcome::Failed(error) => tracing::warn!(error, "fabric not read"),
            Outcome::Unrouted(reason) => tracing::info!(reason, "fabric not read yet"),
            Outcome::New(..) | Outcome::Same | Outcome::NoSnapshot => {}
        }
        let now = self.clock.now();
        let is_new = matches!(outcome, Outcome::New(..));
        if self.ssa.handle_outcome(now, outcome) {
            self.engine.handle(now, Input::FabricChanged);
        }
        // The engine is told of what bears on its ways; clients of ACM may hold any path.
        if is_new {
            self.acm_fabric_changed();
        }
    }

    /// The SA replies to the thread.
    pub(super) fn fabric_reply(&mut self, number: u32, reply: Result<Response, Failure>) {
        if let Some(worker) = &self.fabric_worker {
            worker.reply(number, reply);
        }
    }

    /// Says what ways share.
    pub(super) fn assess(&mut self, assess: &Assess) {
        let answer = Input::Assessed {
            query: assess.query,
            overlaps: self.ssa.assess(assess),
        };
        self.engine.handle(self.clock.now(), answer);
    }

    /// Asks the fabric for paths.
    pub(super) fn ask_ssa(&mut self, query: &PathQuery) {
        let answer = self.ssa.paths(query);
        self.sources
            .handle_answer(self.clock.now(), query.query, answer);
    }
}
