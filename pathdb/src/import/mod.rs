// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a fabric from the files that people have of it:
//!
//! - the links, from OpenSM's `opensm-subnet.lst` (in its `dump_files_dir`, or UFM's log directory) or from what
//!   `ibnetdiscover` prints, with `-p` or without;
//! - the forwarding tables, from OpenSM's `opensm-lfts.dump` or `opensm.fdbs` (written if its log level has the routing
//!   bit, `-D 0x43`) or from what `dump_fts`, `dump_lfts.sh` or `ibroute` print;
//! - how many LIDs a port has, from OpenSM's `guid2lid` in its cache directory, from ibnetdiscover, or else from whose
//!   LIDs the forwarding tables say they are.
//!
//! The first two, in the same formats, are also what ibdiagnet writes: `ibdiagnet2.lst` and `ibdiagnet2.fdbs`.
//!
//! They say nothing about MTUs and partitions, so those are not known of such a fabric; nor about service levels, which
//! are not 0 under OpenSM's routing engines lash and dfsssp. A line that cannot be read, or that contradicts what is
//! known by then, costs a [`Warning`] and what it says, not the file. A file that ends too early is an error: it is
//! being written, or was not copied whole.

mod collected;
mod guid2lid;
mod ibnetdiscover;
mod opensm_link;
mod opensm_list;
mod port_report;
mod tables;
mod warnings;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use cm_msgs::{Guid, Lid};

pub use self::warnings::{Lost, Warning, Warnings};

use crate::fabric::{BuildError, Fabric};
use crate::lid_range::LidRange;
use crate::lines::{Progress, hexadecimal, shown};

/// Names of files with links and tables, OpenSM's first; ibdiagnet's are of one run.
const OPENSM_LIST: &str = "opensm-subnet.lst";
const OPENSM_TABLES: [&str; 2] = ["opensm-lfts.dump", "opensm.fdbs"];
const IBDIAGNET: [&str; 2] = ["ibdiagnet2.lst", "ibdiagnet2.fdbs"];
const GUID2LID: &str = "guid2lid";

/// Where nodes and links are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Links {
    /// OpenSM's `opensm-subnet.lst`.
    OpenSm(PathBuf),
    /// What `ibnetdiscover` prints, with `-p` or without.
    IbNetDiscover(PathBuf),
}

/// Where the files are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    /// Nodes and links.
    pub links: Links,
    /// Forwarding tables. Without them no path is known.
    pub tables: Option<PathBuf>,
    /// OpenSM's `guid2lid`.
    pub guid2lid: Option<PathBuf>,
}

/// What was read.
#[derive(Debug)]
pub struct Imported {
    /// The fabric.
    pub fabric: Fabric,
    /// What was left out of it, and what had to be chosen.
    pub warnings: Warnings,
}

impl Imported {
    /// The fabric if there is no warning, or else the first of them.
    pub fn whole(self) -> Result<Fabric, Box<Warning>> {
        match self.warnings.into_first() {
            None => Ok(self.fabric),
            Some(warning) => Err(warning.into()),
        }
    }
}

impl Files {
    /// By OpenSM's names in one directory, or where there are no such files by ibdiagnet's; `guid2lid` if it is there.
    pub fn in_dir(dir: &Path) -> Self {
        let existing = |name: &str| Some(dir.join(name)).filter(|path| path.exists());
        let [list, fdbs] = IBDIAGNET;
        let by_ibdiagnet = match existing(OPENSM_LIST) {
            Some(_) => None,
            None => existing(list),
        };
        let tables = match by_ibdiagnet {
            Some(_) => dir.join(fdbs),
            None => OPENSM_TABLES
                .into_iter()
                .find_map(existing)
                .unwrap_or_else(|| dir.join(OPENSM_TABLES[0])),
        };
        Self {
            links: Links::OpenSm(by_ibdiagnet.unwrap_or_else(|| dir.join(OPENSM_LIST))),
            tables: Some(tables),
            guid2lid: existing(GUID2LID),
        }
    }

    /// Reads them.
    pub fn read(&self) -> Result<Imported, ReadError> {
        self.read_with(&mut |_, _, _| ())
    }

    /// Reads them; `progress` is told of those that may be large.
    pub fn read_with(&self, progress: Progress<'_>) -> Result<Imported, ReadError> {
        if let Some(missing) = self.tables.as_ref().filter(|path| !path.exists()) {
            return Err(ReadError {
                path: missing.clone(),
                line: 0,
                problem: Problem::NoTables,
            });
        }
        let mut warnings = Warnings::default();
        let ranges = self.ranges(&mut warnings)?;
        let collected = match &self.links {
            Links::OpenSm(path) => opensm_list::read(path, progress, &mut warnings)?,
            Links::IbNetDiscover(path) => ibnetdiscover::read(path, progress, &mut warnings)?,
        };
        let path = match &self.links {
            Links::OpenSm(path) | Links::IbNetDiscover(path) => path,
        };
        let routing = collected.build(path, &ranges, &mut warnings)?.routing();
        let fabric = match &self.tables {
            Some(path) => tables::read(path, routing, progress, &mut warnings)?,
            None => routing.finish(),
        };
        Ok(Imported { fabric, warnings })
    }

    /// The LIDs of ports, as far as a file beside the links tells them.
    fn ranges(&self, warnings: &mut Warnings) -> Result<Ranges, ReadError> {
        match (&self.guid2lid, &self.tables) {
            (Some(path), _) => Ok(Ranges {
                by_guid: guid2lid::read(path, warnings)?,
                of_all: true,
            }),
            (None, Some(path)) => Ok(Ranges {
                by_guid: tables::owners(path)?,
                of_all: false,
            }),
            (None, None) => Ok(Ranges::default()),
        }
    }
}

/// The LIDs of ports by their GUID.
#[derive(Default, Debug)]
struct Ranges {
    by_guid: HashMap<Guid, LidRange>,
    /// Whether each port that has a LID should be in it. One switch's table names only what that switch reaches.
    of_all: bool,
}

/// What is wrong with a file of a fabric, and where.
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
    #[error("lid 0 is no port's")]
    LidZero,
    #[error("guid {0} has two lines")]
    GuidTwice(Guid),
    #[error("port guid {0} is not in guid2lid; are the files of one sweep?")]
    NoLids(Guid),
    #[error(
        "port guid {guid} has lid {here} here and {there} in the other file; are the files of one sweep?"
    )]
    OtherLid { guid: Guid, here: Lid, there: Lid },
    #[error("node guid {0} is described twice, and differently")]
    NodeDiffers(Guid),
    #[error("node guid {0} has links and no description of its own")]
    NotDescribed(Guid),
    #[error("the ends of this link show different {0}")]
    EndsDiffer(&'static str),
    #[error("switch guid {0} is not in the list of links; are the files of one sweep?")]
    UnknownSwitch(Guid),
    #[error("'{0}' has two tables")]
    TableTwice(String),
    #[error("'{switch}' has two routes to lid {lid}")]
    RouteTwice { switch: String, lid: Lid },
    #[error("lid {lid} belongs to port guid {owner}, not {here}; are the files of one sweep?")]
    OtherOwner { lid: Lid, owner: Guid, here: Guid },
    #[error("the table of '{switch}' ends after {found} entries without its last line")]
    Truncated { switch: String, found: usize },
    #[error("no table of '{0}': the file is cut short or of another sweep")]
    NoTable(String),
    #[error("which ports belong to one device is not told by ibnetdiscover -p")]
    NoDevices,
    #[error("no links")]
    Empty,
    #[error(
        "No such file: OpenSM writes it if its log level has the routing bit (opensm -D 0x43); or take what dump_fts prints for the tables"
    )]
    NoTables,
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
    u16::from_str_radix(hexadecimal(text)?, 16).ok().map(Lid)
}

/// A number of ports or of a port in hexadecimal, with `0x` or without.
fn port_number(text: &str) -> Option<u8> {
    u8::from_str_radix(hexadecimal(text)?, 16).ok()
}

/// The LIDs that a number of them from the first on are, if a port can have them.
fn range(first: Lid, last: Lid) -> Option<LidRange> {
    let count = last.0.checked_sub(first.0)?.checked_add(1)?;
    let lmc = count.is_power_of_two().then(|| count.trailing_zeros())?;
    LidRange::new(first, lmc as u8)
}
