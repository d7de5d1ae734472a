// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[kernel]`: the kernel module `apm`, where it is loaded.

use super::check::Wrongs;
use super::section::section;
use crate::io::apm_module::{Protect, Rule};

/// How many the module takes (`kernel/apm.h`).
const RULES_MAX: usize = 16;

/// What a QP takes, five bits.
const ACK_TIMEOUT_MAX: u8 = 31;

section! {
    /// `[kernel]`
    Kernel {
        /// Queue pairs that are protected: `all`, the kernel's own (`ulps`), or `none`.
        protect: Protect = Protect::All,
        /// Owners left alone: kernel modules, commands, `uid:NUMBER`, or `cgroup:/PATH`.
        except: Vec<String> = vec!["ib_ipoib".to_owned()],
        /// What new connections towards peers with a daemon have at most, 4.096 us * 2^n; 0 leaves it alone.
        ack_timeout: u8 = 14,
        /// Use the module also on a kernel that lets a queue pair be found while it is destroyed.
        allow_unfixed: bool = false,
        /// Do not use the module beside an ib_core that was not built with the kernel.
        strict: bool = false,
    }
}

impl Kernel {
    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        wrongs.want_within(self.except.len(), 0..=RULES_MAX, "except");
        wrongs.want_within(self.ack_timeout, 0..=ACK_TIMEOUT_MAX, "ack_timeout");
        for owner in &self.except {
            if let Err(want) = owner.parse::<Rule>() {
                wrongs.refuse("except", format!("is {owner}, {want}"));
            }
        }
    }

    /// As the module takes them.
    pub(crate) fn rules(&self) -> Vec<Rule> {
        let rules = self.except.iter().map(|owner| owner.parse());
        rules.filter_map(Result::ok).collect()
    }
}
