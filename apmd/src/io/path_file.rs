// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the file of the source `static`.

use std::path::Path;

use paths::source::{PathFile, PathFileError};

use super::text_file;

/// Bytes of a file, some half a million paths.
const LIMIT: u64 = 64 << 20;

/// Reads the file, which takes seconds if it is large.
///
/// # Errors
/// It cannot be read, or says what it must not.
pub(crate) fn load(path: &Path) -> Result<PathFile, PathFileError> {
    let text = text_file::read(path, LIMIT).map_err(|error| PathFileError::Read {
        path: path.to_owned(),
        error,
    })?;
    PathFile::read_from(path, &text)
}
