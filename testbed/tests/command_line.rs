// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runner's command line, by the real program; what needs no VM.

use std::process::{Command, Output};

fn apm_drill(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_apm-drill"))
        .args(arguments)
        .output()
        .expect("it starts")
}

#[test]
fn the_list_is_the_one_that_cargo_xtask_prints() {
    let output = apm_drill(&["--list"]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/drills.txt");
    let kept = std::fs::read_to_string(file).expect("the list that cargo xtask reads");
    assert_eq!(kept, text, "drills.txt is what apm-drill --list prints");
}

#[test]
fn nonsense_is_a_usage_error() {
    for arguments in [
        &["no-such-drill"][..],
        &["--no-such-option"],
        &["cable-pull", "nope"],
    ] {
        let output = apm_drill(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_simulation_of_nothing_is_a_usage_error() {
    for arguments in [
        &["--seeds", "0"][..],
        &["--fresh", "0"],
        &["--seeds", "5", "--first", "18446744073709551615"],
        &["--seed", "5", "--keep=x"],
        &["--seed", "5", "--keep=0,99"],
        &["--profile", "nope"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_apm-sim"))
            .args(arguments)
            .output()
            .expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{arguments:?}"
        );
    }
}

#[test]
fn outside_the_vm_a_drill_fails_and_says_why() {
    let output = apm_drill(&["--json", "cable-pull"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    let report: serde_json::Value =
        serde_json::from_str(text.lines().last().unwrap_or_default()).expect("a JSON object");
    assert_eq!(report["drill"], "cable-pull");
    assert_eq!(report["ok"], false);
    assert!(
        report["why"].as_str().is_some_and(|why| !why.is_empty()),
        "{text}"
    );
    for key in [
        "connections",
        "migrations",
        "rearmed",
        "lost",
        "duplicated",
        "max_stall_ms",
    ] {
        assert!(report[key].is_number(), "{key}");
    }
    assert!(report["timeline"].is_array());
}
