// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module tells of all queue pairs at once.

use std::collections::BTreeSet;

use crate::io::apm_module::Cookie;

/// The dump that is under way, or was last.
#[derive(Debug, Default)]
pub(super) struct Dump {
    pub(super) number: u32,
    is_under_way: bool,
    /// Of which the end was told meanwhile. The kernel may have read one for the dump before that, and
    /// hand it over after.
    ended: BTreeSet<Cookie>,
}

impl Dump {
    /// All will be told again.
    pub(super) fn begin(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.is_under_way = true;
    }

    /// A queue pair has ended.
    pub(super) fn handle_gone(&mut self, cookie: Cookie) {
        if self.is_under_way {
            self.ended.insert(cookie);
        }
    }

    /// Its end has been told: cookies never come again.
    pub(super) fn has_ended(&self, cookie: Cookie) -> bool {
        self.ended.contains(&cookie)
    }

    /// It is over, or will not be.
    pub(super) fn end(&mut self) {
        self.is_under_way = false;
        self.ended.clear();
    }
}
