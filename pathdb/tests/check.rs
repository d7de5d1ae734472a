// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is found wrong with fabrics that OpenSM routed, and what differs between two, by name.

use std::path::Path as FilePath;

use cm_msgs::Lid;
use pathdb::check::{Attached, Cause, Fate, Stuck, Without, difference, survey};
use pathdb::import::{Files, Links};
use pathdb::{Capability, Change, Delta, Element, Fabric, Path};
use test_fabrics::{FatTree, Spread};
fn sample(name: &str) -> Fabric {
    let dir = FilePath::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    let files = Files {
        links: Links::OpenSm(dir.join("opensm-subnet.txt")),
        tables: Some(dir.join("opensm-lfts.txt")),
        guid2lid: Some(dir.join("guid2lid.txt")),
    };
    files.read().expect("a sample").whole().expect("whole")
}

fn name(fabric: &Fabric, element: Element) -> String {
    fabric.element_name(element).to_string()
}

fn all(fabric: &Fabric) -> pathdb::check::Survey {
    survey(fabric, u64::MAX, &mut |_, _| ())
}

#[test]
fn hosts_on_one_leaf_are_named() {
    let tree = sample("tree");
    let found = tree.devices_on_one_switch();
    let named: Vec<_> = found
        .iter()
        .map(|found| {
            let host = tree
                .node(tree.port(found.device.ports[0]).node)
                .name
                .to_string();
            (host, tree.node(found.switch).name.to_string())
        })
        .collect();
    let expected = [("Host8", "Leaf0"), ("Host9", "Leaf3")];
    assert_eq!(named, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    assert_eq!(tree.multi_port_devices().len(), 10);
    assert_eq!(tree.unreachable(), []);
    let survey = all(&tree);
    assert_eq!((survey.pairs, survey.looked_at), (45, 45));
    let joins = survey.needless.iter().map(|n| name(&tree, n.element));
    let joins: Vec<_> = joins.collect();
    assert!(joins.contains(&"switch Spine0".to_owned()), "{joins:?}");
    assert!(
        !joins.contains(&"switch Leaf0".to_owned()) || survey.joined > 1,
        "{joins:?}"
    );
}

#[test]
fn a_hole_in_a_table_and_a_circle_are_told_with_their_place() {
    let mut tree = sample("tree");
    let node = |tree: &Fabric, name| tree.nodes_by_name(name).next().expect("a switch");
    let (leaf, spine) = (node(&tree, "Leaf0"), node(&tree, "Spine0"));
    let host1 = tree.port_by_lid(Lid(9)).expect("host 1, port 2");
    let up = (1..=tree.node(leaf).ports).find(|&number| {
        let port = tree.port_of(leaf, number).expect("it has it");
        let peer = tree.peer(port).map(|peer| tree.port(peer).node);
        peer == Some(spine)
    });
    let up = up.expect("a cable to the spine");
    let down = tree
        .peer(tree.port_of(leaf, up).expect("a port"))
        .expect("a cable");
    let route = |switch, lid, port| Change::Route { switch, lid, port };
    let changes = vec![
        route(leaf, Lid(9), None),
        route(leaf, Lid(4), Some(up)),
        route(spine, Lid(4), Some(tree.port_number(down))),
    ];
    tree.apply(&Delta {
        from: 0,
        to: 1,
        changes,
    })
    .expect("they fit");
    let found = tree.unreachable();
    let lids: Vec<_> = found.iter().map(|found| found.lid.0).collect();
    assert_eq!(lids, [4, 9]);
    assert_eq!(found[0].causes, [Cause::Loop(vec![leaf, spine])]);
    assert_eq!(found[1].causes, [Cause::DeadEnd(leaf, Stuck::NoEntry)]);
    assert_eq!(found[1].port, host1);
    let example = tree.name(found[1].example).to_string();
    assert_eq!(
        example, "Host0 port 1",
        "the first port that hangs on Leaf0"
    );
}

#[test]
fn what_cuts_and_reroutes_changed() {
    let (before, after) = (sample("tree"), sample("tree-cut"));
    let found = difference(&before, &after, u64::MAX, &mut |_, _| ());
    assert!(!found.is_none());
    let name = |fabric: &Fabric, port| {
        let peer = fabric.peer(port).expect("a link");
        format!("{} - {}", fabric.name(port), fabric.name(peer))
    };
    let mut unplugged: Vec<_> = found
        .unplugged
        .iter()
        .map(|&port| name(&before, port))
        .collect();
    unplugged.sort();
    assert_eq!(unplugged.len(), 3, "{unplugged:?}");
    assert!(found.plugged.is_empty() && found.new.is_empty());
    let gone: Vec<_> = found
        .gone
        .iter()
        .map(|&id| &*before.node(id).name)
        .collect();
    assert_eq!(gone, ["Host10"], "its only cable was cut");
    let moved: Vec<_> = found
        .moved
        .iter()
        .map(|moved| after.name(moved.port).to_string())
        .collect();
    assert_eq!(moved, ["Host4 port 1"], "its other cable is there");
    assert_eq!(found.moved[0].lids[1], None);
    assert!(!found.routes.is_empty());
    assert!(found.pairs > 0 && found.pairs == found.looked_at);
    let [host4] = found.lost_ports[..] else {
        panic!("{:?}", found.lost_ports);
    };
    assert_eq!(before.name(host4.port).to_string(), "Host4 port 1");
    assert_eq!(host4.up, [2, 1]);

    let back = difference(&after, &before, u64::MAX, &mut |_, _| ());
    assert_eq!(back.new.len(), 1);
    assert_eq!(back.plugged.len(), 3);
    // Host 4 with its one port had no pair to lose; each of the other nine has one with it.
    assert_eq!(back.better as usize + 9, found.worse.len());
    assert_eq!(back.worse.len() as u64, found.better);
    assert_eq!(back.lost_ports, []);
}

#[test]
fn a_reroute_that_joins_two_paths_is_told() {
    let tree = FatTree {
        pods: 2,
        half: 4,
        dual: true,
        lmc: 0,
        spread: Spread::Random(3),
    };
    let before = tree.build().expect("no contradiction");
    let survey_before = all(&before);
    let fabric = &before;
    // All leaves send what they send up over their first uplink.
    let leaves = before
        .nodes()
        .filter(|(_, node)| node.name.starts_with("leaf"));
    let routes = leaves.flat_map(|(leaf, _)| {
        let lids = (1..=32).map(Lid);
        let sent_up = lids.filter(move |&lid| fabric.route(leaf, lid).is_some_and(|port| port > 4));
        sent_up.map(move |lid| Change::Route {
            switch: leaf,
            lid,
            port: Some(5),
        })
    });
    let changes: Vec<Change> = routes.collect();
    let mut after = before.clone();
    after
        .apply(&Delta {
            from: 0,
            to: 1,
            changes,
        })
        .expect("routes");
    let found = difference(&before, &after, u64::MAX, &mut |_, _| ());
    assert!(found.changed.is_empty() && found.gone.is_empty());
    assert_eq!(found.routes.len(), 8, "every leaf");
    assert!(!found.worse.is_empty());
    assert!(
        found
            .worse
            .iter()
            .all(|worse| worse.shared[0] < worse.shared[1])
    );
    let survey_after = all(&after);
    assert!(survey_after.joined > survey_before.joined);
    let sampled = survey(&after, 5, &mut |_, _| ());
    assert_eq!((sampled.looked_at, sampled.pairs), (5, 16 * 15 / 2));

    let mut slow = before.clone();
    let (leaf, _) = slow
        .nodes()
        .find(|(_, node)| &*node.name == "leaf-0-0")
        .expect("a leaf");
    let change = Change::Link {
        end: (leaf, 1),
        up: true,
        carries: Capability::default(),
    };
    slow.apply(&Delta {
        from: 0,
        to: 1,
        changes: vec![change],
    })
    .expect("a link");
    let found = difference(&before, &slow, 0, &mut |_, _| ());
    assert_eq!(found.changed.len(), 1);
    assert_eq!(found.looked_at, 0);
}

#[test]
fn what_depends_on_a_switch_is_told_before_it_goes_down() {
    let tree = sample("tree");
    let without = |text: &str| {
        let switch = tree.locate_switch(text).expect("a switch");
        Without::new(&tree, switch).expect("a switch")
    };
    let hosts = |without: &Without<'_>| {
        let attached = without.attached();
        let name = |one: &Attached| {
            let node = tree.port(one.device.ports[0]).node;
            let name = tree.node(node).name.to_string();
            (name, one.lost, one.device.ports.len())
        };
        attached.iter().map(name).collect::<Vec<_>>()
    };
    let leaf = without("Leaf0");
    let on_leaf = hosts(&leaf);
    assert!(on_leaf.contains(&("Host8".to_owned(), 2, 2)), "{on_leaf:?}");
    assert!(on_leaf.contains(&("Host0".to_owned(), 1, 2)), "{on_leaf:?}");
    let found = leaf.dependence(u64::MAX, &mut |_, _| ());
    // Host 8 has both ports there, so each of the other eleven is cut off from it, and no cable helps.
    let cut = on_leaf.iter().filter(|(_, lost, of)| lost == of).count() as u64;
    assert_eq!((found.pairs, found.looked_at), (66, 66));
    let apart = pairs_with(cut, 12);
    assert!(found.cut >= apart);
    assert_eq!(found.cut_until_rerouted, found.cut - apart);
    assert!(found.alone > 0 && !found.alone_examples.is_empty());
    let spine = without("Spine0");
    assert_eq!(hosts(&spine), []);
    let found = spine.dependence(u64::MAX, &mut |_, _| ());
    assert_eq!(
        found.cut, found.cut_until_rerouted,
        "the other spine is there"
    );

    // A path is judged by itself, as a walk finds it.
    let path = |from: u16, to: u16| Path {
        slid: Lid(from),
        dlid: Lid(to),
    };
    let survey = all(&tree);
    let needless = survey.needless.iter();
    let through_spine = needless
        .filter(|needless| name(&tree, needless.element) == "switch Spine0")
        .flat_map(|needless| &needless.examples);
    let through_spine = through_spine.map(|example| example.primary);
    for primary in through_spine {
        assert_eq!(spine.fate(primary), Fate::Lost);
    }
    let known = tree.end_ports().next().expect("a port");
    let known = tree.port(known).lids.expect("it has LIDs").base().0;
    assert_eq!(spine.fate(path(known, 40_000)), Fate::Unknown);
    let host = tree.nodes_by_name("Host0").next().expect("a host");
    assert!(Without::new(&tree, host).is_none());
}

/// The number of pairs among `of` hosts in which at least one of `some` of these is.
fn pairs_with(some: u64, of: u64) -> u64 {
    some * (of - some) + some * some.saturating_sub(1) / 2
}
