// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks for the next request before the thread sleeps.
//!
//! To put a thread to sleep and to wake it takes longer than all that a request needs, and a client
//! that asks one thing after the other asks again at once. So after a client's turn the thread leaves
//! the processor to whoever wants it, which may be that client, and looks again, for [`LONGEST`] at
//! most. A look sees all that a sleep would: whoever has something to say ends it, so nobody waits
//! longer and nobody is preferred. Unless one client asks alone, the processor is not left before it
//! is seen that nobody waits: who asks much would fill his stream meanwhile, at the others' cost. This
//! is no busy loop: without a client's turn there is no look, and a look in vain is followed by ever
//! more sleeps without one.

use std::io;
use std::time::{Duration, Instant};

/// Longer than a client takes that asks again at once, and not worth mentioning for others.
const LONGEST: Duration = Duration::from_micros(100);

/// A look that took so long was in vain, whatever it found: others want the processor, and a sleeper
/// gets it back sooner than who yields. A client that was woken on this thread's processor takes its
/// own turn meanwhile, which is what the look is for.
const TAKEN: Duration = Duration::from_millis(1);

/// Sleeps without a look, after many looks in vain.
const PAUSE_MAX: u32 = 256;

#[derive(Debug, Default)]
pub(super) struct Looks {
    /// A client has had its turn since the last sleep.
    served: bool,
    /// Sleeps without a look after the last one; none if that was fruitful.
    pause: u32,
    /// How many of them are left.
    left: u32,
}

impl Looks {
    /// A client has its turn.
    pub(super) fn served(&mut self) {
        self.served = true;
    }

    /// Whether something is `there` already, so that there is no need to sleep; `alone`: mostly of
    /// one client.
    ///
    /// # Errors
    /// As `there`.
    pub(super) fn look(
        &mut self,
        alone: bool,
        mut there: impl FnMut() -> io::Result<bool>,
    ) -> io::Result<bool> {
        if !self.is_due() {
            return Ok(false);
        }
        if !alone && there()? {
            return Ok(true);
        }
        let start = Instant::now();
        loop {
            std::thread::yield_now();
            let found = there()?;
            let took = start.elapsed();
            if found || took >= LONGEST {
                self.judge(found && took < TAKEN);
                return Ok(found);
            }
        }
    }

    /// Whether there is to be a look before this sleep.
    fn is_due(&mut self) -> bool {
        if !std::mem::take(&mut self.served) {
            return false;
        }
        let due = self.left == 0;
        self.left = self.left.saturating_sub(1);
        due
    }

    fn judge(&mut self, fruitful: bool) {
        self.pause = match fruitful {
            true => 0,
            false => (self.pause * 2).clamp(1, PAUSE_MAX),
        };
        self.left = self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many sleeps, each after a client's turn, have a look before them.
    fn due(looks: &mut Looks, sleeps: u32, fruitful: bool) -> usize {
        let due = (0..sleeps).filter(|_| {
            looks.served();
            let due = looks.is_due();
            if due {
                looks.judge(fruitful);
            }
            due
        });
        due.count()
    }

    #[test]
    fn looks_in_vain_become_rare_and_one_that_is_not_brings_them_back() {
        let mut looks = Looks::default();
        assert_eq!(due(&mut looks, 100, true), 100);
        assert_eq!(due(&mut looks, 1, false), 1);
        assert_eq!(due(&mut looks, 1000, false), 10);
        let rare = due(&mut looks, PAUSE_MAX * 100, false);
        assert!((90..=100).contains(&rare), "{rare}");
        looks.judge(true);
        assert_eq!(due(&mut looks, 100, true), 100);
    }

    #[test]
    fn without_a_request_nobody_looks() {
        let mut looks = Looks::default();
        let never = || -> io::Result<bool> { panic!("looked") };
        assert!(!looks.look(true, never).unwrap());
        looks.served();
        let mut times = 0;
        let third = || {
            times += 1;
            Ok(times == 3)
        };
        looks.look(true, third).unwrap();
        assert!(times > 0);
        assert!(!looks.look(true, never).unwrap(), "one look for one turn");
    }
}
