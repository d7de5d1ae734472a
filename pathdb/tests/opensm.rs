// SPDX-License-Identifier: MIT OR Apache-2.0
//! OpenSM's files: read, compared with what OpenSM's SA answered, and refused when broken.

use std::fs;
use std::path::{Path, PathBuf};

use cm_msgs::Lid;
use pathdb::opensm::{Files, Problem, ReadError};
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
        subnet: dir.join("opensm-subnet.txt"),
        tables: dir.join("opensm-lfts.txt"),
        guid2lid: dir.join("guid2lid.txt"),
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
) -> Result<Fabric, ReadError> {
    let thread = std::thread::current();
    let name = format!(
        "pathdb-{}-{}",
        std::process::id(),
        thread.name().unwrap_or_default()
    );
    let path = std::env::temp_dir().join(name);
    fs::write(&path, with).expect("a temporary file");
    let mut files = files.clone();
    replaced(&mut files, path.clone());
    let read = files.read();
    fs::remove_file(&path).expect("it is there");
    read
}

fn number(text: Option<&str>) -> u16 {
    text.and_then(|text| text.parse().ok()).expect("a number")
}

#[test]
fn rates_are_those_of_the_sa() {
    for name in FABRICS {
        let fabric = files(name).read().unwrap_or_else(|e| panic!("{e}"));
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
    let fabric = files("irregular").read().expect("a sample");
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
    let all = text(&files.tables);
    let lines: Vec<&str> = all.split_inclusive('\n').collect();
    for cut in (0..lines.len()).step_by(7) {
        let part = lines[..cut].concat();
        let error = read_with(&files, |files, path| files.tables = path, &part)
            .expect_err("it is cut short");
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
fn a_garbled_table_is_refused() {
    let files = files("tree");
    let part = text(&files.tables).replacen("0x0007 002 #", "7 2 #", 1);
    let error = read_with(&files, |files, path| files.tables = path, &part).expect_err("garbage");
    assert!(
        error
            .to_string()
            .contains("the table of 'Leaf0' is cut short or garbled after 6"),
        "{error}"
    );
    assert!(error.to_string().contains(":8: "), "{error}");
}

#[test]
fn files_of_different_sweeps_are_refused() {
    let files = files("tree");
    let moved = text(&files.guid2lid)
        .replace("0x0004 0x0004", "0x0100 0x0100")
        .replace("0x0007 0x0007", "0x0004 0x0004")
        .replace("0x0100 0x0100", "0x0007 0x0007");
    let error = read_with(&files, |files, path| files.guid2lid = path, &moved).expect_err("moved");
    assert!(
        matches!(error.problem, Problem::OtherLid { here: Lid(4), .. }),
        "{error}"
    );
    let subnet = text(&files.subnet);
    let swapped = subnet
        .replace("LID:0004 ", "LID:ffff ")
        .replace("LID:0007 ", "LID:0004 ")
        .replace("LID:ffff ", "LID:0007 ");
    let both = |files: &mut Files, path: PathBuf| files.subnet = path;
    let error = read_with(&files, both, &swapped).expect_err("not in guid2lid");
    assert!(
        error.to_string().ends_with("are the files of one sweep?"),
        "{error}"
    );
}

#[test]
fn a_link_that_differs_from_its_other_end_is_refused() {
    let files = files("tree");
    let subnet = text(&files.subnet).replacen("PHY=12x LOG=ACT", "PHY=8x LOG=ACT", 1);
    let error = read_with(&files, |files, path| files.subnet = path, &subnet).expect_err("8x, 12x");
    assert!(
        error
            .to_string()
            .contains("is described twice, and differently"),
        "{error}"
    );
    let empty = read_with(&files, |files, path| files.subnet = path, "").expect_err("empty");
    assert!(matches!(empty.problem, Problem::Empty), "{empty}");
}

#[test]
fn a_missing_file_is_named() {
    let error = Files::in_dir(Path::new("/nowhere"))
        .read()
        .expect_err("missing");
    let text = error.to_string();
    assert!(
        text.starts_with("/nowhere/guid2lid:0: No such file"),
        "{text}"
    );
}
