// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of a file, counted, so that whatever is wrong with one can be said with its place.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
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

/// How many bytes are read from one word of progress to the next.
const STRIDE: u64 = 1 << 20;

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

    /// Calls `read` with every line. Node descriptions may be in any encoding.
    pub(crate) fn each<P>(
        &mut self,
        mut read: impl FnMut(&str) -> Result<(), P>,
    ) -> Result<(), ReadError<P>>
    where
        P: Error + From<io::Error>,
    {
        loop {
            self.bytes.clear();
            self.line += 1;
            let mut limited = self.reader.by_ref().take(LONGEST);
            match limited.read_until(b'\n', &mut self.bytes) {
                Ok(0) => return Ok(()),
                Ok(read) if read as u64 == LONGEST && !self.bytes.ends_with(b"\n") => {
                    let what = format!("a line has more than {LONGEST} bytes");
                    let error = io::Error::new(io::ErrorKind::InvalidData, what);
                    return Err(self.error(error.into()));
                }
                Ok(_) => {}
                Err(error) => return Err(self.error(error.into())),
            }
            let line = String::from_utf8_lossy(&self.bytes);
            read(line.trim_end()).map_err(|problem| self.error(problem))?;
        }
    }

    /// The same, with word of progress to `progress`; `size` is that of the file.
    pub(crate) fn each_of<P>(
        &mut self,
        size: u64,
        progress: Progress<'_>,
        mut read: impl FnMut(&str) -> Result<(), P>,
    ) -> Result<(), ReadError<P>>
    where
        P: Error + From<io::Error>,
    {
        let (path, mut done, mut told) = (self.path.clone(), 0, 0);
        progress(&path, 0, size);
        self.each(|line| {
            done += line.len() as u64 + 1;
            if done - told >= STRIDE {
                told = done;
                progress(&path, done.min(size), size);
            }
            read(line)
        })?;
        progress(&path, size, size);
        Ok(())
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
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).ok().map(Guid)
}
