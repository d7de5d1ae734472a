// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file: `ADDRESS GID [QPN [FLAGS]]` a line, in sections `[pkey = HEX]` or `[]`, the default
//! one; `#` begins a comment where it is first in its line. Numbers with `0x` are hexadecimal.
//!
//! ibssa reads numbers as C does, so that a leading 0 means octal; nobody writes that on purpose,
//! and it is refused. Where ibacm and ibssa skip a line with a message, all of the file is refused.

use std::fmt;
use std::io::{self, BufRead};
use std::path::Path;

use cm_msgs::{Gid, PKey, Qpn};

use super::{AddressError, Addresses, Conflict, Entry, Remote};
use crate::lines::{Lines, shown};

/// What is wrong with a file of addresses, and where.
pub type ReadError = crate::ReadError<Problem>;

/// What is wrong with a line or the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Problem {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("want ADDRESS GID [QPN [FLAGS]], found '{0}'")]
    Fields(String),
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("'{0}' is not the gid of a port")]
    Gid(String),
    #[error("'{0}' is no queue pair number: want at most 0xffffff, hexadecimal with 0x")]
    Qpn(String),
    #[error("'{0}' are no flags: want 0x80 (rc), 0x40 (uc), 0xc0 or 0")]
    Flags(String),
    #[error("want [pkey = HEX] or [], found '{0}'")]
    Section(String),
    #[error("'{0}' is no p_key: want 0x1 to 0xffff, not 0x8000")]
    PKey(String),
    #[error(transparent)]
    Conflict(#[from] Conflict),
}

impl Addresses {
    /// Reads a file: all of it, or an error.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Self::of_lines(Lines::open(path)?)
    }

    /// Reads what is called `path` in errors.
    pub fn read_from(path: &Path, reader: impl BufRead) -> Result<Self, ReadError> {
        Self::of_lines(Lines::new(path, reader))
    }

    fn of_lines(mut lines: Lines<impl BufRead>) -> Result<Self, ReadError> {
        let mut addresses = Self::default();
        let mut pkey = PKey::DEFAULT_FULL;
        lines.each(|line| {
            let line = line.trim_start();
            if line.is_empty() || line.starts_with('#') {
                return Ok(());
            }
            if line.starts_with('[') {
                pkey = section(line)?;
                return Ok(());
            }
            Ok::<_, Problem>(addresses.insert(entry(line, pkey)?)?)
        })?;
        Ok(addresses)
    }
}

fn section(line: &str) -> Result<PKey, Problem> {
    let wanted = || Problem::Section(shown(line));
    let inner = line
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .ok_or_else(wanted)?
        .trim();
    if inner.is_empty() {
        return Ok(PKey::DEFAULT_FULL);
    }
    let (key, value) = inner.split_once('=').ok_or_else(wanted)?;
    if key.trim_end() != "pkey" {
        return Err(wanted());
    }
    let value = value.trim_start();
    let digits = hexadecimal(value).unwrap_or(value);
    number(digits, 16)
        .and_then(|number| u16::try_from(number).ok())
        .map(PKey)
        .filter(|pkey| pkey.partition() != 0)
        .ok_or_else(|| Problem::PKey(shown(value)))
}

fn entry(line: &str, pkey: PKey) -> Result<Entry, Problem> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (address, gid, remote) = match fields[..] {
        [address, gid] => (address, gid, None),
        [address, gid, qpn] => (address, gid, Some((qpn, None))),
        [address, gid, qpn, flags] => (address, gid, Some((qpn, Some(flags)))),
        _ => return Err(Problem::Fields(shown(line))),
    };
    Ok(Entry {
        address: address.parse()?,
        gid: port_gid(gid).ok_or_else(|| Problem::Gid(shown(gid)))?,
        pkey,
        remote: remote
            .map(|(qpn, flags)| queue_pair(qpn, flags))
            .transpose()?,
    })
}

/// Only unicast GIDs are a port's.
fn port_gid(text: &str) -> Option<Gid> {
    let gid: Gid = text.parse().ok()?;
    (gid.0[0] != 0xff && gid.0 != [0; 16]).then_some(gid)
}

fn queue_pair(qpn: &str, flags: Option<&str>) -> Result<Remote, Problem> {
    let of_qpn = c_number(qpn).and_then(|number| Remote::new(Qpn(number), Remote::RC));
    let remote = of_qpn.ok_or_else(|| Problem::Qpn(shown(qpn)))?;
    let Some(text) = flags else {
        return Ok(remote);
    };
    c_number(text)
        .and_then(|number| u8::try_from(number).ok())
        .and_then(|flags| Remote::new(remote.qpn(), flags))
        .ok_or_else(|| Problem::Flags(shown(text)))
}

/// Hexadecimal with `0x`, else decimal.
fn c_number(text: &str) -> Option<u32> {
    match hexadecimal(text) {
        Some(digits) => number(digits, 16),
        None if text.len() > 1 && text.starts_with('0') => None,
        None => number(text, 10),
    }
}

fn hexadecimal(text: &str) -> Option<&str> {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
}

/// Digits only: Rust alone would take a sign.
fn number(digits: &str, radix: u32) -> Option<u32> {
    let is_number = digits.chars().all(|c| c.is_digit(radix));
    is_number.then(|| u32::from_str_radix(digits, radix).ok())?
}

/// As a file that is read as the same.
impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut section = PKey::DEFAULT_FULL;
        for entry in self.iter() {
            if entry.pkey != section {
                section = entry.pkey;
                match section {
                    PKey::DEFAULT_FULL => writeln!(f, "[]")?,
                    pkey => writeln!(f, "[pkey = {pkey}]")?,
                }
            }
            write!(f, "{} {}", entry.address, entry.gid)?;
            if let Some(remote) = entry.remote {
                write!(f, " {} {:#04x}", remote.qpn(), remote.flags())?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
