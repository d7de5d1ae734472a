// SPDX-License-Identifier: MIT OR Apache-2.0
//! Snapshots as files, replaced whole.

use std::fs::{self, File, Permissions};
use std::io::{self, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{SnapshotError, read, write};
use crate::fabric::Fabric;

/// What is wrong with a file, and which.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum FileError {
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: {source}", path = path.display())]
    Content {
        path: PathBuf,
        source: SnapshotError,
    },
}

/// Reads a file.
pub fn load(path: &Path) -> Result<Fabric, FileError> {
    let file = File::open(path).map_err(|source| FileError::Io {
        path: path.to_path_buf(),
        source,
    })?;
    read(BufReader::new(file)).map_err(|source| FileError::Content {
        path: path.to_path_buf(),
        source,
    })
}

/// Writes a file, whose size in bytes is returned. Whoever reads `path` meanwhile, or after a loss
/// of power, sees the old snapshot or the new one. A link in the place of `path`, or of what is
/// written beside it, is never followed.
pub fn save(fabric: &Fabric, path: &Path) -> Result<u64, FileError> {
    replace(fabric, path).map_err(|source| FileError::Io {
        path: path.to_path_buf(),
        source,
    })
}

fn replace(fabric: &Fabric, path: &Path) -> io::Result<u64> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new("."));
    // Nobody else reads the half of it; who may read the whole is as it was, or up to the umask.
    let mut beside = tempfile::Builder::new();
    let beside = beside.permissions(Permissions::from_mode(0o666));
    let beside = beside.prefix(".snapshot-").tempfile_in(directory)?;
    let file = beside.as_file();
    let mode = match fs::symlink_metadata(path) {
        Ok(old) if old.is_file() => old.permissions(),
        _ => file.metadata()?.permissions(),
    };
    file.set_permissions(Permissions::from_mode(0o600))?;
    write(fabric, file)?;
    file.set_permissions(mode)?;
    file.sync_all()?;
    let size = file.metadata()?.len();
    beside.persist(path)?;
    // The new name is in the directory, which a loss of power could take back.
    File::open(directory)?.sync_all()?;
    Ok(size)
}
