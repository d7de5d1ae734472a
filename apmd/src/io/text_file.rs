// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text files that others wrote: regular files only, and no larger than they have reason to be.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Reads a file of at most `limit` bytes.
///
/// # Errors
/// There is none, it is larger, not UTF-8 or no regular file, or cannot be read.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<String> {
    String::from_utf8(bytes(path, limit)?).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|&&byte| byte == b'\n').count();
        io::Error::new(ErrorKind::InvalidData, format!("line {line} is not UTF-8"))
    })
}

/// The same of a file in any encoding that has ASCII in it, as other programs read theirs: what is not UTF-8 becomes
/// replacement characters.
///
/// # Errors
/// As [`read`], but for the encoding.
pub(crate) fn read_any(path: &Path, limit: u64) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&bytes(path, limit)?).into_owned())
}

fn bytes(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // Whoever opens a FIFO otherwise waits for somebody who writes.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "no regular file"));
    }
    let mut bytes = Vec::new();
    if file.take(limit + 1).read_to_end(&mut bytes)? as u64 > limit {
        let what = format!("larger than {} KiB", limit / 1024);
        return Err(io::Error::new(ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_endless_or_no_file_is_refused() {
        let kind = |path: &str| read(Path::new(path), 1024).map_err(|error| error.kind());
        assert_eq!(kind("/dev/zero"), Err(ErrorKind::InvalidInput));
        assert_eq!(kind("/"), Err(ErrorKind::InvalidInput));
        assert_eq!(kind("/nonexistent"), Err(ErrorKind::NotFound));
        let path = std::env::temp_dir().join(format!("apmd-text-{}", std::process::id()));
        let kind = |len: usize| {
            std::fs::write(&path, "a".repeat(len)).unwrap();
            let read = read(&path, 1024);
            read.map(|text| text.len()).map_err(|error| error.kind())
        };
        assert_eq!(
            (kind(1024), kind(1025)),
            (Ok(1024), Err(ErrorKind::FileTooLarge))
        );
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn another_encoding_is_named_by_its_line_or_read() {
        let path = std::env::temp_dir().join(format!("apmd-latin1-{}", std::process::id()));
        std::fs::write(&path, b"# a\n# Erl\xe4uterung\nname value\n").unwrap();
        let error = read(&path, 1024).unwrap_err();
        assert_eq!(error.to_string(), "line 2 is not UTF-8");
        let text = read_any(&path, 1024).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, "# a\n# Erl\u{fffd}uterung\nname value\n");
    }
}
