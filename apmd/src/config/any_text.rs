// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration files that say anything: a configuration, or what is wrong and where.

use proptest::collection::vec;
use proptest::prelude::*;

use super::read::{File, Files, Reading};

/// The template's lines, without the comment signs before settings.
fn template() -> Vec<String> {
    let lines = include_str!("../../dist/apmd.toml").lines();
    let lines = lines.map(|line| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with(' ') => setting.to_owned(),
        _ => line.to_owned(),
    });
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

/// A line of the template, perhaps with another value, or any text.
fn line() -> impl Strategy<Value = String> {
    let values = vec![
        "0",
        "1",
        "-1",
        "9223372036854775807",
        "1e308",
        "nan",
        "true",
        "\"\"",
        "\"auto\"",
        "[]",
        "{}",
        "[\"sa\", \"sa\"]",
        "\"\\u0000\"",
        "1979-05-27",
        "\"/\"",
        "[[1]]",
    ];
    let settings = prop::sample::select(template());
    let changed = (settings.clone(), prop::sample::select(values)).prop_map(|(line, value)| {
        match line.split_once('=') {
            Some((key, _)) => format!("{key}= {value}"),
            None => line,
        }
    });
    prop_oneof![4 => settings, 6 => changed, 1 => ".{0,30}"]
}

proptest! {
    #[test]
    fn any_configuration(files in vec(vec(line(), 0..12), 1..4)) {
        let files = files.into_iter().enumerate().map(|(number, lines)| File {
            path: format!("{number}.toml").into(),
            text: lines.join("\n"),
        });
        match Reading::of(&Files::from_iter(files)) {
            Ok(reading) => {
                let _ = reading.config.engine();
                let text = toml::to_string(&reading.config).expect("settings are TOML");
                let again = [File { path: "again".into(), text }];
                let again = Reading::of(&Files::from_iter(again)).expect("good ones are good");
                prop_assert_eq!(again.config, reading.config);
            }
            Err(error) => {
                prop_assert!(!error.findings().is_empty());
                for finding in error.findings() {
                    let text = finding.to_string();
                    prop_assert!(!text.contains('\n'), "{text:?}");
                }
            }
        }
    }
}
