// SPDX-License-Identifier: MIT OR Apache-2.0
//! What path sources, the SA and files say, whatever it is. More cases: `PROPTEST_CASES`, or
//! `cargo xtask fuzz`.

use std::path::Path;
use std::time::Duration;

use cm_msgs::{Gid, Guid, PKey};
use paths::sa::{Limits, Reports, SaClient};
use paths::source::PathFile;
use paths::source::acm::{AcmClient, Action};
use paths::source::sa;
use proptest::collection::vec;
use proptest::prelude::*;
use statemachine::{PathQuery, PortId, Random, Time};

const PORT: PortId = PortId::new(Guid(9), 1);

fn query(query: u32) -> PathQuery {
    PathQuery {
        query,
        port: PORT,
        sgid: Gid([1; 16]),
        dgid: Gid([2; 16]),
        slid: None,
        dlid: None,
        pkey: PKey::DEFAULT_FULL,
    }
}

/// Text of a file of paths, from words that it can have and others.
fn path_file() -> impl Strategy<Value = String> {
    let known = vec![
        "[[path]]",
        "from = \"fe80::1\"",
        "to = \"fe80::2\"",
        "slid = 1",
        "dlid = 0x7",
        "mtu = 2048",
        "rate = 3",
        "sl = 16",
        "pkey = 0xffff",
        "dlid = -1",
        "reversible = true",
        "sl = []",
        "[path]",
    ];
    let line = prop_oneof![
        6 => prop::sample::select(known).prop_map(str::to_owned),
        1 => ".{0,20}",
    ];
    vec(line, 0..16).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn any_file_of_paths(text in path_file()) {
        match PathFile::read_from(Path::new("paths"), &text) {
            Ok(file) => { let _ = file.find(&query(1)); }
            Err(error) => prop_assert!(!error.to_string().contains('\n'), "{error}"),
        }
    }

    /// Each question has one answer, whatever comes over the connections and in what pieces.
    #[test]
    fn any_bytes_of_an_acm_service(
        pieces in vec((0..3usize, vec(any::<u8>(), 0..200), any::<bool>()), 0..40),
    ) {
        let mut client = AcmClient::new(2, Duration::from_millis(100));
        (1..=3).for_each(|number| client.ask(query(number)));
        let mut now = Time(1);
        let mut answered = Vec::new();
        let mut turn = |client: &mut AcmClient, now: Time| {
            while let Some(action) = client.poll_action(now) {
                if let Action::Connect(number) = action {
                    client.handle_open(number);
                }
            }
            while let Some((query, _)) = client.poll_answer() {
                answered.push(query);
            }
        };
        for (number, mut bytes, begins) in pieces {
            turn(&mut client, now);
            if begins && bytes.len() >= 16 {
                // As answers begin: version, RESOLVE with the bit of answers, success, their length.
                let len = bytes.len() as u16;
                bytes[..4].copy_from_slice(&[1, 0x81, 0, 0]);
                bytes[6..8].copy_from_slice(&len.to_ne_bytes());
            }
            client.handle_bytes(number, &bytes);
        }
        for _ in 0..10 {
            turn(&mut client, now);
            now = now + Duration::from_secs(1);
            client.handle_time(now);
        }
        turn(&mut client, now);
        answered.sort_unstable();
        prop_assert_eq!(answered, [1, 2, 3]);
    }

    /// A message of any bytes, or that answers what was asked as far as its header says.
    #[test]
    fn any_answer_of_the_sa(messages in vec((vec(any::<u8>(), 0..600), any::<bool>()), 1..12)) {
        let mut client = SaClient::new(Limits::default(), Random::new([3; 32]));
        client.ask(sa::ask(&query(7), 0));
        let mut now = Time(1);
        let mut replies = 0;
        for (mut message, answers) in messages {
            let sent = client.poll_send();
            if let Some(sent) = sent && answers && message.len() >= 56 {
                message[..24].copy_from_slice(&sent.mad[..24]);
                message[3] |= 0x80;
            }
            let _ = client.handle_response(now, &message);
            now = now + Duration::from_secs(5);
            client.handle_time(now);
            while client.poll_reply().is_some() {
                replies += 1;
            }
        }
        prop_assert!(replies <= 1);
    }

    #[test]
    fn any_report(mut mad in vec(any::<u8>(), 256), report: bool) {
        let mut reports = Reports::default();
        reports.subscribe(PORT, &[64, 65]);
        if report {
            mad[..4].copy_from_slice(&[1, 3, 2, 6]);
            mad[16..18].copy_from_slice(&[0, 2]);
        }
        let taken = reports.handle_report(PORT, &mad).is_ok();
        prop_assert!(taken || reports.poll_report().is_none());
    }
}
