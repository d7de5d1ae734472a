// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that drills write.

use std::fs;
use std::path::Path;

use crate::failure::Failure;

/// Where drills keep files, such as configurations.
pub const DIRECTORY: &str = "/run/drill";

/// Writes a file, and makes its directory where that is missing.
///
/// # Errors
/// [`Failure::File`] if it cannot be written.
pub fn write(path: impl AsRef<Path>, content: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), Failure> {
    let path = path.as_ref();
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(path, content))
        .map_err(|source| Failure::File {
            path: path.display().to_string(),
            source,
        })
}
