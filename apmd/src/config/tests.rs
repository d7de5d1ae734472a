// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration file and its template.

use serde_json::json;
use statemachine::PortDown;

use super::*;

fn read(files: &[(&str, &str)]) -> Result<Config, Vec<String>> {
    let file = |(path, text): &(&str, &str)| read::File {
        path: path.into(),
        text: (*text).to_owned(),
    };
    let files = Files::from_iter(files.iter().map(file));
    let read = Reading::of(&files).map(|reading| reading.config);
    read.map_err(|error| error.findings().iter().map(ToString::to_string).collect())
}

fn parse(text: &str) -> Result<Config, String> {
    read(&[("t.toml", text)]).map_err(|errors| errors.join("\n"))
}

#[test]
fn the_template_says_the_defaults() {
    let template = include_str!("../../dist/apmd.toml");
    assert_eq!(parse(template).unwrap(), Config::default());
    // With every setting's comment sign taken away it still says the same.
    let spoken: String = template
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    assert_eq!(parse(&spoken).unwrap(), Config::default());
    let spoken: toml::Table = spoken.parse().unwrap();
    let keys = toml::Table::try_from(Config::default()).unwrap();
    for (name, value) in &keys {
        let said = spoken.get(name);
        assert!(said.is_some(), "{name} is not in the template");
        for key in value.as_table().into_iter().flat_map(toml::Table::keys) {
            let said = said.and_then(|section| section.get(key));
            assert!(said.is_some(), "{name}.{key} is not in the template");
        }
    }
}

#[test]
fn an_operator_can_know_all_keys() {
    let leaves = |value: &toml::Value| value.as_table().map_or(1, toml::Table::len);
    let keys = toml::Table::try_from(Config::default()).unwrap();
    let count: usize = keys.values().map(leaves).sum();
    assert!(count <= 31, "{count} keys");
}

/// The keys of the template whose comment says so, as `section.key`.
fn marked_start() -> Vec<String> {
    let mut section = String::new();
    let (mut marked, mut in_comment) = (false, false);
    let mut keys = Vec::new();
    for line in include_str!("../../dist/apmd.toml").lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = format!("{}.", name.trim_end_matches(']'));
        } else if line.starts_with("# ") {
            marked = line.contains("[start]") || in_comment && marked;
            in_comment = true;
            continue;
        } else if let Some((key, _)) = line.trim_start_matches('#').split_once(" = ") {
            keys.extend(marked.then(|| format!("{section}{key}")));
        }
        in_comment = false;
    }
    keys
}

/// All configurations that differ from the default in one key, with that key.
fn changed_in_one_key() -> Vec<(String, Config)> {
    let others = json!([
        true,
        false,
        7,
        "/x",
        "json",
        "loop",
        "ulps",
        "paths",
        "mode port",
        ["x"],
        ["ssa"],
        ["10.0.0.0/8"]
    ]);
    let default = serde_json::to_value(Config::default()).unwrap();
    let mut changed = Vec::new();
    for (name, value) in default.as_object().unwrap() {
        let inner = value.as_object().into_iter().flatten();
        let mut pointers: Vec<_> = inner.map(|(key, _)| format!("/{name}/{key}")).collect();
        if !value.is_object() {
            pointers.push(format!("/{name}"));
        }
        for pointer in pointers {
            let with = |other: &serde_json::Value| {
                let mut value = default.clone();
                *value.pointer_mut(&pointer)? = other.clone();
                let config: Config = serde_json::from_value(value).ok()?;
                (config != Config::default()).then_some(config)
            };
            let config = others.as_array().unwrap().iter().find_map(with);
            changed.push((
                pointer[1..].replace('/', "."),
                config.expect("another value"),
            ));
        }
    }
    changed
}

#[test]
fn the_template_says_what_takes_effect_at_start_only() {
    let default = Config::default();
    let fixed = changed_in_one_key().into_iter();
    let fixed = fixed.filter(|(_, config)| config.clone().with_fixed_of(&default) == default);
    let mut fixed: Vec<_> = fixed.map(|(key, _)| key).collect();
    let mut marked = marked_start();
    fixed.sort_unstable();
    marked.sort_unstable();
    assert_eq!(marked, fixed);
}

#[test]
fn nothing_means_the_defaults() {
    assert_eq!(parse(""), Ok(Config::default()));
}

#[test]
fn paths_begin_with_a_slash() {
    for (section, key) in [
        ("ssa", "snapshot"),
        ("ssa", "risks"),
        ("acm", "directory"),
        ("acm", "data_dir"),
    ] {
        let error = parse(&format!("[{section}]\n{key} = \"a\"\n")).unwrap_err();
        let want = format!("t.toml:2: {section}.{key}: want a path that begins with a slash");
        assert!(error.starts_with(&want), "{error}");
    }
    let none = "[acm]\ndata_dir = \"\"\n\
                [ssa]\nsnapshot = \"\"\nrisks = \"\"\n";
    assert!(parse(none).is_ok());
}

/// A number of the template, and what the template says behind it of what it may be.
struct Number {
    section: &'static str,
    key: &'static str,
    range: &'static str,
}

impl Number {
    /// All lines of the form `#key = NUMBER # RANGE`.
    fn all() -> Vec<Self> {
        let mut section = "";
        let mut numbers = Vec::new();
        for line in include_str!("../../dist/apmd.toml").lines() {
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_end_matches(']');
            }
            let Some((key, value)) = line.trim_start_matches(['#', ' ']).split_once(" = ") else {
                continue;
            };
            let (value, range) = value.split_once('#').unwrap_or((value, ""));
            if integer(value).is_some() {
                let range = range.trim();
                numbers.push(Self {
                    section,
                    key,
                    range,
                });
            }
        }
        numbers
    }

    /// The least and the most of the numbers that the range names.
    fn ends(&self) -> (u64, u64) {
        let words = self.range.split_whitespace();
        let named = words.filter_map(|word| integer(word.trim_end_matches(',')));
        let named: Vec<_> = named.collect();
        match (named.iter().min(), named.iter().max()) {
            (Some(least), Some(most)) => (*least, *most),
            _ => panic!("{}.{} has no range", self.section, self.key),
        }
    }

    /// What comes of a file that says this number.
    fn parse(&self, number: i128) -> Result<Config, String> {
        parse(&format!("[{}]\n{} = {number}\n", self.section, self.key))
    }
}

fn integer(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.split_at_checked(2) {
        Some(("0x", digits)) => u64::from_str_radix(digits, 16).ok(),
        Some(("0o", digits)) => u64::from_str_radix(digits, 8).ok(),
        _ => text.parse().ok(),
    }
}

#[test]
fn the_template_says_the_range_of_every_number() {
    let keys = toml::Table::try_from(Config::default()).unwrap();
    let mut numbers = Vec::new();
    for (section, value) in &keys {
        assert!(!value.is_integer(), "{section}");
        for (key, value) in value.as_table().into_iter().flatten() {
            assert!(!value.is_float(), "{section}.{key}");
            if value.is_integer() {
                numbers.push((section.as_str(), key.as_str()));
            }
        }
    }
    let said = Number::all();
    let mut said: Vec<_> = said.iter().map(|n| (n.section, n.key)).collect();
    numbers.sort_unstable();
    said.sort_unstable();
    assert_eq!(said, numbers);
}

#[test]
fn a_number_out_of_its_range_is_refused() {
    for number in Number::all() {
        let (least, most) = number.ends();
        for good in [least, most].map(i128::from) {
            assert_eq!(number.parse(good).err(), None, "{} {good}", number.key);
        }
        for bad in [i128::from(least) - 1, i128::from(most) + 1] {
            let error = number.parse(bad).unwrap_err();
            let key = format!("t.toml:2: {}.{}: ", number.section, number.key);
            assert!(error.starts_with(&key), "{error}");
            // What the type does not hold is refused by that.
            let by_type = error.contains(&format!("`{bad}`")) && error.contains("expected u");
            assert!(by_type || error.ends_with(number.range), "{error}");
        }
    }
}

#[test]
fn errors_name_file_line_and_key_and_the_near_word() {
    for (text, want) in [
        (
            "\n[policy]\nholdoff_ms = 3\n",
            "t.toml:3: policy.holdoff_ms: no such key; is \"hold_off_ms\" meant?",
        ),
        (
            "[polcy]",
            "t.toml:1: polcy: no such key; is \"policy\" meant?",
        ),
        ("[xyz]\na = 1\n", "t.toml:1: xyz: no such key"),
        (
            "[log]\nrisks = \"/a\"",
            "t.toml:2: log.risks: no such key; it belongs to [ssa]",
        ),
        (
            "serve = true",
            "t.toml:1: serve: no such key; it belongs to [acm]",
        ),
        ("log = \"info\"", "t.toml:1: log: want a section, [log]"),
        ("[[acm]]", "t.toml:1: acm: want a section, [acm]"),
        (
            "devices = 4",
            "t.toml:1: devices: invalid type: integer `4`, expected a sequence",
        ),
        (
            "[association]\nclass = 0x33",
            "t.toml:2: association.class: is 0x33, want an application class, 0x09 to 0x2f, or 0x07",
        ),
        (
            "[ssa]\nsl = 16",
            "t.toml:2: ssa.sl: is 16, want 0 to 15, or \"auto\"",
        ),
        (
            "[ssa]\nsl = \"all\"",
            "t.toml:2: ssa.sl: want 0 to 15, or \"auto\"",
        ),
        (
            "[log]\nformat = \"jsn\"",
            "t.toml:2: log.format: is \"jsn\", want text, json; is \"json\" meant?",
        ),
        (
            "[source]\norder = [\"as\", \"sa\"]",
            "t.toml:2: source.order: is \"as\", want sa, acm, ssa, static",
        ),
        (
            "[log]\nlevel = \"=nonsense=\"",
            "t.toml:2: log.level: want error, warn, info, debug, trace, or target=level,...",
        ),
        ("\"a\\nb\" = 1", "t.toml:1: a b: no such key"),
    ] {
        assert_eq!(parse(text).unwrap_err(), want);
    }
    assert!(parse("a = [").unwrap_err().starts_with("t.toml:1: "));
}

#[test]
fn all_errors_of_all_files_are_told_in_their_order() {
    let errors = read(&[
        ("a.toml", "[acm]\nsrve = true\n[log]\nlevel = 4\n"),
        ("b.toml", "x = ["),
        ("c.toml", "[association]\nclass = 0\nwhat = 1\n"),
    ]);
    let errors = errors.unwrap_err();
    let places: Vec<_> = errors
        .iter()
        .map(|e| e.split(": ").next().unwrap())
        .collect();
    assert_eq!(
        places,
        ["a.toml:2", "a.toml:4", "b.toml:1", "c.toml:2", "c.toml:3"]
    );
}

#[test]
fn a_bad_value_is_told_though_a_later_file_has_a_good_one() {
    let bad = ("a.toml", "[policy]\nhold_off_ms = \"x\"\n");
    let good = ("b.toml", "[policy]\nhold_off_ms = 20\n");
    assert_eq!(read(&[bad, good]).unwrap_err().len(), 1);
}

#[test]
fn later_files_count_key_by_key() {
    let config = read(&[
        (
            "a.toml",
            "devices = [\"a\"]\n[acm]\nserve = true\nkernel = false\n",
        ),
        ("b.toml", "devices = [\"b\"]\n[acm]\nserve = false\n"),
    ]);
    let config = config.unwrap();
    assert_eq!(config.devices, ["b"]);
    assert_eq!((config.acm.serve, config.acm.kernel), (false, false));
}

#[test]
fn who_may_come_from_other_hosts_is_said() {
    let open = ("a.toml", "[acm]\ntcp_port = 6125\n");
    let networks = |list| ("b.toml", format!("[acm]\ntcp_networks = [{list}]\n"));
    let with = |list| {
        let (path, text) = networks(list);
        read(&[open, (path, text.as_str())])
    };
    assert!(with("\"10.0.0.0/8\", \"fd00::/8\"").is_ok());
    for wrong in [
        "\"10.0.0.0/33\"",
        "\"0.0.0.0/0\"",
        "\"10.0.0.0/8\", \"::/0\"",
    ] {
        let errors = with(wrong).unwrap_err();
        assert!(
            errors[0].starts_with("b.toml:2: acm.tcp_networks: "),
            "{errors:?}"
        );
    }
    let (path, text) = networks("\"10.0.0.0/8\"");
    let errors = read(&[(path, text.as_str())]).unwrap_err();
    assert!(
        errors[0].starts_with("b.toml:2: acm.tcp_networks: nobody can come"),
        "{errors:?}"
    );
}

#[test]
fn nesting_and_floods_end_early() {
    let deep = format!("a = {}", "[".repeat(60_000));
    assert!(parse(&deep).unwrap_err().lines().count() <= 5);
    let deep = format!("{}a = 1", "a.".repeat(30_000));
    assert_eq!(parse(&deep).unwrap_err().lines().count(), 1);
    assert_eq!(
        parse(&"= \n".repeat(20_000)).unwrap_err().lines().count(),
        5
    );
}

#[test]
fn settings_reach_the_engine() {
    let text = "[policy]\ndefault = \"port-down wait mode lid\"\nhold_off_ms = 20\n";
    let engine = parse(text).unwrap().engine();
    assert_eq!(engine.port_down, PortDown::Wait);
    assert_eq!(engine.policy.mode, cm_msgs::control::Mode::Lid);
    assert_eq!(engine.port_hold_off, Duration::from_millis(20));
    assert_eq!(Config::default().engine(), statemachine::Config::default());
}
