// SPDX-License-Identifier: MIT OR Apache-2.0
//! What types alone cannot say of values.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;

/// A value that is of the right type and still no good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wrong {
    pub(super) section: &'static str,
    pub(super) key: &'static str,
    /// What would be good, behind the value if that is a number.
    pub(super) what: String,
}

/// All that is wrong with the values of sections.
#[derive(Debug, Default)]
pub(super) struct Wrongs {
    section: &'static str,
    found: Vec<Wrong>,
}

impl Wrongs {
    /// The keys that follow are this section's.
    pub(super) fn of(&mut self, section: &'static str) -> &mut Self {
        self.section = section;
        self
    }

    pub(super) fn into_found(self) -> Vec<Wrong> {
        self.found
    }

    /// Refuses the value of `key`.
    pub(super) fn refuse(&mut self, key: &'static str, what: impl Into<String>) {
        self.found.push(Wrong {
            section: self.section,
            key,
            what: what.into(),
        });
    }

    /// Refuses the value of `key` unless it is `good`; `what` says what would be.
    pub(super) fn want(&mut self, good: bool, key: &'static str, what: impl Into<String>) {
        if !good {
            self.refuse(key, what);
        }
    }

    /// Refuses the number of `key` unless it is `good`.
    pub(super) fn want_number(
        &mut self,
        good: bool,
        number: impl Display,
        key: &'static str,
        what: &str,
    ) {
        self.want(good, key, format!("is {number}, {what}"));
    }

    /// Refuses the number of `key` out of `range`, which `dist/apmd.toml` says as well.
    pub(super) fn want_within<N>(&mut self, number: N, range: RangeInclusive<N>, key: &'static str)
    where
        N: PartialOrd + Display,
    {
        let what = format!("want {} to {}", range.start(), range.end());
        self.want_number(range.contains(&number), number, key, &what);
    }

    /// The path of a file.
    pub(super) fn want_absolute(&mut self, path: &Path, key: &'static str) {
        let what = "want a path that begins with a slash";
        self.want(path.is_absolute(), key, what);
    }

    /// The path of a file that there need not be.
    pub(super) fn want_absolute_or_none(&mut self, path: &Path, key: &'static str) {
        let good = path.as_os_str().is_empty() || path.is_absolute();
        let what = "want a path that begins with a slash, or nothing";
        self.want(good, key, what);
    }
}
