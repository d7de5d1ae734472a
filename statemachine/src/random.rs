// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers from a seed that the caller brings.

use core::fmt;
use core::time::Duration;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};

/// Random numbers: communication IDs, transaction IDs, jitter.
///
/// A ChaCha20 key stream. Peers and strangers see many of its numbers; whoever could compute the
/// next communication ID from the last ones could speak for an association before it has begun.
/// Without the seed, no number says anything about another.
///
/// Every part gets a stream of its own ([`split`](Self::split)), so that what one part draws does
/// not depend on what others do: a simulation stays the same when another part of it changes. There
/// is no `Clone`, since two parts with the same stream would use the same IDs.
pub struct Random(ChaCha20Rng);

impl Random {
    /// The stream of a seed. In a daemon, that comes from the kernel.
    pub fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha20Rng::from_seed(seed))
    }

    /// A new stream, independent of this one and of others split from it.
    pub fn split(&mut self) -> Self {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        Self::new(seed)
    }

    /// Any number.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number that can name something: not 0.
    pub fn nonzero_u32(&mut self) -> u32 {
        loop {
            match self.0.next_u32() {
                0 => {}
                number => return number,
            }
        }
    }

    /// A number that can name something: not 0.
    pub fn nonzero_u64(&mut self) -> u64 {
        loop {
            match self.0.next_u64() {
                0 => {}
                number => return number,
            }
        }
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        // The upper half of the product; the bias is below 2^-32.
        let scaled = u128::from(self.next_u64()) * u128::from(bound);
        (scaled >> 64) as u32
    }

    /// `span`, up to so many percent shorter or longer.
    pub fn jitter(&mut self, span: Duration, percent: u8) -> Duration {
        // Of 100 percent a wait could be none, and a retry a storm.
        let percent = u32::from(percent.min(99));
        let spread = 100 - percent + self.below(2 * percent + 1);
        span.saturating_mul(spread) / 100
    }
}

#[cfg(test)]
impl Clone for Random {
    /// For the model checker, which goes on from the same engine in more than one way.
    fn clone(&self) -> Self {
        Self(ChaCha20Rng::deserialize_state(&self.0.serialize_state()))
    }
}

/// Says nothing of its state, which must not end up in a log.
impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439, A.1, test vector 1 (key and nonce 0, block 0).
    #[test]
    fn gives_the_published_key_stream() {
        let mut random = Random::new([0; 32]);
        assert_eq!(random.next_u64(), 0x903d_f1a0_ade0_b876);
        assert_eq!(random.next_u64(), 0x28bd_8653_e56a_5d40);
    }

    #[test]
    fn streams_that_are_split_differ_from_each_other_and_from_their_source() {
        let mut random = Random::new([7; 32]);
        let (mut one, mut other) = (random.split(), random.split());
        let first = [&mut random, &mut one, &mut other].map(Random::next_u64);
        assert!(first[0] != first[1] && first[1] != first[2] && first[0] != first[2]);
        let mut again = Random::new([7; 32]);
        assert_eq!(again.split().next_u64(), first[1], "but depend on the seed");
    }

    #[test]
    fn what_names_something_is_drawn_and_not_nothing() {
        let mut random = Random::new([0; 32]);
        assert_eq!(random.nonzero_u64(), 0x903d_f1a0_ade0_b876);
        assert_eq!(random.nonzero_u32(), 0xe56a_5d40);
    }

    #[test]
    fn jitter_stays_within_its_percentage() {
        let mut random = Random::new([1; 32]);
        let span = Duration::from_millis(1000);
        let spread: [_; 1000] = core::array::from_fn(|_| random.jitter(span, 20).as_millis());
        let (least, most) = (spread.iter().min(), spread.iter().max());
        assert_eq!((least, most), (Some(&800), Some(&1200)));
        assert_eq!(random.jitter(span, 0), span);
        assert_eq!(random.below(0), 0);
    }
}
