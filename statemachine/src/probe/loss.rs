// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many probes of a path get lost, and so how many in a row are no chance any more.

/// What probes of a path tell of chance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossRate {
    /// A moving average over some thirty probes, in 65536ths.
    average: u16,
    /// Answers in a row without a loss between them.
    clean: u8,
}

/// What the last probe counts for.
const WEIGHT: u32 = 16;

/// So many answers in a row come once in ten by chance where a quarter is lost: the weather is another.
const CLEAN: u8 = 8;

/// How many in a row happen once in ten million by chance where so many sixteenths of all probes are lost,
/// and six at least.
const PATIENCE: [u8; 13] = [6, 6, 8, 10, 12, 14, 17, 20, 24, 28, 35, 43, MAX_PATIENCE];

/// Where more than three in four are lost, nothing that needs MADs works anyway.
const MAX_PATIENCE: u8 = 48;

impl LossRate {
    /// So many were lost before one that was answered.
    pub(super) fn answered_after(&mut self, lost: u8) {
        for _ in 0..lost {
            self.move_to(u16::MAX);
        }
        self.move_to(0);
        self.clean = match lost {
            0 => self.clean.saturating_add(1),
            _ => 0,
        };
    }

    fn move_to(&mut self, end: u16) {
        let sum = u32::from(self.average) * (WEIGHT - 1) + u32::from(end);
        self.average = (sum / WEIGHT) as u16;
    }

    /// A quarter or more, as far as the last answers do not tell otherwise.
    pub(super) fn is_high(self) -> bool {
        self.average >= u16::MAX / 4 && self.clean < CLEAN
    }

    /// Answers in a row without a loss between them.
    pub(super) fn clean(self) -> u8 {
        self.clean
    }

    /// Probes in a row without an answer that make the path suspect.
    pub(super) fn patience(self) -> u8 {
        let sixteenths = (usize::from(self.average) + (1 << 11)) >> 12;
        PATIENCE.get(sixteenths).copied().unwrap_or(MAX_PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// The patience with a path after so many of 1,000 probes were lost for an hour.
    fn patience(per_mille: u32) -> (u8, u8) {
        let mut random = Random::new([5; 32]);
        let (mut rate, mut lost) = (LossRate::default(), 0);
        let (mut least, mut most) = (u8::MAX, 0);
        for probe in 0..3_600 {
            if random.nonzero_u32() % 1_000 < per_mille {
                lost += 1;
                continue;
            }
            rate.answered_after(lost);
            lost = 0;
            if probe > 60 {
                least = least.min(rate.patience());
                most = most.max(rate.patience());
            }
        }
        (least, most)
    }

    #[test]
    fn what_was_lost_is_over_when_nothing_is_lost_any_more() {
        let mut rate = LossRate::default();
        (0..30).for_each(|_| rate.answered_after(2));
        assert!(rate.is_high());
        (0..CLEAN).for_each(|_| rate.answered_after(0));
        assert!(!rate.is_high());
        assert!(rate.patience() > LossRate::default().patience());
    }

    #[test]
    fn the_more_get_lost_the_more_must_be_lost_in_a_row() {
        assert_eq!(patience(0), (6, 6));
        let [(_, few), (some, many), (most, _)] = [10, 190, 820].map(patience);
        assert!(few <= 10, "{few}");
        assert!(some >= 6 && many <= 24, "{some} {many}");
        assert!(most >= 24, "{most}");
    }

    /// Else a path would be probed ten times a second for each loss.
    #[test]
    fn one_loss_in_thirty_is_not_many() {
        let mut rate = LossRate::default();
        (0..30).for_each(|_| rate.answered_after(0));
        rate.answered_after(1);
        assert!(!rate.is_high());
    }

    /// Whatever share of its probes a path loses, up to seven in ten.
    #[test]
    fn as_many_losses_in_a_row_as_make_a_path_suspect_are_no_chance() {
        for average in 0..u16::MAX / 10 * 7 {
            let rate = LossRate { average, clean: 0 };
            let share = f64::from(average) / f64::from(u16::MAX);
            let chance = (0..rate.patience()).fold(1.0, |chance, _| chance * share);
            assert!(chance < 1e-6, "{chance} where {share} are lost");
        }
    }
}
