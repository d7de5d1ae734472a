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

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use cm_msgs::sa::{
    LinearForwardingTableMask, LinearForwardingTableRecord, LinkMask, LinkRecord, NodeMask,
    NodeRecord, PKeyTableMask, PKeyTableRecord, PathMask, PathRecord, PortInfoMask, PortInfoRecord,
    Record, SaMad, SaStatus, SlToVlMappingTableRecord, SlToVlMask, SwitchInfoMask,
    SwitchInfoRecord,
};
use cm_msgs::{Gid, Lid};
use pathdb::Fabric;
use statemachine::PortId;

use super::lanes::Cabled;
use super::tables::{Contradiction, SwitchTable, Tables, Wired};
use crate::sa::{Ask, Failure, Malformed, Response, User};

/// How long umad waits for a whole table at first; the SA's client doubles it.
const TABLE_TIMEOUT_MS: u32 = 4_000;

/// Copies of a request.
const TRIES: u8 = 4;

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
    /// Not even the asking port's own node.
    #[error("subnet administration shows no nodes: is the port a full member of a partition?")]
    Empty,
}

/// What is wrong with an answer.
enum Wrong {
    Answer(Failure),
    Contradiction(Contradiction),
}

impl Wrong {
    fn with(self, table: &'static str) -> ReadError {
        match self {
            Self::Answer(failure) => ReadError::Sa { table, failure },
            Self::Contradiction(contradiction) => contradiction.into(),
        }
    }
}

impl From<Malformed> for Wrong {
    fn from(malformed: Malformed) -> Self {
        Self::Answer(malformed.into())
    }
}

impl From<Contradiction> for Wrong {
    fn from(contradiction: Contradiction) -> Self {
        Self::Contradiction(contradiction)
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
    Forwarding(SwitchTable),
    LinksAgain,
}

impl Request {
    fn table(self) -> &'static str {
        match self {
            Self::Nodes => "node records",
            Self::Switches => "switch info records",
            Self::Links | Self::LinksAgain => "link records",
            Self::Ports(_) => "port info records",
            Self::Paths => "path records",
            Self::PKeys(_) => "p_key table records",
            Self::OwnLanes | Self::Lanes(_) => "sl-to-vl table records",
            Self::Forwarding(_) => "forwarding table records",
        }
    }

    /// Whether a fabric can do without.
    fn is_optional(self) -> bool {
        matches!(
            self,
            Self::Paths | Self::PKeys(_) | Self::OwnLanes | Self::Lanes(_)
        )
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
        if self.under_way.len() >= self.reading.in_flight {
            return None;
        }
        let request = self.waiting.pop_front()?;
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        self.under_way.insert(number, request);
        let mut mad = self.mad(request);
        mad.sm_key = self.reading.sm_key;
        Some(Ask {
            user: User::Fabric(number),
            port: self.reading.port,
            mad,
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
            Err(Failure::Status(_)) if request.is_optional() => Ok(()),
            Err(Failure::Status(SaStatus::NoRecords)) => self.take_none(request),
            Err(failure) => Err(Wrong::Answer(failure)),
        };
        let took = took.map_err(|wrong| wrong.with(request.table()));
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

    fn mad(&self, request: Request) -> SaMad {
        match request {
            Request::Nodes => table(&NodeRecord::default(), NodeMask::NONE),
            Request::Switches => table(&SwitchInfoRecord::default(), SwitchInfoMask::NONE),
            Request::Links | Request::LinksAgain => table(&LinkRecord::default(), LinkMask::NONE),
            Request::Ports(port_num) => {
                let record = PortInfoRecord {
                    port_num,
                    ..PortInfoRecord::default()
                };
                table(&record, PortInfoMask::PORT_NUM)
            }
            Request::Paths => {
                let record = PathRecord {
                    sgid: self.reading.sgid,
                    numb_path: 127,
                    reversible: true,
                    ..PathRecord::default()
                };
                let mask = PathMask::SGID | PathMask::NUMB_PATH | PathMask::REVERSIBLE;
                table(&record, mask)
            }
            Request::PKeys(port_num) => {
                let record = PKeyTableRecord {
                    port_num,
                    ..PKeyTableRecord::default()
                };
                table(&record, PKeyTableMask::PORT_NUM)
            }
            Request::OwnLanes => {
                let record = SlToVlMappingTableRecord::default();
                table(&record, SlToVlMask::INPUT_PORT)
            }
            Request::Lanes(switch) => {
                let record = SlToVlMappingTableRecord {
                    lid: Lid(switch.lid),
                    ..SlToVlMappingTableRecord::default()
                };
                table(&record, SlToVlMask::LID)
            }
            Request::Forwarding(switch) => {
                let record = LinearForwardingTableRecord {
                    lid: Lid(switch.lid),
                    ..LinearForwardingTableRecord::default()
                };
                table(&record, LinearForwardingTableMask::LID)
            }
        }
    }

    fn take(&mut self, request: Request, response: &Response) -> Result<(), Wrong> {
        self.records += response.records().len() as u64;
        match (&mut self.stage, request) {
            (Stage::Nodes(tables), Request::Nodes) => {
                each(response, |record| tables.node(&record))?;
            }
            (Stage::Ports(tables), Request::Switches) => {
                each(response, |record| tables.switch(&record))?;
            }
            (Stage::Ports(tables), Request::Links) => {
                self.links = sorted_links(response)?;
                each(response, |record| tables.link(&record))?;
            }
            (Stage::Ports(tables), Request::Ports(_)) => {
                each(response, |record| tables.port(&record))?;
            }
            (Stage::Ports(tables), Request::PKeys(_)) => {
                each(response, |record| tables.pkeys(&record))?;
            }
            (Stage::Ports(tables), Request::Paths) => {
                response.decode()?.for_each(|record| tables.path(&record));
            }
            (Stage::Lanes(cabled), Request::OwnLanes) => {
                each(response, |record| cabled.sl_to_vl(&record))?;
                // An SA that refuses the first is not asked for the others.
                let switches = cabled.switches().iter().copied();
                self.waiting.extend(switches.map(Request::Lanes));
            }
            (Stage::Lanes(cabled), Request::Lanes(_)) => {
                each(response, |record| cabled.sl_to_vl(&record))?;
            }
            (Stage::Forwarding(wired), Request::Forwarding(switch)) => {
                wired.table(switch, response.decode()?)?;
            }
            (Stage::Closing(_), Request::LinksAgain) if sorted_links(response)? != self.links => {
                return Err(Contradiction::LinksMoved.into());
            }
            _ => {}
        }
        Ok(())
    }

    /// The SA has no such records.
    fn take_none(&mut self, request: Request) -> Result<(), Wrong> {
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
                let cabled = tables.wire()?;
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
        let switches = wired.switches.iter().copied();
        self.waiting.extend(switches.map(Request::Forwarding));
        self.stage = Stage::Forwarding(wired);
        match self.waiting.is_empty() {
            true => self.advance(),
            false => Ok(()),
        }
    }
}

/// A SubnAdmGetTable; the SA's client gives it its transaction ID.
fn table<R: Record>(record: &R, mask: R::Mask) -> SaMad {
    SaMad::get_table(0, record, mask)
}

fn each<R: Record>(
    response: &Response,
    mut take: impl FnMut(R) -> Result<(), Contradiction>,
) -> Result<(), Wrong> {
    Ok(response.decode()?.try_for_each(&mut take)?)
}

fn sorted_links(response: &Response) -> Result<Vec<[u8; LinkRecord::LEN]>, Wrong> {
    let links = response.decode::<LinkRecord>()?;
    let mut links: Vec<_> = links.map(|link| link.encode()).collect();
    links.sort_unstable();
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::sa_of::SaOf;
    use cm_msgs::Guid;
    use pathdb::{
        Builder, Capability, FatTree, LidRange, Mtu, NodeKind, NodeSpec, PKey, PathTerms, PortSpec,
        Rate, SlToVl, Spread, snapshot,
    };

    const READING: Reading = Reading {
        port: PortId {
            node_guid: Guid(1),
            port: 1,
        },
        sgid: Gid([3; 16]),
        in_flight: 3,
        sm_key: 0,
        sl2vl: false,
    };

    fn number(ask: &Ask) -> u32 {
        match ask.user {
            User::Fabric(number) => number,
            other => panic!("{other:?} is another user"),
        }
    }

    /// Reads what `sa` knows; `spoil` may change its answers.
    fn read(
        sa: &SaOf<'_>,
        reading: Reading,
        mut spoil: impl FnMut(u16, &mut Result<Response, Failure>),
    ) -> Result<Fabric, ReadError> {
        let mut reader = Reader::new(reading, 7);
        loop {
            let asks: Vec<_> = std::iter::from_fn(|| reader.poll_ask()).collect();
            assert!(asks.len() <= reading.in_flight, "{} at a time", asks.len());
            for ask in asks.iter().rev() {
                let mut answer = sa.answer(&ask.mad);
                spoil(ask.mad.header.attribute_id, &mut answer);
                reader.handle_reply(number(ask), answer);
            }
            if let Some(outcome) = reader.poll_outcome() {
                assert!(reader.poll_ask().is_none(), "it is over");
                return outcome;
            }
            let Progress { done, of, .. } = reader.progress();
            assert!(done < of, "{done} of {of}");
        }
    }

    fn tree(lmc: u8, seed: u64) -> Fabric {
        let tree = FatTree {
            pods: 3,
            half: 4,
            dual: true,
            lmc,
            spread: Spread::Random(seed),
        };
        tree.build().unwrap()
    }

    fn small() -> Fabric {
        small_with(&[])
    }

    /// Two hosts at one switch, of which one has a port that is down, and their partitions. Of node 0,
    /// the switch, or one of the hosts: SL-to-VL tables by the ports in and out, all bytes the same.
    fn small_with(lanes: &[(usize, u8, u8, u8)]) -> Fabric {
        let mut builder = Builder::new();
        builder.terms(PathTerms {
            service_level: Some(3),
            packet_life_time: Some(17),
        });
        let mut node = |guid, kind, ports| {
            let guid = pathdb::Guid(guid);
            let spec = NodeSpec {
                kind,
                guid,
                system: guid,
                name: format!("node {}", guid.0),
                ports,
            };
            builder.node(spec).unwrap()
        };
        let switch = node(9, NodeKind::Switch, 4);
        let hosts = [1, 2].map(|guid| node(guid, NodeKind::Adapter, 2));
        let lid = |lid| LidRange::new(pathdb::Lid::new(lid).unwrap(), 0);
        let port = |guid, number, pkey: u16| PortSpec {
            guid: Some(pathdb::Guid(guid)),
            lids: lid(number),
            pkeys: vec![PKey(pkey), PKey(0x8001)],
        };
        builder.port(switch, 0, &port(9, 9, 0xffff)).unwrap();
        let carries = Capability {
            mtu: Some(Mtu::B2048),
            rate: Some(Rate::G100),
        };
        for (end, up) in [(1, true), (2, true), (3, false)] {
            let (host, number) = (hosts[usize::from(end == 2)], if end == 3 { 2 } else { 1 });
            builder
                .port(host, number, &port(10 + u64::from(end), end.into(), 0x7fff))
                .unwrap();
            builder
                .link((host, number), (switch, end), carries, up)
                .unwrap();
        }
        let nodes = [switch, hosts[0], hosts[1]];
        for &(node, from, to, byte) in lanes {
            let table = SlToVl([byte; 8]);
            builder.sl_to_vl(nodes[node], from, to, table).unwrap();
        }
        let mut routing = builder.routing();
        for (lid, port) in [(1, 1), (2, 2), (3, 3), (9, 0)] {
            routing
                .route(switch, pathdb::Lid::new(lid).unwrap(), port)
                .unwrap();
        }
        routing.finish()
    }

    #[test]
    fn what_is_read_is_the_fabric() {
        for (lmc, seed) in [(0, 1), (2, 2)] {
            let fabric = tree(lmc, seed);
            let read = read(&SaOf::new(&fabric), READING, |_, _| ()).unwrap();
            assert!(read == fabric, "lmc {lmc}");
        }
    }

    #[test]
    fn terms_partitions_and_links_that_are_down_are_read() {
        let fabric = small();
        let sa = SaOf {
            fabric: &fabric,
            levels: vec![3],
            life_times: vec![17],
        };
        let trusted = Reading {
            sm_key: 1,
            ..READING
        };
        assert_eq!(read(&sa, trusted, |_, _| ()).unwrap(), fabric);
    }

    const WITH_LANES: Reading = Reading {
        sl2vl: true,
        ..READING
    };

    /// Ways through the switch by two tables, and from port 3 of none that is known; both ports of one
    /// host, and the one of the other.
    const LANES: [(usize, u8, u8, u8); 8] = [
        (0, 0, 1, 0x11),
        (0, 1, 0, 0x0f),
        (0, 1, 2, 0x11),
        (0, 2, 1, 0x0f),
        (0, 2, 4, 0x11),
        (1, 0, 1, 0x33),
        (1, 0, 2, 0x22),
        (2, 0, 1, 0x22),
    ];

    #[test]
    fn sl_to_vl_tables_are_read_if_wished_for() {
        let fabric = small_with(&LANES);
        let mut sa = SaOf::new(&fabric);
        (sa.levels, sa.life_times) = (vec![3], vec![17]);
        let trusted = Reading {
            sm_key: 1,
            ..WITH_LANES
        };
        let read_in = read(&sa, trusted, |_, _| ()).unwrap();
        for (node, spec) in fabric.nodes() {
            let ports = 0..=spec.ports;
            for (from, to) in ports
                .clone()
                .flat_map(|from| ports.clone().map(move |to| (from, to)))
            {
                let table = fabric.sl_to_vl(node, from, to);
                assert_eq!(read_in.sl_to_vl(node, from, to), table, "{from} to {to}");
            }
        }
        let mut bytes = Vec::new();
        snapshot::write(&read_in, &mut bytes).unwrap();
        assert_eq!(snapshot::read(&bytes[..]).unwrap(), read_in);

        let without = read(&sa, READING, |attribute, _| {
            assert_ne!(attribute, SlToVlMappingTableRecord::ATTRIBUTE);
        });
        assert!(!without.unwrap().knows_lanes());
    }

    #[test]
    fn a_switch_of_one_table_has_one() {
        let ways = (0..=4).flat_map(|from| (1..=4).map(move |to| (0, from, to, 0x11)));
        let ways: Vec<_> = ways.filter(|&(_, from, to, _)| from != to).collect();
        let mut bytes = [Vec::new(), Vec::new()];
        for (lanes, bytes) in [&ways[..1], &ways].into_iter().zip(&mut bytes) {
            let fabric = small_with(lanes);
            let read = read(&SaOf::new(&fabric), WITH_LANES, |_, _| ()).unwrap();
            let host = fabric.nodes().last().unwrap().0;
            assert_eq!(read.sl_to_vl(host, 0, 1), None, "zeros are not known");
            snapshot::write(&read, &mut *bytes).unwrap();
        }
        let fabric = small_with(&ways);
        let read = read(&SaOf::new(&fabric), WITH_LANES, |_, _| ()).unwrap();
        let summary = read.summary();
        assert_eq!((summary.with_lanes, summary.lanes), (1, 1));
        assert!(bytes[1].len() < bytes[0].len(), "all are one number");
    }

    #[test]
    fn a_fabric_without_sl_to_vl_tables_is_read_all_the_same() {
        use cm_msgs::sa::GenericStatus::UnsupportedAttribute;
        let fabric = small_with(&LANES);
        let reasons = [
            SaStatus::Generic(UnsupportedAttribute),
            SaStatus::NoRecords,
            SaStatus::RequestDenied,
        ];
        for status in reasons {
            let mut asked = 0;
            let read = read(&SaOf::new(&fabric), WITH_LANES, |attribute, answer| {
                if attribute == SlToVlMappingTableRecord::ATTRIBUTE {
                    asked += 1;
                    *answer = Err(Failure::Status(status));
                }
            });
            assert!(!read.unwrap().knows_lanes(), "{status}");
            assert_eq!(asked, 1, "{status}");
        }
        let zeros = small();
        let read = read(&SaOf::new(&zeros), WITH_LANES, |_, _| ()).unwrap();
        assert!(!read.knows_lanes());
    }

    #[test]
    fn sl_to_vl_tables_of_what_is_not_there_contradict() {
        let fabric = small_with(&LANES);
        let with = |record: SlToVlMappingTableRecord| {
            let add = |attribute, answer: &mut Result<Response, Failure>| {
                if let (SlToVlMappingTableRecord::ATTRIBUTE, Ok(response)) = (attribute, answer) {
                    response.data.extend(record.encode());
                }
            };
            let error = read(&SaOf::new(&fabric), WITH_LANES, add).unwrap_err();
            error.to_string()
        };
        let record = SlToVlMappingTableRecord {
            lid: Lid(77),
            vls: [1; 8],
            ..SlToVlMappingTableRecord::default()
        };
        let text = with(record);
        assert!(text.contains("lid 77 of a sl-to-vl table"), "{text}");
        let of_switch = |input_port, output_port| SlToVlMappingTableRecord {
            lid: Lid(9),
            input_port,
            output_port,
            ..record
        };
        for record in [of_switch(5, 1), of_switch(1, 5)] {
            let text = with(record);
            assert!(text.contains("has no port 5"), "{text}");
        }
        let text = with(of_switch(1, 2));
        assert!(text.contains("given twice, and differently"), "{text}");
    }

    #[test]
    fn a_stranger_reads_all_but_partitions() {
        let fabric = small();
        let refused = |attribute, answer: &mut Result<_, _>| {
            if [PKeyTableRecord::ATTRIBUTE, PathRecord::ATTRIBUTE].contains(&attribute) {
                *answer = Err(Failure::Status(SaStatus::RequestDenied));
            }
        };
        let reading = Reading {
            sm_key: 1,
            ..READING
        };
        let read = read(&SaOf::new(&fabric), reading, refused).unwrap();
        assert_eq!(read.terms(), PathTerms::default());
        let ports: Vec<_> = read.end_ports().collect();
        assert_eq!(ports.len(), 4);
        assert!(ports.iter().all(|port| read.pkeys(*port).is_empty()));
    }

    /// What comes of a reading during which the records of `attribute` become other ones.
    fn changed(attribute: u16, change: impl Fn(&mut Response)) -> String {
        let fabric = tree(0, 1);
        let spoil = |asked, answer: &mut Result<Response, Failure>| {
            if let (true, Ok(response)) = (asked == attribute, answer) {
                change(response);
            }
        };
        let error = read(&SaOf::new(&fabric), READING, spoil).unwrap_err();
        error.to_string()
    }

    fn drop_last(response: &mut Response) {
        let len = response.data.len().saturating_sub(response.record_len);
        response.data.truncate(len);
    }

    #[test]
    fn a_fabric_that_changes_while_it_is_read_is_not_used() {
        let cases = [
            (NodeRecord::ATTRIBUTE, "is no node's"),
            (SwitchInfoRecord::ATTRIBUTE, "no switch info of node guid"),
            (LinkRecord::ATTRIBUTE, "only one end knows of the link"),
            (PortInfoRecord::ATTRIBUTE, "no port info of node guid"),
            (LinearForwardingTableRecord::ATTRIBUTE, "of 2 blocks"),
        ];
        for (attribute, what) in cases {
            let text = changed(attribute, drop_last);
            assert!(text.contains("contradict each other"), "{text}");
            assert!(text.contains(what), "{text}");
        }
    }

    #[test]
    fn links_that_moved_meanwhile_are_noticed() {
        let fabric = tree(0, 1);
        let mut times = 0;
        let spoil = |asked, answer: &mut Result<Response, Failure>| {
            if let (LinkRecord::ATTRIBUTE, Ok(response)) = (asked, answer) {
                times += 1;
                if times == 2 {
                    drop_last(response);
                }
            }
        };
        let error = read(&SaOf::new(&fabric), READING, spoil).unwrap_err();
        assert!(error.to_string().contains("links changed"), "{error}");
    }

    #[test]
    fn a_table_that_is_empty_all_of_a_sudden_is_noticed() {
        let fabric = tree(0, 1);
        // The request of this kind that finds nothing, counted from one.
        let empty_from = |attribute, first: usize| {
            let mut times = 0;
            let spoil = |asked, answer: &mut Result<Response, Failure>| {
                times += usize::from(asked == attribute);
                if asked == attribute && times >= first {
                    *answer = Err(Failure::Status(SaStatus::NoRecords));
                }
            };
            read(&SaOf::new(&fabric), READING, spoil)
        };
        for (attribute, first, what) in [
            (NodeRecord::ATTRIBUTE, 1, "shows no nodes"),
            (SwitchInfoRecord::ATTRIBUTE, 1, "no switch info"),
            (LinearForwardingTableRecord::ATTRIBUTE, 3, "has 0 of"),
            (LinkRecord::ATTRIBUTE, 2, "links changed"),
        ] {
            let error = empty_from(attribute, first).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        assert!(empty_from(PathRecord::ATTRIBUTE, 1).is_ok());
    }

    #[test]
    fn silence_and_nonsense_end_it() {
        let silent = |attribute, answer: &mut Result<Response, Failure>| {
            if attribute == PathRecord::ATTRIBUTE {
                *answer = Err(Failure::Timeout);
            }
        };
        let fabric = small();
        let error = read(&SaOf::new(&fabric), READING, silent).unwrap_err();
        assert_eq!(
            error.to_string(),
            "path records: subnet administration does not answer"
        );
        let text = changed(NodeRecord::ATTRIBUTE, |response| response.record_len = 8);
        assert!(text.contains("records of 8 bytes"), "{text}");
        let text = changed(NodeRecord::ATTRIBUTE, |response| response.data.clear());
        assert!(text.contains("shows no nodes"), "{text}");
    }

    #[test]
    fn answers_to_an_earlier_reading_do_not_count() {
        let mut reader = Reader::new(READING, 7);
        let ask = reader.poll_ask().unwrap();
        reader.handle_reply(6, Err(Failure::Timeout));
        assert!(reader.poll_outcome().is_none());
        reader.handle_reply(number(&ask), Err(Failure::Timeout));
        assert!(reader.poll_outcome().unwrap().is_err());
        assert_eq!(reader.next_number(), 8);
    }
}
