// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pseudo-random numbers: communication IDs, jitter, tie-breaks.

/// Splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): any
/// seed is good, and the numbers of two seeds have nothing to do with each other.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number that can name something: not 0.
    pub(crate) fn name(&mut self) -> u32 {
        loop {
            let name = (self.next() >> 32) as u32;
            if name != 0 {
                return name;
            }
        }
    }
}

/// Splitmix64's finalizer: every bit of `x` changes every bit of the result with even chances.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_sequence() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }
}
