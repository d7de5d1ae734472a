// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[static]`: paths from a file.

use std::path::PathBuf;

use super::check::Wrongs;
use super::section::section;

section! {
    /// `[static]`
    Static {
        /// The file; read at start and with the configuration.
        file: PathBuf = PathBuf::from("/etc/rdma/apmd-paths.toml"),
    }
}

impl Static {
    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        wrongs.want_absolute(&self.file, "file");
    }
}
