// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files as they were met in the field, `tests/data/field`: each with what becomes of it.

use std::fs;
use std::path::{Path, PathBuf};

use cm_msgs::{Guid, Lid};
use pathdb::import::{Files, Imported, Links, Lost, Problem, Warning};
use pathdb::{Fabric, NodeKind, PortId, Rate};
use test_fabrics::dump_fts;

fn field() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/field")
}

/// What becomes of OpenSM's files of a case.
fn case(name: &str) -> Imported {
    let files = Files::in_dir(&field().join(name));
    files.read().unwrap_or_else(|error| panic!("{error}"))
}

fn discovered(name: &str) -> Imported {
    let files = Files {
        links: Links::IbNetDiscover(field().join("real").join(name)),
        tables: None,
        guid2lid: None,
    };
    files.read().unwrap_or_else(|error| panic!("{error}"))
}

/// The only warning.
fn warning(imported: &Imported) -> &Warning {
    let warnings = &imported.warnings;
    let all: Vec<String> = warnings.kept().iter().map(ToString::to_string).collect();
    assert_eq!(warnings.count(), 1, "{all:#?}");
    &warnings.kept()[0]
}

fn port(fabric: &Fabric, lid: u16) -> PortId {
    fabric.port_by_lid(Lid(lid)).expect("a port")
}

/// Whether a packet from one LID arrives at another.
fn arrives(fabric: &Fabric, from: u16, to: u16) -> bool {
    fabric.leg(port(fabric, from), Lid(to)).is_ok()
}

#[test]
fn what_was_read_before_is_read() {
    for name in ["plain", "stale", "utf8", "crlf", "an", "ibroute", "router"] {
        let fabric = case(name).whole().unwrap_or_else(|w| panic!("{name}: {w}"));
        assert!(fabric.end_ports().count() >= 2, "{name}");
    }
    for name in ["plain", "stale", "utf8", "crlf", "ibroute", "router"] {
        let fabric = case(name).fabric;
        assert!(arrives(&fabric, 2, 3) && arrives(&fabric, 3, 2), "{name}");
    }
}

/// NDR's speed is beyond what OpenSM names: no rate is made up.
#[test]
fn a_speed_that_opensm_does_not_name_is_not_known() {
    let fabric = case("an").fabric;
    let tree = port(&fabric, 0xc1);
    assert_eq!(fabric.carries(tree).rate, None);
    assert!(fabric.is_up(tree));
}

#[test]
fn a_routers_port_is_an_end_port() {
    let fabric = case("router").fabric;
    let node = fabric.node(fabric.port(port(&fabric, 3)).node);
    assert_eq!((node.kind, &*node.name), (NodeKind::Adapter, "router1"));
}

#[test]
fn a_link_is_up_if_both_ends_are() {
    for name in ["oneside", "initside", "dwn"] {
        let imported = case(name);
        let warning = warning(&imported);
        assert!(
            matches!(warning.problem, Problem::EndsDiffer("states")),
            "{warning}"
        );
        let fabric = &imported.fabric;
        assert!(
            !fabric.is_up(port(fabric, 3)) && fabric.is_up(port(fabric, 2)),
            "{name}"
        );
        assert!(!arrives(fabric, 2, 3), "{name}");
    }
}

#[test]
fn a_link_has_the_lower_rate_of_its_ends() {
    let imported = case("spd_25_10");
    assert!(matches!(
        warning(&imported).problem,
        Problem::EndsDiffer("rates")
    ));
    assert_eq!(imported.warnings.losses(), 0);
    let fabric = imported.fabric;
    assert_eq!(fabric.carries(port(&fabric, 3)).rate, Some(Rate::G40));
}

/// Of a width that only one end knows, that one counts.
#[test]
fn a_link_has_the_rate_that_one_end_knows() {
    let plain = field().join("plain");
    let list = fs::read_to_string(plain.join("opensm-subnet.lst")).expect("a case");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), list.replacen("PHY=4x", "PHY=??", 1)).expect("room for it");
    let mut files = Files::in_dir(&plain);
    files.links = Links::OpenSm(file.path().to_owned());
    let fabric = files.read().expect("a fabric").fabric;
    assert_eq!(fabric.carries(port(&fabric, 2)).rate, Some(Rate::G40));
}

#[test]
fn a_line_break_in_a_description_is_part_of_it() {
    let fabric = case("newline").whole().unwrap_or_else(|w| panic!("{w}"));
    let node = fabric.node(fabric.port(port(&fabric, 3)).node);
    assert_eq!(&*node.name, "host2\\n");
    assert!(arrives(&fabric, 2, 3));
}

#[test]
fn lid_0_is_nobodys() {
    let imported = case("lid0");
    assert!(matches!(warning(&imported).problem, Problem::LidZero));
    assert_eq!(warning(&imported).lost, Lost::Nothing);
    assert!(arrives(&imported.fabric, 2, 3));
    // The same in guid2lid: OpenSM remembers a port that it gave none.
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let lids = fs::read_to_string(field().join("plain/guid2lid")).expect("a case");
    let lids = format!("{lids}\n0x0000000000000099 0x0000 0x0000\n");
    fs::write(file.path(), lids).expect("room for it");
    let mut files = Files::in_dir(&field().join("plain"));
    files.guid2lid = Some(file.path().to_owned());
    let imported = files.read().expect("a fabric");
    assert!(matches!(warning(&imported).problem, Problem::LidZero));
    assert_eq!(imported.warnings.losses(), 0);
}

#[test]
fn a_line_that_never_ends_is_an_error_and_a_long_one_a_warning() {
    let plain = Files::in_dir(&field().join("plain"));
    let mut files = plain.clone();
    files.links = Links::OpenSm("/dev/zero".into());
    let error = files.read().expect_err("no text");
    assert!(error.to_string().contains("more than"), "{error}");
    let list = fs::read_to_string(field().join("plain/opensm-subnet.lst")).expect("a case");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let long = format!("{list}{}\n", "{ CA ".repeat(10_000));
    fs::write(file.path(), long).expect("room for it");
    files.links = Links::OpenSm(file.path().to_owned());
    assert_eq!(warning(&files.read().expect("the others")).line, 5);
}

/// A description is its host's to choose: what looks like a line of a table changes no other host's routes.
#[test]
fn a_description_that_looks_like_a_route_is_none() {
    let plain = field().join("plain");
    let tables = fs::read_to_string(plain.join("opensm-lfts.dump")).expect("a case");
    // Host 1 has LID 2 behind port 1, host 2 LID 3 behind port 2: before and after the forger's own line.
    for (forger, victim, wrong) in [("host1 HCA-1", 3, 1), ("host2 HCA-1", 2, 2)] {
        let route = format!("0x{victim:04x} {wrong:03} #");
        for forged in [
            format!("x\n{route}"),
            format!("x'\n{route}"),
            format!("'\n{route} '"),
            format!("x\n{route}\n0x{victim:04x} 003 #\n{route}"),
        ] {
            let file = tempfile::NamedTempFile::new().expect("a temporary file");
            fs::write(file.path(), tables.replacen(forger, &forged, 1)).expect("room");
            let mut files = Files::in_dir(&plain);
            files.tables = Some(file.path().to_owned());
            let fabric = files.read().expect("a fabric").fabric;
            let leaf = fabric.nodes_by_name("leaf1").next().expect("a switch");
            assert_ne!(fabric.route(leaf, Lid(victim)), Some(wrong), "{forged:?}");
        }
    }
}

#[test]
fn a_real_ndr_fabric() {
    let imported = discovered("ndr.ibnetdiscover");
    assert_eq!(imported.warnings.count(), 0);
    let fabric = imported.fabric;
    let adapters = fabric.nodes().filter(|(_, n)| n.kind == NodeKind::Adapter);
    assert_eq!((fabric.switch_count(), adapters.count()), (40, 582));
    let of_one_name = fabric.nodes_by_name("MT4129 ConnectX7   Mellanox Technologies");
    assert_eq!(of_one_name.count(), 69);
    let host = port(&fabric, 647);
    assert_eq!(fabric.port(host).guid, Some(Guid(0xe09d_7303_007a_4bd8)));
    assert_eq!(fabric.carries(host).rate, Some(Rate::G400));
    assert!(fabric.is_up(host));
}

/// The same with tables as `dump_fts` prints them, made here by the shortest ways.
#[test]
fn ibnetdiscover_with_the_tables_of_dump_fts() {
    let bare = discovered("ndr.ibnetdiscover").fabric;
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), dump_fts(&bare)).expect("room for it");
    let files = Files {
        links: Links::IbNetDiscover(field().join("real/ndr.ibnetdiscover")),
        tables: Some(file.path().to_owned()),
        guid2lid: None,
    };
    let fabric = files.read().expect("a fabric").whole();
    let fabric = fabric.unwrap_or_else(|warning| panic!("{warning}"));
    let mut arrived = 0;
    let ends: Vec<PortId> = fabric.end_ports().collect();
    for &from in ends.iter().step_by(29) {
        for &to in &ends {
            let lid = fabric.port(to).lids.expect("an end port").base();
            arrived += usize::from(from != to && fabric.leg(from, lid).is_ok());
        }
    }
    assert_eq!(arrived, ends.iter().step_by(29).count() * (ends.len() - 1));
}

#[test]
fn what_ibnetdiscover_prints_of_ports() {
    let imported = discovered("test.ibnetdiscover-p");
    // Which ports are of one device is not in it.
    assert!(matches!(warning(&imported).problem, Problem::NoDevices));
    let fabric = imported.fabric;
    assert_eq!(fabric.nodes().count(), 7);
    let host = port(&fabric, 134);
    let peer = fabric.peer(host).expect("a switch's port");
    assert_eq!(fabric.name(peer).to_string(), "ib-i1l1s01 port 10");
    assert_eq!(fabric.carries(host).rate, Some(Rate::G100));
    let open = fabric.nodes_by_name("ib-i7l2s01").next().expect("a switch");
    assert_eq!(fabric.node(open).ports, 80);

    let fabric = discovered("test2.ibnetdiscover-p").fabric;
    let spine = fabric.nodes_by_name(" 5FB0406-spine-IB02 ").next();
    assert!(spine.is_some(), "blanks at both ends are the name's");
    let fabric = discovered("test3.ibnetdiscover-p").fabric;
    let named = fabric.nodes_by_name("Infiniscale-IV Mellanox Technologies");
    assert_eq!(named.count(), 1, "a name without quotes");
}

/// A directory with `files`, by name.
fn directory(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (name, bytes) in files {
        fs::write(directory.path().join(name), bytes).expect("room for it");
    }
    directory
}

fn plain(name: &str) -> Vec<u8> {
    fs::read(field().join("plain").join(name)).expect("a case")
}

/// The tables of the plain case as OpenSM's other file has them.
fn fdbs(function: &str) -> String {
    let tables = String::from_utf8(plain("opensm-lfts.dump")).expect("text");
    let mut text = String::new();
    for line in tables.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let Some(at) = words.iter().position(|&word| word == "guid") {
            let head = "LID    : Port : Hops : Optimal";
            text.push_str(&format!("{function}: Switch {}\n{head}\n", words[at + 1]));
        } else if line.starts_with("0x") {
            text.push_str(&format!("{} : {}  : 01   : yes\n", words[0], words[1]));
        }
    }
    text.push_str("0x0009 : UNREACHABLE\n");
    text
}

/// What UFM and OpenSM leave in their directories, and ibdiagnet in its own.
#[test]
fn tables_without_a_last_line() {
    let list = plain("opensm-subnet.lst");
    let of_opensm = fdbs("dump_ucast_routes");
    let head = "# This database file was automatically generated by ibdiagnet\n\n";
    let of_ibdiagnet = format!("{head}{}", fdbs("osm_ucast_mgr_dump_ucast_routes"));
    let other_table = "PLFT_NUM: 1\nLID    : Port : Hops : Optimal\n0x0002 : 002  : 00   : yes\n";
    let several = format!("{of_ibdiagnet}{other_table}").replace("LID", "PLFT_NUM: 0\nLID");
    for files in [
        [
            ("opensm-subnet.lst", &list[..]),
            ("opensm.fdbs", of_opensm.as_bytes()),
        ],
        [
            ("ibdiagnet2.lst", &list[..]),
            ("ibdiagnet2.fdbs", of_ibdiagnet.as_bytes()),
        ],
        [
            ("ibdiagnet2.lst", &list[..]),
            ("ibdiagnet2.fdbs", several.as_bytes()),
        ],
    ] {
        let directory = directory(&files);
        let imported = Files::in_dir(directory.path()).read();
        let fabric = imported.unwrap_or_else(|error| panic!("{error}")).whole();
        let fabric = fabric.unwrap_or_else(|warning| panic!("{warning}"));
        assert!(arrives(&fabric, 2, 3) && arrives(&fabric, 3, 2));
    }
    // Of a line that is cut in the middle of the port's number, that is no number.
    let cut = of_opensm.find("0x0003 : 00").expect("a route") + "0x0003 : 00".len();
    let files = [
        ("opensm-subnet.lst", &list[..]),
        ("opensm.fdbs", &of_opensm.as_bytes()[..cut]),
    ];
    let directory = directory(&files);
    let imported = Files::in_dir(directory.path()).read().expect("the others");
    assert_eq!(warning(&imported).lost, Lost::Route);
    assert!(!arrives(&imported.fabric, 2, 3) && arrives(&imported.fabric, 3, 2));
}

#[test]
fn a_directory_without_tables_says_what_writes_them() {
    let directory = directory(&[("opensm-subnet.lst", &plain("opensm-subnet.lst"))]);
    let error = Files::in_dir(directory.path()).read().expect_err("none");
    assert!(matches!(error.problem, Problem::NoTables), "{error}");
}

/// The plain case, with its files changed.
fn changed(change: impl Fn(&str, String) -> Vec<u8>) -> Imported {
    let names = ["opensm-subnet.lst", "opensm-lfts.dump", "guid2lid"];
    let files = names.map(|name| {
        let text = String::from_utf8(plain(name)).expect("text");
        (name, change(name, text))
    });
    let files: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(name, text)| (*name, &text[..]))
        .collect();
    let directory = directory(&files);
    let read = Files::in_dir(directory.path()).read();
    read.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn what_editors_and_other_versions_make_of_the_files() {
    let latin1 = |text: String| {
        let mut bytes = text.into_bytes();
        // The first alone: the other line of the node has another description.
        let at = bytes.windows(5).position(|five| five == b"host1");
        if let Some(at) = at {
            bytes[at + 1] = 0xf6;
        }
        bytes
    };
    let all: [fn(&str, String) -> Vec<u8>; 5] = [
        |name, text| match name {
            "opensm-subnet.lst" => text.replace(' ', "\t").into_bytes(),
            _ => text.replace("0x0002 ", "  0x0002\t").into_bytes(),
        },
        |_, text| text.replacen('\n', "\r\n", 1).into_bytes(),
        |_, text| format!("\u{feff}{text}").into_bytes(),
        |name, text| match name {
            "opensm-subnet.lst" => text.replace("GUID:", "GUID:0x").into_bytes(),
            "guid2lid" => format!("# lids\n{text}").replace("0x", "").into_bytes(),
            _ => text.into_bytes(),
        },
        |_, text| text.replace("host1", "\u{1b}[31m\0\nx").into_bytes(),
    ];
    for (at, change) in all.into_iter().enumerate() {
        let fabric = changed(change).whole();
        let fabric = fabric.unwrap_or_else(|warning| panic!("{at}: {warning}"));
        assert!(arrives(&fabric, 2, 3) && arrives(&fabric, 3, 2), "{at}");
    }
    let imported = changed(|_, text| latin1(text));
    assert_eq!(imported.warnings.count(), 0);
    let named = imported.fabric.nodes_by_name("h\u{fffd}st1 HCA-1");
    assert_eq!(named.count(), 1);
}

/// A vPort: no link names it, and the switch sends packets for it all the same.
#[test]
fn a_lid_that_no_link_names_is_kept_as_a_route() {
    let vport = "0x0009 002 # Channel Adapter portguid 0xdead0000beef0001: 'v'\n";
    let imported = changed(|name, text| match name {
        "opensm-lfts.dump" => text
            .replacen("0x0003", &format!("{vport}0x0003"), 1)
            .into_bytes(),
        _ => text.into_bytes(),
    });
    let fabric = imported
        .whole()
        .unwrap_or_else(|warning| panic!("{warning}"));
    let leaf = fabric.nodes_by_name("leaf1").next().expect("a switch");
    assert_eq!(fabric.route(leaf, Lid(9)), Some(2));
    assert!(arrives(&fabric, 2, 3));
}

#[test]
fn a_name_beyond_all_bounds_costs_its_line() {
    let imported = changed(|name, text| match name {
        "opensm-subnet.lst" => {
            let line = text.lines().next().expect("a link");
            let long = line.replacen("host1", &"x".repeat(900), 1);
            format!("{long}\n{text}").into_bytes()
        }
        _ => text.into_bytes(),
    });
    assert_eq!(warning(&imported).line, 1);
    assert!(arrives(&imported.fabric, 2, 3));
}

/// SystemImageGUID 0 is no box: adapters that have it are not one host.
#[test]
fn adapters_without_a_system_are_boxes_of_their_own() {
    let imported = changed(|name, text| match name {
        "opensm-subnet.lst" => {
            let parts: Vec<&str> = text.split("SystemGUID:").collect();
            let rest = |part: &&str| format!("SystemGUID:0000000000000000{}", &part[16..]);
            let rest: String = parts[1..].iter().map(rest).collect();
            format!("{}{rest}", parts[0]).into_bytes()
        }
        _ => text.into_bytes(),
    });
    let fabric = imported
        .whole()
        .unwrap_or_else(|warning| panic!("{warning}"));
    for lid in [2, 3] {
        let node = fabric.node(fabric.port(port(&fabric, lid)).node);
        assert_eq!(node.system, node.guid);
        assert_eq!(fabric.ports_of_system(node.system).len(), 1);
    }
}

/// The real fabric, with its file changed.
fn discovered_with(change: impl Fn(String) -> String) -> Imported {
    let text = fs::read_to_string(field().join("real/ndr.ibnetdiscover")).expect("a case");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), change(text)).expect("room for it");
    let files = Files {
        links: Links::IbNetDiscover(file.path().to_owned()),
        tables: None,
        guid2lid: None,
    };
    files.read().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn what_ibnetdiscover_prints_in_other_ways() {
    let noise =
        "src/query_smp.c:197; umad (DR path slid 0; dlid 0; 0,1) bad status 110\nibwarn: x\n";
    let whole = discovered_with(|text| text).fabric;
    for change in [
        (|text: String| text.replace('\n', "\r\n")) as fn(String) -> String,
        |text| text.replace("guid=0x", "guid="),
        |text| {
            text.replace("mlx5_0\"", "mlx5\n_0\"")
                .replace("mlx5\\n", "mlx5")
        },
        |text| text.replace("  ", "\t"),
    ] {
        let imported = discovered_with(change);
        assert_eq!(imported.warnings.count(), 0);
        assert_eq!(imported.fabric.nodes().count(), whole.nodes().count());
        assert_eq!(
            imported.fabric.end_ports().count(),
            whole.end_ports().count()
        );
    }
    let imported = discovered_with(|text| text.replace("\n[2]", &format!("\n{noise}[2]")));
    assert_eq!(imported.warnings.count(), 0);
    assert_eq!(imported.fabric, whole);
    // Early versions print no width and speed.
    let imported = discovered_with(|text| text.replace(" 4xNDR", ""));
    assert_eq!(imported.warnings.count(), 0);
    let host = port(&imported.fabric, 647);
    assert!(imported.fabric.is_up(host) && imported.fabric.carries(host).rate.is_none());
}

#[test]
fn a_bad_line_of_ibnetdiscover_costs_one_warning() {
    let node = "\nSwitch\t65 \"S-2c5eab0300b87b40\"";
    let imported = discovered_with(|text| text.replacen(node, "\nSwtch\t65 x", 1));
    assert_eq!(warning(&imported).lost, Lost::Node);
    assert_eq!(imported.fabric.switch_count(), 39);
    let imported = discovered_with(|text| text.replace("lid 647 lmc", "lid 99999999999 lmc"));
    assert_eq!(warning(&imported).lost, Lost::Lids);
    let imported = discovered_with(|text| text.replacen("\n[1]", "\n[x]", 1));
    assert_eq!(warning(&imported).lost, Lost::Link);
}

/// A switch that does not answer costs its own table, which dump_fts then does not print.
#[test]
fn a_switch_without_a_table_costs_that() {
    let bare = discovered("ndr.ibnetdiscover").fabric;
    let tables = dump_fts(&bare);
    let second = tables[1..].find("Unicast lids").expect("another table") + 1;
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), &tables[second..]).expect("room for it");
    let files = Files {
        links: Links::IbNetDiscover(field().join("real/ndr.ibnetdiscover")),
        tables: Some(file.path().to_owned()),
        guid2lid: None,
    };
    let imported = files.read().expect("the others");
    assert_eq!(warning(&imported).lost, Lost::Table);
    assert!(matches!(warning(&imported).problem, Problem::NoTable(_)));
}
