// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a live fabric from subnet administration, table by table.
//!
//! Every request asks for a part of which the answer is small enough to be asked for again: the
//! kernel's timeout of a request covers the whole transfer of its answer (`mad.c`,
//! `ib_mad_complete_recv`; one lost segment too many costs all of it), OpenSM builds an answer in
//! one piece of memory while it holds its lock, and umad hands it over in one piece. At 40,960
//! hosts all forwarding tables are 180 MB, one switch's 50 kB; so those are asked for switch by
//! switch, and PortInfo port number by port number, a few at a time. The other tables have a
//! record or two a port and come whole, 7 MB at most. SL-to-VL tables, of which a switch has as
//! many as it has pairs of ports, would be 240 MB: they are read only where that was asked for,
//! switch by switch as well, and what comes from a node itself, which is all that an adapter has,
//! whole before.
//!
//! The SA does not say when its tables changed. What contradicts itself is not used, and the links
//! are read once more at the end; reports of traps tell of the rest.
//!
//! Nobody is asked for the forwarding table of a switch that has none yet. OpenSM (3.3.23, and its
//! sources of March 2026: `osm_lftr_rcv_process`, `osm_switch_get_lft_block`) answers from the table that
//! it computed, and ends with a segmentation fault if a sweep has found the switch and has not come
//! to computing it. The link by which such a switch was found is in state Init until then, and is
//! known to be before the switch is known; so ports in that state are asked for before the tables.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use cm_msgs::sa::{
    LinearForwardingTableRecord, LinkRecord, NodeRecord, PKeyTableRecord, PathRecord,
    PortInfoRecord, Record, SaMad, SaStatus, SlToVlMappingTableRecord, SwitchInfoRecord,
};
use cm_msgs::{Gid, Lid};
use pathdb::Fabric;
use statemachine::PortId;

use super::lanes::Cabled;
use super::tables::{Contradiction, SwitchTable, Tables, Wired};
use crate::sa::{Ask, Failure, Response, User};

/// How long umad waits for a whole table at first; the SA's client doubles it.
const TABLE_TIMEOUT_MS: u32 = 4_000;

/// Copies of a request.
const TRIES: u8 = 4;

/// Forwarding tables asked for before ports in state Init are asked for again.
const TABLES_PER_LOOK: usize = 64;

/// PortInfo:PortState of a port that the subnet manager has not routed to yet.
const INIT: u8 = 2;

/// How a fabric is to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// The port to ask from.
    pub port: PortId,
    /// Its GID.
    pub sgid: Gid,
    /// Requests under way at a time, at least 1.
    pub in_flight: usize,
    /// The key that makes the SA show partition tables; 0 from ordinary hosts.
    pub sm_key: u64,
    /// Whether SL-to-VL tables are read, too.
    pub sl2vl: bool,
    /// Whether forwarding tables are read although ports are in state Init, which may cost the
    /// fabric its subnet manager.
    pub unrouted: bool,
}

/// What is being read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// NodeRecord.
    Nodes,
    /// SwitchInfoRecord, LinkRecord, PortInfoRecord, PathRecord, PKeyTableRecord.
    Ports,
    /// SLtoVLMappingTableRecord.
    Lanes,
    /// LinearForwardingTableRecord.
    Forwarding,
    /// LinkRecord once more.
    Closing,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nodes => "nodes",
            Self::Ports => "ports and links",
            Self::Lanes => "sl-to-vl tables",
            Self::Forwarding => "forwarding tables",
            Self::Closing => "links again",
        })
    }
}

/// How far a reading is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// What is being read.
    pub step: Step,
    /// Answers of this step that are there.
    pub done: usize,
    /// Answers that it needs.
    pub of: usize,
    /// Records so far.
    pub records: u64,
}

/// Why a fabric was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The SA does not answer, or refuses.
    #[error("{table}: {failure}")]
    Sa {
        /// What was asked for.
        table: &'static str,
        /// What came of it.
        failure: Failure,
    },
    /// What was read does not fit together.
    #[error("the tables contradict each other: {0}")]
    Contradiction(#[from] Contradiction),
    /// The subnet manager is still at work on what it has found. Asking it for forwarding tables now
    /// may end it.
    #[error(
        "port {port} of lid {lid} is in state init{}: the subnet manager is still at work", besides(*others)
    )]
    Unrouted {
        /// LID of one such port; of a switch, that of its port 0.
        lid: Lid,
        /// Its number.
        port: u8,
        /// How many there are besides.
        others: usize,
    },
    /// Not even the asking port's own node.
    #[error("subnet administration shows no nodes: is the port a full member of a partition?")]
    Empty,
}

fn besides(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => ", as is another".to_owned(),
        _ => format!(", as are {others} others"),
    }
}

/// One request.
#[derive(Clone, Copy, Debug)]
enum Request {
    Nodes,
    Switches,
    Links,
    Ports(u8),
    Paths,
    PKeys(u8),
    /// Those of packets that come from the node itself.
    OwnLanes,
    Lanes(SwitchTable),
    /// Ports in state Init.
    Unrouted,
    Forwarding(SwitchTable),
    LinksAgain,
}

impl Request {
    fn table(self) -> &'static str {
        match self {
            Self::Nodes => "node records",
            Self::Switches => "switch info records",
            Self::Links | Self::LinksAgain => "link records",
            Self::Ports(_) | Self::Unrouted => "port info records",
            Self::Paths => "path records",
            Self::PKeys(_) => "p_key table records",
            Self::OwnLanes | Self::Lanes(_) => "sl-to-vl table records",
            Self::Forwarding(_) => "forwarding table records",
        }
    }

    fn failed(self, failure: Failure) -> ReadError {
        let table = self.table();
        ReadError::Sa { table, failure }
    }

    /// Whether a fabric can do without.
    fn is_optional(self) -> bool {
        matches!(
            self,
            Self::Paths | Self::PKeys(_) | Self::OwnLanes | Self::Lanes(_) | Self::Unrouted
        )
    }

    /// Whether it is put when those before it are answered, and those after it when it is.
    fn is_barrier(self) -> bool {
        matches!(self, Self::Unrouted)
    }
}

#[derive(Debug)]
enum Stage {
    Nodes(Tables),
    Ports(Tables),
    Lanes(Box<Cabled>),
    Forwarding(Wired),
    Closing(Wired),
    Over,
}

/// One reading of a fabric: asks until it has all, or until something goes wrong.
#[derive(Debug)]
pub struct Reader {
    reading: Reading,
    next_number: u32,
    stage: Stage,
    waiting: VecDeque<Request>,
    under_way: BTreeMap<u32, Request>,
    /// The links as first read, sorted.
    links: Vec<[u8; LinkRecord::LEN]>,
    done: usize,
    records: u64,
    outcome: Option<Result<Fabric, ReadError>>,
}

impl Reader {
    /// A reading whose requests bear numbers from `first_number` on: other ones than those of an
    /// earlier reading that may still be answered.
    pub fn new(reading: Reading, first_number: u32) -> Self {
        Self {
            reading,
            next_number: first_number,
            stage: Stage::Nodes(Tables::default()),
            waiting: VecDeque::from([Request::Nodes]),
            under_way: BTreeMap::new(),
            links: Vec::new(),
            done: 0,
            records: 0,
            outcome: None,
        }
    }

    /// The number after the last one used.
    pub fn next_number(&self) -> u32 {
        self.next_number
    }

    /// The next request to the SA.
    pub fn poll_ask(&mut self) -> Option<Ask> {
        let next = *self.waiting.front()?;
        let room = match next.is_barrier() {
            true => self.under_way.is_empty(),
            false => self.under_way.len() < self.reading.in_flight,
        };
        if !room || self.under_way.values().any(|asked| asked.is_barrier()) {
            return None;
        }
        let request = self.waiting.pop_front()?;
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        self.under_way.insert(number, request);
        Some(Ask {
            user: User::Fabric(number),
            port: self.reading.port,
            mad: self.mad(request),
            timeout_ms: TABLE_TIMEOUT_MS,
            tries: TRIES,
        })
    }

    /// The fabric, or why there is none: once.
    pub fn poll_outcome(&mut self) -> Option<Result<Fabric, ReadError>> {
        self.outcome.take()
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let step = match self.stage {
            Stage::Nodes(_) => Step::Nodes,
            Stage::Ports(_) => Step::Ports,
            Stage::Lanes(_) => Step::Lanes,
            Stage::Forwarding(_) => Step::Forwarding,
            Stage::Closing(_) | Stage::Over => Step::Closing,
        };
        Progress {
            step,
            done: self.done,
            of: self.done + self.waiting.len() + self.under_way.len(),
            records: self.records,
        }
    }

    /// The SA answered the request with this number, or did not.
    pub fn handle_reply(&mut self, number: u32, reply: Result<Response, Failure>) {
        let Some(request) = self.under_way.remove(&number) else {
            return;
        };
        let took = match reply {
            Ok(response) => self.take(request, &response),
            // Paths can be found without these; OpenSM keeps some of them to itself.
            Err(Failure::Status(_)) if request.is_optional() => Ok(()),
            Err(Failure::Status(SaStatus::NoRecords)) => self.take_none(request),
            Err(failure) => Err(request.failed(failure)),
        };
        self.done += 1;
        let went_on =
            took.and_then(
                |()| match self.waiting.is_empty() && self.under_way.is_empty() {
                    true => self.advance(),
                    false => Ok(()),
                },
            );
        if let Err(error) = went_on {
            self.end(Err(error));
        }
    }

    fn end(&mut self, outcome: Result<Fabric, ReadError>) {
        self.stage = Stage::Over;
        self.waiting.clear();
        self.under_way.clear();
        self.outcome = Some(outcome);
    }

    /// A SubnAdmGetTable; the SA's client gives it its transaction ID.
    fn mad(&self, request: Request) -> SaMad {
        type Lfts = LinearForwardingTableRecord;
        type Lanes = SlToVlMappingTableRecord;
        let mut mad = match request {
            Request::Nodes => SaMad::get_table(0, &NodeRecord::any()),
            Request::Switches => SaMad::get_table(0, &SwitchInfoRecord::any()),
            Request::Links | Request::LinksAgain => SaMad::get_table(0, &LinkRecord::any()),
            Request::Ports(number) => SaMad::get_table(0, &PortInfoRecord::any().port_num(number)),
            Request::Paths => {
                let paths = PathRecord::any().sgid(self.reading.sgid).numb_path(127);
                SaMad::get_table(0, &paths.reversible(true))
            }
            Request::PKeys(number) => SaMad::get_table(0, &PKeyTableRecord::any().port_num(number)),
            Request::OwnLanes => SaMad::get_table(0, &Lanes::any().input_port(0)),
            Request::Lanes(switch) => SaMad::get_table(0, &Lanes::any().lid(Lid(switch.lid))),
            Request::Unrouted => SaMad::get_table(0, &PortInfoRecord::any().port_state(INIT)),
            Request::Forwarding(switch) => SaMad::get_table(0, &Lfts::any().lid(Lid(switch.lid))),
        };
        mad.sa.sm_key = self.reading.sm_key;
        mad
    }

    fn take(&mut self, request: Request, response: &Response) -> Result<(), ReadError> {
        self.records += response.records().len() as u64;
        match (&mut self.stage, request) {
            (Stage::Nodes(tables), Request::Nodes) => {
                each(request, response, |record| tables.node(&record))?;
            }
            (Stage::Ports(tables), Request::Switches) => {
                each(request, response, |record| tables.switch(&record))?;
            }
            (Stage::Ports(tables), Request::Links) => {
                self.links = sorted_links(request, response)?;
                each(request, response, |record| tables.link(&record))?;
            }
            (Stage::Ports(tables), Request::Ports(_)) => {
                each(request, response, |record| tables.port(&record))?;
            }
            (Stage::Ports(tables), Request::PKeys(_)) => {
                each(request, response, |record| tables.pkeys(&record))?;
            }
            (Stage::Ports(tables), Request::Paths) => {
                records(request, response)?.for_each(|record| tables.path(&record));
            }
            (Stage::Lanes(cabled), Request::OwnLanes) => {
                each(request, response, |record| cabled.sl_to_vl(&record))?;
                // An SA that refuses the first is not asked for the others.
                let switches = cabled.switches().iter().copied();
                self.waiting.extend(switches.map(Request::Lanes));
            }
            (Stage::Lanes(cabled), Request::Lanes(_)) => {
                each(request, response, |record| cabled.sl_to_vl(&record))?;
            }
            (Stage::Forwarding(_), Request::Unrouted) => none_unrouted(request, response)?,
            (Stage::Forwarding(wired), Request::Forwarding(switch)) => {
                wired.table(switch, records(request, response)?)?;
            }
            (Stage::Closing(_), Request::LinksAgain)
                if sorted_links(request, response)? != self.links =>
            {
                return Err(Contradiction::LinksMoved.into());
            }
            _ => {}
        }
        Ok(())
    }

    /// The SA has no such records.
    fn take_none(&mut self, request: Request) -> Result<(), ReadError> {
        match (&mut self.stage, request) {
            (Stage::Forwarding(wired), Request::Forwarding(switch)) => {
                wired.table(switch, std::iter::empty())?;
            }
            (Stage::Closing(_), Request::LinksAgain) if !self.links.is_empty() => {
                return Err(Contradiction::LinksMoved.into());
            }
            // Of the nodes none is an error by itself; what ports, links and switches lack shows
            // when they are put together.
            _ => {}
        }
        Ok(())
    }

    /// Everything of this step is there: on to the next.
    fn advance(&mut self) -> Result<(), ReadError> {
        self.done = 0;
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Nodes(tables) => {
                if self.records == 0 {
                    return Err(ReadError::Empty);
                }
                let whole = [Request::Switches, Request::Links, Request::Paths];
                self.waiting.extend(whole);
                if self.reading.sm_key != 0 {
                    let numbers = (0..=tables.last_port()).filter(|n| tables.has_end_port(*n));
                    self.waiting.extend(numbers.map(Request::PKeys));
                }
                let numbers = 0..=tables.last_port();
                self.waiting.extend(numbers.map(Request::Ports));
                self.stage = Stage::Ports(tables);
            }
            Stage::Ports(tables) => {
                let cabled = Cabled::new(tables)?;
                if !self.reading.sl2vl {
                    return self.route(cabled);
                }
                self.waiting.push_back(Request::OwnLanes);
                self.stage = Stage::Lanes(Box::new(cabled));
            }
            Stage::Lanes(cabled) => return self.route(*cabled),
            Stage::Forwarding(wired) => {
                self.waiting.push_back(Request::LinksAgain);
                self.stage = Stage::Closing(wired);
            }
            Stage::Closing(wired) => self.end(Ok(wired.finish())),
            Stage::Over => {}
        }
        Ok(())
    }

    /// On to the forwarding tables.
    fn route(&mut self, cabled: Cabled) -> Result<(), ReadError> {
        let wired = cabled.routing();
        for switches in wired.switches.chunks(TABLES_PER_LOOK) {
            if !self.reading.unrouted {
                self.waiting.push_back(Request::Unrouted);
            }
            let switches = switches.iter().copied();
            self.waiting.extend(switches.map(Request::Forwarding));
        }
        self.stage = Stage::Forwarding(wired);
        match self.waiting.is_empty() {
            true => self.advance(),
            false => Ok(()),
        }
    }
}

/// The records of an answer.
fn records<R: Record>(
    request: Request,
    response: &Response,
) -> Result<impl Iterator<Item = R>, ReadError> {
    let records = response.decode();
    records.map_err(|malformed| request.failed(malformed.into()))
}

fn each<R: Record>(
    request: Request,
    response: &Response,
    mut take: impl FnMut(R) -> Result<(), Contradiction>,
) -> Result<(), ReadError> {
    Ok(records(request, response)?.try_for_each(&mut take)?)
}

/// An SA that takes no notice of the state in the question shows ports of all states.
fn none_unrouted(request: Request, response: &Response) -> Result<(), ReadError> {
    let ports = records::<PortInfoRecord>(request, response)?;
    let mut unrouted = ports.filter(|port| port.port_info.port_state == INIT);
    match unrouted.next() {
        Some(PortInfoRecord { lid, port_num, .. }) => Err(ReadError::Unrouted {
            lid,
            port: port_num,
            others: unrouted.count(),
        }),
        None => Ok(()),
    }
}

fn sorted_links(
    request: Request,
    response: &Response,
) -> Result<Vec<[u8; LinkRecord::LEN]>, ReadError> {
    let links = records::<LinkRecord>(request, response)?;
    let mut links: Vec<_> = links.map(|link| link.encode()).collect();
    links.sort_unstable();
    Ok(links)
}

#[cfg(test)]
mod tests;
