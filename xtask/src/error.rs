// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong in `cargo xtask`: one line each, with the tail of a failed command's output.

use std::io;
use std::path::{Path, PathBuf};

/// An error of `cargo xtask`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A file or directory could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// What was accessed.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A program could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program's name.
        program: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A program ended with a failure.
    #[error("{what} failed ({status}){output}")]
    Failed {
        /// What was being done.
        what: String,
        /// Its exit status.
        status: String,
        /// The last lines of its output, each on a line of its own, or nothing.
        output: String,
    },
    /// Debian packages are missing and cannot be installed from here.
    #[error("missing Debian packages; as root run: apt-get install --no-install-recommends {0}")]
    Packages(String),
    /// What was asked for makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Anything else, said in one line.
    #[error("{0}")]
    Other(String),
}

/// Names the file in an I/O error.
pub(crate) trait InFile<T> {
    /// Turns an I/O error into one that names `path`.
    fn in_file(self, path: &Path) -> Result<T, Error>;
}

impl<T> InFile<T> for io::Result<T> {
    fn in_file(self, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error::File {
            path: path.to_path_buf(),
            source,
        })
    }
}
