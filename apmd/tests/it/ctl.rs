// SPDX-License-Identifier: MIT OR Apache-2.0
//! The real binaries, without any device: what a user's shell sees.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::Duration;

use apmd::io::seqpacket::{Packets, Receive};
use cm_msgs::cm::{Lap, Message};
use cm_msgs::control::{Ending, FromLibrary};
use cm_msgs::{Gid, Lid};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::apmctl::{apmctl, outcome, run};
use crate::daemon::{Daemon, assert_welcome, connect};
use crate::directory::Directory;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn lap() -> [u8; 256] {
    let mut lap = Lap {
        local_comm_id: 0x1122_3344,
        ..Lap::default()
    };
    lap.alternate.local_port_lid = Lid(7);
    lap.alternate.local_port_gid = Gid([0xfe; 16]);
    Message::Lap(lap).encode(0x2d, 99)
}

#[test]
fn usage_is_2_and_no_daemon_is_3() {
    for arguments in [
        &["frobnicate"][..],
        &["conn", "frobnicate"],
        &["mad", "decode"],
        &["run"],
        &["conn", "set"],
        &["conn", "set", "3.1"],
        &["conn", "set", "rping", "mode", "lid"],
        &["conn", "set", "3.1", "mode", "best"],
        &["conn", "set", "3.1", "failback", "prefer"],
        &[
            "conn", "set", "3.1", "failback", "prefer", "1", "spread", "on",
        ],
    ] {
        assert_eq!(run(arguments).0, 2, "{arguments:?}");
    }
    for (arguments, said) in [
        (
            &["conn", "foo"][..],
            "apmctl: 'foo' is none of show, set, migrate, rearm; see `apmctl conn --help`\n",
        ),
        (
            &["c"],
            "apmctl: 'c' may be conn or counters; see `apmctl --help`\n",
        ),
        (
            &["conn", "-x"],
            "apmctl: unexpected argument '-x' found; see `apmctl conn --help`\n",
        ),
        (
            &["conn", "show", "foo"],
            "apmctl: \"foo\" is no connection ID and none of qpn, device, pid, command, owner, state\n",
        ),
    ] {
        assert_eq!(run(arguments), (2, String::new(), said.to_owned()));
    }
    // An ID is shown without the verb; what is missing is the daemon.
    assert_eq!(run(&["-s", "/nowhere", "conn", "4.1"]).0, 3);
    let (code, out, _) = run(&["wait", "armed", "--help"]);
    assert_eq!((code, out.contains("state armed")), (0, false), "{out}");
    let directory = Directory::new();
    let socket = directory.path().to_str().expect("a temporary path is text");
    for object in ["status", "conn", "port", "source", "counters"] {
        let (code, _, error) = run(&["-s", socket, object]);
        assert_eq!(code, 3, "{object}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(
            error.contains("observe.sock") && error.contains("is apmd running?"),
            "{error}"
        );
    }
    assert_eq!(run(&["-s", socket, "wait", "armed", "-t", "0"]).0, 3);
    assert_eq!(run(&["-s", socket, "monitor"]).0, 3);
    assert_eq!(
        run(&["-s", socket, "conn", "set", "3.1", "mode", "lid"]).0,
        3
    );
    assert_eq!(
        run(&["-s", socket, "wait", "armed", "pid", "1", "-t", "0"]).0,
        3
    );
    for arguments in [
        &["monitor", "pid"][..],
        &["monitor", "--conn", "x"],
        &["monitor", "--conn", "1.1", "1.2"],
        &["wait", "armed", "state", "armed"],
        &["wait", "armed", "pid", "x"],
        &["wait", "armed", "-t", "inf"],
        &["sa", "show", "node", "--sm-key", "0xkey"],
    ] {
        assert_eq!(run(arguments).0, 2, "{arguments:?}");
    }
}

#[test]
fn what_is_not_there_cannot_be_set() {
    let daemon = Daemon::start("");
    for (id, said) in [
        ("3.1", "conn 3.1: no such connection"),
        ("3", "3: no connection ID, such as 3.1"),
    ] {
        let set = ["conn", "set", id, "failback", "prefer", "1"];
        let (code, _, error) = outcome(&daemon.apmctl(&set));
        assert_eq!((code, error), (1, format!("apmctl: {said}\n")));
    }
    let (code, _, error) = outcome(&daemon.apmctl(&["conn", "set", "3.1", "mode", "best"]));
    assert_eq!(
        (code, error.as_str()),
        (2, "apmctl: mode: want any, port or lid\n")
    );
    // Without apmctl's own look at the words.
    for (request, said) in [
        (
            r#"{"do":"set","connections":{"id":"3.1"},"policy":"mode best"}"#,
            "mode: want any",
        ),
        (
            r#"{"do":"set","connections":{"pid":1},"policy":"mode lid"}"#,
            "which connection?",
        ),
        (
            r#"{"do":"set","connections":{},"policy":"mode lid"}"#,
            "which connection?",
        ),
    ] {
        let socket = daemon.directory().join("observe.sock");
        let raw = Packets::connect(&socket, Duration::from_secs(10)).expect("apmd listens");
        raw.send(request.as_bytes()).expect("room");
        let mut buffer = [0; 256];
        let Ok(Receive::Packet(len)) = raw.receive(&mut buffer) else {
            panic!("no answer");
        };
        let answer = String::from_utf8_lossy(&buffer[..len]);
        assert!(
            answer.starts_with(&format!(r#"{{"error":"{said}"#)),
            "{answer}"
        );
    }
}

#[test]
fn monitor_goes_on_until_it_is_interrupted_or_the_daemon_ends() {
    let mut daemon = Daemon::start("");
    let (code, _, error) = outcome(&daemon.apmctl(&["monitor", "--conn", "1.1"]));
    assert_eq!(
        (code, error.as_str()),
        (1, "apmctl: conn 1.1: no such connection\n")
    );
    let (code, _, error) = outcome(&daemon.apmctl(&["monitor", "device", "mlx5_9"]));
    assert_eq!(code, 1);
    assert!(error.contains("mlx5_9"), "{error}");

    let socket = daemon.directory().join("observe.sock");
    let raw = Packets::connect(&socket, Duration::from_secs(10)).expect("apmd listens");
    raw.send(br#"{"show":"transitions"}"#).expect("room");
    let mut buffer = [0; 64];
    let Ok(Receive::Packet(len)) = raw.receive(&mut buffer) else {
        panic!("not told that it watches");
    };
    assert_eq!(&buffer[..len], br#"{"watching":true}"#);

    let directory = daemon.directory().to_str().expect("text").to_owned();
    let monitor = || {
        let mut monitor = apmctl(&["-s", &directory, "-j", "monitor", "pid", "1"]);
        let piped = monitor.stdout(Stdio::piped()).stderr(Stdio::piped());
        piped.spawn().expect("apmctl starts")
    };
    let (mut interrupted, left) = (monitor(), monitor());
    let early = interrupted.try_wait().expect("it is our child");
    assert_eq!(early, None, "nobody interrupts it yet");
    interrupted.kill().expect("it runs still");
    interrupted.wait().expect("it has ended");
    assert_eq!(outcome(&daemon.apmctl(&["conn"])).0, 0, "others are served");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(), Some(0));
    assert!(matches!(raw.receive(&mut buffer), Ok(Receive::End)));
    let output = left.wait_with_output().expect("apmctl ends");
    let (code, text, error) = outcome(&output);
    assert_eq!((code, text.as_str()), (3, ""), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn mad_decode_prints_text_and_json() {
    let digits = hex(&lap());
    let (code, text, _) = run(&["mad", "decode", &digits]);
    assert_eq!(code, 0);
    assert!(text.starts_with("LAP  class 0x2d"), "{text}");
    assert!(text.contains("alternate_local_port_lid"), "{text}");

    let (code, text, _) = run(&["-j", "m", "d", &digits]);
    assert_eq!(code, 0);
    let value: Value = serde_json::from_str(&text).expect("json");
    assert_eq!(value["message"], "LAP");
    assert_eq!(value["transaction_id"], 99);
    assert_eq!(value["fields"]["local_comm_id"], 0x1122_3344);
    assert_eq!(value["fields"]["alternate_local_port_lid"], 7);
    assert_eq!(value["fields"]["alternate_local_port_gid"], "fe".repeat(16));
}

#[test]
fn mad_decode_reads_standard_input() {
    let mut child = apmctl(&["-j", "mad", "decode", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("apmctl starts");
    let spaced: String = lap().chunks(16).map(|line| hex(line) + " \n").collect();
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(spaced.as_bytes()).expect("apmctl reads");
    drop(stdin);
    let output = child.wait_with_output().expect("apmctl ends");
    let (code, text, _) = outcome(&output);
    assert_eq!((code, text.contains("\"LAP\"")), (0, true), "{text}");
}

/// MADs between real adapters, each a line of labels with the bytes at its end.
#[test]
fn mad_decode_reads_what_was_captured() {
    let captured = include_str!("../data/captured-mads.hex");
    let mut messages = Vec::new();
    for line in captured.lines() {
        let (code, text, error) = run(&["-j", "mad", "decode", line]);
        assert_eq!(code, 0, "{error}");
        let decoded: Value = serde_json::from_str(&text).expect("json");
        messages.push(decoded["message"].as_str().expect("a name").to_owned());
        let (_, digits) = line.rsplit_once(' ').expect("a last word");
        let pairs: Vec<&str> = digits
            .as_bytes()
            .chunks(2)
            .filter_map(|two| str::from_utf8(two).ok())
            .collect();
        for other in [
            pairs.join(":"),
            format!("0x{digits}"),
            format!("0x{}", pairs.join(" 0x")),
        ] {
            assert_eq!(run(&["-j", "mad", "decode", &other]).1, text);
        }
    }
    assert_eq!(messages[..3], ["REQ", "REP", "RTU"]);
    assert_eq!(messages.len(), 11);
}

#[test]
fn mad_decode_says_what_is_wrong_where() {
    let mut other = lap();
    other[17] = 0x77;
    let cases = [
        ("0102".to_owned(), "mad is 2 bytes long, want 256"),
        ("01zz".to_owned(), "character 3: 'z' is no hex digit"),
        ("012".to_owned(), "character 3: half a byte"),
        (hex(&[2; 256]), "base version at byte 0 is 2, want 1"),
        (hex(&other), "attribute id at byte 16 is 0x0077"),
    ];
    for (digits, want) in cases {
        let (code, text, error) = run(&["mad", "decode", &digits]);
        assert_eq!((code, text.as_str()), (1, ""), "{want}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains(want), "{error:?} does not say {want:?}");
    }
}

#[test]
fn a_daemon_without_devices_serves_operators() {
    let daemon = Daemon::start("");
    let (code, text, error) = outcome(&daemon.apmctl(&["-j", "status"]));
    assert_eq!(code, 4, "{error}");
    let status: Value = serde_json::from_str(&text).expect("json");
    assert_eq!(status["connections"]["total"], 0);
    assert_eq!(status["pid"], daemon.pid());
    assert_eq!(status["schema"], 1);
    assert!(text.starts_with("{\"schema\":1,"), "{text}");
    for object in ["conn", "port", "source", "counters"] {
        assert_eq!(outcome(&daemon.apmctl(&[object])).0, 0, "{object}");
        assert_eq!(
            outcome(&daemon.apmctl(&["-j", object, "show"])).0,
            0,
            "{object}"
        );
    }
    assert_eq!(
        outcome(&daemon.apmctl(&["wait", "armed", "command", "rping", "-t", "0.2"])).0,
        4
    );
    assert_eq!(
        outcome(&daemon.apmctl(&["wait", "armed", "-t", "0.2"])).0,
        4
    );
    let (code, text, _) = outcome(&daemon.apmctl(&["-j", "conn", "show", "qpn", "0x11"]));
    assert_eq!((code, text.trim()), (0, "[]"));
    let (code, text, _) = outcome(&daemon.apmctl(&["-j", "conn", "show", "owner", "ib_srp"]));
    assert_eq!((code, text.trim()), (0, "[]"));
    let (code, text, _) = outcome(&daemon.apmctl(&["conn", "show", "own", "rping[7]"]));
    assert_eq!((code, text.trim()), (0, "no connection fits: own rping[7]"));
}

#[test]
fn the_library_socket_beside_names_the_daemon() {
    let daemon = Daemon::start("");
    let socket = daemon.directory().join("apmd.sock");
    let output = apmctl(&["port"])
        .env("APMD_SOCKET", socket)
        .output()
        .expect("starts");
    assert_eq!(outcome(&output).0, 0);
}

#[test]
fn garbage_and_vanishing_clients_are_counted_and_nothing_else_is_lost() {
    let daemon = Daemon::start("");
    let good = connect(&daemon.directory().join("apmd.sock"));
    let hello = FromLibrary::Hello {
        command: *b"good\0\0\0\0\0\0\0\0\0\0\0\0",
    };
    good.send(hello.encode().as_ref()).expect("room");
    assert_welcome(&good);

    for garbage in [&b"garbage"[..], &[0; 16], &[0xff; 4000]] {
        let bad = connect(&daemon.directory().join("apmd.sock"));
        bad.send(garbage).expect("room");
        assert!(bad.receive().is_empty(), "thrown out");
    }
    let early = connect(&daemon.directory().join("apmd.sock"));
    early
        .send(
            FromLibrary::Close {
                conn: 1,
                ending: Ending::Gone,
            }
            .encode()
            .as_ref(),
        )
        .expect("room");
    assert!(early.receive().is_empty(), "no hello");
    for _ in 0..50 {
        drop(connect(&daemon.directory().join("apmd.sock")));
        let operator = connect(&daemon.directory().join("observe.sock"));
        operator.send(b"{\"show\":\"conn\"}").expect("room");
    }
    for nonsense in [
        &b"nonsense"[..],
        &[b' '; 5000],
        b"{\"show\":\"conn\",\"x\":1}",
    ] {
        let operator = connect(&daemon.directory().join("observe.sock"));
        operator.send(nonsense).expect("room");
        let answer: Value = serde_json::from_slice(&operator.receive()).expect("json");
        assert!(answer["error"].is_string(), "{answer}");
    }

    daemon.await_counter("clients_gone", &json!(54));
    let counters = daemon.counters();
    assert_eq!(counters["malformed_control"], 4);
    assert_eq!(counters["malformed_requests"], 3);
    assert_eq!(counters["clients"], 55);
    good.send(hello.encode().as_ref()).expect("room");
    assert_welcome(&good);
}

#[test]
fn a_second_daemon_is_refused_and_a_dead_ones_sockets_are_replaced() {
    let mut first = Daemon::start("");
    let error = Daemon::try_start(first.directory(), "").expect_err("the sockets are taken");
    assert!(error.contains("another apmd is listening there"), "{error}");
    assert_eq!(outcome(&first.apmctl(&["port"])).0, 0, "the first goes on");

    first.signal(Signal::SIGKILL);
    first.wait();
    assert!(
        first.directory().join("apmd.sock").exists(),
        "killed: the socket's file stays"
    );
    let second = Daemon::try_start(first.directory(), "").expect("it is replaced");
    assert_eq!(second.status()["pid"], second.pid());
}

#[test]
fn sigterm_ends_cleanly() {
    let mut daemon = Daemon::start("");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(), Some(0));
    assert!(!daemon.directory().join("apmd.sock").exists());
    assert!(!daemon.directory().join("observe.sock").exists());
}

#[test]
fn a_service_manager_is_told() {
    let directory = Directory::new();
    let manager = UnixDatagram::bind(directory.path().join("notify")).expect("a new socket");
    manager
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("a timeout");
    let told = || {
        let mut bytes = [0; 128];
        let len = manager.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    let mut daemon = Daemon::try_start(directory.path(), "").expect("it starts");
    assert_eq!(told(), "READY=1\n");
    daemon.signal(Signal::SIGHUP);
    assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(told(), "READY=1\n");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(told(), "STOPPING=1\n");
    assert_eq!(daemon.wait(), Some(0));
}

#[test]
fn sighup_takes_a_good_file_and_keeps_the_old_for_a_bad_one() {
    let daemon = Daemon::start("");
    daemon.write_config("[policy]\nnonsense = 1\n");
    daemon.signal(Signal::SIGHUP);
    daemon.await_counter("failed_reloads", &json!(1));
    assert_eq!(daemon.counters()["reloads"], 0);
    daemon.write_config("[policy]\nhold_off_ms = 100\n");
    daemon.signal(Signal::SIGHUP);
    daemon.await_counter("reloads", &json!(1));
    assert_eq!(daemon.status()["pid"], daemon.pid(), "still there");
}

/// Waits for a minute at most until it is so; else says how it is.
fn eventually(is_so: impl Fn() -> bool, how: &impl Fn() -> String) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{}", how());
}

#[test]
fn source_show_lists_the_sources_and_the_file_of_paths_is_read_again() {
    let daemon = Daemon::start("");
    let (code, text, _) = outcome(&daemon.apmctl(&["-j", "source", "show"]));
    let sources: Value = serde_json::from_str(&text).expect("json");
    assert_eq!((code, sources.as_array().map(Vec::len)), (0, Some(1)));
    assert_eq!(sources[0]["source"], "sa");
    assert_eq!(sources[0]["state"], "unproven");
    assert_eq!(sources[0]["asked"], 0);

    let file = daemon.directory().join("paths.toml");
    let section = format!(
        "[source]\norder = [\"static\", \"sa\"]\n[static]\nfile = {:?}\n",
        file.to_str().expect("text")
    );
    let path = "[[path]]\nsgid = \"fe80::1\"\ndgid = \"fe80::2\"\nslid = 1\ndlid = 2\n";
    let reload = |text: &str, reloads: u32| {
        fs::write(&file, text).expect("writable");
        daemon.write_config(&section);
        daemon.signal(Signal::SIGHUP);
        daemon.await_counter("reloads", &json!(reloads));
    };
    let detail = || {
        let (_, text, _) = outcome(&daemon.apmctl(&["-j", "source", "show", "static"]));
        let sources: Value = serde_json::from_str(&text).expect("json");
        sources[0]["detail"].to_string()
    };
    let problems = || daemon.status()["problems"].to_string();
    // The file is read on a thread, after the configuration.
    reload(&format!("{path}mtu = 2048\nrate = 10\n"), 1);
    eventually(|| detail().contains("1 path of "), &detail);
    assert!(!problems().contains("paths.toml"), "{}", problems());
    reload(&format!("{path}mtu = 2000\nrate = 10\n"), 2);
    eventually(|| problems().contains("paths.toml:6: mtu 2000"), &problems);
    assert!(
        detail().contains("1 path of "),
        "the old one stays: {}",
        detail()
    );

    let (code, text, _) = outcome(&daemon.apmctl(&["-d", "source"]));
    assert_eq!(code, 0);
    let names: Vec<_> = text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names, ["SOURCE", "static", "sa"]);
    assert_eq!(outcome(&daemon.apmctl(&["source", "show", "acm"])).0, 1);
}

/// The journal wants priorities; whoever inherits its variable with another stderr does not.
#[test]
fn lines_for_the_journal_begin_with_their_priority() {
    for (stream, begins) in [
        ("stat -Lc %d:%i /proc/self/fd/2", true),
        ("echo 1:2", false),
    ] {
        let directory = Directory::new();
        let daemon = Daemon::start_with_journal(stream, directory.path());
        daemon.write_config("[control]\ngroup = \"no-such-group\"\n");
        daemon.signal(Signal::SIGHUP);
        daemon.await_log("no-such-group");
        let log = daemon.log();
        let line = log
            .iter()
            .find(|line| line.contains("no-such-group"))
            .expect("it is there");
        assert_eq!(
            line.starts_with("<3>") || line.starts_with("<4>"),
            begins,
            "{line}"
        );
        assert!(
            log.iter().all(|line| line.starts_with('<') == begins),
            "{log:?}"
        );
    }
}
