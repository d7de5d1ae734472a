// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source `static`: what a file says, as it was when it was last good.

use std::fmt;
use std::path::PathBuf;

use cm_msgs::sa::PathRecord;
use statemachine::{PathQuery, QueryError};

use super::path_file::{PathFile, PathFileError};

/// Paths from a file.
#[derive(Debug)]
pub struct Static {
    file: PathBuf,
    paths: Option<PathFile>,
    error: Option<String>,
}

impl Static {
    /// No file was read yet.
    pub fn new(file: PathBuf) -> Self {
        Self {
            file,
            paths: None,
            error: None,
        }
    }

    /// The file that it reads.
    pub fn file(&self) -> &PathBuf {
        &self.file
    }

    /// Takes what the file says now; if that is no good, what it said before stays.
    pub fn take(&mut self, read: Result<PathFile, PathFileError>) {
        match read {
            Ok(paths) => {
                tracing::info!(file = %self.file.display(), paths = paths.len(), "paths read");
                self.paths = Some(paths);
                self.error = None;
            }
            Err(error) => {
                let kept = self.paths.is_some();
                tracing::error!(%error, kept, "file of paths not taken");
                self.error = Some(error.to_string());
            }
        }
    }

    /// Whether its file has not been looked at yet.
    pub fn is_unread(&self) -> bool {
        self.paths.is_none() && self.error.is_none()
    }

    /// What is wrong with the file.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The paths that answer a query, in the file's order.
    ///
    /// # Errors
    /// There is none, or no file that was ever good: [`QueryError::Unreachable`].
    pub fn find(&self, query: &PathQuery) -> Result<Vec<PathRecord>, QueryError> {
        let paths = self.paths.as_ref().ok_or(QueryError::Unreachable)?;
        paths.find(query)
    }
}

/// What it is made of, for operators.
impl fmt::Display for Static {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.paths.as_ref().map_or(0, PathFile::len);
        let plural = if len == 1 { "" } else { "s" };
        write!(f, "{len} path{plural} of {}", self.file.display())?;
        match &self.error {
            Some(error) => write!(f, "; {error}"),
            None => Ok(()),
        }
    }
}
