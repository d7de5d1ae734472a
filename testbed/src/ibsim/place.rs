// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory and a socket name for one fabric.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::failure::Failure;

/// What the directories' names begin with; the process's number and one of this process's follow.
const PREFIX: &str = "apm-ibsim";

/// A temporary directory, removed with all that is in it when dropped.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    keep: bool,
}

impl Place {
    /// Makes a directory. Those of processes that were killed are removed.
    ///
    /// # Errors
    /// [`Failure::File`].
    pub fn new() -> Result<Self, Failure> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let above = std::env::temp_dir();
        remove_abandoned(&above);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = above.join(format!("{PREFIX}-{}-{number}", std::process::id()));
        fs::create_dir(&path).map_err(|source| in_file(&path, source))?;
        Ok(Self { path, keep: false })
    }

    /// Keeps the directory, for people who want to look.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name for the simulator's sockets that no other has.
    pub fn socket_name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Writes a file there.
    ///
    /// # Errors
    /// [`Failure::File`].
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.path.join(name);
        fs::write(&path, text).map_err(|source| in_file(&path, source))?;
        Ok(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.keep {
            // What cannot be removed now is when the next one is made.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// An I/O error with its file.
pub(super) fn in_file(path: &Path, source: io::Error) -> Failure {
    Failure::File {
        path: path.display().to_string(),
        source,
    }
}

fn remove_abandoned(above: &Path) {
    let entries = fs::read_dir(above).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let process = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.strip_prefix('-'))
            .and_then(|rest| rest.split_once('-')?.0.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_differ_and_go() {
        let (a, b) = (Place::new().expect("made"), Place::new().expect("made"));
        assert_ne!(a.socket_name(), b.socket_name());
        a.write("x", "y").expect("written");
        let path = a.path().to_path_buf();
        drop(a);
        assert!(!path.exists() && b.path().exists());
    }

    #[test]
    fn what_the_killed_left_is_removed() {
        // Process numbers end far below this one.
        let left = std::env::temp_dir().join(format!("{PREFIX}-4294967295-0"));
        fs::create_dir_all(left.join("sys-1")).expect("made");
        let _place = Place::new().expect("made");
        assert!(!left.exists());
    }
}
