// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl fabric` and `apmctl path` on fabrics that OpenSM routed: what an operator's shell sees.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::apmctl::{apmctl, json as json_of, limited, outcome, run};
use crate::directory::Directory;
use crate::script;

/// OpenSM's files of a sample of pathdb's, under their own names.
fn dump(directory: &Directory, sample: &str) -> String {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pathdb/tests/data");
    let to = directory.path().join(sample);
    fs::create_dir(&to).expect("new");
    for (sample_name, name) in [
        ("opensm-subnet.txt", "opensm-subnet.lst"),
        ("opensm-lfts.txt", "opensm-lfts.dump"),
        ("guid2lid.txt", "guid2lid"),
    ] {
        let file = from.join(sample).join(sample_name);
        fs::copy(file, to.join(name)).expect("a sample");
    }
    directory.file(sample)
}

/// A snapshot of a sample.
fn snapshot(directory: &Directory, sample: &str) -> String {
    let snapshot = directory.file(&format!("{sample}.fabric"));
    let (code, _, error) = run(&[
        "fabric",
        "import",
        &dump(directory, sample),
        "-o",
        &snapshot,
    ]);
    assert_eq!((code, error.as_str()), (0, ""));
    snapshot
}

/// The names of what the best alternate shares, and the verdict.
fn shared(judged: &Value) -> (Vec<&str>, &str) {
    let candidates = judged["candidates"].as_array().expect("a list");
    let best = candidates.iter().find(|c| c["fitness"] == "alternate");
    let shared = best.expect("an alternate")["shared"].as_array();
    let names = shared.expect("a list").iter().map(|s| s["name"].as_str());
    (
        names.map(|name| name.expect("a name")).collect(),
        judged["verdict"].as_str().expect("a verdict"),
    )
}

#[test]
fn the_shared_switch_of_badly_cabled_hosts_is_named() {
    let directory = Directory::new();
    let tree = snapshot(&directory, "tree");
    let show = |from: &str, to: &str| run(&["path", "show", from, to, "--fabric", &tree]);

    let (code, out, _) = show("Host8", "Host9");
    assert_eq!(code, 0);
    let line = "shares       switch Leaf0 (no cable around it), switch Spine0, switch Leaf3 \
                (no cable around it)\n";
    assert!(out.contains(line), "{out}");
    assert!(out.contains("forwarding tables could do better"), "{out}");

    let (code, out, _) = show("Host0", "Host1");
    assert_eq!(code, 0);
    assert!(out.contains("shares       nothing\n"), "{out}");
    assert!(
        out.contains("2 of 2 possible routes have no switch in common"),
        "{out}"
    );

    let (_, judged) = json_of(&["path", "show", "Host8", "Host9", "--fabric", &tree]);
    let names = vec!["switch Leaf0", "switch Spine0", "switch Leaf3"];
    assert_eq!(shared(&judged), (names, "tables_could"));
    assert_eq!(judged["disjoint"]["cables"]["switches"], 1);
    assert_eq!(judged["disjoint"]["tables"]["links"], 2);
    let (_, judged) = json_of(&["path", "show", "Host0", "Host1", "--fabric", &tree]);
    assert_eq!(shared(&judged), (vec![], "disjoint"));
    let (_, judged) = json_of(&["path", "show", "Host10", "Host4", "--fabric", &tree]);
    assert_eq!(shared(&judged).1, "cables_forbid", "host 10 has one cable");
    let (_, judged) = json_of(&["path", "show", "Host10", "Host11", "--fabric", &tree]);
    assert_eq!(judged["verdict"], "no_alternate");
    let (_, out, _) = show("Host10", "Host11");
    assert!(out.contains("verdict      no alternate\n"), "{out}");
}

#[test]
fn hosts_are_named_by_whatever_they_have() {
    let directory = Directory::new();
    let tree = snapshot(&directory, "tree");
    let (_, by_name) = json_of(&["path", "show", "Host8", "Host9", "--fabric", &tree]);
    let ports = by_name["source"].as_array().expect("ports");
    let (guid, lid) = (&ports[0]["guid"], ports[0]["lid"].to_string());
    let guid = guid.as_str().expect("a GUID");
    let gid = format!("fe80::{}:{}", &guid[10..14], &guid[14..18]);
    for source in [guid, &lid, &gid, "Host8/1"] {
        let (_, other) = json_of(&["path", "show", source, "Host9", "--fabric", &tree]);
        assert_eq!(other, by_name, "{source}");
    }
    let hosts = directory.write("hosts", &format!("10.0.0.8 {gid}\n"));
    let by_ip = [
        "path", "show", "10.0.0.8", "Host9", "--fabric", &tree, "--hosts", &hosts,
    ];
    assert_eq!(json_of(&by_ip).1, by_name);

    for (from, to, wanted) in [
        ("Host8", "Host99", "node 'Host99' is not in this fabric"),
        (
            "Host8",
            "10.0.0.8",
            "address '10.0.0.8' is not in this fabric",
        ),
        ("Host8", "Host8/2", "Host8 and Host8/2 are one host"),
    ] {
        let (code, _, error) = run(&["path", "show", from, to, "--fabric", &tree]);
        assert_eq!((code, error), (1, format!("apmctl: {wanted}\n")));
    }
}

#[test]
fn what_fails_together_is_no_alternate_of_each_other() {
    let directory = Directory::new();
    let tree = snapshot(&directory, "tree");
    let show = ["path", "show", "Host0", "Host5", "--fabric", &tree];
    assert_eq!(shared(&json_of(&show).1), (vec![], "disjoint"));
    let risks = directory.write("risks", "[chassis]\nswitch Spine0\nswitch Spine1\n");
    let (_, judged) = json_of(&[&show[..], &["--risks", &risks]].concat());
    assert_eq!(shared(&judged), (vec!["group chassis"], "cables_forbid"));
    let risks = directory.write("risks", "[chassis]\nswitch Spine0\nswitch Spine7\n");
    let (code, _, error) = run(&[&show[..], &["--risks", &risks]].concat());
    assert_eq!(code, 1);
    assert!(
        error.ends_with("risks:3: node 'Spine7' is not in this fabric\n"),
        "{error}"
    );
}

#[test]
fn an_import_that_fails_leaves_the_snapshot_that_was_there() {
    let directory = Directory::new();
    let tree = snapshot(&directory, "tree");
    let before = fs::read(&tree).expect("a snapshot");
    let dump = directory.file("tree");
    let tables = format!("{dump}/opensm-lfts.dump");
    let whole = fs::read_to_string(&tables).expect("a sample");
    fs::write(&tables, &whole[..whole.len() / 2]).expect("a temporary file");
    let (code, out, error) = run(&["fabric", "import", &dump, "-o", &tree]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert_eq!(
        error.lines().count(),
        1,
        "no progress where there is no terminal: {error}"
    );
    assert!(error.contains("opensm-lfts.dump:"), "{error}");
    assert_eq!(fs::read(&tree).expect("a snapshot"), before);

    fs::write(&tables, &whole).expect("a temporary file");
    let hosts = directory.write("hosts", "10.0.0.1 fe80::10:1\n10.0.0.9 fe80::9\n");
    let import = ["fabric", "import", &dump, "-o", &tree, "--hosts", &hosts];
    let (code, numbers) = json_of(&import);
    assert_eq!(code, 0);
    assert_eq!(numbers["addresses"], 1);
    assert_eq!(numbers["foreign"][0]["address"], "10.0.0.9");
    assert_eq!(numbers["multi_port_systems"], 10);
    let (code, shown) = json_of(&["fabric", "show", "--fabric", &tree]);
    assert_eq!(code, 0);
    for (key, value) in [
        ("switches", 6),
        ("adapters", 12),
        ("lids", 28),
        ("epoch", 0),
    ] {
        assert_eq!(shown[key], value, "{key}");
        assert_eq!(numbers[key], value, "{key}");
    }
    assert_eq!(shown["links_up"]["30"], 4);
    assert_eq!(shown["end_ports"]["0"], 22);

    let (code, _, error) = run(&["fabric", "show", "--fabric", "/nowhere/fabric"]);
    assert_eq!(code, 1);
    assert!(error.contains("apmctl fabric import"), "{error}");
    let (code, _, error) = run(&["fabric", "show", "--fabric", &hosts]);
    assert_eq!(code, 1);
    assert!(
        error.ends_with("hosts: not a snapshot of a fabric\n"),
        "{error}"
    );
}

/// Takes the entry of a LID out of one switch's table of a dump, and imports it.
fn without_entry(directory: &Directory, switch: &str, lid: &str) -> String {
    let tables = directory.file("tree/opensm-lfts.dump");
    let text = fs::read_to_string(&tables).expect("a dump");
    let mut in_table = false;
    let mut changed = String::new();
    for line in text.lines() {
        in_table =
            (in_table || line.ends_with(&format!("('{switch}'):"))) && !line.ends_with("dumped");
        if !(in_table && line.starts_with(lid)) {
            changed += &format!("{line}\n");
        }
    }
    assert_ne!(text, changed);
    fs::write(&tables, changed).expect("a temporary file");
    let snapshot = directory.file("changed.fabric");
    let import = ["fabric", "import", &directory.file("tree"), "-o", &snapshot];
    assert_eq!(run(&import).0, 0);
    snapshot
}

#[test]
fn a_check_names_bad_cabling_and_what_joins_paths_needlessly() {
    let directory = Directory::new();
    let tree = snapshot(&directory, "tree");
    let (code, out, error) = run(&["fabric", "check", "--fabric", &tree]);
    assert_eq!((code, error.as_str()), (4, ""), "{out}");
    for line in [
        "cabling: all 2 ports of Host8 hang on Leaf0; forwarding tables cannot help\n",
        "cabling: all 2 ports of Host9 hang on Leaf3; forwarding tables cannot help\n",
        "needless: switch Spine0 joins primary and alternate of ",
        "looked at 45 of 45 pairs of devices with several ports: ",
        "every port of a host reaches every lid\n",
    ] {
        assert!(out.contains(line), "{out}");
    }
    let (code, found) = json_of(&["fabric", "check", "--fabric", &tree, "--pairs", "7"]);
    assert_eq!(code, 4);
    assert_eq!(
        (&found["pairs"], &found["pairs_looked_at"]),
        (&45.into(), &7.into())
    );
    assert_eq!(found["one_switch"][0]["switch"], "Leaf0");
    assert_eq!(found["loops"], Value::Array(Vec::new()));

    // Host 0's LID 4 (0x0004) is behind Leaf1.
    let hole = without_entry(&directory, "Leaf0", "0x0004");
    let (code, out, _) = run(&["fabric", "check", "--fabric", &hole]);
    assert_eq!(code, 4);
    let line = "dead end: lid 4 (Host0 port 2) is out of reach of ";
    assert!(out.contains(line), "{out}");
    assert!(
        out.contains(": Leaf0: no entry in the forwarding table\n"),
        "{out}"
    );
    assert!(!out.contains("every port of a host reaches"), "{out}");
    let (_, found) = json_of(&["fabric", "check", "--fabric", &hole]);
    assert_eq!(found["dead_ends"][0]["lid"], 4);
    assert!(found["unreachable"].as_u64().expect("a number") > 0);
}

/// A connection as the daemon shows it: of ports `x` on device ports 1 and 2, as LID and GID.
fn connection(id: &str, primary: [(u16, &str); 2], alternate: Option<[(u16, &str); 2]>) -> Value {
    let path = |port: u8, [(slid, sgid), (dlid, dgid)]: [(u16, &str); 2]| {
        json!({"port": port, "slid": slid, "dlid": dlid, "sgid": sgid, "dgid": dgid, "sl": 0, "mtu": 4096,
            "rate": 7, "pkey": 65535, "ack_timeout": 14, "global": false, "traffic_class": 0, "hop_limit": 0,
            "flow_label": 0, "origin": null, "overlap": null, "shared": null})
    };
    json!({"id": id, "device": "mlx5_0", "node_guid": "0x1", "qpn": 18, "peer_qpn": 19, "role": "active",
        "opted_in": false, "pid": 7, "command": "rping", "qp_state": "rts", "migration": "armed",
        "protection": if alternate.is_some() { "armed" } else { "unprotected" }, "reason": null,
        "primary": path(1, primary), "alternate": alternate.map(|ends| path(2, ends)), "chosen": null,
        "runner_up": null, "association": {"state": "established", "local_comm_id": 1, "remote_comm_id": 2,
        "peer_ports": []}, "counters": counters(), "changed_seconds": 1.0})
}

fn counters() -> Value {
    let counters = statemachine::view::ConnectionCounters::default();
    serde_json::to_value(counters).expect("plain numbers")
}

#[test]
fn what_a_switch_takes_with_it_is_told_before_it_is_switched_off() {
    let directory = Directory::new();
    let tree = snapshot(&directory, "tree");
    let check = |switch| ["fabric", "check", "--fabric", &tree, "--without", switch];
    let nowhere = directory.file("");
    let alone = |switch| run(&[&check(switch)[..], &["-s", &nowhere]].concat());

    let (code, out, error) = alone("Leaf0");
    assert_eq!((code, error.as_str()), (4, ""), "{out}");
    for line in [
        "without switch Leaf0 (0x0000000000200000):\n",
        "cut off: Host8 (all 2 ports of the device are on it)\n",
        "fewer ports: Host0 loses 1 of 2 ports of the device\n",
        "looked at 66 of 66 pairs of devices, with the forwarding tables as they are: ",
        "this host's connections are not known: ",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    let (code, out, _) = alone("0x200000");
    assert_eq!(code, 4);
    assert!(out.starts_with("without switch Leaf0 "), "{out}");
    for (node, wanted) in [
        ("Host8", "'Host8' is not a switch"),
        ("Leaf9", "switch 'Leaf9' is not in this fabric"),
    ] {
        let (code, out, error) = alone(node);
        assert_eq!((code, out.as_str()), (1, ""));
        assert_eq!(error, format!("apmctl: {wanted}\n"));
    }

    // Host 0's connections: to host 1, with second ports on Leaf1; to host 8, with both ports on Leaf0; and one
    // with LIDs of another subnet.
    let [first, second] = [(1, "fe80::10:1"), (4, "fe80::10:2")];
    let [far_first, far_second] = [(7, "fe80::10:4"), (9, "fe80::10:5")];
    let page = json!({"connections": [
        connection("1.1", [first, far_first], Some([second, far_second])),
        connection("1.2", [second, far_second], Some([first, far_first])),
        connection("1.3", [first, far_first], None),
        connection("1.4", [second, far_second], None),
        connection("1.5", [(1, "fe80::99:1"), far_first], None),
    ], "next": null});
    let arguments = [&["-j"], &check("Leaf0")[..]].concat();
    let (code, out, error) = script::run(&[&page.to_string()], &arguments);
    assert_eq!(code, 4, "{error}");
    let found: Value = serde_json::from_str(&out).expect("JSON");
    let live = &found["connections"];
    let ids = |list: &str| {
        let list = live[list].as_array().expect("a list");
        let ids = list.iter().map(|one| one["id"].as_str().expect("an ID"));
        ids.collect::<Vec<_>>()
    };
    assert_eq!(live["total"], 5);
    assert_eq!(ids("moves"), ["1.1"]);
    assert_eq!(ids("lose_alternate"), ["1.2"]);
    assert_eq!(ids("cut"), ["1.3"]);
    assert_eq!(ids("unknown"), ["1.5"]);
    assert_eq!(found["connections_error"], Value::Null);
    let (_, out, _) = script::run(&[&page.to_string()], &check("Leaf0"));
    for line in [
        "conn 1.3 rping[7]: is cut: its primary is lost, and it has no alternate (unprotected)\n",
        "conn 1.1 rping[7]: moves: to its alternate\n",
        "of 5 connections of this host 1 would be cut, 1 move, 1 lose their alternate; the paths of 1 are not in \
         this snapshot: import the fabric again\n",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    // The tables lead these pairs over it; the cables would lead them around.
    let (code, found) = json_of(&[&check("Spine1")[..], &["-s", &nowhere]].concat());
    let cut = found["pairs_cut"].as_u64().expect("a number");
    assert_eq!((code, cut), (4, 17));
    assert_eq!(found["pairs_cut_until_rerouted"], found["pairs_cut"]);
    assert_eq!(found["hosts_cut_off"], json!([]));

    // Nothing depends on one switch alone.
    let irregular = snapshot(&directory, "irregular");
    let check = [
        "fabric",
        "check",
        "--fabric",
        &irregular,
        "--without",
        "SW 0",
    ];
    let (code, found) = json_of(&[&check[..], &["-s", &nowhere]].concat());
    assert_eq!((code, &found["pairs_cut"]), (0, &json!(0)));
    assert_eq!(found["hosts_with_fewer_ports"][1]["host"], "node 2");
}

#[test]
fn a_fabric_without_fault_checks_with_status_0() {
    let directory = Directory::new();
    let torus = snapshot(&directory, "torus");
    let (code, out, _) = run(&["fabric", "check", "--fabric", &torus]);
    assert_eq!(code, 0, "one-port hosts, every lid within reach: {out}");
}

#[test]
fn a_diff_tells_cables_from_routes_and_who_suffers() {
    let directory = Directory::new();
    let tree = snapshot(&directory, "tree");
    let same = run(&["fabric", "diff", &tree, &tree]);
    let line = "looked at 45 of 45 pairs of devices with several ports: 0 share more than before, 0 less\n";
    assert_eq!(same, (0, line.to_owned(), String::new()));

    let cut = snapshot(&directory, "tree-cut");
    let (_, out, _) = run(&["fabric", "diff", &tree, &cut]);
    for line in [
        "node gone       Host10\n",
        "link gone       ",
        "routes changed  Leaf0: ",
    ] {
        assert!(out.contains(line), "{out}");
    }
    let (_, differs) = json_of(&["fabric", "diff", &tree, &cut]);
    assert_eq!(differs["links_gone"].as_array().map(Vec::len), Some(3));
    assert_eq!(differs["lids_moved"][0]["after"], Value::Null);

    // Leaf0 forgets how to get to Host0's second port, so who is there has lost an alternate.
    let hole = without_entry(&directory, "Leaf0", "0x0004");
    let (code, differs) = json_of(&["fabric", "diff", &tree, &hole]);
    assert_eq!(code, 4);
    assert_eq!(differs["routes_changed"][0]["switch"], "Leaf0");
    assert_eq!(differs["routes_changed"][0]["entries"], 1);
    let worse = differs["pairs_worse"].as_array().expect("a list");
    assert!(
        worse
            .iter()
            .any(|pair| pair["source"] == "Host0" || pair["destination"] == "Host0")
    );
    let (code, better) = json_of(&["fabric", "diff", &hole, &tree]);
    assert_eq!(code, 0);
    assert_eq!(better["pairs_better"].as_u64(), Some(worse.len() as u64));
}

#[test]
fn a_diff_tells_of_a_host_that_has_lost_a_port() {
    let directory = Directory::new();
    let tree = snapshot(&directory, "tree");
    let links = directory.file("tree/opensm-subnet.lst");
    let text = fs::read_to_string(&links).expect("a dump");
    let of_port = "PortGUID:0000000000100002";
    let left: Vec<_> = text
        .lines()
        .filter(|line| !line.contains(of_port))
        .collect();
    fs::write(&links, left.join("\n")).expect("a temporary file");
    let lost = directory.file("lost.fabric");
    let import = ["fabric", "import", &directory.file("tree"), "-o", &lost];
    assert_eq!(run(&import).0, 0);

    let (code, out, _) = run(&["fabric", "diff", &tree, &lost]);
    assert_eq!(code, 4, "{out}");
    assert!(
        out.contains("ports lost      Host0: 2 up -> 1 up\n"),
        "{out}"
    );
    assert!(out.contains("looked at 45 of 45 pairs"), "{out}");
    let (_, differs) = json_of(&["fabric", "diff", &tree, &lost]);
    let worse = differs["pairs_worse"].as_array().expect("a list");
    assert_eq!(worse.len(), 9, "with each other host: {worse:?}");
    let (code, _, _) = run(&["fabric", "diff", &lost, &tree]);
    assert_eq!(code, 0, "a port won is no fault");
}

#[test]
fn risk_groups_take_time_in_proportion() {
    let directory = Directory::new();
    let tree = snapshot(&directory, "tree");
    let groups = (0..65_535)
        .map(|number| format!("[group of a row and rack, {number:05}]\nswitch Spine0\n"));
    let risks = directory.write("risks", &groups.collect::<String>());
    let shown = apmctl(&["fabric", "show", "--fabric", &tree, "--risks", &risks]);
    // Processor time, not time: each group held against each other one takes many times as much.
    let limited = limited(shown, "--cpu=10").output().expect("prlimit starts");
    let (code, _, error) = outcome(&limited);
    assert_eq!(code, 1, "{error}");
    assert!(
        error.ends_with("'Spine0' is in more than 64 groups\n"),
        "{error}"
    );
}

#[test]
fn how_far_a_check_is_is_told_to_a_terminal_only() {
    let directory = Directory::new();
    let tree = snapshot(&directory, "tree");
    let check = ["fabric", "check", "--fabric", &tree];
    assert_eq!(run(&check).2, "");
    let apmctl = apmctl(&check);
    let line = format!("{:?} fabric check --fabric {tree}", apmctl.get_program());
    let mut on_terminal = Command::new("script");
    on_terminal
        .args(["-qec", &line, "/dev/null"])
        .env("TERM", "xterm");
    let output = on_terminal.output().expect("script starts");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("lids: "), "{shown}");
    assert!(shown.contains("looked at 45 of 45 pairs"), "{shown}");
}

#[test]
fn only_a_snapshot_that_is_missing_is_to_be_made() {
    let directory = Directory::new();
    let file = directory.write("file", "");
    for (fabric, hint) in [
        (directory.file("missing"), true),
        (format!("{file}/below-a-file"), false),
    ] {
        let (code, _, error) = run(&["fabric", "show", "--fabric", &fabric]);
        assert_eq!(code, 1);
        assert!(error.contains(&fabric), "{error}");
        assert_eq!(error.contains("apmctl fabric import"), hint, "{error}");
    }
}
