// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which kernel the host runs, and whether it takes a queue pair off its list before it is destroyed:
//! mainline does since 709ba0e5311b ("RDMA/core: Fix use after free in ib_query_qp()").

use std::fmt;

/// Since which kernels, of stable series and of mainline.
const FIXED_IN_SERIES: [Version; 2] = [Version(6, 1, 190), Version(6, 12, 111)];
const FIXED_SINCE: Version = Version(7, 3, 0);

/// An upstream version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Version(u32, u32, u32);

impl Version {
    fn has_fix(self) -> bool {
        let of_series = |fixed: &&Self| (fixed.0, fixed.1) == (self.0, self.1);
        let fixed = FIXED_IN_SERIES.iter().find(of_series);
        self >= *fixed.unwrap_or(&FIXED_SINCE)
    }
}

/// The kernel, in an operator's words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HostKernel {
    name: String,
    destroys_late: bool,
    /// An ib_core that is not the kernel's own: its version and taint.
    foreign_ib_core: Option<String>,
}

impl HostKernel {
    /// `release` and `version` as `uname -r` and `-v` print them. `has_begin_del`: whether ib_core has the
    /// function that came with the fix, where that is known; vendors take fixes and keep their versions.
    pub(crate) fn new(release: &str, version: &str, has_begin_del: Option<bool>) -> Self {
        // Debian's releases name the ABI, 6.1.0-48; what it is made of stands in the version.
        let debian = version.split_once("Debian ").map(|(_, rest)| rest);
        let debian = debian.and_then(|rest| rest.split_whitespace().next());
        let upstream = upstream(debian.unwrap_or(release));
        Self {
            name: match debian {
                Some(debian) => format!("{release} (Debian {debian})"),
                None => release.to_owned(),
            },
            destroys_late: match has_begin_del {
                Some(has) => !has,
                None => !upstream.is_some_and(Version::has_fix),
            },
            foreign_ib_core: None,
        }
    }

    /// The same with an ib_core that was not built with it (DOCA-OFED replaces ib_core). The kernel's version says nothing of that
    /// one: unless its type data shows the fix, it counts as without.
    #[must_use]
    pub(crate) fn with_foreign_ib_core(
        mut self,
        ib_core: Option<String>,
        has_begin_del: Option<bool>,
    ) -> Self {
        if let Some(ib_core) = &ib_core {
            self.name = format!("{} with ib_core {ib_core}", self.name);
            self.destroys_late = has_begin_del != Some(true);
        }
        self.foreign_ib_core = ib_core;
        self
    }

    /// The version and taint of an ib_core that is not the kernel's own.
    pub(crate) fn foreign_ib_core(&self) -> Option<&str> {
        self.foreign_ib_core.as_deref()
    }

    /// Whether a queue pair can be found while its driver destroys it.
    pub(crate) fn destroys_late(&self) -> bool {
        self.destroys_late
    }
}

impl fmt::Display for HostKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The numbers with which a version begins.
fn upstream(text: &str) -> Option<Version> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let mut numbers = text[..end.unwrap_or(text.len())].split('.');
    let (major, minor) = (numbers.next()?, numbers.next()?);
    let patch = numbers.next().unwrap_or("0");
    Some(Version(
        major.parse().ok()?,
        minor.parse().ok()?,
        patch.parse().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(release: &str, version: &str) -> bool {
        HostKernel::new(release, version, None).destroys_late()
    }

    #[test]
    fn debian_says_in_its_version_what_its_release_hides() {
        let debian = |version: &str| {
            let version = format!("#1 SMP PREEMPT_DYNAMIC Debian {version} (2026-05-15)");
            late("6.1.0-48-amd64", &version)
        };
        assert!(debian("6.1.172-1") && debian("6.1.189-1"));
        assert!(!debian("6.1.190-1") && !debian("6.1.192-2"));
        assert!(debian("6.12.95-1~bpo12+1") && !debian("6.12.111-1~bpo12+1"));
        assert!(debian("7.2~rc4-1~exp1") && !debian("7.3~rc1-1~exp1"));
        let shown = HostKernel::new(
            "6.1.0-48-amd64",
            "#1 SMP Debian 6.1.172-1 (2026-05-15)",
            None,
        );
        assert_eq!(shown.to_string(), "6.1.0-48-amd64 (Debian 6.1.172-1)");
    }

    #[test]
    fn mainline_says_it_in_its_release() {
        let release = |release: &str| late(release, "#1 SMP Thu Aug 20 16:15:37 UTC 2026");
        assert!(release("6.1.189") && !release("6.1.190") && !release("6.1.201-custom"));
        assert!(release("6.12.110") && !release("6.12.111+"));
        assert!(release("5.15.200") && release("7.2.0-rc5-1-cachyos-rc"));
        assert!(!release("7.3.0-rc1") && !release("7.10.2") && !release("8.0.0"));
        assert!(release("nonsense") && release(""));
    }

    #[test]
    fn a_fixed_kernel_says_nothing_of_an_ib_core_that_is_not_its_own() {
        let with = |ib_core: Option<&str>, has| {
            HostKernel::new("7.3.0", "#1 SMP", has)
                .with_foreign_ib_core(ib_core.map(str::to_owned), has)
        };
        assert!(!with(None, None).destroys_late());
        assert_eq!(with(None, None).foreign_ib_core(), None);
        let ofed = Some("24.10-1.1.4 (taint OE)");
        let unknown = with(ofed, None);
        assert!(unknown.destroys_late() && with(ofed, Some(false)).destroys_late());
        assert!(!with(ofed, Some(true)).destroys_late());
        assert_eq!(unknown.foreign_ib_core(), ofed);
        assert_eq!(
            unknown.to_string(),
            "7.3.0 with ib_core 24.10-1.1.4 (taint OE)"
        );
    }

    #[test]
    fn what_ib_core_has_counts_more_than_the_version() {
        let late = |has| HostKernel::new("5.14.0-611.el9", "#1 SMP", has).destroys_late();
        assert!(late(None) && late(Some(false)) && !late(Some(true)));
    }
}
