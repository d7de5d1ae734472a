// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program's command line.

use std::process::{Command, Output};

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
