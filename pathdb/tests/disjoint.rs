// SPDX-License-Identifier: MIT OR Apache-2.0
//! Alternates in a fabric that OpenSM routed, by name, and what reroutes do to them.

use std::path::Path as FilePath;

use cm_msgs::{Guid, Lid};
use pathdb::import::{Files, Links};
use pathdb::{
    Alternate, Builder, Capability, Change, Delta, Fabric, Fault, Finder, LidRange, NodeId,
    NodeKind, NodeSpec, Pair, Path, PortId, PortSpec, Sharing, Verdict, recheck, recheck_after,
};

/// Hosts 0 to 7 have ports on two leaves, 8 and 9 both on one, 10 and 11 only one.
fn tree() -> Fabric {
    let dir = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tree");
    let files = Files {
        links: Links::OpenSm(dir.join("opensm-subnet.txt")),
        tables: Some(dir.join("opensm-lfts.txt")),
        guid2lid: Some(dir.join("guid2lid.txt")),
    };
    files.read().expect("a sample").whole().expect("whole")
}

fn ports(fabric: &Fabric, host: &str) -> Vec<PortId> {
    let node = fabric.nodes_by_name(host).next().expect("a host");
    fabric.ports_of_system(fabric.node(node).system)
}

/// The path between the first ports.
fn primary(fabric: &Fabric, from: &[PortId], to: &[PortId]) -> Path {
    let lid = |port: PortId| fabric.port(port).lids.expect("an end port").base();
    Path {
        slid: lid(from[0]),
        dlid: lid(to[0]),
    }
}

/// The alternate for two hosts and what it shares with the primary, in words.
fn alternate(fabric: &Fabric, from: &str, to: &str) -> (Path, Option<Alternate>, Vec<String>) {
    let (local, remote) = (ports(fabric, from), ports(fabric, to));
    let primary = primary(fabric, &local, &remote);
    let mut finder = Finder::new(fabric);
    let found = finder
        .best(primary, &local, &remote)
        .expect("the primary works");
    let shared = found.map(|found| {
        let shared = fabric.shared(primary, found.path, &local, &remote);
        shared.expect("both work")
    });
    let words = shared.into_iter().flatten().map(|shared| {
        let only = if shared.unavoidable { "only " } else { "" };
        format!("{only}{}", fabric.element_name(shared.element))
    });
    (primary, found, words.collect())
}

#[test]
fn well_cabled_hosts_share_nothing() {
    let fabric = tree();
    let (_, found, shared) = alternate(&fabric, "Host0", "Host1");
    assert!(found.is_some_and(|found| found.shared.is_none()));
    assert!(shared.is_empty(), "{shared:?}");
}

#[test]
fn badly_cabled_hosts_share_their_leaves() {
    let fabric = tree();
    let (_, found, shared) = alternate(&fabric, "Host8", "Host9");
    let found = found.expect("an alternate");
    assert_eq!((found.shared.switches, found.shared.links), (3, 0));
    assert_eq!(
        shared,
        ["only switch Leaf0", "switch Spine0", "only switch Leaf3"]
    );
}

#[test]
fn a_host_with_one_port_and_one_lid_has_no_alternate() {
    let fabric = tree();
    let (_, found, _) = alternate(&fabric, "Host10", "Host11");
    assert_eq!(found, None);
}

#[test]
fn the_only_cable_is_told_from_what_routing_could_avoid() {
    let fabric = tree();
    let (_, found, shared) = alternate(&fabric, "Host10", "Host4");
    let found = found.expect("host 4 has two ports");
    assert_eq!((found.shared.switches, found.shared.links), (1, 1));
    assert_eq!(
        shared,
        [
            "only switch Leaf1",
            "only link Leaf1 port 7 - Host10 port 1"
        ]
    );
}

#[test]
fn a_reroute_is_noticed_where_it_joins_two_paths() {
    let mut fabric = tree();
    let (primary, found, _) = alternate(&fabric, "Host0", "Host4");
    let found = found.expect("an alternate");
    let pair = Pair {
        primary,
        alternate: found.path,
        shared: found.shared,
    };
    assert_eq!(recheck(&fabric, &[pair; 3]), []);

    // The leaf of the alternate sends its packets over every one of its uplinks in turn.
    let from = fabric.port_by_lid(found.path.slid).expect("a port");
    let leaf = fabric.peer(from).expect("a leaf");
    let leaf = fabric.port(leaf).node;
    let (mut more, mut fine) = (0, 0);
    for (epoch, port) in (0..).zip(9..=12) {
        let change = Change::Route {
            switch: leaf,
            lid: found.path.dlid,
            port: Some(port),
        };
        let delta = Delta {
            from: epoch,
            to: epoch + 1,
            changes: vec![change],
        };
        fabric.apply(&delta).expect("a route");
        match recheck(&fabric, &[pair])[..] {
            [] => fine += 1,
            [(0, Verdict::SharesMore(shared))] => {
                assert!(shared.switches > pair.shared.switches, "{shared:?}");
                more += 1;
            }
            ref other => panic!("{other:?}"),
        }
    }
    assert_eq!((more, fine), (2, 2), "each spine by two cables");

    let none = Change::Route {
        switch: leaf,
        lid: found.path.dlid,
        port: None,
    };
    let delta = Delta {
        from: 4,
        to: 5,
        changes: vec![none],
    };
    fabric.apply(&delta).expect("a route");
    let verdicts = recheck(&fabric, &[pair]);
    assert!(
        matches!(verdicts[..], [(0, Verdict::AlternateFails(_))]),
        "{verdicts:?}"
    );
}

#[test]
fn cables_without_switches_fail_too() {
    let mut builder = Builder::new();
    let hosts: Vec<NodeId> = [1, 2]
        .map(|number| NodeSpec {
            kind: NodeKind::Adapter,
            guid: Guid(number),
            system: Guid(number),
            name: format!("host {number}").into(),
            ports: 2,
        })
        .map(|spec| builder.node(spec).expect("new"))
        .into();
    for (port, [a, b]) in [(1, [1, 2]), (2, [3, 4])] {
        for (&host, number) in hosts.iter().zip([a, b]) {
            let spec = PortSpec {
                lids: LidRange::new(Lid(number), 0),
                ..PortSpec::default()
            };
            builder.port(host, port, &spec).expect("new");
        }
        let ends = ((hosts[0], port), (hosts[1], port));
        builder
            .link(ends.0, ends.1, Capability::default(), true)
            .expect("new");
    }
    let mut fabric = builder.routing().finish();
    let path = |slid, dlid| Path {
        slid: Lid(slid),
        dlid: Lid(dlid),
    };
    let [local, remote] = [1, 2].map(|number| fabric.ports_of_system(Guid(number)));
    let found = Finder::new(&fabric).best(path(1, 2), &local, &remote);
    let found = found.expect("the primary works").expect("an alternate");
    assert_eq!(found.path, path(3, 4));
    let pair = Pair {
        primary: path(1, 2),
        alternate: found.path,
        shared: found.shared,
    };
    let delta = Delta {
        from: 0,
        to: 1,
        changes: vec![Change::Link {
            end: (hosts[1], 1),
            up: false,
            carries: Capability::default(),
        }],
    };
    fabric.apply(&delta).expect("a link");
    let verdicts = recheck_after(&fabric, &delta, &[pair]);
    let expected = [(0, Verdict::PrimaryFails(Fault::DeadEnd))];
    assert_eq!(verdicts, expected);
}

#[test]
fn switches_count_before_links() {
    let few_switches = Sharing {
        switches: 1,
        groups: 0,
        links: 9,
    };
    let few_links = Sharing {
        switches: 2,
        groups: 0,
        links: 0,
    };
    assert!(few_switches < few_links);
}
