// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mutants, and those that may live because they change nothing that matters.

use std::fmt;

use crate::error::Error;

/// A mutant, without the line that it is in: lines move.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Mutant {
    /// From the workspace's root.
    pub(super) file: String,
    /// Such as `replace && with || in Core::is_up`.
    change: String,
}

impl Mutant {
    /// As cargo-mutants writes it: file, line, column, change.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (file, rest) = line.split_once(':')?;
        let change = rest.splitn(3, ':').nth(2)?;
        Some(Self {
            file: file.to_owned(),
            change: change.trim().to_owned(),
        })
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.change)
    }
}

/// The mutants that may live. Each is a line, `FILE: CHANGE`, and below it, indented, the reason.
pub(super) struct Survivors(Vec<Mutant>);

impl Survivors {
    /// Reads the list.
    ///
    /// # Errors
    /// A line that is neither, or a mutant without a reason.
    pub(super) fn read(text: &str) -> Result<Self, Error> {
        let mut mutants: Vec<(Mutant, bool)> = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if line.trim().is_empty() {
                continue;
            }
            if line.starts_with(' ') {
                let last = mutants.last_mut();
                last.ok_or_else(|| Error::Other(format!("a reason without a mutant: {line}")))?
                    .1 = true;
                continue;
            }
            let parts = line.split_once(": ");
            let (file, change) = parts.ok_or_else(|| Error::Other(format!("no mutant: {line}")))?;
            let (file, change) = (file.to_owned(), change.trim().to_owned());
            mutants.push((Mutant { file, change }, false));
        }
        if let Some((mutant, _)) = mutants.iter().find(|(_, explained)| !explained) {
            return Err(Error::Other(format!("no reason for {mutant}")));
        }
        Ok(Self(
            mutants.into_iter().map(|(mutant, _)| mutant).collect(),
        ))
    }

    /// Whether there is a reason why a mutant may live.
    pub(super) fn explain(&self, mutant: &Mutant) -> bool {
        self.0.contains(mutant)
    }

    /// The files of the mutants.
    #[cfg(test)]
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|mutant| mutant.file.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_is_known_again_in_another_line() {
        let line = "a/src/b.rs:12:5: replace X::y -> Option<a::B> with None in X";
        let moved = line.replace("12:5", "20:9");
        let mutant = Mutant::parse(line).expect("a mutant");
        assert_eq!(Mutant::parse(&moved).as_ref(), Some(&mutant));
        let list = format!("# Comment\n\n{mutant}\n    It changes nothing.\n");
        assert!(Survivors::read(&list).expect("a list").explain(&mutant));
        assert_eq!(Mutant::parse("no mutant"), None);
    }

    #[test]
    fn every_mutant_that_may_live_has_a_reason() {
        for list in ["a.rs: change\n", "    reason\n", "nonsense\n    reason\n"] {
            assert!(Survivors::read(list).is_err(), "{list}");
        }
    }
}
