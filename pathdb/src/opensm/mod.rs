// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a fabric from the files that OpenSM writes: `opensm-subnet.lst` (every link from both
//! its ends), `opensm-lfts.dump` (forwarding tables; OpenSM writes it when its log level has the
//! routing bit, `-D 0x43`), both in its `dump_files_dir`, and `guid2lid` (LIDs by port GUID) in its
//! cache directory.
//!
//! They say nothing about MTUs and partitions, so those are not known of such a fabric; nor about
//! service levels, which are not 0 under OpenSM's routing engines lash and dfsssp. They must
//! be of one sweep: what one says and another denies is an error, and so is what is missing.

mod guid2lid;
mod link;
mod subnet;
mod tables;

use std::io;
use std::path::{Path, PathBuf};

use cm_msgs::{Guid, Lid};

use crate::fabric::{BuildError, Fabric};
use crate::lines::{Progress, shown};

/// Where OpenSM's files are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    /// `opensm-subnet.lst`.
    pub subnet: PathBuf,
    /// `opensm-lfts.dump`.
    pub tables: PathBuf,
    /// `guid2lid`.
    pub guid2lid: PathBuf,
}

impl Files {
    /// All three, by OpenSM's names, in one directory.
    pub fn in_dir(dir: &Path) -> Self {
        Self {
            subnet: dir.join("opensm-subnet.lst"),
            tables: dir.join("opensm-lfts.dump"),
            guid2lid: dir.join("guid2lid"),
        }
    }

    /// Reads them.
    pub fn read(&self) -> Result<Fabric, ReadError> {
        self.read_with(&mut |_, _, _| ())
    }

    /// Reads them; `progress` is told of the two that may be large.
    pub fn read_with(&self, progress: Progress<'_>) -> Result<Fabric, ReadError> {
        let lids = guid2lid::read(&self.guid2lid)?;
        let builder = subnet::read(&self.subnet, &lids, progress)?;
        tables::read(&self.tables, builder.routing(), progress)
    }
}

/// What is wrong with one of OpenSM's files, and where.
pub type ReadError = crate::ReadError<Problem>;

/// What is wrong with a line or a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Problem {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("want {wanted}, found '{found}'")]
    Syntax { wanted: &'static str, found: String },
    #[error("{0}")]
    Contradiction(#[from] BuildError),
    #[error("no port can have lids {first} to {last}: want a power of two of them, aligned")]
    Lids { first: Lid, last: Lid },
    #[error("guid {0} has two lines")]
    GuidTwice(Guid),
    #[error("port guid {0} is not in guid2lid; are the files of one sweep?")]
    NoLids(Guid),
    #[error(
        "port guid {guid} has lid {here} here and {there} in guid2lid; are the files of one sweep?"
    )]
    OtherLid { guid: Guid, here: Lid, there: Lid },
    #[error("node guid {0} is described twice, and differently")]
    NodeDiffers(Guid),
    #[error("switch guid {0} is not in the list of links; are the files of one sweep?")]
    UnknownSwitch(Guid),
    #[error("'{0}' has two tables")]
    TableTwice(String),
    #[error("lid {lid} belongs to port guid {owner}, not {here}; are the files of one sweep?")]
    OtherOwner { lid: Lid, owner: Guid, here: Guid },
    #[error("the table of '{switch}' is cut short or garbled after {found} entries")]
    Truncated { switch: String, found: usize },
    #[error("no table of '{0}': the file is cut short or of another sweep")]
    NoTable(String),
    #[error("no links")]
    Empty,
}

/// The line is not in the file's format.
fn syntax(wanted: &'static str, line: &str) -> Problem {
    Problem::Syntax {
        wanted,
        found: shown(line),
    }
}

/// A LID in hexadecimal, with `0x` or without; any 16 bits.
fn lid(text: &str) -> Option<Lid> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u16::from_str_radix(digits, 16).ok().map(Lid)
}
