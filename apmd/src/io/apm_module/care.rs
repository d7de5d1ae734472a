// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which queue pairs the module cares for, and whom it leaves alone.

use std::str::FromStr;

use cm_msgs::is_unprintable;
use netlink_packet_core::DefaultNla;
use serde::{Deserialize, Serialize};
use strum::Display;

use super::attributes::{nest, u32_of};
use super::constants::{a_qp, a_rule, a_rule_list, protect};

/// Bytes that the module takes (`kernel/apm.h`).
const NAME_MAX: usize = 31;
const CGROUP_MAX: usize = 126;

/// Bytes of a command's name that the kernel keeps (`TASK_COMM_LEN`).
const COMMAND_MAX: usize = 15;

/// Which queue pairs the module cares for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Protect {
    None,
    /// The kernel's own.
    Ulps,
    #[default]
    All,
}

impl Protect {
    const fn code(self) -> u32 {
        match self {
            Self::None => protect::NONE,
            Self::Ulps => protect::ULPS,
            Self::All => protect::ALL,
        }
    }
}

/// Whom the module leaves alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// A kernel module's name or a command, of which the first 15 bytes count.
    Name(String),
    Uid(u32),
    /// A cgroup (v2) and those below it: its path from the root of the hierarchy.
    Cgroup(String),
}

/// A process, as rules look at it.
pub(crate) struct Process<'a> {
    pub(crate) command: &'a str,
    pub(crate) uid: u32,
    /// Empty where it is in none.
    pub(crate) cgroup: &'a str,
}

impl Rule {
    /// Whether the module leaves this process alone for it (`kernel/owner.c`, rule_fits).
    pub(crate) fn fits(&self, process: &Process<'_>) -> bool {
        let first = |name: &'_ str| name.bytes().take(COMMAND_MAX).collect::<Vec<_>>();
        match self {
            Self::Name(name) => first(name) == first(process.command),
            Self::Uid(uid) => *uid == process.uid,
            Self::Cgroup(path) => process
                .cgroup
                .strip_prefix(path.as_str())
                .is_some_and(|below| below.is_empty() || below.starts_with('/')),
        }
    }

    fn attribute(&self) -> DefaultNla {
        let text = |kind, text: &str| DefaultNla::new(kind, [text.as_bytes(), &[0]].concat());
        match self {
            Self::Name(name) => text(a_rule::NAME, name),
            Self::Uid(uid) => u32_of(a_rule::UID, *uid),
            Self::Cgroup(path) => text(a_rule::CGROUP, path),
        }
    }
}

/// As it stands in the configuration: `uid:1000`, `cgroup:/system.slice`, or a name.
impl FromStr for Rule {
    /// What would be right.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WANT: &str = "want a kernel module's name or a command of 31 bytes at most, uid:NUMBER or cgroup:/PATH \
                            of 126 bytes at most without a slash at its end";
        let is_text = |text: &str, max| text.len() <= max && !text.contains(is_unprintable);
        let rule = if let Some(uid) = text.strip_prefix("uid:") {
            uid.parse().ok().map(Self::Uid)
        } else if let Some(path) = text.strip_prefix("cgroup:") {
            let is_path = path.len() > 1 && path.starts_with('/') && !path.ends_with('/');
            (is_path && is_text(path, CGROUP_MAX)).then(|| Self::Cgroup(path.to_owned()))
        } else {
            (!text.is_empty() && is_text(text, NAME_MAX)).then(|| Self::Name(text.to_owned()))
        };
        rule.ok_or(WANT)
    }
}

/// Of the message that sets both.
pub(super) fn attributes(protect: Protect, rules: &[Rule]) -> Vec<DefaultNla> {
    let rules = rules
        .iter()
        .map(|rule| nest(a_rule_list::RULE, &[rule.attribute()]));
    vec![
        u32_of(a_qp::PROTECT, protect.code()),
        nest(a_qp::RULES, &rules.collect::<Vec<_>>()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_names_uids_or_cgroups() {
        assert_eq!("uid:1000".parse(), Ok(Rule::Uid(1000)));
        assert_eq!("rping".parse(), Ok(Rule::Name("rping".to_owned())));
        let slice = Rule::Cgroup("/system.slice".to_owned());
        assert_eq!("cgroup:/system.slice".parse(), Ok(slice));
        let long = format!("cgroup:/{}", "x".repeat(126));
        for wrong in [
            "",
            "uid:",
            "uid:-1",
            "uid:x",
            "a\n",
            &"x".repeat(32),
            "cgroup:",
            "cgroup:/",
            "cgroup:a",
            "cgroup:/a/",
            "cgroup:/a\n",
            &long,
        ] {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_rule_fits_as_the_module_has_it() {
        let process = Process {
            command: "ucx_perftest_long",
            uid: 1000,
            cgroup: "/user.slice/job_1",
        };
        for (rule, fits) in [
            ("ucx_perftest_lo", true),
            ("ucx_perftest_long_and_more", true),
            ("ucx_perftest", false),
            ("ucx_perftest_lx", false),
            ("uid:1000", true),
            ("uid:100", false),
            ("cgroup:/user.slice", true),
            ("cgroup:/user.slice/job_1", true),
            ("cgroup:/user.slice/job_1/step", false),
            ("cgroup:/user.slice/job_", false),
            ("cgroup:/user", false),
        ] {
            let parsed: Rule = rule.parse().expect("a rule");
            assert_eq!(parsed.fits(&process), fits, "{rule}");
        }
    }
}
