// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of a daemon without devices: an empty one says so and why, what is not there is an error.

use serde_json::{Value, json};

use crate::apmctl::outcome;
use crate::daemon::{Daemon, connect};
use crate::script;

#[test]
fn an_empty_list_says_that_it_is_empty_and_why() {
    let daemon = Daemon::start("");
    let cases = [
        (&["conn"][..], "no connections: apmd has no RDMA device"),
        (
            &["-d", "conn", "show"],
            "no connections: apmd has no RDMA device",
        ),
        (
            &["conn", "show", "qpn", "0x11"],
            "no connection fits: qpn 0x11",
        ),
        (&["port"], "no ports: apmd has no RDMA device"),
    ];
    for (arguments, want) in cases {
        let (code, text, error) = outcome(&daemon.apmctl(arguments));
        assert_eq!((code, error.as_str()), (0, ""), "{arguments:?}");
        assert!(text.starts_with(want), "{arguments:?}: {text}");
        let (code, text, _) = outcome(&daemon.apmctl(&[&["-j"], arguments].concat()));
        assert_eq!((code, text.trim()), (0, "[]"), "{arguments:?}");
    }
}

#[test]
fn what_is_not_there_is_an_error_that_names_it() {
    let daemon = Daemon::start("");
    let cases = [
        (
            1,
            &["conn", "show", "1.1"][..],
            "conn 1.1: no such connection",
        ),
        (
            1,
            &["conn", "show", "7"],
            "7: no connection ID, such as 3.1",
        ),
        (
            1,
            &["conn", "show", "device", "mlx5_9"],
            "device mlx5_9: not one that apmd manages",
        ),
        (
            2,
            &["conn", "show", "state", "gone"],
            "state: \"gone\" is none of armed, idle (movable), rearming,",
        ),
        (2, &["conn", "show", "pid", "x"], "pid: \"x\" is no number"),
        (
            1,
            &["port", "show", "mlx5_9/1"],
            "mlx5_9/1: not a device or port that apmd manages",
        ),
        (
            1,
            &["source", "show", "acm"],
            "acm: not among the path sources",
        ),
        (
            2,
            &["acm", "show", "state", "gone"],
            "state: \"gone\" is none of known,",
        ),
    ];
    for (want_code, arguments, want) in cases {
        for arguments in [arguments.to_vec(), [&["-j"], arguments].concat()] {
            let (code, text, error) = outcome(&daemon.apmctl(&arguments));
            assert_eq!(
                (code, text.as_str()),
                (want_code, ""),
                "{arguments:?}: {error}"
            );
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(error.contains(want), "{arguments:?}: {error}");
        }
    }
}

#[test]
fn the_socket_answers_with_a_page() {
    let daemon = Daemon::start("");
    let ask = |request: &str| {
        let operator = connect(&daemon.directory().join("observe.sock"));
        operator.send(request.as_bytes()).expect("room");
        serde_json::from_slice::<Value>(&operator.receive()).expect("json")
    };
    let page = json!({"connections": [], "next": null});
    assert_eq!(ask(r#"{"show":"conn"}"#), page);
    assert_eq!(
        ask(r#"{"show":"conn","connections":{"pid":7,"after":"3.1"}}"#),
        page
    );
    assert!(ask(r#"{"show":"conn","connections":{"port":7}}"#)["error"].is_string());
}

#[test]
fn the_age_of_a_sources_last_answer_is_shown() {
    let source = |age: Value| {
        let mut source = json!({
            "source": "sa", "state": "healthy", "failing_seconds": null, "failing_ports": [], "last_error": null,
            "last_latency_ms": 0.4, "in_flight": 0, "in_flight_limit": 8, "waiting": 0, "timeout_ms": 6000,
            "asked": 3, "answered": 3, "paths": 3, "no_path": 0, "timed_out": 0, "failed": 0,
            "detail": null, "fabric": null,
        });
        if age != Value::Null {
            source["last_answer_seconds"] = age;
        }
        let (code, text, error) = script::run(&[&json!([source]).to_string()], &["source"]);
        assert_eq!(code, 0, "{error}");
        text
    };
    let text = source(json!(190.7));
    assert!(
        text.contains("LAST ANSWER") && text.contains("3 min 10 s ago"),
        "{text}"
    );
    // A daemon of before does not say it.
    assert!(source(Value::Null).contains("0.4 ms   -"));
}
