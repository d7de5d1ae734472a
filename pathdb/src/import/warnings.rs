// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an import left out, and where it had to choose.

use std::fmt;
use std::path::{Path, PathBuf};

use super::Problem;
use crate::fabric::BuildError;

/// How many are kept; all are counted.
const KEPT: usize = 100;

/// What a line costs that cannot be taken as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Lost {
    /// A link, as far as this line tells it; its other end may have told it as well.
    Link,
    /// A node with what leads from it, as far as this line tells it.
    Node,
    /// A port's LIDs, hence all paths from and to it.
    Lids,
    /// All LIDs of a port but the first.
    OtherLids,
    /// Where one switch sends packets for one LID.
    Route,
    /// The rest of one switch's routes.
    Routes,
    /// All of one switch's routes.
    Table,
    /// Nothing: the line says nothing of this fabric.
    Nothing,
    /// Nothing: the link is up only if both ends say so, at the lower rate or the one that is known.
    Lower,
    /// Which ports are of one device: each counts as a device of its own.
    Devices,
}

impl Lost {
    /// Whether the fabric is less than what the file was meant to tell.
    pub fn is_loss(self) -> bool {
        !matches!(self, Self::Nothing | Self::Lower)
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Link => "left out: this link, unless the line of its other end can be read",
            Self::Node => "left out: this node, and what its lines say of links",
            Self::Lids => "left out: this port's lids, and all paths from and to it",
            Self::OtherLids => "left out: all lids of this port but its first",
            Self::Route => "left out: one route of this switch",
            Self::Routes => "left out: the rest of this switch's routes",
            Self::Table => "left out: all routes of this switch",
            Self::Nothing => "left out: nothing but this line",
            Self::Lower => {
                "taken: up only if both ends are, and the lower rate or the one that is known"
            }
            Self::Devices => "left out: alternates between ports of one device",
        })
    }
}

/// A line that was not taken as it is.
#[derive(Debug, thiserror::Error)]
#[error("{path}:{line}: {problem}; {lost}", path = path.display())]
pub struct Warning {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1; 0 if it is the file itself.
    pub line: usize,
    /// What is wrong with it.
    #[source]
    pub problem: Problem,
    /// What that costs.
    pub lost: Lost,
}

/// All of them: the first hundred, and how many there were.
#[derive(Default, Debug)]
pub struct Warnings {
    kept: Vec<Warning>,
    count: u64,
    losses: u64,
}

impl Warnings {
    /// The first of them.
    pub fn kept(&self) -> &[Warning] {
        &self.kept
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many of them cost something.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// The first of all.
    pub(super) fn into_first(self) -> Option<Warning> {
        self.kept.into_iter().next()
    }

    /// Keeps what is wrong with a line as a warning.
    ///
    /// # Errors
    /// Nothing more can be read after it.
    pub(super) fn take(
        &mut self,
        path: &Path,
        line: usize,
        read: Result<(), Bad>,
    ) -> Result<(), Problem> {
        match read {
            Err(bad) if bad.is_fatal() => return Err(bad.problem),
            Err(bad) => self.push(path, line, bad),
            Ok(()) => {}
        }
        Ok(())
    }

    pub(super) fn push(&mut self, path: &Path, line: usize, bad: Bad) {
        self.count += 1;
        self.losses += u64::from(bad.lost.is_loss());
        if self.kept.len() < KEPT {
            self.kept.push(Warning {
                path: path.to_path_buf(),
                line,
                problem: bad.problem,
                lost: bad.lost,
            });
        }
    }
}

/// What is wrong with a line, and what it costs.
#[derive(Debug)]
pub(super) struct Bad {
    pub(super) problem: Problem,
    pub(super) lost: Lost,
}

impl Bad {
    pub(super) fn new(problem: impl Into<Problem>, lost: Lost) -> Self {
        let problem = problem.into();
        Self { problem, lost }
    }

    /// Whether no more can be read after it: what is beyond a fabric's bounds is refused whole.
    pub(super) fn is_fatal(&self) -> bool {
        let too_large = BuildError::is_too_large;
        matches!(&self.problem, Problem::Contradiction(error) if too_large(error))
    }
}
