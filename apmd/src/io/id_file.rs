// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file by which connection IDs go on where they were when apmd was restarted: an ID that an operator still has in
//! a terminal must not name another program's connection.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::text_file;

/// Name of the file in the runtime directory.
const NAME: &str = "next-ids";

/// Numbers set aside with one write. After a crash up to this many are skipped.
const RESERVED: u32 = 64;

/// No such file is larger.
const SIZE_LIMIT: u64 = 1024;

/// The numbers that connection IDs get next. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct NextIds {
    /// Of the next library: what stands before the dot.
    pub(crate) client: u32,
    /// Of the next queue pair of the kernel module: what stands after `0.`.
    pub(crate) queue_pair: u32,
}

impl NextIds {
    fn both(number: u32) -> Self {
        Self {
            client: number.max(1),
            queue_pair: number.max(1),
        }
    }
}

/// The file, and up to which numbers it has been told.
#[derive(Debug)]
pub(crate) struct IdFile {
    path: PathBuf,
    /// What the file says: a daemon that starts now begins with these.
    reserved: NextIds,
}

impl IdFile {
    /// Reads the file in the runtime directory `directory`, and the numbers to begin with. Without a file, as after a
    /// boot, that is 1. If it cannot be read, numbers begin at the seconds since 1970, which were not reached before.
    pub(crate) fn open(directory: &Path, since_1970: Duration) -> (Self, NextIds) {
        let path = directory.join(NAME);
        let next = read(&path).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "cannot read the next connection IDs; numbers continue from the clock");
            NextIds::both(u32::try_from(since_1970.as_secs()).unwrap_or(1))
        });
        let reserved = next;
        (Self { path, reserved }, next)
    }

    /// Notes how far numbers have been given out. Writes the file when those set aside are used up.
    pub(crate) fn keep(&mut self, next: NextIds) {
        let is_covered =
            |next, reserved: u32| (1..=RESERVED).contains(&reserved.wrapping_sub(next));
        if is_covered(next.client, self.reserved.client)
            && is_covered(next.queue_pair, self.reserved.queue_pair)
        {
            return;
        }
        self.write(NextIds {
            client: next.client.saturating_add(RESERVED),
            queue_pair: next.queue_pair.saturating_add(RESERVED),
        });
    }

    /// No more numbers are given out: the next daemon skips none.
    pub(crate) fn end(&mut self, next: NextIds) {
        self.write(next);
    }

    fn write(&mut self, next: NextIds) {
        // Also if that fails: it is tried again with the next batch.
        self.reserved = next;
        if let Err(error) = write(&self.path, next) {
            tracing::warn!(path = %self.path.display(), %error, "cannot store the next connection IDs; a restart may give IDs again");
        }
    }
}

fn read(path: &Path) -> io::Result<NextIds> {
    let text = match text_file::read(path, SIZE_LIMIT) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(NextIds::both(1)),
        read => read?,
    };
    let next: NextIds = serde_json::from_str(&text)?;
    match next.client.min(next.queue_pair) {
        0 => Err(io::Error::new(ErrorKind::InvalidData, "a number is 0")),
        _ => Ok(next),
    }
}

/// A reader sees the old text or the new one, never a part.
fn write(path: &Path, next: NextIds) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(&next)?)?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Duration = Duration::from_secs(1_800_000_000);

    /// A directory that goes with the value.
    struct TempDir(PathBuf);

    impl TempDir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("apmd-{name}-{}", std::process::id()));
            fs::create_dir(&path).expect("a temporary directory");
            Self(path)
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn open(directory: &TempDir) -> (IdFile, NextIds) {
        IdFile::open(&directory.0, CLOCK)
    }

    fn next(client: u32, queue_pair: u32) -> NextIds {
        NextIds { client, queue_pair }
    }

    #[test]
    fn numbers_begin_at_1_and_go_on_after_an_end_without_a_gap() {
        let directory = TempDir::new("ids");
        let (mut file, first) = open(&directory);
        assert_eq!(first, next(1, 1));
        file.keep(next(1, 1));
        file.keep(next(3, 1));
        file.end(next(3, 1));
        assert_eq!(open(&directory).1, next(3, 1));
    }

    #[test]
    fn a_crash_skips_numbers_and_gives_none_again() {
        let directory = TempDir::new("crash");
        let (mut file, _) = open(&directory);
        let mut given = next(1, 1);
        for step in 0..3 * RESERVED {
            file.keep(given);
            let (_, after_crash) = open(&directory);
            assert!(after_crash.client > given.client, "step {step}");
            assert!(after_crash.client <= given.client + RESERVED);
            assert!(after_crash.queue_pair > given.queue_pair);
            given.client += 1;
            given.queue_pair += u32::from(step % 7 == 0) * 100;
        }
    }

    #[test]
    fn a_number_that_has_wrapped_is_stored() {
        let directory = TempDir::new("wrapped");
        let (mut file, _) = open(&directory);
        file.keep(next(u32::MAX - 1, 1));
        file.keep(next(1, 1));
        let (_, after) = open(&directory);
        assert_eq!(after, next(1 + RESERVED, 1 + RESERVED));
    }

    #[test]
    fn a_file_that_cannot_be_read_makes_numbers_go_on_from_the_clock() {
        for text in [
            "",
            "7",
            "{\"client\":0,\"queue_pair\":1}",
            "{\"client\":-1}",
        ] {
            let directory = TempDir::new("garbage");
            fs::write(directory.0.join(NAME), text).expect("writable");
            let (mut file, first) = open(&directory);
            assert_eq!(first, NextIds::both(1_800_000_000), "{text}");
            file.keep(first);
            assert!(open(&directory).1.client > first.client, "it is replaced");
        }
    }

    #[test]
    fn a_directory_that_cannot_be_written_to_is_no_failure() {
        let nowhere = Path::new("/nonexistent/apmd");
        let (mut file, first) = IdFile::open(nowhere, CLOCK);
        assert_eq!(first, next(1, 1));
        file.keep(first);
        file.end(first);
    }
}
