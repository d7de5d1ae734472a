// SPDX-License-Identifier: MIT OR Apache-2.0
//! Snapshots as files, replaced whole.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use super::{SnapshotError, read, write};
use crate::fabric::Fabric;

/// What is wrong with a file, and which.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It cannot be opened or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not read as a snapshot.
    #[error("{path}: {source}", path = path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Why.
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
/// of power, sees the old snapshot or the new one.
pub fn save(fabric: &Fabric, path: &Path) -> Result<u64, FileError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    let saved = replace(fabric, path, &beside);
    saved.map_err(|source| {
        // What could not be finished is of no use; the error that matters is the first.
        let _ = fs::remove_file(&beside);
        FileError::Io {
            path: path.to_path_buf(),
            source,
        }
    })
}

fn replace(fabric: &Fabric, path: &Path, beside: &Path) -> io::Result<u64> {
    let file = File::create(beside)?;
    write(fabric, &file)?;
    file.sync_all()?;
    let size = file.metadata()?.len();
    fs::rename(beside, path)?;
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(size)
}
