// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of shared-risk groups: what they may say, and what they change.

use std::path::Path as FilePath;

use pathdb::import::{Files, Links};
use pathdb::{Element, Fabric, Finder, Path, PortId, RiskFile};

/// Four leaves, two spines; hosts 0 to 7 have ports on two leaves.
fn tree() -> Fabric {
    let dir = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tree");
    let files = Files {
        links: Links::OpenSm(dir.join("opensm-subnet.txt")),
        tables: Some(dir.join("opensm-lfts.txt")),
        guid2lid: Some(dir.join("guid2lid.txt")),
    };
    files.read().expect("a sample").whole().expect("whole")
}

fn read(text: &str) -> Result<RiskFile, pathdb::risks::ReadError> {
    RiskFile::read_from(FilePath::new("risks"), text.as_bytes())
}

#[test]
fn members_are_named_by_description_guid_or_lid() {
    let fabric = tree();
    let spine = fabric.nodes_by_name("Spine0").next().expect("a spine");
    let own = fabric.port_of(spine, 0).expect("port 0");
    let lid = fabric.port(own).lids.expect("it has a LID").base();
    let guid = fabric.node(spine).guid;
    let text = format!(
        "# all the same\n[ spine ]\nswitch Spine0\n  switch {guid}\nswitch {lid}\n\n\
         [links]\nlink Spine0/1\nlink\t{lid}/2\nlink {guid}/1\n"
    );
    let (risks, missing) = read(&text).expect("groups").bind(&fabric);
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(risks.len(), 2);
    let mut with_risks = fabric.clone();
    with_risks.set_risks(risks.clone());
    assert_ne!(with_risks, fabric);
    let first = fabric.port_of(spine, 1).expect("a port");
    let named = |port: PortId| port.min(fabric.peer(port).expect("linked"));
    let second = fabric.port_of(spine, 2).expect("a port");
    let groups: Vec<_> = with_risks.risks().groups().collect();
    assert_eq!(risks.name(groups[0]), "spine");
    assert_eq!(risks.members(groups[0]), [Element::Switch(spine)]);
    let links = [named(first), named(second)].map(Element::Link);
    assert_eq!(risks.members(groups[1]), links);
    let of = |element| with_risks.groups_of(element).collect::<Vec<_>>();
    assert_eq!(of(Element::Switch(spine)), [groups[0]]);
    assert_eq!(of(Element::Link(first)), [groups[1]], "by either end");
    let third = fabric.port_of(spine, 3).expect("a port");
    assert_eq!(of(Element::Link(third)), []);
    let name = with_risks.element_name(Element::Group(groups[1]));
    assert_eq!(name.to_string(), "group links");
}

#[test]
fn one_thing_is_in_so_many_groups_only() {
    let fabric = tree();
    let groups = |count: usize| -> String {
        let group = |number| format!("[{number}]\nswitch Spine0\nswitch Spine0\n");
        (0..count).map(group).collect()
    };
    let (risks, missing) = read(&groups(64)).expect("groups").bind(&fabric);
    assert_eq!((risks.len(), missing.len()), (64, 0));
    let (risks, missing) = read(&groups(65)).expect("groups").bind(&fabric);
    assert_eq!((risks.len(), missing.len()), (65, 2));
    let error = missing[0].to_string();
    assert_eq!(error, "risks:194: 'Spine0' is in more than 64 groups");
}

#[test]
fn a_line_without_end_is_not_read_whole() {
    let endless = std::io::BufReader::new(std::io::repeat(b'a'));
    let error = RiskFile::read_from(FilePath::new("risks"), endless).expect_err("no line");
    assert_eq!(
        error.to_string(),
        "risks:1: a line has more than 4096 bytes"
    );
}

#[test]
fn what_is_no_group_is_refused_with_its_line() {
    for (text, wanted) in [
        ("switch Spine0", "risks:1: 'switch Spine0' is in no group"),
        ("[a]\nSpine0\n", "risks:2: want [GROUP], 'switch NODE' or"),
        ("[a]\nlink Spine0\n", "risks:2: want [GROUP], 'switch NODE'"),
        (
            "[a]\nlink Spine0/x\n",
            "risks:2: want [GROUP], 'switch NODE'",
        ),
        ("[a\nswitch b", "risks:1: want [GROUP], 'switch NODE'"),
        ("[ ]\nswitch b", "risks:1: want [GROUP], 'switch NODE'"),
        ("[a]\n\n[b]\nswitch c", "risks:3: group 'a' has no members"),
        ("[a]\n", "risks:2: group 'a' has no members"),
        (
            "[a]\nswitch b\n[a]\n",
            "risks:3: group 'a' begins a second time",
        ),
    ] {
        let error = read(text).expect_err(text).to_string();
        assert!(error.starts_with(wanted), "{error}");
    }
}

#[test]
fn what_the_fabric_does_not_have_is_told_and_the_rest_holds() {
    let text = "[a]\nswitch Spine9\nswitch Spine1\nswitch Host0\nlink Spine0/24\nlink Spine0/200\n\
        switch 9999\nswitch 0x123456\n";
    let (risks, missing) = read(text).expect("groups").bind(&tree());
    let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
    assert_eq!(
        missing,
        [
            "risks:2: node 'Spine9' is not in this fabric",
            "risks:4: 'Host0' is no switch",
            "risks:5: 'Spine0' has no link in port 24",
            "risks:6: 'Spine0' has no link in port 200",
            "risks:7: node '9999' is not in this fabric",
            "risks:8: node '0x123456' is not in this fabric",
        ]
    );
    let group = risks.groups().next().expect("a group");
    assert_eq!(risks.members(group).len(), 1);
}

#[test]
fn two_spines_in_one_chassis_are_no_alternate_of_each_other() {
    let mut fabric = tree();
    let ports = |fabric: &Fabric, name: &str| {
        let node = fabric.nodes_by_name(name).next().expect("a host");
        fabric.ports_of_system(fabric.node(node).system)
    };
    let (local, remote) = (ports(&fabric, "Host0"), ports(&fabric, "Host5"));
    let lid = |port: PortId| fabric.port(port).lids.expect("an end port").base();
    let primary = Path {
        slid: lid(local[0]),
        dlid: lid(remote[0]),
    };
    let best = |fabric: &Fabric| {
        let found = Finder::new(fabric).best(primary, &local, &remote);
        found.expect("it works").expect("an alternate")
    };
    assert!(best(&fabric).shared.is_none());
    let file = read("[chassis]\nswitch Spine0\nswitch Spine1\n").expect("a group");
    let (risks, _) = file.bind(&fabric);
    fabric.set_risks(risks);
    let found = best(&fabric);
    let shared = fabric.shared(primary, found.path, &local, &remote);
    let names: Vec<_> = shared
        .expect("both work")
        .iter()
        .map(|shared| {
            (
                fabric.element_name(shared.element).to_string(),
                shared.unavoidable,
            )
        })
        .collect();
    assert_eq!(names, [("group chassis".to_owned(), true)], "{found:?}");
}
