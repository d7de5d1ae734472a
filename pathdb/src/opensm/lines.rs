// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of a file, counted, so that whatever is wrong with one can be said with its place.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::{Problem, ReadError};
use crate::ident::Guid;

/// How much of a line an error shows.
const SHOWN: usize = 60;

/// A file being read.
pub(super) struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    line: usize,
    bytes: Vec<u8>,
}

impl Lines {
    pub(super) fn open(path: &Path) -> Result<Self, ReadError> {
        let file = File::open(path).map_err(|error| ReadError {
            path: path.to_path_buf(),
            line: 0,
            problem: Problem::Io(error),
        })?;
        Ok(Self {
            path: path.to_path_buf(),
            reader: BufReader::new(file),
            line: 0,
            bytes: Vec::new(),
        })
    }

    /// Calls `read` with every line. Node descriptions may be in any encoding.
    pub(super) fn each(
        &mut self,
        mut read: impl FnMut(&str) -> Result<(), Problem>,
    ) -> Result<(), ReadError> {
        loop {
            self.bytes.clear();
            self.line += 1;
            match self.reader.read_until(b'\n', &mut self.bytes) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(self.error(Problem::Io(error))),
            }
            let line = String::from_utf8_lossy(&self.bytes);
            read(line.trim_end()).map_err(|problem| self.error(problem))?;
        }
    }

    /// An error of the line read last; after the last line, of the end of the file.
    pub(super) fn error(&self, problem: Problem) -> ReadError {
        ReadError {
            path: self.path.clone(),
            line: self.line,
            problem,
        }
    }
}

/// The line is not in the file's format.
pub(super) fn syntax(wanted: &'static str, line: &str) -> Problem {
    Problem::Syntax {
        wanted,
        found: line.chars().take(SHOWN).collect(),
    }
}

/// A GUID in hexadecimal, with `0x` or without.
pub(super) fn guid(text: &str) -> Option<Guid> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).ok().map(Guid)
}

/// A LID in hexadecimal, with `0x` or without; any 16 bits.
pub(super) fn lid(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u16::from_str_radix(digits, 16).ok()
}
