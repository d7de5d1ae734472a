// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fabric as one compact file.
//!
//! Eight bytes of magic, the version of the format, then one zstd frame with zstd's checksum of its
//! content. All numbers are little-endian. In the frame, in this order:
//!
//! | what | bytes |
//! |---|---|
//! | epoch | 8 |
//! | service level and packet life time of all paths, 255 for what is not known | 1, 1 |
//! | number of nodes | 4 |
//! | each: kind (0 adapter, 1 switch), ports, GUID, system GUID, length of name, name | 1, 1, 8, 8, 2, n |
//! | number of P_Key tables (the first is the one not known) | 2 |
//! | each: number of keys, keys | 2, 2 n |
//! | each port of each node, from port 0: GUID or 0, base LID or 0, LMC, P_Key table | 8, 2, 1, 2 |
//! | number of links | 4 |
//! | each: a port, its peer, code of the MTU or 0, code of the rate or 0, up (0, 1) | 4, 4, 1, 1, 1 |
//! | number of SL-to-VL tables, tables | 2, 8 n |
//! | number of nodes with such | 4 |
//! | each: node, form, numbers of tables from 1, 0 for one not known: of form 0 one for all pairs of its ports, of form 1 for each port in each port out, from 0 | 4, 1, 2 n |
//! | number of LIDs in the forwarding tables, from 0 | 4 |
//! | for each LID, each switch's port, 255 for none | n |
//!
//! Reading builds the fabric anew with all the checks of [`Builder`](crate::Builder).

mod decode;
mod encode;
mod file;

pub use decode::read;
pub use encode::write;
pub use file::{FileError, load, save};

use std::io;

use crate::fabric::BuildError;

const MAGIC: [u8; 8] = *b"pathdb\r\n";

/// Stands for a term of paths that is not known.
const NOT_KNOWN: u8 = 0xff;

/// Forms of a node's SL-to-VL tables.
const SAME: u8 = 0;
const EACH: u8 = 1;

/// The version of the format that is written, and the only one that is read.
pub const VERSION: u32 = 3;

/// Why something is not read as a snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum SnapshotError {
    #[error("not a snapshot of a fabric")]
    NotASnapshot,
    #[error("snapshot of version {0}, want {VERSION}; import the fabric again")]
    Version(u32),
    #[error("broken snapshot: {0}")]
    Broken(#[from] io::Error),
    #[error("broken snapshot: {what} cannot be {value}")]
    Field { what: &'static str, value: u64 },
    #[error("broken snapshot: {0}")]
    Contradiction(#[from] BuildError),
    #[error("broken snapshot: longer than it says")]
    TooLong,
}
