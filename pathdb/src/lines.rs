// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of a file, counted, so that whatever is wrong with one can be said with its place.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use cm_msgs::{Escaped, Guid};

/// How much of a line an error shows.
const SHOWN: usize = 60;

/// What is wrong with a file, and where.
#[derive(Debug, thiserror::Error)]
#[error("{path}:{line}: {problem}", path = path.display())]
pub struct ReadError<P: Error + 'static> {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1; 0 if it is the file itself.
    pub line: usize,
    /// What is wrong.
    #[source]
    pub problem: P,
}

/// Is told how much of a file has been read: its path, bytes read, bytes in all.
pub type Progress<'a> = &'a mut dyn FnMut(&Path, u64, u64);

/// A line may have so many bytes, or a file without any would be read into memory whole.
const LONGEST: u64 = 1 << 12;

/// Where single lines may be left out, those of more bytes than this show that it is no text at all.
const SKIPPED: u64 = 1 << 20;

fn too_long(most: u64) -> io::Error {
    let what = format!("a line has more than {most} bytes");
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// How many bytes are read from one word of progress to the next.
const STRIDE: u64 = 1 << 20;

/// What text editors put before the first line.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// How lines make records: a node's description may have line breaks in it.
#[derive(Clone, Copy)]
pub(crate) struct Records {
    /// Whether a line can only be the first of a record.
    pub(crate) begins: fn(&str) -> bool,
    /// Whether a record needs no further line.
    pub(crate) is_whole: fn(&str) -> bool,
}

impl Records {
    /// Each line is one.
    pub(crate) const LINES: Self = Self {
        begins: |_| true,
        is_whole: |_| true,
    };
}

/// A file being read.
pub(crate) struct Lines<R> {
    path: PathBuf,
    reader: R,
    line: usize,
    bytes: Vec<u8>,
}

impl Lines<BufReader<File>> {
    /// How large the file is, as far as can be told.
    pub(crate) fn size(&self) -> u64 {
        let metadata = self.reader.get_ref().metadata();
        metadata.map_or(0, |metadata| metadata.len())
    }

    pub(crate) fn open<P>(path: &Path) -> Result<Self, ReadError<P>>
    where
        P: Error + From<io::Error>,
    {
        match File::open(path) {
            Ok(file) => Ok(Self::new(path, BufReader::new(file))),
            Err(error) => Err(ReadError {
                path: path.to_path_buf(),
                line: 0,
                problem: error.into(),
            }),
        }
    }
}

impl<R: BufRead> Lines<R> {
    /// Lines of what is called `path` in errors.
    pub(crate) fn new(path: &Path, reader: R) -> Self {
        Self {
            path: path.to_path_buf(),
            reader,
            line: 0,
            bytes: Vec::new(),
        }
    }

    /// Calls `read` with every line.
    pub(crate) fn each<P>(
        &mut self,
        mut read: impl FnMut(&str) -> Result<(), P>,
    ) -> Result<(), ReadError<P>>
    where
        P: Error + From<io::Error>,
    {
        while let Some(ended) = self.read_line().map_err(|error| self.error(error.into()))? {
            if !ended {
                return Err(self.error(too_long(LONGEST).into()));
            }
            let line = String::from_utf8_lossy(&self.bytes);
            read(line.trim_end()).map_err(|problem| self.error(problem))?;
        }
        Ok(())
    }

    /// Calls `read` with every record and the number of its first line, with word of progress to `progress`; `size` is
    /// that of the file. What is beyond the most bytes of a line is left out, and so is a byte order mark. Ends early
    /// if `read` says so.
    pub(crate) fn records<P>(
        &mut self,
        records: Records,
        size: u64,
        progress: Progress<'_>,
        mut read: impl FnMut(&str, usize) -> Result<ControlFlow<()>, P>,
    ) -> Result<(), ReadError<P>>
    where
        P: Error + From<io::Error>,
    {
        let path = self.path.clone();
        let mut record = String::new();
        let (mut first, mut done, mut told) = (1, 0, 0);
        progress(&path, 0, size);
        while let Some(ended) = self.read_line().map_err(|error| self.error(error.into()))? {
            if !ended {
                self.skip().map_err(|error| self.error(error.into()))?;
            }
            done += self.bytes.len() as u64;
            if done - told >= STRIDE {
                told = done;
                progress(&path, done.min(size), size);
            }
            let line = String::from_utf8_lossy(&self.bytes);
            let line = line.trim_start_matches(BYTE_ORDER_MARK).trim_end();
            let is_too_long = record.len() + line.len() > LONGEST as usize;
            let ends = is_too_long || (records.is_whole)(&record) || (records.begins)(line);
            if !record.is_empty() && ends {
                let on = read(&record, first).map_err(|problem| self.error(problem))?;
                if on.is_break() {
                    return Ok(());
                }
                record.clear();
            }
            if record.is_empty() {
                first = self.line;
            } else {
                record.push('\n');
            }
            record.push_str(line);
        }
        if !record.is_empty() {
            let _ = read(&record, first).map_err(|problem| self.error(problem))?;
        }
        progress(&path, size, size);
        Ok(())
    }

    /// Reads a line; whether all of it fitted, or `None` at the end.
    fn read_line(&mut self) -> io::Result<Option<bool>> {
        self.bytes.clear();
        self.line += 1;
        let mut limited = self.reader.by_ref().take(LONGEST);
        let read = limited.read_until(b'\n', &mut self.bytes)?;
        let ended = self.bytes.ends_with(b"\n") || (read as u64) < LONGEST;
        Ok((read > 0).then_some(ended))
    }

    /// Leaves out the rest of a line.
    fn skip(&mut self) -> io::Result<()> {
        let skipped = self.reader.by_ref().take(SKIPPED).skip_until(b'\n')?;
        match skipped as u64 == SKIPPED {
            true => Err(too_long(SKIPPED)),
            false => Ok(()),
        }
    }

    /// An error of the line read last; after the last line, of the end of the file.
    pub(crate) fn error<P: Error>(&self, problem: P) -> ReadError<P> {
        ReadError {
            path: self.path.clone(),
            line: self.line,
            problem,
        }
    }
}

/// The beginning of a text, for errors.
pub(crate) fn shown(text: &str) -> String {
    let beginning: String = text.chars().take(SHOWN).collect();
    Escaped(&beginning).to_string()
}

/// A GUID in hexadecimal, with `0x` or without.
pub(crate) fn guid(text: &str) -> Option<Guid> {
    u64::from_str_radix(hexadecimal(text)?, 16).ok().map(Guid)
}

/// The digits of a hexadecimal number, with `0x` before them or without: nothing but digits, not even a sign.
pub(crate) fn hexadecimal(text: &str) -> Option<&str> {
    let prefix = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let digits = prefix.unwrap_or(text);
    digits
        .bytes()
        .all(|c| c.is_ascii_hexdigit())
        .then_some(digits)
}
