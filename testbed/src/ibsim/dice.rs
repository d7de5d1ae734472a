// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choices that a seed repeats.

/// A generator of random numbers (splitmix64): the same seed, the same numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// A generator.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        // The remainder of the upper half is even enough for so few choices.
        ((bits >> 32) as usize).checked_rem(end).unwrap_or(0)
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        choices.get(self.below(choices.len())).copied()
    }

    /// In another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_another_does_not() {
        let rolls = |seed| {
            let mut dice = Dice::new(seed);
            [(); 8].map(|()| dice.below(1000))
        };
        assert_eq!(rolls(1), rolls(1));
        assert_ne!(rolls(1), rolls(2));
        assert_eq!(Dice::new(3).below(0), 0);
    }

    #[test]
    fn shuffling_keeps_all() {
        let mut items: Vec<_> = (0..50).collect();
        Dice::new(7).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
