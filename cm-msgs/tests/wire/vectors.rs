// SPDX-License-Identifier: MIT OR Apache-2.0
//! MADs byte by byte, made by others than these codecs: `vectors/*.hex`.
//!
//! A vector is hex digits, spaces, comments from `#` on, and `00*N` for N zero bytes.

use cm_msgs::cm::{ApStatus, FailoverAccepted, Message, RejReason, Rejected, SpStatus};
use cm_msgs::pretty::Pretty;
use cm_msgs::sa::{PathRecord, Record, SaMad, Trap};
use cm_msgs::smp::{PortState, Routing, Smp};
use cm_msgs::{DecodeError, Gid, Lid, PKey, Presence};

macro_rules! vector {
    ($name:literal) => {
        bytes(include_str!(concat!("../vectors/", $name, ".hex")))
    };
}

pub(crate) fn bytes(vector: &str) -> Vec<u8> {
    let digits: String = vector
        .lines()
        .flat_map(|line| line.split('#').next())
        .flat_map(str::split_whitespace)
        .map(|word| match word.strip_prefix("00*") {
            Some(count) => "00".repeat(count.parse().unwrap()),
            None => word.to_owned(),
        })
        .collect();
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// The message in a vector, which must encode to the vector and read as the text beside it.
macro_rules! cm_vector {
    ($name:literal) => {{
        let mad = vector!($name);
        let (header, message) = Message::decode(&mad).unwrap();
        assert_eq!(
            message.encode(header.mgmt_class, header.transaction_id)[..],
            mad
        );
        let text = Pretty {
            header: &header,
            message: &message,
        }
        .to_string();
        assert_eq!(
            text.trim_end(),
            include_str!(concat!("../vectors/", $name, ".txt")).trim_end()
        );
        message
    }};
}

fn gid(text: &str) -> Gid {
    text.parse().unwrap()
}

#[test]
fn association_messages() {
    let Message::Req(req) = cm_vector!("req") else {
        panic!("no REQ")
    };
    assert_eq!(req.alternate.remote_port_gid, gid("fe80::5:ad00:11:2"));
    assert!(req.sap_supported);
    let Message::Rep(rep) = cm_vector!("rep") else {
        panic!("no REP")
    };
    assert_eq!(rep.failover(), FailoverAccepted::NotSupported);
    let Message::Rej(rej) = cm_vector!("rej") else {
        panic!("no REJ")
    };
    assert_eq!(rej.rej_reason(), RejReason::InvalidCommId);
    assert_eq!(rej.message_rejected, Rejected::NoMessage.into());
}

#[test]
fn path_messages() {
    let Message::Lap(lap) = cm_vector!("lap") else {
        panic!("no LAP")
    };
    assert_eq!(
        (lap.alternate.flow_label, lap.alternate.traffic_class),
        (0x54321, 0x20)
    );
    let Message::Apr(apr) = cm_vector!("apr") else {
        panic!("no APR")
    };
    assert_eq!(apr.status(), ApStatus::InvalidGid);
    assert_eq!(apr.better_gid(), Some(gid("fe80::5:ad00:11:3")));
    let Message::Sap(sap) = cm_vector!("sap") else {
        panic!("no SAP")
    };
    assert_eq!(sap.alternate_local_port_lid, Lid(7));
    let Message::Spr(spr) = cm_vector!("spr") else {
        panic!("no SPR")
    };
    assert_eq!(spr.sp_status, SpStatus::Busy.into());
}

#[test]
fn path_record_answer() {
    let mad = vector!("path_record");
    let sa = SaMad::decode(&mad).unwrap();
    assert_eq!(sa.encode()[..], mad);
    let of = PathRecord::any()
        .dgid(Gid::default())
        .sgid(Gid::default())
        .numb_path(1);
    assert_eq!(sa.sa.component_mask, of.component_mask);
    let path = PathRecord {
        dgid: gid("fe80::5:ad00:11:2"),
        sgid: gid("fe80::5:ad00:10:2"),
        dlid: Lid(7),
        slid: Lid(5),
        flow_label: 0x12345,
        hop_limit: 0x3f,
        traffic_class: 0x2a,
        reversible: true,
        numb_path: 1,
        pkey: PKey(0x8001),
        qos_class: 0xabc,
        sl: 5,
        mtu_selector: 2,
        mtu: 5,
        rate_selector: 2,
        rate: 7,
        packet_life_time_selector: 2,
        packet_life_time: 18,
        ..PathRecord::default()
    };
    assert_eq!(sa.path_record(), Ok(path));
}

#[test]
fn port_info_answer() {
    let mad = vector!("port_info");
    let smp = Smp::decode(&mad).unwrap();
    assert_eq!(smp.encode()[..], mad);
    assert_eq!(smp.routing(), Routing::Directed);
    let port = smp.port_info().unwrap();
    assert_eq!(
        (port.state(), port.port_physical_state),
        (PortState::Active, 5)
    );
    assert_eq!(
        (port.lid, port.lmc, port.master_sm_lid, port.master_sm_sl),
        (Lid(8), 2, Lid(1), 3)
    );
    assert_eq!((port.neighbor_mtu, port.mtu_cap), (5, 5));
    assert_eq!(
        (
            port.link_width_active,
            port.link_speed_active,
            port.link_speed_ext_active
        ),
        (2, 4, 2)
    );
    assert!(port.client_reregister);
    assert_eq!(port.subnet_timeout, 18);
}

#[test]
fn out_of_service_report() {
    let mad = vector!("notice_65");
    let sa = SaMad::decode(&mad).unwrap();
    assert_eq!(sa.encode()[..], mad);
    let notice = sa.notice().unwrap();
    assert_eq!(
        notice.trap(),
        Some(Trap::OutOfService(gid("fe80::5:ad00:11:1")))
    );
    assert_eq!(notice.issuer_gid, gid("fe80::5:ad00:12:1"));
    let response = SaMad::decode(&sa.report_response().encode()).unwrap();
    assert_eq!(
        (response.header.method, response.header.transaction_id),
        (0x86, 0x44)
    );
}

#[test]
fn question_for_a_daemon_and_its_answers() {
    let read = |mad: &[u8]| {
        let (header, message) = Presence::decode(mad).unwrap();
        assert_eq!(message.encode(0x2d, header.transaction_id)[..], *mad);
        assert_eq!(header.transaction_id, 0x1c_89ab_cdef);
        message
    };
    assert_eq!(read(&vector!("presence_get")), Presence::Get);
    assert_eq!(read(&vector!("presence_answer")), Presence::here());
    assert!(Presence::here().is_here());
    assert!(!read(&vector!("presence_nobody")).is_here());

    let mut other = vector!("presence_get");
    other[17] = 2;
    assert_eq!(Presence::decode(&other), Err(DecodeError::Attribute(2)));
    let mut set = vector!("presence_get");
    set[3] = 2;
    let method = DecodeError::Method { found: 2, want: 1 };
    assert_eq!(Presence::decode(&set), Err(method));
}
