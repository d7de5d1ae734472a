// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether what a thing was made from is still the same, so that it need not be made again.

use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use crate::error::{Error, InFile};

/// A number that changes when anything of what was added does.
#[derive(Default)]
pub(crate) struct Fingerprint(DefaultHasher);

impl Fingerprint {
    pub(crate) fn add(&mut self, value: &(impl Hash + ?Sized)) {
        value.hash(&mut self.0);
    }

    /// A file, or that there is none. It is told by its length and its modification time, which need not be a later
    /// one: a package's files are as old as the package.
    pub(crate) fn add_file(&mut self, path: &Path) {
        let seen =
            fs::metadata(path).and_then(|metadata| Ok((metadata.len(), metadata.modified()?)));
        self.add(&(path, seen.ok()));
    }

    /// A file by its content, wherever it is.
    pub(crate) fn add_content(&mut self, path: &Path) -> Result<(), Error> {
        self.add(&fs::read(path).in_file(path)?);
        Ok(())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_comes_changes_or_goes_changes_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a");
        let now = || {
            let mut fingerprint = Fingerprint::default();
            fingerprint.add_file(&path);
            fingerprint.to_string()
        };
        let absent = now();
        fs::write(&path, "1").expect("written");
        let there = now();
        assert_ne!(absent, there);
        assert_eq!(there, now());
        fs::write(&path, "12").expect("written");
        assert_ne!(there, now());
        fs::remove_file(&path).expect("removed");
        assert_eq!(absent, now());
    }
}
