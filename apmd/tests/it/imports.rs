// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl fabric import` of files as they were met in the field, and `apmctl path show` of what it makes of them.

use std::fs;
use std::path::PathBuf;

use pathdb::import::{Files, Links};
use test_fabrics::dump_fts;

use crate::apmctl::{json, run};
use crate::directory::Directory;

fn field(case: &str) -> String {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../pathdb/tests/data/field");
    data.join(case).display().to_string()
}

/// A snapshot of the real NDR fabric with forwarding tables, which its file has not.
fn ndr(directory: &Directory) -> String {
    let links = field("real/ndr.ibnetdiscover");
    let files = Files {
        links: Links::IbNetDiscover(links.clone().into()),
        tables: None,
        guid2lid: None,
    };
    let fabric = files.read().expect("a fabric").fabric;
    let tables = directory.write("dump_fts", &dump_fts(&fabric));
    let snapshot = directory.file("ndr.fabric");
    let import = [
        "fabric",
        "import",
        "--ibnetdiscover",
        &links,
        "--tables",
        &tables,
    ];
    let (code, _, error) = run(&[&import[..], &["-o", &snapshot]].concat());
    assert_eq!((code, error.as_str()), (0, ""));
    snapshot
}

#[test]
fn every_case_is_imported_with_its_warnings() {
    let directory = Directory::new();
    let snapshot = directory.file("fabric");
    for (case, warning) in [
        ("plain", None),
        ("an", None),
        ("stale", None),
        ("utf8", None),
        ("crlf", None),
        ("router", None),
        ("ibroute", None),
        ("newline", None),
        (
            "oneside",
            Some("different states; taken: up only if both ends are"),
        ),
        (
            "initside",
            Some("different states; taken: up only if both ends are"),
        ),
        (
            "dwn",
            Some("different states; taken: up only if both ends are"),
        ),
        (
            "spd_25_10",
            Some("different rates; taken: up only if both ends are"),
        ),
        (
            "lid0",
            Some("lid 0 is no port's; left out: nothing but this line"),
        ),
    ] {
        let (code, _, error) = run(&["fabric", "import", &field(case), "-o", &snapshot]);
        assert_eq!(code, 0, "{case}: {error}");
        match warning {
            None => assert_eq!(error, "", "{case}"),
            Some(text) => {
                assert_eq!(error.lines().count(), 1, "{case}: {error}");
                assert!(error.contains(text), "{case}: {error}");
            }
        }
    }
    // Of the second two lines give one port two LIDs.
    for (file, warnings) in [
        ("test.ibnetdiscover-p", 1),
        ("test2.ibnetdiscover-p", 2),
        ("test3.ibnetdiscover-p", 1),
    ] {
        let file = field(&format!("real/{file}"));
        let import = [
            "fabric",
            "import",
            "--ibnetdiscover",
            &file,
            "-o",
            &snapshot,
        ];
        let (code, found) = json(&import);
        assert_eq!((code, &found["warnings"]), (0, &warnings.into()), "{file}");
        let lines = found["lines"].as_array().expect("a list");
        assert_eq!(
            lines.last().expect("one")["line"],
            0,
            "which ports are of one device"
        );
    }
}

#[test]
fn a_garbled_line_costs_a_warning_with_its_number() {
    let directory = Directory::new();
    let (links, snapshot) = (field("real/ndr.ibnetdiscover"), directory.file("fabric"));
    let text = fs::read_to_string(links).expect("a case");
    let text = text.replacen("[1]\t\"H-", "[1]\t\"H", 1);
    let links = directory.write("links", &text);
    let import = [
        "fabric",
        "import",
        "--ibnetdiscover",
        &links,
        "-o",
        &snapshot,
    ];
    let (code, found) = json(&import);
    assert_eq!((code, &found["losses"]), (0, &1.into()));
    let line = text
        .lines()
        .position(|line| line.starts_with("[1]\t\"H"))
        .expect("it is there");
    assert_eq!(found["lines"][0]["line"], line + 1);
    let (_, out, error) = run(&import);
    assert!(out.contains("left out      what 1 line says\n"), "{out}");
    assert!(error.contains("left out: this link, unless"), "{error}");
}

#[test]
fn a_name_that_many_hosts_have_names_none() {
    let directory = Directory::new();
    let fabric = ndr(&directory);
    let name = "MT4129 ConnectX7   Mellanox Technologies";
    let (code, out, error) = run(&["path", "show", name, "647", "--fabric", &fabric]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(
        error.contains("names 69 boxes: name one by guid, lid or gid, such as 0x"),
        "{error}"
    );
}

/// Each port of this fabric's hosts is an adapter of its own: none is an alternate of another.
#[test]
fn what_apm_cannot_use_is_not_offered() {
    let directory = Directory::new();
    let fabric = ndr(&directory);
    let (code, shown) = json(&["path", "show", "647", "641", "--fabric", &fabric]);
    assert_eq!(code, 0);
    let candidates = shown["candidates"].as_array().expect("a list");
    assert!(
        candidates.iter().all(|c| c["fitness"] != "alternate"),
        "{shown}"
    );
    let (_, found) = json(&["fabric", "check", "--fabric", &fabric]);
    assert_eq!(found["pairs"], 0, "no device has several ports");
}

#[test]
fn without_forwarding_tables_no_path_is_known() {
    let directory = Directory::new();
    let (links, snapshot) = (field("real/ndr.ibnetdiscover"), directory.file("fabric"));
    let import = [
        "fabric",
        "import",
        "--ibnetdiscover",
        &links,
        "-o",
        &snapshot,
    ];
    assert_eq!(run(&import).0, 0);
    let (code, _, error) = run(&["path", "show", "647", "641", "--fabric", &snapshot]);
    assert_eq!(code, 1);
    assert!(error.contains("has no forwarding tables"), "{error}");
}
