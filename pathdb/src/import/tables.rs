// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarding tables, one a switch, each with a head, a line for each LID that the switch does not drop, and a last
//! line. OpenSM's `opensm-lfts.dump`, whose last line has the highest LID again:
//!
//! ```text
//! Unicast lids [0-28] of switch Lid 2 guid 0x0000000000200000 ('Leaf0'):
//! 0x0001 001 # Channel Adapter portguid 0x0000000000100001: 'Host0'
//! 28 lids dumped
//! ```
//!
//! And what `ibroute`, `dump_fts` and `dump_lfts.sh` print, whose last line has the number of lines:
//!
//! ```text
//! Unicast lids [0x0-0x1c] of switch DR path slid 0; dlid 0; 0,1 guid 0x0000000000200000 (Leaf0):
//!   Lid  Out   Destination
//!        Port     Info
//! 0x0001 001 : (Channel Adapter portguid 0x0000000000100001: 'Host0')
//! 1 valid lids dumped
//! ```
//!
//! And what OpenSM's `opensm.fdbs` and ibdiagnet's `ibdiagnet2.fdbs` have, without a last line:
//!
//! ```text
//! dump_ucast_routes: Switch 0x0000000000200000
//! LID    : Port : Hops : Optimal
//! 0x0001 : 001  : 00   : yes
//! 0x0002 : UNREACHABLE
//! ```
//!
//! Descriptions are other people's, and may hold line breaks and what looks like a line of a table. So two routes of a
//! switch to one LID are no route, and two tables of a switch no table.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::Path;

use cm_msgs::{Guid, Lid};

use super::warnings::Bad;
use super::{Lost, Problem, ReadError, Warnings, lid, range, syntax};
use crate::fabric::{Fabric, NO_PORT, NodeId, NodeKind, Routing};
use crate::lid_range::LidRange;
use crate::lines::{Lines, Progress, Records, guid};

const HEAD: &str = "Unicast lids [";
/// The head of a table in `*.fdbs`, behind the name of the function that wrote it.
const FDBS_HEAD: &str = "ucast_routes: Switch ";
/// What ibdiagnet writes before the tables of a switch that has several: the first is that of packets by default.
const PLFT: &str = "PLFT_NUM:";
/// What the tools say in between, if their standard error was written to the same file.
const NOISE: [&str; 4] = ["ibwarn:", "ibroute:", "src/", "#"];

/// A description may have line breaks in it.
const RECORDS: Records = Records {
    begins: |line| {
        let line = line.trim_start();
        line.starts_with("0x") || is_head(line) || is_last(line) || line.starts_with(PLFT)
    },
    is_whole: |record| match record.trim_start().starts_with(HEAD) {
        true => record.ends_with("):"),
        false => match record.split_once(": '") {
            Some((_, name)) => name.ends_with('\'') || name.ends_with("')"),
            None => true,
        },
    },
};

/// Reads the tables of all switches.
pub(super) fn read(
    path: &Path,
    routing: Routing,
    progress: Progress<'_>,
    warnings: &mut Warnings,
) -> Result<Fabric, ReadError> {
    let mut tables = Tables {
        routing,
        open: Open::None,
        doubtful: HashSet::new(),
        begun: HashSet::new(),
        twice: HashSet::new(),
        heads_lost: 0,
        has_all: false,
    };
    let mut lines = Lines::open(path)?;
    let size = lines.size();
    lines.records(RECORDS, size, progress, |record, line| {
        if let Err(bad) = tables.take(record) {
            warnings.push(path, line, bad);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let (fabric, without) = tables.finish().map_err(|problem| lines.error(problem))?;
    for problem in without {
        warnings.push(path, 0, Bad::new(problem, Lost::Table));
    }
    Ok(fabric)
}

/// Whose LIDs the first table says they are: an entry for each, with the port's GUID.
pub(super) fn owners(path: &Path) -> Result<HashMap<Guid, LidRange>, ReadError> {
    let mut lids: HashMap<Guid, Vec<Lid>> = HashMap::new();
    let mut heads = 0;
    let mut lines = Lines::open(path)?;
    lines.records(RECORDS, 0, &mut |_, _, _| (), |record, _| {
        heads += usize::from(is_head(record.trim_start()));
        let entry = Entry::parse(record);
        if let Some((guid, lid)) = entry.and_then(|entry| Some((entry.owner?, entry.lid))) {
            lids.entry(guid).or_default().push(lid);
        }
        Ok(match heads {
            0 | 1 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        })
    })?;
    let range = |lids: Vec<Lid>| {
        let (first, last) = (*lids.iter().min()?, *lids.iter().max()?);
        range(first, last).filter(|range| usize::from(range.count()) == lids.len())
    };
    let known = lids
        .into_iter()
        .filter_map(|(guid, lids)| Some((guid, range(lids)?)));
    Ok(known.collect())
}

/// The tables read so far.
struct Tables {
    routing: Routing,
    open: Open,
    /// LIDs to which the table being read has two routes.
    doubtful: HashSet<Lid>,
    begun: HashSet<NodeId>,
    /// Switches that have two tables.
    twice: HashSet<NodeId>,
    /// Heads that could not be read: so many switches have no table.
    heads_lost: usize,
    /// Whether it is the dump of OpenSM, which has a table of every switch; of a switch that does not answer the tools
    /// have none.
    has_all: bool,
}

/// The table being read.
enum Open {
    /// None: before a head.
    None,
    /// That of nobody knows which switch.
    Unknown,
    Of {
        switch: NodeId,
        /// What its last line must say: the highest LID, or the number of entries.
        last: Last,
        entries: usize,
    },
}

/// The number in a table's last line.
#[derive(Clone, Copy)]
enum Last {
    HighestLid(usize),
    Entries,
    /// There is no last line.
    None,
}

impl Tables {
    fn take(&mut self, record: &str) -> Result<(), Bad> {
        let record = record.trim_start();
        if is_head(record) {
            return self.begin(record);
        }
        if NOISE.iter().any(|word| record.starts_with(word)) {
            return Ok(());
        }
        if let Some(number) = record.strip_prefix(PLFT) {
            if number.trim() != "0" {
                self.open = Open::Unknown;
            }
            return Ok(());
        }
        match &mut self.open {
            // Empty lines, headings, and what the tools say between tables.
            Open::None => Ok(()),
            Open::Unknown => {
                if is_last(record) {
                    self.open = Open::None;
                }
                Ok(())
            }
            Open::Of {
                switch, entries, ..
            } if record.starts_with("0x") => {
                *entries += 1;
                let switch = *switch;
                let wanted = || syntax("0xLID PORT # .. or 0xLID PORT : ..", record);
                let entry = Entry::parse(record).ok_or_else(|| Bad::new(wanted(), Lost::Route))?;
                self.entry(switch, entry)
            }
            Open::Of { .. } if is_last(record) => self.end(record),
            Open::Of { .. } if record.is_empty() || is_heading(record) => Ok(()),
            Open::Of { .. } => Err(Bad::new(
                syntax("a route or the table's last line", record),
                Lost::Route,
            )),
        }
    }

    fn begin(&mut self, record: &str) -> Result<(), Bad> {
        let cut = self.cut_short();
        self.open = Open::Unknown;
        self.doubtful.clear();
        let head = Head::parse(record).ok_or_else(|| {
            let wanted = "Unicast lids [0-..] of switch .. guid .. (NAME):, or Switch 0xGUID";
            Bad::new(syntax(wanted, record), Lost::Table)
        });
        let head = head.inspect_err(|_| self.heads_lost += 1)?;
        self.has_all |= matches!(head.last, Last::HighestLid(_));
        let Some(switch) = self.routing.find(head.switch) else {
            let problem = Problem::UnknownSwitch(head.switch);
            return Err(Bad::new(problem, Lost::Nothing));
        };
        if !self.begun.insert(switch) {
            self.twice.insert(switch);
            let problem = Problem::TableTwice(name(&self.routing, switch));
            return Err(Bad::new(problem, Lost::Table));
        }
        self.open = Open::Of {
            switch,
            last: head.last,
            entries: 0,
        };
        cut.map_or(Ok(()), |problem| Err(Bad::new(problem, Lost::Routes)))
    }

    /// The table being read has not ended.
    fn cut_short(&self) -> Option<Problem> {
        match self.open {
            Open::None
            | Open::Unknown
            | Open::Of {
                last: Last::None, ..
            } => None,
            Open::Of {
                switch, entries, ..
            } => Some(Problem::Truncated {
                switch: name(&self.routing, switch),
                found: entries,
            }),
        }
    }

    fn end(&mut self, record: &str) -> Result<(), Bad> {
        let cut = self.cut_short();
        let Open::Of { last, entries, .. } = std::mem::replace(&mut self.open, Open::None) else {
            return Ok(());
        };
        let number = record.split(' ').next().and_then(|text| text.parse().ok());
        let wanted = match last {
            Last::HighestLid(lid) => lid,
            Last::Entries | Last::None => entries,
        };
        match cut {
            Some(problem) if number != Some(wanted) => Err(Bad::new(problem, Lost::Routes)),
            _ => Ok(()),
        }
    }

    fn entry(&mut self, switch: NodeId, entry: Entry) -> Result<(), Bad> {
        let (lid, port) = match (entry.lid, entry.port) {
            (Lid(0), _) => return Err(Bad::new(Problem::LidZero, Lost::Nothing)),
            (_, None) => return Ok(()),
            (lid, Some(port)) => (lid, port),
        };
        let route = |problem| Bad::new(problem, Lost::Route);
        if let Some(here) = entry.owner {
            check_owner(self.routing.fabric(), lid, here).map_err(route)?;
        }
        let known = self.routing.fabric().route(switch, lid);
        if known.is_some_and(|known| known != port) || self.doubtful.contains(&lid) {
            self.doubtful.insert(lid);
            self.routing.unroute(switch, lid);
            return Err(route(Problem::RouteTwice {
                switch: name(&self.routing, switch),
                lid,
            }));
        }
        let routed = self.routing.route(switch, lid, port);
        routed.map_err(|error| route(error.into()))
    }

    /// After the last line: the fabric, and which switches have no table, where that is no error.
    fn finish(mut self) -> Result<(Fabric, Vec<Problem>), Problem> {
        if let Some(problem) = self.cut_short() {
            return Err(problem);
        }
        for switch in self.twice {
            self.routing.forget(switch);
        }
        let nodes = self.routing.fabric().nodes();
        let is_without = |id, kind: NodeKind| kind == NodeKind::Switch && !self.begun.contains(&id);
        let without = nodes.filter(|(id, node)| is_without(*id, node.kind));
        let mut without: Vec<Problem> = without
            .map(|(_, node)| Problem::NoTable(node.name.to_string()))
            .collect();
        if self.begun.is_empty() && self.heads_lost == 0
            || self.has_all && without.len() > self.heads_lost
        {
            let first = without.drain(..).next();
            return first.map_or_else(|| Ok((self.routing.finish(), Vec::new())), Err);
        }
        // Of as many switches the head could not be read, which is said of its line.
        without.truncate(without.len().saturating_sub(self.heads_lost));
        Ok((self.routing.finish(), without))
    }
}

fn name(routing: &Routing, switch: NodeId) -> String {
    routing.fabric().node(switch).name.to_string()
}

/// The switch that a table's head names, and what the last line must say.
struct Head {
    switch: Guid,
    last: Last,
}

impl Head {
    fn parse(line: &str) -> Option<Self> {
        if let Some((_, switch)) = line.split_once(FDBS_HEAD) {
            return Some(Self {
                switch: guid(switch.split_ascii_whitespace().next()?)?,
                last: Last::None,
            });
        }
        let rest = line.strip_prefix(HEAD)?;
        let (lids, rest) = rest.split_once("] of switch ")?;
        let (first, top) = lids.split_once('-')?;
        // OpenSM has decimals, the others hexadecimals.
        let last = match first.strip_prefix("0x") {
            Some(_) => Last::Entries,
            None => Last::HighestLid(top.parse().ok()?),
        };
        let (_, rest) = rest.split_once("guid ")?;
        let switch = guid(rest.split(' ').next()?)?;
        Some(Self { switch, last })
    }
}

fn is_head(line: &str) -> bool {
    let is_of_fdbs = |(function, _): (&str, &str)| !function.contains(char::is_whitespace);
    line.starts_with(HEAD) || line.split_once(FDBS_HEAD).is_some_and(is_of_fdbs)
}

fn is_last(record: &str) -> bool {
    record.ends_with(" lids dumped")
}

/// The lines with the names of columns.
fn is_heading(record: &str) -> bool {
    let first = record.split_ascii_whitespace().next();
    matches!(first, Some("Lid" | "LID" | "Port"))
}

/// One LID: what the switch does with it, and whose it is.
#[derive(Debug)]
struct Entry {
    lid: Lid,
    /// `None` if the switch drops it.
    port: Option<u8>,
    owner: Option<Guid>,
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        let (to, rest) = line.trim_start().split_once(char::is_whitespace)?;
        let rest = rest.trim_start();
        if let Some(columns) = rest.strip_prefix(':') {
            return Self::of_columns(lid(to)?, columns.trim());
        }
        let (port, comment) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let lid = lid(to).filter(|lid| lid.is_unicast() || lid.0 == 0)?;
        let port: u8 = port.parse().ok()?;
        let has_no_such_port = comment.contains("illegal port)") && !comment.contains(" portguid ");
        Some(Self {
            lid,
            port: (port != NO_PORT && !has_no_such_port).then_some(port),
            owner: owner(comment),
        })
    }
}

impl Entry {
    /// `PORT : HOPS : OPTIMAL` or `UNREACHABLE`. The number of hops must follow: a port that is cut short is another.
    fn of_columns(lid: Lid, columns: &str) -> Option<Self> {
        let port = match columns {
            "UNREACHABLE" => None,
            _ => Some(columns.split_once(':')?.0.trim().parse().ok()?),
        };
        Some(Self {
            lid: Some(lid).filter(|lid| lid.is_unicast())?,
            port: port.filter(|&port| port != NO_PORT),
            owner: None,
        })
    }
}

/// `.. portguid 0xGUID..`
fn owner(comment: &str) -> Option<Guid> {
    let (_, rest) = comment.split_once(" portguid ")?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric());
    guid(&rest[..end.unwrap_or(rest.len())])
}

/// Tells files of different sweeps, in which LIDs may have moved.
fn check_owner(fabric: &Fabric, lid: Lid, here: Guid) -> Result<(), Problem> {
    let owner = fabric
        .port_by_lid(lid)
        .and_then(|port| fabric.port(port).guid);
    match owner {
        Some(owner) if owner != here => Err(Problem::OtherOwner { lid, owner, here }),
        _ => Ok(()),
    }
}
