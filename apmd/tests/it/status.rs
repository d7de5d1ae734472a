// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl status` of a daemon whose host is not as it should be: its text, its JSON and its exit
//! status say the same. That merely idle connections are no fault is shown where there are
//! connections: in the drills.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::apmctl::outcome;
use crate::daemon::Daemon;
use crate::directory::Directory;
use crate::script;

/// What is degraded, as text and JSON have it.
fn degraded(daemon: &Daemon) -> Vec<String> {
    let (code, text, error) = outcome(&daemon.apmctl(&["status"]));
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("degraded"));
    let lines: Vec<_> = lines.map(|line| line.trim().to_owned()).collect();
    assert_eq!(code, if lines.is_empty() { 0 } else { 4 }, "{text}{error}");
    assert_eq!(daemon.status()["degraded"], json!(lines));
    lines
}

fn reload(daemon: &Daemon, config: &str, counter: &str, count: u32) {
    daemon.write_config(config);
    daemon.signal(Signal::SIGHUP);
    daemon.await_counter(counter, &json!(count));
}

#[test]
fn a_device_that_is_configured_and_absent_fails_it() {
    let daemon = Daemon::start("");
    assert_eq!(
        degraded(&daemon),
        [
            "device none0 is configured but absent: see `rdma link`, and devices in apmd.toml",
            "no connection can be protected: no RDMA device: see `rdma link`"
        ]
    );
}

#[test]
fn a_refused_reload_is_shown_until_the_next_good_one() {
    let daemon = Daemon::start("");
    let refusals = || {
        let mut lines = degraded(&daemon);
        lines.retain(|line| line.starts_with("the configuration was refused"));
        lines
    };
    assert_eq!(refusals(), Vec::<String>::new());
    reload(&daemon, "[policy]\nnonsense = 1\n", "failed_reloads", 1);
    let [line] = &refusals()[..] else {
        panic!("not shown");
    };
    assert!(
        line.contains("apmd.toml:4") && line.contains("nonsense"),
        "{line}"
    );
    assert_eq!(refusals().len(), 1, "it stays");
    reload(&daemon, "", "reloads", 1);
    assert_eq!(refusals(), Vec::<String>::new());
}

#[test]
fn a_reload_says_which_changes_need_a_restart() {
    let daemon = Daemon::start("");
    let restart = || {
        let problems = daemon.status()["problems"].clone();
        let problems = problems.as_array().expect("a list").clone();
        let mut texts = problems
            .into_iter()
            .filter_map(|it| Some(it.as_str()?.to_owned()));
        texts.find(|text| text.starts_with("takes effect with the next restart"))
    };
    assert_eq!(restart(), None);
    let changed = "[acm]\nserve = true\n[control]\ngroup = \"root\"\n";
    reload(&daemon, changed, "reloads", 1);
    let text = restart().expect("two keys are not in effect");
    assert!(text.ends_with(": acm.serve, control.group"), "{text}");
    reload(&daemon, "", "reloads", 2);
    assert_eq!(restart(), None, "they are as they were at the start");
}

#[test]
fn a_group_that_the_sockets_could_not_be_given_to_is_a_warning() {
    let config = "[control]\ngroup = \"root\"\n";
    let directory = Directory::new();
    let daemon = Daemon::start_as_stranger(&directory, config);
    let output = daemon.apmctl(&["status"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let warning = "warning      group root ([control] group) cannot use apmd's sockets, which could not be given to \
                   it: Operation not permitted; name it in SupplementaryGroups= of apmd's unit";
    assert!(text.contains(warning), "{text}");
    assert!(!degraded(&daemon).iter().any(|line| line.contains("group")));

    if nix::unistd::geteuid().is_root() {
        let text = Daemon::start(config).apmctl(&["status"]).stdout;
        assert!(!String::from_utf8_lossy(&text).contains("[control] group"));
    }
}

#[test]
fn lost_redundancy_is_a_warning_and_with_strict_it_fails() {
    let problem = "1 of 2 connections have had both paths on one port for 60 s and would not survive its loss: see \
                   `apmctl port` here and on the peers";
    let answer = |lost: usize| {
        let problems: &[&str] = if lost > 0 { &[problem] } else { &[] };
        json!({
            "version": "0.1.0", "pid": 7, "uptime_seconds": 100, "class": 45, "devices": ["mlx5_0"],
            "ports": {"total": 2, "up": 2, "settling": 0, "down": 0},
            "libraries": 1, "problems": problems, "degraded": [],
            "connections": {
                "total": 2, "armed": 2, "armed_same_port": 1, "armed_same_port_60_seconds": lost, "rearming": 0,
                "working": 0, "unprotected": 0, "refused": 0, "broken": 0,
            },
        })
        .to_string()
    };
    let status = |lost, arguments: &[&str]| {
        let arguments = [arguments, &["status"]].concat();
        script::run(&[&answer(lost)], &arguments)
    };
    let (code, text, error) = status(1, &[]);
    assert_eq!(code, 0, "{error}");
    assert!(text.contains(&format!("warning      {problem}")), "{text}");
    let strict = |lost, first: &[&str]| {
        let arguments = [first, &["status", "--strict"]].concat();
        script::run(&[&answer(lost)], &arguments)
    };
    let (code, text, error) = strict(1, &[]);
    assert_eq!(code, 4, "{error}");
    assert!(text.contains(&format!("degraded     {problem}")), "{text}");
    let (code, text, _) = strict(1, &["-j"]);
    let shown: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, &shown["degraded"]), (4, &json!([problem])));
    assert_eq!(strict(0, &[]).0, 0, "it has lasted for less than a minute");
}
