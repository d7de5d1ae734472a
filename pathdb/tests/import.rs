// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of a fabric: OpenSM's read and compared with what OpenSM's SA answered; and what a broken line costs.

use std::fs;
use std::path::{Path, PathBuf};

use cm_msgs::Lid;
use pathdb::import::{Files, Imported, Links, Lost, Problem, ReadError, Warning};
use pathdb::{Fabric, NodeKind};

const FABRICS: [&str; 4] = ["tree", "tree-cut", "torus", "irregular"];

fn data(fabric: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(fabric)
}

fn files(fabric: &str) -> Files {
    let dir = data(fabric);
    Files {
        links: Links::OpenSm(dir.join("opensm-subnet.txt")),
        tables: Some(dir.join("opensm-lfts.txt")),
        guid2lid: Some(dir.join("guid2lid.txt")),
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("a sample")
}

/// Reads `files` with one of them replaced.
fn read_with(
    files: &Files,
    replaced: impl Fn(&mut Files, PathBuf),
    with: &str,
) -> Result<Imported, ReadError> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), with).expect("room for it");
    let mut files = files.clone();
    replaced(&mut files, file.path().to_owned());
    files.read()
}

fn tables(files: &mut Files, path: PathBuf) {
    files.tables = Some(path);
}

fn links(files: &mut Files, path: PathBuf) {
    files.links = Links::OpenSm(path);
}

fn guid2lid(files: &mut Files, path: PathBuf) {
    files.guid2lid = Some(path);
}

/// All links and what they carry, whatever the order in which they were read.
fn cables(fabric: &Fabric) -> Vec<String> {
    let nodes = fabric.nodes();
    let ports = nodes.flat_map(|(id, node)| (1..=node.ports).map(move |number| (id, number)));
    let cable = |(id, number)| {
        let port = fabric.port_of(id, number)?;
        let (a, b) = (fabric.name(port), fabric.name(fabric.peer(port)?));
        let (carries, up) = (fabric.carries(port), fabric.is_up(port));
        Some(format!("{a} {b} {carries:?} {up}"))
    };
    let mut cables: Vec<String> = ports.filter_map(cable).collect();
    cables.sort();
    cables
}

/// The only warning.
fn warning(imported: &Imported) -> &Warning {
    let warnings = &imported.warnings;
    let all: Vec<String> = warnings.kept().iter().map(ToString::to_string).collect();
    assert_eq!(warnings.count(), 1, "{all:#?}");
    &warnings.kept()[0]
}

fn number(text: Option<&str>) -> u16 {
    text.and_then(|text| text.parse().ok()).expect("a number")
}

#[test]
fn rates_are_those_of_the_sa() {
    for name in FABRICS {
        let fabric = files(name).read().unwrap_or_else(|e| panic!("{e}")).fabric;
        let is_adapter = |port| fabric.node(fabric.port(port).node).kind == NodeKind::Adapter;
        let (mut compared, mut gone) = (0, 0);
        for line in text(&data(name).join("rates.txt")).lines() {
            let mut fields = line.split(' ');
            let mut lid = || Lid(number(fields.next()));
            let (slid, dlid) = (lid(), lid());
            let rate = number(fields.next()) as u8;
            let ports = fabric.port_by_lid(slid).zip(fabric.port_by_lid(dlid));
            let Some((from, to)) = ports.filter(|_| rate != 0) else {
                assert!(rate == 0 && ports.is_none(), "{name}: {slid} to {dlid}");
                gone += 1;
                continue;
            };
            let leg = fabric.leg(from, dlid).expect("it arrives");
            // The files do not give the rate of a switch's port 0, which the SA counts in.
            if is_adapter(from) || is_adapter(to) {
                let ours = leg.carries.rate.map(pathdb::Rate::code);
                assert_eq!(ours, Some(rate), "{name}: {slid} to {dlid}");
                compared += 1;
            }
        }
        assert!(compared > 500, "{name}: {compared}");
        assert_eq!(gone > 0, name == "tree-cut", "{name}: {gone}");
    }
}

#[test]
fn names_lids_and_systems_are_read() {
    let fabric = files("irregular").read().expect("a sample").fabric;
    let node = fabric.nodes_by_name("node 3").next().expect("a node");
    let ports = fabric.ports_of_system(fabric.node(node).system);
    assert_eq!(ports.len(), 2);
    let lids = fabric.port(ports[1]).lids.expect("an end port");
    assert_eq!(lids.lmc(), 2);
    assert_eq!(fabric.name(ports[1]).to_string(), "node 3 port 2");
    assert_eq!(fabric.switch_count(), 7);
    let guid = fabric.port(ports[1]).guid.expect("a GUID");
    assert_eq!(fabric.port_by_guid(guid), Some(ports[1]));
}

#[test]
fn tables_cut_short_are_refused() {
    let files = files("torus");
    let all = text(&data("torus").join("opensm-lfts.txt"));
    let lines: Vec<&str> = all.split_inclusive('\n').collect();
    for cut in (0..lines.len()).step_by(7) {
        let error = read_with(&files, tables, &lines[..cut].concat()).expect_err("it is cut short");
        assert_eq!(error.line, cut + 1, "{error}");
        assert!(
            matches!(
                error.problem,
                Problem::Truncated { .. } | Problem::NoTable(_)
            ),
            "{error}"
        );
    }
}

#[test]
fn a_garbled_route_costs_that_route() {
    let files = files("tree");
    let whole = files.read().expect("a sample").whole().expect("whole");
    let all = text(&data("tree").join("opensm-lfts.txt"));
    for garbage in ["7 2 #", "0x0007 2x #", "0x0007", "0xffff 002 #"] {
        let garbled = all.replacen("0x0007 002 #", garbage, 1);
        let imported = read_with(&files, tables, &garbled).expect("the others");
        let warning = warning(&imported);
        assert_eq!((warning.line, warning.lost), (8, Lost::Route), "{garbage}");
        let fabric = &imported.fabric;
        let leaf = fabric.nodes_by_name("Leaf0").next().expect("a switch");
        for lid in whole.end_ports().filter_map(|port| whole.port(port).lids) {
            let lid = lid.base();
            let kept = whole.route(leaf, lid).filter(|_| lid != Lid(7));
            assert_eq!(fabric.route(leaf, lid), kept, "{lid}");
        }
    }
}

#[test]
fn a_garbled_head_costs_that_table() {
    let files = files("tree");
    let all = text(&data("tree").join("opensm-lfts.txt"));
    let garbled = all.replacen("of switch Lid", "of a switch", 1);
    let imported = read_with(&files, tables, &garbled).expect("the others");
    assert_eq!(warning(&imported).lost, Lost::Table);
    let fabric = &imported.fabric;
    let routed = |name: &str| {
        let switch = fabric.nodes_by_name(name).next().expect("a switch");
        fabric.route(switch, Lid(7)).is_some()
    };
    assert!(!routed("Leaf0") && routed("Leaf1"));
}

#[test]
fn a_garbled_link_is_known_from_its_other_end() {
    let files = files("tree");
    let whole = files.read().expect("a sample").whole().expect("whole");
    let all = text(&data("tree").join("opensm-subnet.txt"));
    let garbled = all.replacen("{ SW Ports", "{ SW Prts", 1);
    let imported = read_with(&files, links, &garbled).expect("the others");
    assert_eq!(warning(&imported).lost, Lost::Link);
    assert_eq!(cables(&imported.fabric), cables(&whole));
}

/// LIDs that the files disagree about are nobody's: no path is made up of two sweeps.
#[test]
fn ports_whose_lids_moved_between_two_files_have_none() {
    let files = files("tree");
    let moved = text(&data("tree").join("guid2lid.txt"))
        .replace("0x0004 0x0004", "0x0100 0x0100")
        .replace("0x0007 0x0007", "0x0004 0x0004")
        .replace("0x0100 0x0100", "0x0007 0x0007");
    let imported = read_with(&files, guid2lid, &moved).expect("the other ports");
    assert_eq!(imported.warnings.losses(), 2);
    for warning in imported.warnings.kept() {
        assert!(
            matches!(warning.problem, Problem::OtherLid { .. }),
            "{warning}"
        );
    }
    for lid in [Lid(4), Lid(7)] {
        assert_eq!(imported.fabric.port_by_lid(lid), None);
    }
    let all = text(&data("tree").join("opensm-subnet.txt"));
    let swapped = all
        .replace("LID:0004 ", "LID:ffff ")
        .replace("LID:0007 ", "LID:0004 ")
        .replace("LID:ffff ", "LID:0007 ");
    let imported = read_with(&files, links, &swapped).expect("the other ports");
    for lid in [Lid(4), Lid(7)] {
        assert_eq!(imported.fabric.port_by_lid(lid), None);
    }
    // The same without guid2lid: only the tables can tell.
    let mut files = files;
    files.guid2lid = None;
    let imported = read_with(&files, links, &swapped).expect("the other ports");
    for lid in [Lid(4), Lid(7)] {
        assert_eq!(imported.fabric.port_by_lid(lid), None);
    }
    assert_eq!(imported.warnings.losses(), 2);
}

#[test]
fn ends_that_differ_make_the_lesser_link() {
    let files = files("tree");
    let all = text(&data("tree").join("opensm-subnet.txt"));
    let subnet = all.replacen("PHY=12x LOG=ACT", "PHY=8x LOG=ACT", 1);
    let imported = read_with(&files, links, &subnet).expect("one of them");
    assert_eq!(warning(&imported).lost, Lost::Lower);
    assert!(!warning(&imported).lost.is_loss());
    let empty = read_with(&files, links, "").expect_err("empty");
    assert!(matches!(empty.problem, Problem::Empty), "{empty}");
}

#[test]
fn without_guid2lid_the_tables_tell_how_many_lids_a_port_has() {
    let mut files = files("irregular");
    let whole = files.read().expect("a sample").whole().expect("whole");
    files.guid2lid = None;
    let again = files.read().expect("a sample").whole().expect("whole");
    assert_eq!(again, whole);
}

#[test]
fn a_missing_file_is_named() {
    let error = Files::in_dir(Path::new("/nowhere"))
        .read()
        .expect_err("missing");
    let text = error.to_string();
    assert!(
        text.starts_with("/nowhere/opensm-lfts.dump:0: No such file"),
        "{text}"
    );
}
