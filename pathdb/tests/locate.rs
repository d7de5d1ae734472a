// SPDX-License-Identifier: MIT OR Apache-2.0
//! What people write for a host or a port, in a fabric that OpenSM routed.

use std::path::Path;

use pathdb::opensm::Files;
use pathdb::{Addresses, Fabric, Place};

/// Hosts of two ports with four LIDs each.
fn irregular() -> Fabric {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/irregular");
    let files = Files {
        subnet: dir.join("opensm-subnet.txt"),
        tables: dir.join("opensm-lfts.txt"),
        guid2lid: dir.join("guid2lid.txt"),
    };
    files.read().expect("a sample")
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

#[test]
fn hosts_with_several_adapters_are_found_by_their_first_word() {
    let fabric = irregular();
    let (all, named, _) = found(&fabric, "node", &Addresses::default());
    assert_eq!(all, named);
    assert_eq!(
        all.len(),
        12,
        "six hosts of two ports, and no switch: {all:?}"
    );
}
