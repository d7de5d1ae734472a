// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of Unix sockets, and what may be in their place.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Why a socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody does already.
    #[error("{}: another apmd is listening there", .0.display())]
    InUse(PathBuf),
    /// Something else is in the way.
    #[error("{}: exists and is no socket", .0.display())]
    NotASocket(PathBuf),
    /// The system says no.
    #[error("{}: {error}", path.display())]
    Io {
        /// The socket's path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> ListenError {
    let path = path.to_owned();
    move |error| ListenError::Io {
        path: path.clone(),
        error,
    }
}

/// Removes the socket that a dead daemon left at `path`.
pub(super) fn clear_the_way<T>(
    path: &Path,
    connect: impl FnOnce(&Path) -> io::Result<T>,
) -> Result<(), ListenError> {
    let io = at(path);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match connect(path).map_err(|error| (error.kind(), error)) {
        Ok(_) => Err(ListenError::InUse(path.to_owned())),
        // Somebody listens there, and has as many callers in line as it may have.
        Err((ErrorKind::WouldBlock, _)) => Err(ListenError::InUse(path.to_owned())),
        Err((ErrorKind::ConnectionRefused, _)) => fs::remove_file(path).map_err(io),
        Err((ErrorKind::NotFound, _)) => Ok(()),
        Err((_, error)) => Err(io(error)),
    }
}
