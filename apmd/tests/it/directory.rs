// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of one test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that goes with the value.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("apmd-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a temporary directory");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it, as text.
    pub(crate) fn file(&self, name: &str) -> String {
        let path = self.0.join(name);
        path.to_str().expect("a temporary path is text").to_owned()
    }

    /// Copies a program into it: its path. By another process, since a file that this one had open for
    /// writing could stay so in a child of another test's, and nobody can run it then (ETXTBSY).
    pub(crate) fn copy(&self, program: &str, name: &str) -> String {
        let path = self.file(name);
        let copied = Command::new("cp").arg(program).arg(&path).status();
        assert!(copied.expect("cp starts").success());
        path
    }

    /// Writes a file in it: its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).expect("a temporary file");
        self.file(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
