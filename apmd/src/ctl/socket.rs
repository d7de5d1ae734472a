// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's sockets: where they are, and why one of them cannot be reached.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{AccessFlags, Gid, Group, Uid, User, access};

use super::Options;
use crate::config::DEFAULT_RUNTIME_DIR;
use crate::io::seqpacket::Packets;
use crate::observe;
use crate::parts::libraries;

/// Name of the variable that names the libraries' socket.
pub(super) const VARIABLE: &str = "APMD_SOCKET";

/// Why the daemon does not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreachable {
    #[error("{}: {error}: is apmd running?", path.display())]
    NoDaemon { path: PathBuf, error: io::Error },
    #[error("{}: permission denied: {}", path.display(), who_may(path))]
    Forbidden { path: PathBuf },
    #[error("{}: apmd has not answered for {} s: see `journalctl -u apmd`", path.display(), patience.as_secs_f64())]
    Silent { path: PathBuf, patience: Duration },
    #[error("{}: apmd closed the connection: see `journalctl -u apmd`", path.display())]
    Ended { path: PathBuf },
    #[error(
        "{}: apmd closed the connection before it had answered in full: it is ending, or this user's share of \
         its callers is used up: try again, and see `journalctl -u apmd`",
        path.display()
    )]
    Unfinished { path: PathBuf },
}

impl Unreachable {
    pub(super) fn new(path: &Path, patience: Duration, error: io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Forbidden { path },
            io::ErrorKind::WouldBlock => Self::Silent { path, patience },
            // It let the caller in, or the error would be another.
            io::ErrorKind::BrokenPipe => Self::Unfinished { path },
            _ => Self::NoDaemon { path, error },
        }
    }
}

/// The operators' socket: in the directory that the command line names, or beside the libraries'.
pub(super) fn of_operators(options: &Options) -> PathBuf {
    of_libraries(options).with_file_name(observe::SOCKET)
}

/// The libraries' socket: in the directory that the command line names, the one that the environment
/// names, or in the usual place.
pub(super) fn of_libraries(options: &Options) -> PathBuf {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    match (&options.socket, named) {
        (Some(directory), _) => directory.join(libraries::SOCKET),
        (None, Some(path)) => path.into(),
        (None, None) => Path::new(DEFAULT_RUNTIME_DIR).join(libraries::SOCKET),
    }
}

/// Connects to the daemon. It has `patience` for this, and for each packet.
pub(super) fn connect(path: &Path, patience: Duration) -> Result<Packets, Unreachable> {
    Packets::connect(path, patience).map_err(|error| Unreachable::new(path, patience, error))
}

/// Who may use a socket that this process may not, and what its user can do.
fn who_may(socket: &Path) -> String {
    // A directory on the way that is closed hides the socket's own group.
    let closed = |path: &&Path| access(*path, AccessFlags::X_OK).is_err();
    let closed = socket.ancestors().skip(1).filter(closed).last();
    let what = closed.unwrap_or(socket);
    let name = match closed {
        None => "it".to_owned(),
        Some(dir) => dir.display().to_string(),
    };
    let Ok(metadata) = what.metadata() else {
        return "ask the administrator".to_owned();
    };
    let needed = if closed.is_some() { 0o010 } else { 0o020 };
    if metadata.mode() & needed == 0 {
        let owner = User::from_uid(Uid::from_raw(metadata.uid()));
        let owner = owner.ok().flatten().map(|user| user.name);
        let owner = owner.unwrap_or_else(|| metadata.uid().to_string());
        return format!("{name} is for user {owner} only: see [control] in apmd.toml");
    }
    let group = Group::from_gid(Gid::from_raw(metadata.gid()));
    let group = group.ok().flatten().map(|group| group.name);
    let group = group.unwrap_or_else(|| metadata.gid().to_string());
    format!("{name} belongs to group {group}: ask to be added to group {group}, and log in again")
}
