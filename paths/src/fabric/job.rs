// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heavy work on fabrics, as it is handed to whoever does it and comes back.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use cm_msgs::{Gid, Guid};
use pathdb::Fabric;

use super::{Reading, matters};

/// For whom a change of the fabric matters: the ports between which paths were assessed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Interest {
    /// Local ports.
    pub local: HashSet<Guid>,
    /// Remote ports.
    pub remote: HashSet<Guid>,
}

impl Interest {
    /// Adds a path.
    pub fn add(&mut self, sgid: Gid, dgid: Gid) {
        self.local.insert(sgid.interface_id());
        self.remote.insert(dgid.interface_id());
    }

    /// Whether nobody asked anything.
    pub fn is_empty(&self) -> bool {
        self.remote.is_empty()
    }
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Task {
    /// Read the snapshot, unless it is the one that was read or written last.
    Load(PathBuf),
    /// Read the fabric from subnet administration, and write what is new to the snapshot.
    Read(Reading, Option<PathBuf>),
}

/// One piece of work.
#[derive(Debug)]
pub struct Job {
    /// What to do.
    pub task: Task,
    /// The file of shared-risk groups.
    pub risks: Option<PathBuf>,
    /// The fabric so far.
    pub known: Option<Arc<Fabric>>,
    /// What makes a change matter.
    pub interest: Interest,
}

/// What came of a job.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Another fabric; whether that matters.
    New(Arc<Fabric>, bool),
    /// The one that is known.
    Same,
    /// There is no snapshot.
    NoSnapshot,
    /// None that can be read yet: the subnet manager is still at work.
    Unrouted(String),
    /// None, or none that can be used.
    Failed(String),
}

impl Job {
    /// Compares what was found with what is known. A new fabric gets an epoch later than that of
    /// the known one.
    pub fn judge(&self, mut found: Fabric) -> Outcome {
        let interest = &self.interest;
        let Some(known) = &self.known else {
            found.set_epoch(found.epoch().max(1));
            return Outcome::New(Arc::new(found), !interest.is_empty());
        };
        let epoch = found.epoch().max(known.epoch() + 1);
        // Epochs differ by nature: they are made equal to compare the rest.
        found.set_epoch(known.epoch());
        if found == **known {
            return Outcome::Same;
        }
        found.set_epoch(epoch);
        let regrouped = known.risks() != found.risks() && !interest.is_empty();
        let matters = regrouped || matters(known, &found, &interest.local, &interest.remote);
        Outcome::New(Arc::new(found), matters)
    }
}
