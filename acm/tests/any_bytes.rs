// SPDX-License-Identifier: MIT OR Apache-2.0
//! ibacm's files and clients' bytes, whatever they say. More cases: `PROPTEST_CASES`, or
//! `cargo xtask fuzz`.

use acm::files::{import, names, routes};
use acm::frame;
use cm_msgs::Gid;
use cm_msgs::acm::{Header, MAX_LEN};
use proptest::collection::vec;
use proptest::prelude::*;

/// Lines of words that such files have, and of others.
fn text() -> impl Strategy<Value = String> {
    let known = vec![
        "node1",
        "shca0",
        "1",
        "default",
        "fe80::1",
        "10.0.0.1",
        "{",
        "}",
        "from",
        "to",
        "0xffff",
        "0x1",
        "addr_prot",
        "acm",
        "timeout",
        "-1",
        "#",
        "pkey",
        "mtu",
        "lid",
        "full",
        "65536",
    ];
    let word = prop_oneof![
        4 => prop::sample::select(known).prop_map(str::to_owned),
        1 => ".{0,12}",
    ];
    let line = vec(word, 0..8).prop_map(|words| words.join(" "));
    vec(line, 0..12).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn any_file_of_names(text in text()) {
        let parsed = names(&text);
        prop_assert!(parsed.value.len() + parsed.skipped.len() <= text.lines().count());
    }

    #[test]
    fn any_file_of_routes(text in text()) {
        let from = [Gid([0xfe; 16]), "fe80::1".parse().expect("a GID")];
        let lines = text.lines().count();
        for (line, what) in routes(&text, &from).skipped {
            prop_assert!((1..=lines).contains(&line) && !what.is_empty());
        }
    }

    /// What is made of ibacm's options is TOML, whatever they were.
    #[test]
    fn any_file_of_options(text in text()) {
        prop_assert!(import(&text).contains("[acm]"));
    }

    #[test]
    fn any_frame(mut bytes in vec(any::<u8>(), 0..700), begins: bool) {
        if begins && let Some(version) = bytes.first_mut() {
            *version = 1;
        }
        if let Ok(Some((_, len))) = frame(&bytes) {
            prop_assert!((Header::LEN..=MAX_LEN).contains(&len) && len <= bytes.len());
            prop_assert!(frame(&bytes[..len - 1]).is_ok_and(|frame| frame.is_none()));
        }
    }
}
