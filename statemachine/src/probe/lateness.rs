// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long the answers to probes of a path take.

use core::time::Duration;

use super::REPEAT;

/// What the answers to probes of a path tell of delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Lateness {
    /// Prompt answers in a row that are still missing until the path does not count as late any more.
    missing: u8,
}

/// Where every second answer is late, this many prompt ones in a row come once in 256 by chance.
const PROMPT_AGAIN: u8 = 8;

impl Lateness {
    /// An answer came so long after its probe.
    pub(super) fn answered_after(&mut self, took: Duration) {
        self.missing = match took >= REPEAT {
            true => PROMPT_AGAIN,
            false => self.missing.saturating_sub(1),
        };
    }

    /// Whether the last answer took [`REPEAT`] or longer.
    pub(super) fn is_late(self) -> bool {
        self.missing == PROMPT_AGAIN
    }

    /// Whether one of the last eight answers took [`REPEAT`] or longer.
    pub(super) fn was_late(self) -> bool {
        self.missing > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_late_until_eight_answers_in_a_row_are_prompt() {
        let mut lateness = Lateness::default();
        let prompt = REPEAT - Duration::from_micros(1);
        lateness.answered_after(prompt);
        assert!(!lateness.is_late() && !lateness.was_late());
        lateness.answered_after(REPEAT);
        assert!(lateness.is_late() && lateness.was_late());
        for _ in 0..7 {
            lateness.answered_after(prompt);
            assert!(!lateness.is_late() && lateness.was_late());
        }
        lateness.answered_after(prompt);
        assert!(!lateness.was_late());
    }
}
