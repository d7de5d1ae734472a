// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[static]`: paths from a file.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::check::Wrongs;

/// `[static]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Static {
    /// The file; read at start and with the configuration.
    pub(crate) file: PathBuf,
}

impl Default for Static {
    fn default() -> Self {
        Self {
            file: PathBuf::from("/etc/rdma/apmd-paths.toml"),
        }
    }
}

impl Static {
    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        wrongs.want_absolute(&self.file, "file");
    }
}
