// SPDX-License-Identifier: MIT OR Apache-2.0
//! What people write for a host or a port, in a fabric that OpenSM routed.

use std::path::Path;

use cm_msgs::{Guid, Lid};
use pathdb::import::{Files, Links};
use pathdb::{Addresses, Builder, Fabric, LidRange, NodeKind, NodeSpec, Place, PortSpec};

/// Hosts of two ports with four LIDs each.
fn irregular() -> Fabric {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/irregular");
    let files = Files {
        links: Links::OpenSm(dir.join("opensm-subnet.txt")),
        tables: Some(dir.join("opensm-lfts.txt")),
        guid2lid: Some(dir.join("guid2lid.txt")),
    };
    files.read().expect("a sample").whole().expect("whole")
}

/// Names of all ports, names of the named, the LID.
fn found(fabric: &Fabric, text: &str, addresses: &Addresses) -> (Vec<String>, Vec<String>, u16) {
    let place: Place = fabric.locate(text, addresses).expect(text);
    let names = |ports: &[_]| ports.iter().map(|&p| fabric.name(p).to_string()).collect();
    let lid = place.lid.map_or(0, |lid| lid.0);
    (names(&place.ports), names(&place.named), lid)
}

#[test]
fn a_host_is_found_by_whatever_it_has() {
    let fabric = irregular();
    let node = fabric.nodes_by_name("node 3").next().expect("a node");
    let ports = fabric.ports_of_system(fabric.node(node).system);
    let guid = |at: usize| fabric.port(ports[at]).guid.expect("a GUID").0;
    let lid = fabric.port(ports[1]).lids.expect("an end port").base().0 + 2;
    let prefix = "fe80::";
    let gid = |at: usize| {
        let [.., a, b, c, d] = [48, 32, 16, 0].map(|shift| (guid(at) >> shift) as u16);
        format!("{prefix}{a:x}:{b:x}:{c:x}:{d:x}")
    };
    let hosts = format!(
        "10.0.0.3 {}\nboth {}\nboth {}\n[pkey=1]\nboth {}\n10.0.0.9 fe80::9\n",
        gid(1),
        gid(1),
        gid(0),
        gid(0)
    );
    let hosts = Addresses::read_from(Path::new("hosts"), hosts.as_bytes()).expect("hosts");
    let none = Addresses::default();
    let both = || vec!["node 3 port 1".to_owned(), "node 3 port 2".to_owned()];
    let second = || vec!["node 3 port 2".to_owned()];
    for (text, addresses, named, lid) in [
        ("node 3", &none, both(), 0),
        ("node 3/2", &none, second(), 0),
        (&format!("{:#018x}", guid(1)), &none, second(), 0),
        (
            &format!("{:#x}", fabric.node(node).guid.0),
            &none,
            both(),
            0,
        ),
        // As OpenSM's files have it, and sysfs.
        (&format!("{:016x}", guid(1)), &none, second(), 0),
        (&format!("{:#018X}", guid(1)), &none, second(), 0),
        (
            &gid(1)["fe80::".len()..]
                .split(':')
                .map(|four| format!("{four:0>4}"))
                .collect::<Vec<_>>()
                .join(":"),
            &none,
            second(),
            0,
        ),
        (&gid(1), &none, second(), 0),
        (&lid.to_string(), &none, second(), lid),
        (&format!("{lid:#x}"), &none, second(), lid),
        ("10.0.0.3", &hosts, second(), 0),
        ("both", &hosts, both(), 0),
    ] {
        assert_eq!(
            found(&fabric, text, addresses),
            (both(), named, lid),
            "{text}"
        );
    }
    let switch = fabric
        .nodes()
        .find(|(_, node)| node.ports > 2)
        .expect("a switch");
    let name = &switch.1.name;
    let own = vec![name.to_string()];
    assert_eq!(found(&fabric, name, &none), (own.clone(), own, 0));

    for (text, wanted) in [
        ("node 3/3", "'node 3/3' has no port with a lid"),
        ("node 99", "node 'node 99' is not in this fabric"),
        ("5000", "lid '5000' is not in this fabric"),
        ("0", "lid '0' is not in this fabric"),
        ("0x123456", "guid '0x123456' is not in this fabric"),
        ("10.0.0.1", "address '10.0.0.1' is not in this fabric"),
        (
            "10.0.0.9",
            "10.0.0.9 has gid fe80::9, which is not in this fabric",
        ),
    ] {
        let error = fabric.locate(text, &hosts).expect_err(text);
        assert_eq!(error.to_string(), wanted);
    }
}

/// Two adapters of one box, and one of another that has the first word of their descriptions, too.
#[test]
fn what_several_boxes_are_called_names_none_of_them() {
    let mut builder = Builder::new();
    let adapters = [
        (1, 10, "host HCA-1"),
        (2, 10, "host HCA-2"),
        (3, 30, "other HCA-1"),
        (4, 40, "twin"),
        (5, 50, "twin"),
    ];
    for (guid, system, name) in adapters {
        let node = builder.node(NodeSpec {
            kind: NodeKind::Adapter,
            guid: Guid(guid),
            system: Guid(system),
            name: name.into(),
            ports: 1,
        });
        let spec = PortSpec {
            guid: Some(Guid(100 + guid)),
            lids: LidRange::new(Lid(guid as u16), 0),
            pkeys: Vec::new(),
        };
        builder
            .port(node.expect("a node"), 1, &spec)
            .expect("a port");
    }
    let fabric = builder.routing().finish();
    let none = Addresses::default();
    let (all, named, _) = found(&fabric, "host", &none);
    assert_eq!(all, ["host HCA-1 port 1", "host HCA-2 port 1"]);
    assert_eq!(all, named);
    for text in ["twin", "twin/1"] {
        let error = fabric.locate(text, &none).expect_err("two boxes");
        let wanted = format!(
            "'{text}' names 2 boxes: name one by guid, lid or gid, such as 0x0000000000000004 ('twin') or \
             0x0000000000000005 ('twin')"
        );
        assert_eq!(error.to_string(), wanted);
    }
    assert_eq!(found(&fabric, "5", &none).0, ["twin port 1"]);
}

#[test]
fn a_switch_is_named_by_guid_or_by_a_name_that_no_other_switch_has() {
    let fabric = irregular();
    let wanted = fabric.nodes_by_name("SW 3").next().expect("a switch");
    let guid = format!("{:#x}", fabric.node(wanted).guid.0);
    let lid = fabric.port(fabric.port_of(wanted, 0).expect("port 0")).lids;
    let lid = lid.expect("a switch has a LID").base().to_string();
    for text in ["SW 3", &guid, &lid] {
        assert_eq!(fabric.locate_switch(text), Ok(wanted), "{text}");
    }
    let error = |text: &str| fabric.locate_switch(text).expect_err(text).to_string();
    let switches = fabric.switch_count();
    let several = error("SW");
    let start = format!("'SW' names {switches} switches: name one by guid, such as 0x");
    assert!(several.starts_with(&start), "{several}");
    assert!(several.contains("') or 0x"), "{several}");
    assert_eq!(error("node 3"), "'node 3' is not a switch");
    assert_eq!(error("SW 99"), "switch 'SW 99' is not in this fabric");
    assert_eq!(error("0x12345"), "guid '0x12345' is not in this fabric");
    let host = fabric.nodes_by_name("node 3").next().expect("a node");
    let host = format!("{:#x}", fabric.node(host).guid.0);
    assert_eq!(error(&host), format!("'{host}' is not a switch"));
}
