// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readings of fabrics from an SA that knows them, and from one that does not behave.

mod sa_of;

use super::*;
use cm_msgs::{Guid, Lid, PKey};
use pathdb::{
    Builder, Capability, LidRange, Mtu, NodeKind, NodeSpec, PathTerms, PortSpec, Rate, SlToVl,
    snapshot,
};
use sa_of::{PORT_STATE, SaOf};
use test_fabrics::{FatTree, Spread};

const READING: Reading = Reading {
    port: PortId {
        node_guid: Guid(1),
        port: 1,
    },
    sgid: Gid([3; 16]),
    in_flight: 3,
    sm_key: 0,
    sl2vl: false,
    unrouted: false,
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
        let guid = Guid(guid);
        let spec = NodeSpec {
            kind,
            guid,
            system: guid,
            name: format!("node {}", guid.0).into(),
            ports,
        };
        builder.node(spec).unwrap()
    };
    let switch = node(9, NodeKind::Switch, 4);
    let hosts = [1, 2].map(|guid| node(guid, NodeKind::Adapter, 2));
    let lid = |lid| LidRange::new(Lid(lid), 0);
    let port = |guid, number, pkey: u16| PortSpec {
        guid: Some(Guid(guid)),
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
        routing.route(switch, Lid(lid), port).unwrap();
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
        unrouted: Vec::new(),
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
    assert!(!without.unwrap().knows_sl_to_vl());
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
    assert_eq!((summary.sl_to_vl_nodes, summary.sl_to_vl_tables), (1, 1));
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
        assert!(!read.unwrap().knows_sl_to_vl(), "{status}");
        assert_eq!(asked, 1, "{status}");
    }
    let zeros = small();
    let read = read(&SaOf::new(&zeros), WITH_LANES, |_, _| ()).unwrap();
    assert!(!read.knows_sl_to_vl());
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

/// The tables of a fabric of 72 switches, of which a port is in state Init from `from` looks on,
/// and how often it was looked for.
fn read_with_init(reading: Reading, from: usize) -> (Result<Fabric, ReadError>, Vec<u16>) {
    let tree = FatTree {
        pods: 8,
        half: 6,
        dual: false,
        lmc: 0,
        spread: Spread::DModK,
    };
    let fabric = tree.build().unwrap();
    assert_eq!(fabric.switch_count(), 132);
    let (routed, mut unrouted) = (SaOf::new(&fabric), SaOf::new(&fabric));
    unrouted.unrouted = fabric.end_ports().take(2).collect();
    let mut looks = 0;
    let mut asked = Vec::new();
    let mut reader = Reader::new(reading, 7);
    let outcome = loop {
        let asks: Vec<_> = std::iter::from_fn(|| reader.poll_ask()).collect();
        for ask in &asks {
            let look = ask.mad.sa.component_mask == PORT_STATE;
            assert!(!look || asks.len() == 1, "a look is alone");
            looks += usize::from(look);
            let sa = if looks >= from { &unrouted } else { &routed };
            asked.push(if look { 0 } else { ask.mad.header.attribute_id });
            reader.handle_reply(number(ask), sa.answer(&ask.mad));
        }
        if let Some(outcome) = reader.poll_outcome() {
            break outcome;
        }
    };
    (outcome, asked)
}

#[test]
fn nobody_is_asked_for_tables_that_are_not_computed_yet() {
    const TABLE: u16 = LinearForwardingTableRecord::ATTRIBUTE;
    let tables = |asked: &[u16]| asked.iter().filter(|one| **one == TABLE).count();
    for (from, before) in [(1, 0), (2, 64), (3, 128)] {
        let (outcome, asked) = read_with_init(READING, from);
        let error = outcome.unwrap_err();
        assert!(matches!(error, ReadError::Unrouted { others: 1, .. }));
        assert_eq!(tables(&asked), before, "{error}");
    }
    let (outcome, asked) = read_with_init(READING, usize::MAX);
    assert!(outcome.is_ok());
    assert_eq!(tables(&asked), 132);
    assert_eq!(asked.iter().filter(|one| **one == 0).count(), 3);
    let all_the_same = Reading {
        unrouted: true,
        ..READING
    };
    let (outcome, asked) = read_with_init(all_the_same, 1);
    assert!(outcome.is_ok() && !asked.contains(&0));
}

#[test]
fn ports_in_state_init_are_counted() {
    for (others, text) in [
        (0, "port 9 of lid 2 is in state init: the subnet"),
        (1, "state init, as is another: the"),
        (2, "state init, as are 2 others: the"),
    ] {
        let (lid, port) = (Lid(2), 9);
        let error = ReadError::Unrouted { lid, port, others }.to_string();
        assert!(error.contains(text), "{error}");
    }
}
