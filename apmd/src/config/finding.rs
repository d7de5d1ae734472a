// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a configuration: all of it, each with its place.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

/// What is wrong at one place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    /// The file.
    pub(crate) path: PathBuf,
    /// The line, counted from 1, if it is one line's fault.
    pub(crate) line: Option<usize>,
    /// The key with its section, as in `acm.serve`, and what is wrong with it.
    pub(crate) what: String,
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.what)
    }
}

/// Why there is no configuration: one reason or more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ConfigError(Vec<Finding>);

impl ConfigError {
    /// Nothing, unless there is a reason.
    pub(super) fn unless_none(mut findings: Vec<Finding>) -> Result<(), Self> {
        findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
        match findings.is_empty() {
            true => Ok(()),
            false => Err(Self(findings)),
        }
    }

    /// The reasons, by file and line.
    pub(crate) fn findings(&self) -> &[Finding] {
        &self.0
    }
}

/// One line: a reason, or the first and how many more there are.
impl Display for ConfigError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("no reason"),
            [only] => only.fmt(f),
            [first, others @ ..] => write!(
                f,
                "{first} (and {} more: see apmd --check-config)",
                others.len()
            ),
        }
    }
}

impl std::error::Error for ConfigError {}

/// The word of `known` that `word` was meant to be, in words: `; is "serve" meant?`, or nothing.
pub(super) fn near_word<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    /// Below this two words have nothing to do with each other (strsim's own example: 0.76 of
    /// "Friedrich Nietzsche" is "Jean-Paul Sartre" no longer).
    const NEAR: f64 = 0.7;
    let rated = known
        .into_iter()
        .map(|known| (strsim::jaro_winkler(word, known), known));
    let nearest = rated.max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((rating, known)) if rating >= NEAR => format!("; is \"{known}\" meant?"),
        _ => String::new(),
    }
}
