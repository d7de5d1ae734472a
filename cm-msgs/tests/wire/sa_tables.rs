// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables as OpenSM answered them and umad delivered them: `vectors/table_*.hex`.

use crate::vectors::bytes;
use cm_msgs::sa::{
    LinearForwardingTableRecord, LinkRecord, McMemberRecord, NodeRecord, NodeType, PKeyTableRecord,
    PathRecord, PortInfoRecord, Record, SaMessage, SlToVlMappingTableRecord, SwitchInfoRecord,
};
use cm_msgs::smp::PortState;
use cm_msgs::{Gid, Guid, Lid, PKey, mad};

/// The records of a transfer; each must encode to the bytes it came from.
fn records<R: Record>(vector: &str) -> Vec<R> {
    let transfer = bytes(vector);
    let message = SaMessage::decode(&transfer).unwrap();
    assert_eq!(message.header.method, mad::METHOD_GET_TABLE_RESP);
    assert_eq!(message.header.attribute_id, R::ATTRIBUTE);
    let record_len = message.record_len().unwrap();
    let records = message.data.chunks_exact(record_len);
    records
        .map(|bytes| {
            let record = R::from_record(bytes).unwrap();
            assert_eq!(&record.to_data()[..record_len], bytes);
            record
        })
        .collect()
}

macro_rules! records {
    ($name:literal) => {
        records(include_str!(concat!("../vectors/table_", $name, ".hex")))
    };
}

fn gid(text: &str) -> Gid {
    text.parse().unwrap()
}

#[test]
fn nodes() {
    let nodes: Vec<NodeRecord> = records!("node");
    let [switch, hca] = nodes[..] else {
        panic!("{nodes:?}");
    };
    assert_eq!(
        (switch.kind(), hca.kind()),
        (NodeType::Switch, NodeType::Ca)
    );
    assert_eq!((switch.num_ports, hca.num_ports), (9, 2));
    assert_eq!((switch.lid, hca.lid), (Lid(2), Lid(6)));
    assert_eq!(switch.node_description.to_string(), "switch0");
    assert_eq!(hca.node_description.to_string(), "shca2");
    assert_eq!(hca.node_guid, Guid(0x0253_4843_4100_0300));
    assert_eq!(hca.port_guid, Guid(0x0253_4843_4100_0301));
    assert_eq!((hca.local_port_num, hca.device_id), (1, 0x5301));
    assert_eq!(hca.vendor_id, 0x25348);
}

#[test]
fn ports() {
    let ports: Vec<PortInfoRecord> = records!("port");
    let [of_switch, of_hca] = ports[..] else {
        panic!("{ports:?}");
    };
    assert_eq!((of_switch.lid, of_switch.port_num), (Lid(2), 1));
    assert_eq!(of_switch.port_info.lid, Lid(0), "only port 0 has it");
    assert_eq!((of_hca.lid, of_hca.port_num), (Lid(9), 1));
    let info = of_hca.port_info;
    assert_eq!((info.lid, info.master_sm_lid), (Lid(9), Lid(1)));
    assert_eq!(
        (info.state(), info.port_physical_state),
        (PortState::Active, 5)
    );
    assert_eq!((info.neighbor_mtu, info.link_speed_active), (5, 4));
    assert_eq!(info.capability_mask, 0x0641_0a68);
}

#[test]
fn switches_and_links() {
    let switches: Vec<SwitchInfoRecord> = records!("switch");
    let lids: Vec<_> = switches.iter().map(|switch| switch.lid).collect();
    assert_eq!(lids, [Lid(2), Lid(3)]);
    let switch = switches[0];
    assert_eq!(
        (switch.linear_fdb_cap, switch.linear_fdb_top),
        (0xc000, Lid(18))
    );
    assert!(switch.enhanced_port0 && !switch.port_state_change);
    assert_eq!(switch.life_time_value, 18);

    let tables: Vec<LinearForwardingTableRecord> = records!("lft");
    let table = tables[0];
    assert_eq!((table.lid, table.block), (Lid(2), 0));
    assert_eq!(table.ports[..6], [255, 8, 0, 9, 1, 2]);
    assert!(table.ports[19..].iter().all(|port| *port == 255));

    let links: Vec<LinkRecord> = records!("link");
    let ends = |link: &LinkRecord| (link.from_lid.0, link.from_port, link.to_lid.0, link.to_port);
    let links: Vec<_> = links.iter().map(ends).collect();
    assert_eq!(links, [(2, 1, 4, 1), (11, 2, 3, 1)]);
}

#[test]
fn tables_of_ports() {
    let lanes: Vec<SlToVlMappingTableRecord> = records!("sl2vl");
    assert_eq!(
        (lanes[0].lid, lanes[0].input_port, lanes[0].output_port),
        (Lid(2), 3, 0)
    );
    let keys: Vec<PKeyTableRecord> = records!("pkey");
    assert_eq!((keys[0].lid, keys[0].port_num), (Lid(2), 2));
    assert_eq!(keys[0].pkeys().collect::<Vec<_>>(), [PKey(0xffff)]);
}

#[test]
fn paths_and_groups() {
    let paths: Vec<PathRecord> = records!("path");
    let path = paths[1];
    assert_eq!((path.slid, path.dlid), (Lid(6), Lid(4)));
    assert_eq!(path.dgid, gid("fe80::253:4843:4100:101"));
    assert_eq!((path.mtu, path.rate, path.packet_life_time), (5, 7, 18));
    assert!(path.reversible);

    let groups: Vec<McMemberRecord> = records!("group");
    let member = groups[1];
    assert_eq!(member.mgid, gid("ff12:601b:ffff::2"));
    assert_eq!((member.mlid, member.join_state), (0xc00b, 8));
    assert_eq!((member.q_key, member.mtu, member.rate), (0xb1b, 4, 3));
}
