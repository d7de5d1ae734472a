// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[kernel]`: the kernel module `apm`, where it is loaded.

use super::check::Wrongs;
use super::section::section;
use crate::io::apm_module::{Protect, Rule};

/// Bytes of a name, and how many the module takes (`kernel/apm.h`).
const NAME_MAX: usize = 31;
const RULES_MAX: usize = 16;

/// What a QP takes, five bits.
const ACK_TIMEOUT_MAX: u8 = 31;

section! {
    /// `[kernel]`
    Kernel {
        /// Queue pairs that are protected: `all`, the kernel's own (`ulps`), or `none`.
        protect: Protect = Protect::All,
        /// Owners left alone: kernel modules, commands, or `uid:NUMBER`.
        except: Vec<String> = vec!["ib_ipoib".to_owned()],
        /// What new connections towards peers with a daemon have at most, 4.096 us * 2^n; 0 leaves it alone.
        ack_timeout: u8 = 14,
        /// The module is not used on a kernel that lets a queue pair be found while it is destroyed.
        strict: bool = false,
    }
}

impl Kernel {
    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        wrongs.want_within(self.except.len(), 0..=RULES_MAX, "except");
        wrongs.want_within(self.ack_timeout, 0..=ACK_TIMEOUT_MAX, "ack_timeout");
        for owner in &self.except {
            let is_good = rule(owner).is_some();
            let want = "want a kernel module's name, a command or uid:NUMBER, of 31 bytes at most";
            wrongs.want_number(is_good, owner, "except", want);
        }
    }

    /// As the module takes them.
    pub(crate) fn rules(&self) -> Vec<Rule> {
        self.except.iter().filter_map(|owner| rule(owner)).collect()
    }
}

fn rule(owner: &str) -> Option<Rule> {
    if let Some(uid) = owner.strip_prefix("uid:") {
        return uid.parse().ok().map(Rule::Uid);
    }
    let is_name = (1..=NAME_MAX).contains(&owner.len()) && !owner.contains(char::is_control);
    is_name.then(|| Rule::Name(owner.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_names_or_uids() {
        assert_eq!(rule("uid:1000"), Some(Rule::Uid(1000)));
        assert_eq!(rule("rping"), Some(Rule::Name("rping".to_owned())));
        for wrong in ["", "uid:", "uid:-1", "uid:x", "a\n", &"x".repeat(32)] {
            assert_eq!(rule(wrong), None, "{wrong}");
        }
    }
}
