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
    /// All will be told again, read from now on.
    pub(super) fn begin(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.is_under_way = true;
        self.ended.clear();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_kept_for_one_dump_only() {
        let mut dump = Dump::default();
        dump.handle_gone(Cookie(1));
        assert!(!dump.has_ended(Cookie(1)), "nothing is being told");
        dump.begin();
        dump.handle_gone(Cookie(2));
        assert!(dump.has_ended(Cookie(2)));
        // It did not come to its end, however often.
        dump.begin();
        assert!(dump.ended.is_empty());
    }
}
