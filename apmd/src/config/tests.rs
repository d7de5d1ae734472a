// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration file and its template.

use super::*;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("t.toml"), text).map_err(|error| error.to_string())
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
fn nothing_means_the_defaults() {
    assert_eq!(parse(""), Ok(Config::default()));
}

#[test]
fn paths_begin_with_a_slash() {
    for (section, key) in [
        ("ssa", "snapshot"),
        ("ssa", "risks"),
        ("acm", "socket"),
        ("acm", "socket_link"),
        ("acm", "tcp_link"),
    ] {
        let error = parse(&format!("[{section}]\n{key} = \"a\"\n")).unwrap_err();
        let want = format!("t.toml:2: {key}: want a path that begins with a slash");
        assert!(error.starts_with(&want), "{error}");
    }
    let none = "[acm]\nsocket = \"\"\nsocket_link = \"\"\ntcp_link = \"\"\n\
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
    let mut config = Config::default();
    // Not given by default.
    config.ssa.sl = Some(0);
    let keys = toml::Table::try_from(config).unwrap();
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
            let key = format!("t.toml:2: {}: ", number.key);
            assert!(error.starts_with(&key), "{error}");
            // What the type does not hold is refused by that.
            let by_type = error.contains(&format!("`{bad}`")) && error.contains("expected u");
            assert!(by_type || error.ends_with(number.range), "{error}");
        }
    }
}

#[test]
fn errors_name_line_and_key() {
    assert_eq!(
        parse("\n[ports]\nholdoff_ms = 3\n").unwrap_err(),
        "t.toml:3: holdoff_ms: unknown field `holdoff_ms`, expected `sources` or `hold_off_ms`"
    );
    assert!(
        parse("devices = 4")
            .unwrap_err()
            .starts_with("t.toml:1: devices: invalid type")
    );
    assert_eq!(
        parse("[association]\nclass = 0x33").unwrap_err(),
        "t.toml:2: class: is 0x33, want an application class, 0x09 to 0x2f, or 0x07"
    );
    assert_eq!(
        parse("[timers]\ntries = 3\n[sa]\ntries = 0").unwrap_err(),
        "t.toml:4: tries: is 0, want 1 to 15"
    );
    assert!(
        parse("[log]\nlevel = \"=nonsense=\"")
            .unwrap_err()
            .starts_with("t.toml:2: level")
    );
    assert!(
        parse("[ports]\nsources = [\"sysfs\"]")
            .unwrap_err()
            .starts_with("t.toml:2: sour")
    );
    assert!(parse("a = [").unwrap_err().starts_with("t.toml:1: "));
}

#[test]
fn settings_reach_the_engine() {
    let text = "[policy]\nmigrate_on_port_down = false\n[ports]\nhold_off_ms = 20\n";
    let engine = parse(text).unwrap().engine();
    assert!(!engine.migrate_on_port_down);
    assert_eq!(engine.port_hold_off, Duration::from_millis(20));
    assert_eq!(Config::default().engine(), statemachine::Config::default());
}
