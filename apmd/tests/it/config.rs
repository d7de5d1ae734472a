// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration files as the real daemon reads them.

use std::fs;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::daemon::Daemon;
use crate::directory::Directory;

/// `apmd --check-config` of the file `apmd.toml` in a directory: the exit status, and what it says of
/// good files and of bad ones, without the directory.
fn check(directory: &Directory) -> (Option<i32>, Vec<String>, Vec<String>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_apmd"));
    command.arg("--check-config").arg("--config");
    let output = command.arg(directory.file("apmd.toml")).output();
    let output = output.expect("apmd starts");
    let lines = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).replace(&directory.file(""), "");
        text.lines().map(str::to_owned).collect()
    };
    (
        output.status.code(),
        lines(&output.stdout),
        lines(&output.stderr),
    )
}

#[test]
fn the_template_is_good() {
    let directory = Directory::new();
    directory.write("apmd.toml", include_str!("../../dist/apmd.toml"));
    let (code, good, _) = check(&directory);
    assert_eq!((code, good), (Some(0), vec!["apmd.toml: ok".to_owned()]));
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let directory = Directory::new();
    directory.write(
        "apmd.toml",
        "[policy]\nholdoff = 3\n[log]\nlevel = \"=\"\n[control]\ngroup = \"no-such-group\"\n\
         [ssa]\nsnapshot = \"/\"\n[acm]\nmulticast = \"pths\"\n",
    );
    fs::create_dir(directory.path().join("apmd.d")).expect("a new directory");
    directory.write(
        "apmd.d/10-acm.toml",
        "[acm]\ntcp_networks = [\"10.0.0.0\"]\n",
    );
    directory.write("apmd.d/20-broken.toml", "[acm\n");
    directory.write("apmd.d/30-large.toml", &" ".repeat(65 * 1024));
    directory.write("apmd.d/not-read", "nonsense");
    let (code, _, errors) = check(&directory);
    assert_eq!(code, Some(1));
    let starts = [
        "apmd: apmd.d/10-acm.toml:2: acm.tcp_networks: ",
        "apmd: apmd.d/20-broken.toml:1: ",
        "apmd: apmd.d/30-large.toml: larger than 64 KiB",
        "apmd: apmd.toml:2: policy.holdoff: no such key; is \"hold_off_ms\" meant?",
        "apmd: apmd.toml:4: log.level: ",
        "apmd: apmd.toml:6: control.group: there is no group \"no-such-group\"",
        "apmd: apmd.toml:8: ssa.snapshot: /: no regular file",
        "apmd: apmd.toml:10: acm.multicast: is \"pths\", want off, addresses, paths; is \"paths\" meant?",
    ];
    assert_eq!(errors.len(), starts.len(), "{errors:#?}");
    for (error, start) in errors.iter().zip(starts) {
        assert!(error.starts_with(start), "{error}");
    }
}

#[test]
fn a_policy_that_is_none_is_said() {
    let directory = Directory::new();
    for (words, said) in [
        ("mode best", "mode: want any, port or lid"),
        (
            "failback prefer",
            "failback: want stay, or prefer and a port from 1 to 254",
        ),
        (
            "failback prefer 1 spread on",
            "failback prefer and spread on contradict each other",
        ),
        ("port-down", "port-down: want migrate, order or wait, once"),
        (
            "port-down wait port-down wait",
            "port-down: want migrate, order or wait, once",
        ),
        ("fallback stay", "want mode, failback, spread or hold-down"),
    ] {
        let text = format!("[policy]\nhold_off_ms = 1\ndefault = \"{words}\"\n");
        directory.write("apmd.toml", &text);
        let (code, _, errors) = check(&directory);
        assert_eq!((code, errors.len()), (Some(1), 1), "{errors:?}");
        let start = format!("apmd: apmd.toml:3: policy.default: {said}");
        assert!(errors[0].starts_with(&start), "{errors:?}");
    }
}

#[test]
fn what_may_come_later_is_a_warning() {
    let directory = Directory::new();
    directory.write(
        "apmd.toml",
        "devices = [\"none0\"]\n[ssa]\nsnapshot = \"/nonexistent\"\n",
    );
    let (code, good, warnings) = check(&directory);
    assert_eq!((code, good.len(), warnings.len()), (Some(0), 1, 2));
    assert!(
        warnings[0].starts_with("apmd: warning: apmd.toml:1: devices: "),
        "{warnings:?}"
    );
    assert!(
        warnings[1].contains("/nonexistent: No such file"),
        "{warnings:?}"
    );
}

#[test]
fn a_named_file_must_be_there() {
    let directory = Directory::new();
    let (code, _, errors) = check(&directory);
    assert_eq!((code, errors.len()), (Some(1), 1));
    assert!(
        errors[0].starts_with("apmd: apmd.toml: No such file"),
        "{errors:?}"
    );
}

#[test]
fn a_reload_reads_the_directory_and_takes_all_or_nothing() {
    let daemon = Daemon::start("[source]\norder = [\"static\"]\n");
    let directory = daemon.directory().join("apmd.d");
    fs::create_dir(&directory).expect("a new directory");
    let drop_in = |name: &str, text: &str| fs::write(directory.join(name), text).expect("writable");
    let sources = || {
        let output = daemon.apmctl(&["-j", "source", "show"]);
        let sources: serde_json::Value = serde_json::from_slice(&output.stdout).expect("json");
        let names = sources.as_array().expect("a list").iter();
        let names: Vec<_> = names.map(|source| source["source"].clone()).collect();
        json!(names)
    };
    drop_in("20.toml", "[source]\norder = [\"sa\"]\n");
    drop_in("10.toml", "[source]\norder = [\"ssa\", \"sa\"]\n");
    daemon.signal(Signal::SIGHUP);
    daemon.await_counter("reloads", &json!(1));
    assert_eq!(sources(), json!(["sa"]));
    drop_in(
        "30.toml",
        "[source]\norder = [\"ssa\"]\n[control]\ngroup = \"no-such-group\"\n",
    );
    daemon.signal(Signal::SIGHUP);
    daemon.await_counter("failed_reloads", &json!(1));
    assert_eq!(sources(), json!(["sa"]));
}
