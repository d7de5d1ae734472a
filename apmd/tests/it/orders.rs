// SPDX-License-Identifier: MIT OR Apache-2.0
//! What operators want done, without any device: who may, and what is not there.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use apmd::io::seqpacket::{Packets, Receive};

use crate::apmctl::{outcome, run};
use crate::daemon::Daemon;
use crate::script;

/// A user and group who are nobody here.
const STRANGER: u32 = 64_123;

#[test]
fn what_makes_no_sense_is_2() {
    for arguments in [
        &["conn", "migrate"][..],
        &["conn", "rearm"],
        &["conn", "migrate", "pid", "x"],
        &["conn", "migrate", "1.1", "-t", "-1"],
        &["conn", "rearm", "1.1", "--timeout", "3601"],
        &["port", "drain"],
        &["port", "drain", "mlx5_0"],
        &["port", "drain", "mlx5_0/x"],
        &["port", "drain", "mlx5_0/1", "-t", "nan"],
        &["port", "drain", "mlx5_0", "--dry-run"],
        &["port", "drain", "mlx5_0/1", "--dry-run", "-t", "3"],
        &["port", "undrain", "/1"],
    ] {
        assert_eq!(run(arguments).0, 2, "{arguments:?}");
    }
}

#[test]
fn what_is_not_there_is_1_and_says_so() {
    let daemon = Daemon::start("");
    for (arguments, want) in [
        (
            &["conn", "migrate", "1.1"][..],
            "conn 1.1: no such connection",
        ),
        (&["conn", "rearm", "1.1"], "conn 1.1: no such connection"),
        (
            &["conn", "migrate", "pid", "1"],
            "no connection fits: pid 1",
        ),
        (
            &["conn", "rearm", "command", "rping"],
            "no connection fits: command rping",
        ),
        (&["conn", "migrate", "device", "mlx5_9"], "device mlx5_9"),
        (
            &["port", "drain", "mlx5_9/1"],
            "mlx5_9/1: not a port that apmd manages",
        ),
        (
            &["port", "drain", "mlx5_9/1", "--dry-run"],
            "mlx5_9/1: not a port that apmd manages",
        ),
        (
            &["port", "undrain", "mlx5_9/1"],
            "mlx5_9/1: not a port that apmd manages",
        ),
    ] {
        let (code, text, error) = outcome(&daemon.apmctl(arguments));
        assert_eq!((code, text.as_str()), (1, ""), "{arguments:?}: {error}");
        assert!(error.contains(want), "{error:?} does not say {want:?}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn who_may_look_may_not_change() {
    let daemon = Daemon::start("[control]\ngroup = \"*\"\n");
    // Where everybody may run it.
    let directory = crate::directory::Directory::new();
    let program = directory.copy(env!("CARGO_BIN_EXE_apmctl"), "apmctl");
    let as_stranger = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("-s").arg(daemon.directory()).args(arguments);
        let command = command.uid(STRANGER).gid(STRANGER);
        outcome(&command.output().expect("apmctl starts"))
    };
    assert_eq!(as_stranger(&["conn"]).0, 0);
    for arguments in [
        &["conn", "migrate", "1.1"][..],
        &["conn", "rearm", "pid", "1"],
        &["port", "undrain", "mlx5_9/1"],
    ] {
        let (code, _, error) = as_stranger(arguments);
        assert_eq!(code, 1, "{error}");
        assert!(error.contains("not permitted: only root"), "{error}");
    }
    daemon.await_log("not permitted");
    // Of the group that the socket belongs to.
    let mut command = Command::new(&program);
    command.arg("-s").arg(daemon.directory());
    let socket = std::fs::metadata(daemon.directory().join("observe.sock"));
    let group = std::os::unix::fs::MetadataExt::gid(&socket.expect("it is there"));
    command.args(["conn", "migrate", "1.1"]);
    let output = command.uid(STRANGER).gid(group).output();
    let (code, _, error) = outcome(&output.expect("apmctl starts"));
    assert_eq!(code, 1);
    assert!(error.contains("no such connection"), "{error}");
}

#[test]
fn only_a_connection_of_which_the_daemon_says_so_has_been_closed() {
    let path = r#"{"port":1,"slid":4,"dlid":8,"sgid":"fe80::1","dgid":"fe80::2","sl":0,"mtu":4096,"rate":7,
        "pkey":65535,"ack_timeout":14,"global":false,"traffic_class":0,"hop_limit":0,"flow_label":0}"#;
    let ordered = format!(
        r#"{{"ordered":[{{"id":"3.1","refused":null,"primary":{path},"migrations":0}}],"next":null}}"#
    );
    for verb in ["migrate", "rearm"] {
        let then = |answer: &str| {
            let filters = ["conn", verb, "3.1", "device", "mlx5_0"];
            script::run(&[&ordered, answer], &filters)
        };
        let (code, text, error) = then(r#"{"error":"conn 3.1: no such connection"}"#);
        assert_eq!(
            (code, text.as_str()),
            (1, "conn 3.1: closed meanwhile\n"),
            "{error}"
        );
        // A daemon that has just started knows no device yet.
        let refused = "device mlx5_0: not one that apmd manages";
        let (code, text, error) = then(&format!(r#"{{"error":"{refused}"}}"#));
        assert_eq!((code, text.as_str()), (1, ""));
        assert_eq!(error, format!("apmctl: {refused}\n"));
        for other in [
            r#"{"error":"conn 3.2: no such connection"}"#,
            r#"{"connections":7}"#,
        ] {
            let (code, text, error) = then(other);
            assert_eq!((code, text.as_str()), (1, ""), "{error}");
        }
        let (code, text, error) = then("");
        assert_eq!((code, text.as_str()), (3, ""), "{error}");
    }
}

#[test]
fn an_order_that_is_not_understood_is_refused_and_nothing_else_happens() {
    let daemon = Daemon::start("");
    let socket = daemon.directory().join("observe.sock");
    for packet in [
        &br#"{"do":"drain"}"#[..],
        br#"{"do":"reboot"}"#,
        br#"{"do":7}"#,
        br#"{"show":"conn","do":"drain"}"#,
        br#"[{"do":"drain","port":"mlx5_0/1"}]"#,
    ] {
        let caller = Packets::connect(&socket, Duration::from_secs(10)).expect("apmd listens");
        caller.send(packet).expect("room");
        let mut buffer = [0; 512];
        let Ok(Receive::Packet(len)) = caller.receive(&mut buffer) else {
            panic!("no answer to {}", String::from_utf8_lossy(packet));
        };
        assert!(buffer[..len].starts_with(br#"{"error":"#));
    }
    assert_eq!(outcome(&daemon.apmctl(&["conn"])).0, 0);
}

#[test]
fn a_dry_run_asks_and_orders_nothing() {
    let port = |number: u8| {
        format!(
            r#"{{"device":"mlx5_0","port":{number},"node_guid":"0x1","state":"up","apm":true,"mads":true,
            "link_layer":"infiniband","lid":4,"lmc":0,"sm_lid":1,"gid":"fe80::1","mtu":4096,"pkeys":[65535],
            "interface":null,"primaries":0,"alternates":0}}"#
        )
    };
    let ports = format!("[{},{}]", port(1), port(2));
    let none = r#"{"connections":[],"next":null}"#;
    // A third request would get no answer.
    let drain = ["port", "drain", "mlx5_0/1", "--dry-run"];
    let (code, text, error) = script::run(&[&ports, none], &drain);
    assert_eq!((code, error.as_str()), (0, ""));
    let want =
        "mlx5_0/1, dry run (nothing is changed): 0 connections would leave it, 0 could not\n";
    assert_eq!(text, want);
    let (code, text, _) = script::run(&[&ports, none], &[&drain[..], &["-j"]].concat());
    assert_eq!(code, 0);
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let want = serde_json::json!({"schema": 1, "port": "mlx5_0/1", "dry_run": true, "drained": false,
        "moves": [], "stuck": [], "alternates": 0, "alternate_ids": []});
    assert_eq!(json, want);
}
