// SPDX-License-Identifier: MIT OR Apache-2.0
//! When two states count as one: their debug texts are the same, with times made relative to the host's
//! own now, and without what only counts.

use core::fmt::{self, Debug, Write};
use std::hash::{DefaultHasher, Hasher};

use crate::time::Time;

/// Fields that no decision rests on; nor does one on `query_pace` within the model's bounds.
const LEFT_OUT: [&str; 6] = [
    "counters",
    "config",
    "history",
    "record",
    "path_counts",
    "query_pace",
];

/// What has passed longer ago than this counts as equally long ago: no rule looks further back.
const LONG_AGO: u64 = 10_000_000;

/// The fingerprint of something at a host whose clock says `now`.
pub(super) fn fingerprint(now: Time, of: &impl Debug) -> u64 {
    let mut reader = Reader {
        now,
        hasher: DefaultHasher::new(),
        last: Last::Other,
        skipping: None,
    };
    write!(reader, "{of:?}").expect("a hasher takes everything");
    reader.hasher.finish()
}

/// What the last piece of text was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Other,
    LeftOutName,
    Time,
    TimeOpened,
}

/// Takes the text that `#[derive(Debug)]` writes, piece by piece.
struct Reader {
    now: Time,
    hasher: DefaultHasher,
    last: Last,
    /// Brackets open inside a field that is left out.
    skipping: Option<usize>,
}

impl Reader {
    /// Whether the piece belongs to a field that is left out.
    fn skips(&mut self, piece: &str) -> bool {
        let Some(depth) = self.skipping else {
            return false;
        };
        if depth == 0 && matches!(piece, ", " | " }" | ")" | "}") {
            self.skipping = None;
            return false;
        }
        let opened = piece.matches(['(', '[', '{']).count();
        let closed = piece.matches([')', ']', '}']).count();
        self.skipping = Some((depth + opened).saturating_sub(closed));
        true
    }

    /// A moment that is to come by how far it is, one that has passed by about how long ago.
    fn time(&mut self, at: u64) {
        let now = self.now.0;
        if at > now {
            self.hasher.write_u64(at - now);
        } else {
            let age = (now - at).min(LONG_AGO);
            self.hasher
                .write_u32(u64::BITS - (age / 1_000).leading_zeros());
            self.hasher.write_u8(b'-');
        }
    }
}

impl Write for Reader {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        if self.skips(piece) {
            return Ok(());
        }
        let last = core::mem::replace(&mut self.last, Last::Other);
        match (last, piece) {
            (_, "Time") => self.last = Last::Time,
            (Last::Time, "(") => self.last = Last::TimeOpened,
            (Last::TimeOpened, digits) => {
                let at = digits.parse().expect("a time is a number");
                self.time(at);
                return Ok(());
            }
            (Last::LeftOutName, ": ") => self.skipping = Some(0),
            (_, name) if LEFT_OUT.contains(&name) => self.last = Last::LeftOutName,
            _ => {}
        }
        self.hasher.write(piece.as_bytes());
        Ok(())
    }
}

#[test]
fn only_what_matters_tells_states_apart() {
    #[derive(Debug)]
    #[allow(dead_code, reason = "read by Debug")]
    struct Example {
        counters: (u32, [u8; 2]),
        at: Time,
        name: u8,
    }
    let print = |now, counter, at, name| {
        let example = Example {
            counters: (counter, [1, 2]),
            at: Time(at),
            name,
        };
        fingerprint(Time(now), &example)
    };
    let first = print(0, 1, 50, 7);
    assert_eq!(first, print(1_000_000, 2, 1_000_050, 7));
    assert_ne!(first, print(0, 1, 51, 7));
    assert_ne!(first, print(0, 1, 50, 8));
    assert_ne!(print(50, 1, 50, 7), first);
}
