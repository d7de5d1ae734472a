// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[neigh]`: the kernel's neighbours on IPoIB interfaces.

use std::path::PathBuf;

use super::check::Wrongs;
use super::section::section;
use crate::neigh::Mode;

section! {
    /// `[neigh]`
    Neigh {
        /// Which of the kernel's tables are filled: 0 none, 1 IPv4, 2 IPv6, 3 both.
        mode: u8 = 0,
        /// The file of addresses, GIDs and queue pairs; read at start and with the configuration.
        file: PathBuf = PathBuf::from("/etc/rdma/ibssa_hosts.data"),
    }
}

impl Neigh {
    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        let is_mode = Mode::from_number(self.mode).is_some();
        wrongs.want_number(
            is_mode,
            self.mode,
            "mode",
            "want 0 none, 1 ipv4, 2 ipv6 or 3 both",
        );
        wrongs.want_absolute(&self.file, "file");
    }

    /// The tables.
    pub(crate) fn mode(&self) -> Mode {
        Mode::from_number(self.mode).unwrap_or_default()
    }
}
