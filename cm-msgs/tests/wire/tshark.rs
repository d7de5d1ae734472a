// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wireshark reads the same values from our bytes as we wrote.
//!
//! `wireshark_fields.csv` says which of Wireshark's fields is which of ours. Wireshark 4.0
//! dissects no MRA, SIDR, LAP, APR, SAP and SPR. Where it is wrong, [`MISREAD`] says so.
//! Needs tshark; without it the test says so and passes, unless `APMD_REQUIRE_TSHARK=1`.

use std::env;
use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;
use std::process::Command;

use crate::table;
use cm_msgs::cm::Message;
use cm_msgs::fields::{FieldValue, Fields};
use cm_msgs::mad::{self, Header};
use cm_msgs::sa::{
    self, ClassPortInfo, InformInfo, LinearForwardingTableRecord, LinkRecord, McMemberRecord,
    NodeRecord, Notice, PKeyTableRecord, PathRecord, PortInfoRecord, Record, SaMad, ServiceRecord,
    SlToVlMappingTableRecord, SwitchInfoRecord, Trap,
};
use cm_msgs::smp::{PortInfo, Routing, Smp};
use cm_msgs::{PrivateData, Qpn};

/// Fields that Wireshark 4.0 misreads: of both paths of a REQ it takes the upper 12 bits for the
/// 20-bit flow label, and the low 6 bits of the flow label's first byte for the packet rate, which
/// lies three bytes further on. Linux (`CM_REQ_PRIMARY_FLOW_LABEL` and the others) agrees with us.
const MISREAD: &[(&str, &str)] = &[
    ("REQ", "primary_flow_label"),
    ("REQ", "primary_packet_rate"),
    ("REQ", "alternate_flow_label"),
    ("REQ", "alternate_packet_rate"),
];

/// How many MADs of each kind, with other values each.
const ROUNDS: usize = 8;

/// A MAD and what Wireshark must find in it.
struct Case {
    qpn: Qpn,
    mad: [u8; 256],
    want: Vec<Want>,
}

struct Want {
    attribute: &'static str,
    field: &'static str,
    value: Vec<u8>,
}

#[test]
fn wireshark_reads_what_we_wrote() {
    let Some(version) = tshark_version() else {
        if env::var_os("APMD_REQUIRE_TSHARK").is_some_and(|required| required == "1") {
            panic!("tshark does not run: install the Debian package tshark");
        }
        eprintln!("skipped: tshark is not installed");
        return;
    };

    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let cases: Vec<_> = (0..ROUNDS).flat_map(|_| cases(&mut noise)).collect();
    let table: Vec<_> = table::lines(include_str!("../wireshark_fields.csv")).collect();
    let mut columns: Vec<_> = table
        .iter()
        .map(|row| row[2])
        .filter(|name| *name != "-")
        .collect();
    columns.sort_unstable();
    columns.dedup();

    let dissected = dissect(&cases, &columns);
    assert_eq!(dissected.len(), cases.len(), "{version}: packets read");

    let mut compared = 0;
    let mut wrong = Vec::new();
    for (number, (case, values)) in cases.iter().zip(&dissected).enumerate() {
        for Want {
            attribute,
            field,
            value,
        } in &case.want
        {
            let row = table
                .iter()
                .find(|row| row[0] == *attribute && row[1] == *field);
            let wireshark = row.unwrap_or_else(|| panic!("no row for {attribute} {field}"))[2];
            if wireshark == "-" || MISREAD.contains(&(attribute, field)) {
                continue;
            }
            let column = columns.iter().position(|name| *name == wireshark).unwrap();
            let got = parse(&values[column], value.len());
            if got.as_ref() != Some(value) {
                let text = &values[column];
                wrong.push(format!(
                    "{number} {attribute} {field}: {value:02x?}, {wireshark} {text:?}"
                ));
            }
            compared += 1;
        }
    }
    assert!(
        wrong.is_empty(),
        "{version} reads otherwise:\n{}",
        wrong.join("\n")
    );
    let rows = table
        .iter()
        .filter(|row| row[2] != "-" && row[0] != "Header")
        .count();
    assert!(
        compared >= ROUNDS * (rows - MISREAD.len()),
        "only {compared} values compared"
    );
}

fn tshark_version() -> Option<String> {
    let output = Command::new("tshark").arg("--version").output().ok()?;
    Some(
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .next()?
            .to_owned(),
    )
}

/// One MAD of each kind that Wireshark dissects.
fn cases(noise: &mut Noise) -> Vec<Case> {
    let mut cases = Vec::new();
    for id in [0x10, 0x12, 0x13, 0x14, 0x15, 0x16u16] {
        let mut mad: [u8; 256] = noise.bytes();
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[16..18].copy_from_slice(&id.to_be_bytes());
        let (header, message) = Message::decode(&mad).unwrap();
        let mad = message.encode(header.mgmt_class, header.transaction_id);
        cases.push(case(Qpn(1), mad, message.name(), message.fields()));
    }

    for trap_number in [64, 65, 66, 67, 128, 144] {
        cases.push(trap(trap_number, noise));
    }
    let path = PathRecord::decode(&noise.bytes());
    let inform = InformInfo::decode(&noise.bytes());
    let notice = Notice::decode(&noise.bytes());
    let class = ClassPortInfo::decode(&noise.bytes());
    let mut answer = |id, attribute: &[u8]| sa_answer(id, attribute, noise).encode();
    let qp1 = Qpn(1);
    let path_mad = answer(sa::ATTR_PATH_RECORD, &path.encode());
    cases.push(case(qp1, path_mad, "PathRecord", path.fields()));
    let inform_mad = answer(sa::ATTR_INFORM_INFO, &inform.encode());
    cases.push(case(qp1, inform_mad, "InformInfo", inform.fields()));
    let notice_mad = answer(sa::ATTR_NOTICE, &notice.encode());
    cases.push(case(qp1, notice_mad, "Notice", notice.fields()));
    let class_mad = answer(sa::ATTR_CLASS_PORT_INFO, &class.encode());
    cases.push(case(qp1, class_mad, "ClassPortInfo", class.fields()));
    macro_rules! record {
        ($type:ident, $name:literal) => {
            let record = $type::decode(&noise.bytes());
            let mad = sa_answer($type::ATTRIBUTE, &record.encode(), noise).encode();
            cases.push(case(qp1, mad, $name, record.fields()));
        };
    }
    record!(NodeRecord, "NodeRecord");
    record!(PortInfoRecord, "PortInfoRecord");
    record!(SlToVlMappingTableRecord, "SLtoVLMappingTableRecord");
    record!(SwitchInfoRecord, "SwitchInfoRecord");
    record!(LinearForwardingTableRecord, "LinearForwardingTableRecord");
    record!(LinkRecord, "LinkRecord");
    record!(PKeyTableRecord, "P_KeyTableRecord");
    record!(McMemberRecord, "MCMemberRecord");
    record!(ServiceRecord, "ServiceRecord");

    for routing in [Routing::Lid, Routing::Directed] {
        let port = PortInfo::decode(&noise.bytes());
        let mut smp = Smp::get_port_info(routing, noise.next(), 2);
        smp.header.method = mad::METHOD_GET_RESP;
        smp.data = PrivateData(port.encode());
        cases.push(case(Qpn(0), smp.encode(), "PortInfo", port.fields()));
    }
    cases
}

/// A notice of which the details are compared as well.
fn trap(trap_number: u16, noise: &mut Noise) -> Case {
    let notice = Notice {
        is_generic: true,
        trap_number,
        ..Notice::decode(&noise.bytes())
    };
    let mad = sa_answer(sa::ATTR_NOTICE, &notice.encode(), noise).encode();
    let mut case = case(Qpn(1), mad, "Notice", notice.fields());
    let mut detail = |field, value| case.want.push(expect("Trap", (field, value)));
    match notice.trap().unwrap() {
        Trap::InService(gid)
        | Trap::OutOfService(gid)
        | Trap::GroupCreated(gid)
        | Trap::GroupDeleted(gid) => detail("gid", FieldValue::Bytes(&gid.0)),
        Trap::LinkState(lid) => detail("lid", FieldValue::Int(lid.0.into())),
        Trap::LocalChange {
            lid,
            capability_mask,
        } => {
            detail("lid", FieldValue::Int(lid.0.into()));
            detail("capability_mask", FieldValue::Int(capability_mask.into()));
        }
    }
    case
}

fn sa_answer(attribute_id: u16, attribute: &[u8], noise: &mut Noise) -> SaMad {
    let mut sa = SaMad::get(noise.next(), &PathRecord::any());
    sa.header.method = mad::METHOD_GET_RESP;
    sa.header.attribute_id = attribute_id;
    sa.sa.sm_key = noise.next();
    sa.sa.attribute_offset = noise.next() as u16;
    sa.sa.component_mask = noise.next();
    sa.data[..attribute.len()].copy_from_slice(attribute);
    sa
}

fn case(qpn: Qpn, mad: [u8; 256], attribute: &'static str, fields: Fields<'_>) -> Case {
    let header = Header::decode(mad.first_chunk().unwrap());
    let mut want: Vec<_> = fields.map(|field| expect(attribute, field)).collect();
    // Directed route SMPs have their own names for the class-specific part of the header.
    if header.mgmt_class != mad::CLASS_SM_DIRECTED_ROUTE {
        want.extend(header.fields().map(|field| expect("Header", field)));
    }
    if let Ok(sa) = SaMad::decode(&mad) {
        for (field, value) in [
            ("sm_key", sa.sa.sm_key),
            ("attribute_offset", sa.sa.attribute_offset.into()),
            ("component_mask", sa.sa.component_mask),
        ] {
            want.push(expect("SaMad", (field, FieldValue::Int(value))));
        }
    }
    Case { qpn, mad, want }
}

fn expect(attribute: &'static str, (field, value): (&'static str, FieldValue<'_>)) -> Want {
    let value = match value {
        FieldValue::Int(value) => value.to_be_bytes().to_vec(),
        FieldValue::Bytes(bytes) => bytes.to_vec(),
    };
    Want {
        attribute,
        field,
        value,
    }
}

/// tshark's text of a value that is `len` bytes long for us: integers are 8 bytes.
fn parse(text: &str, len: usize) -> Option<Vec<u8>> {
    if len > 8 {
        let address = text
            .parse()
            .map(|address: Ipv6Addr| address.octets().to_vec());
        return address.ok().or_else(|| unhex(text));
    }
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    Some(value.to_be_bytes().to_vec())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: String = text.chars().filter(|digit| *digit != ':').collect();
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

/// The values of `columns` in each MAD, as text.
fn dissect(cases: &[Case], columns: &[&str]) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mads.pcap");
    fs::write(&path, pcap(cases)).unwrap();
    let mut tshark = Command::new("tshark");
    tshark
        .arg("-r")
        .arg(&path)
        .args(["-T", "fields", "-E", "separator=/t", "-E", "occurrence=f"]);
    tshark.args(columns.iter().flat_map(|column| ["-e", column]));
    let output = tshark.output().unwrap();
    assert!(
        output.status.success(),
        "tshark: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect()
}

/// A capture file of link type ERF: Wireshark 4.0 reads InfiniBand packets from no other.
fn pcap(cases: &[Case]) -> Vec<u8> {
    const LINKTYPE_ERF: u32 = 197;
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0002_0004, 0, 0, 0xffff, LINKTYPE_ERF] {
        file.extend(word.to_be_bytes());
    }
    for case in cases {
        let packet = packet(case);
        let len = packet.len() as u32;
        for word in [0, 0, len, len] {
            file.extend(word.to_be_bytes());
        }
        file.extend(packet);
    }
    file
}

/// ERF record header, LRH, BTH, DETH, the MAD, and room for both checksums (which Wireshark does
/// not check).
fn packet(case: &Case) -> Vec<u8> {
    let words = ((8 + 12 + 8 + 256 + 4) / 4) as u8;
    let qpn = case.qpn.0 as u8;
    let vl_and_version = if qpn == 0 { 0xf0 } else { 0x00 };
    const ERF_INFINIBAND: u8 = 21;
    const PACKET: u16 = 8 + 12 + 8 + 256 + 4 + 2;
    let mut packet = vec![0; 8];
    packet.extend([ERF_INFINIBAND, 0x04]);
    for word in [16 + PACKET, 0, PACKET] {
        packet.extend(word.to_be_bytes());
    }
    packet.extend([vl_and_version, 0x02, 0, 2, 0, words, 0, 1]);
    packet.extend([0x64, 0, 0xff, 0xff, 0, 0, 0, qpn, 0, 0, 0, 0]);
    packet.extend([0x80, 0x01, 0, 0, 0, 0, 0, qpn]);
    packet.extend(case.mad);
    packet.extend([0; 6]);
    packet
}

/// Xorshift: values that differ from field to field, and are the same in each run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| (self.next() >> 32) as u8)
    }
}
