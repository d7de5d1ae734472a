// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program's command line.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use testbed::wait::{self, Seen};

use super::is_there;

fn apm_fabrics(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_apm-fabrics"))
        .args(arguments)
        .output()
        .expect("it starts")
}

#[test]
fn one_case_is_compared_in_all_states() {
    if !is_there() {
        return;
    }
    let one = [
        "compare", "--shape", "mesh2d", "--engine", "dor", "--lmc", "1", "--json",
    ];
    let output = apm_fabrics(&one);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        stderr
            .lines()
            .last()
            .is_some_and(|line| line.ends_with(": ok"))
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let states: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON object"))
        .collect();
    let named: Vec<_> = states.iter().map(|state| &state["state"]).collect();
    assert_eq!(named, ["whole", "cut", "healed", "garbled"]);
    for state in &states {
        let number = |key: &str| {
            state[key]
                .as_u64()
                .unwrap_or_else(|| panic!("{key}: {state}"))
        };
        assert_eq!(number("differences"), 0);
        assert_eq!(number("records"), number("lids").pow(2));
        let broken = state["state"] == "cut" || state["state"] == "garbled";
        assert_eq!(number("unreachable") > 0, broken, "{state}");
        assert_eq!(
            number("irreversible") > 0,
            state["state"] == "garbled",
            "{state}"
        );
    }
}

/// How many processes have the directories of process `id` in their command line, and are no more on
/// their way to become what they shall.
fn helpers(id: u32) -> usize {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let named = format!("apm-ibsim-{id}-");
    lines
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .filter(|line| line.contains(&named) && !line.starts_with("setpriv"))
        .count()
}

#[test]
fn killed_it_leaves_no_process_behind() {
    if !is_there() {
        return;
    }
    let mut program = Command::new(env!("CARGO_BIN_EXE_apm-fabrics"))
        .args(["compare", "--shape", "fat-tree3", "--lmc", "2"])
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let (id, limit) = (program.id(), Duration::from_secs(60));
    let seen = |wanted: usize| {
        let found = helpers(id);
        Ok(Seen::when(found == wanted, || format!("{found} processes")))
    };
    let started = wait::until_often(
        "ibsim and opensm run",
        limit,
        Duration::from_millis(1),
        || seen(2),
    );
    program.kill().expect("it runs");
    program.wait().expect("it ended");
    started.expect("they run");
    wait::until("they are gone", limit, || seen(0)).expect("they are gone");
}

#[test]
fn a_listed_case_is_a_command_of_that_case_alone() {
    let list = |arguments: &[&str]| {
        let output = apm_fabrics(&[&["compare", "--list"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let cases = list(&["--quick", "--shape", "torus2d", "--seeds", "2"]);
    assert_eq!(cases.lines().count(), 18, "3 engines, 3 LMCs: {cases}");
    for case in cases.lines() {
        let arguments: Vec<_> = case.split_whitespace().collect();
        assert_eq!(list(&arguments), format!("{case}\n"));
    }
}

#[test]
fn nonsense_is_a_usage_error() {
    for arguments in [
        &[][..],
        &["compare", "--lmc", "9"],
        &["compare", "--shape", "cube"],
        &["compare", "--seeds", "0"],
    ] {
        assert_eq!(
            apm_fabrics(arguments).status.code(),
            Some(2),
            "{arguments:?}"
        );
    }
}
