// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[neigh]`: the kernel's neighbours on IPoIB interfaces.

use std::path::{Path, PathBuf};

use super::check::Wrongs;
use super::section::section;

section! {
    /// `[neigh]`
    Neigh {
        /// The file of addresses, GIDs and queue pairs, read at start and with the configuration; empty: no tables
        /// are filled.
        file: PathBuf = PathBuf::new(),
    }
}

impl Neigh {
    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        wrongs.want_absolute_or_none(&self.file, "file");
    }

    /// The file, if tables are to be filled.
    pub(crate) fn file(&self) -> Option<&Path> {
        let file = self.file.as_path();
        (file != Path::new("")).then_some(file)
    }
}
