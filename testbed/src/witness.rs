// SPDX-License-Identifier: MIT OR Apache-2.0
//! A witness of how well the machine itself runs: the VM is emulated, and may be left without a
//! processor for a while, which stops every program in it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clock::{Millis, Moment};

/// How long the witness sleeps; what it oversleeps is a gap.
const NAP: Duration = Duration::from_millis(5);

/// Shorter gaps are ordinary.
const WORTH_KEEPING: Duration = Duration::from_millis(10);

/// A time in which the machine did not run, as far as one sleeping thread can tell.
#[derive(Clone, Copy, Debug)]
struct Gap {
    start: Moment,
    length: Duration,
}

/// A thread that does nothing but sleep; ends when dropped.
pub struct Witness {
    gaps: Arc<Mutex<Vec<Gap>>>,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Witness {
    /// Begins to watch.
    pub fn start() -> Self {
        let gaps = Arc::new(Mutex::new(Vec::new()));
        let ending = Arc::new(AtomicBool::new(false));
        let (kept, stop) = (Arc::clone(&gaps), Arc::clone(&ending));
        let thread = thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let start = Moment::now();
                thread::sleep(NAP);
                let length = Moment::now().since(start).saturating_sub(NAP);
                if length > WORTH_KEEPING {
                    kept.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(Gap { start, length });
                }
            }
        });
        Self {
            gaps,
            ending,
            thread: Some(thread),
        }
    }

    /// How long altogether the machine did not run between the two moments.
    pub fn stood_still(&self, from: Moment, to: Moment) -> Millis {
        let gaps = self.gaps.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = |gap: &Gap| (gap.start + gap.length).min(to).since(gap.start.max(from));
        Millis::from(gaps.iter().map(inside).sum::<Duration>())
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic, and there is nothing to do about it.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_between_the_moments_counts() {
        let witness = Witness::start();
        let at = Moment::from_ms;
        let gap = |start, length| Gap {
            start: at(start),
            length: Duration::from_millis(length),
        };
        // Long before this test began: no real gap can be there.
        *witness.gaps.lock().expect("not poisoned") = vec![gap(100.0, 50), gap(200.0, 20)];
        assert_eq!(witness.stood_still(at(0.0), at(300.0)), Millis(70.0));
        assert_eq!(witness.stood_still(at(120.0), at(210.0)), Millis(40.0));
        assert_eq!(witness.stood_still(at(150.0), at(200.0)), Millis(0.0));
    }
}
