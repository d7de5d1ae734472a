// SPDX-License-Identifier: MIT OR Apache-2.0
//! Witnesses of how well the machine itself runs: the VM is emulated, and each of its processors may
//! be left alone by its host for a while, which stops the programs on it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::clock::{Millis, Moment};

/// How long a witness sleeps; what it oversleeps is a gap.
const NAP: Duration = Duration::from_millis(4);

/// Shorter gaps are ordinary: timers and the scheduler take that long.
const WORTH_KEEPING: Duration = Duration::from_millis(1);

/// A time in which a processor did not run, as far as a sleeping thread can tell.
#[derive(Clone, Copy, Debug)]
struct Gap {
    start: Moment,
    length: Duration,
}

type Gaps = Arc<Mutex<Vec<Gap>>>;

/// A thread on each processor that does nothing but sleep; they end when this is dropped.
pub struct Witnesses {
    gaps: Vec<Gaps>,
    ending: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Witnesses {
    /// Begins to watch.
    pub fn start() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let gaps: Vec<Gaps> = (0..processors).map(|_| Gaps::default()).collect();
        let ending = Arc::new(AtomicBool::new(false));
        let watch_one = |(processor, gaps): (usize, &Gaps)| {
            let (gaps, ending) = (Arc::clone(gaps), Arc::clone(&ending));
            thread::spawn(move || watch(processor, &gaps, &ending))
        };
        let threads = gaps.iter().enumerate().map(watch_one).collect();
        Self {
            gaps,
            ending,
            threads,
        }
    }

    /// How long altogether the processor that ran least did not run between the two moments.
    pub fn stood_still(&self, from: Moment, to: Moment) -> Millis {
        let inside = |gap: &Gap| (gap.start + gap.length).min(to).since(gap.start.max(from));
        let of_one = |gaps: &Gaps| {
            let gaps = gaps.lock().unwrap_or_else(PoisonError::into_inner);
            gaps.iter().map(inside).sum::<Duration>()
        };
        Millis::from(self.gaps.iter().map(of_one).max().unwrap_or_default())
    }
}

fn watch(processor: usize, gaps: &Mutex<Vec<Gap>>, ending: &AtomicBool) {
    let mut set = CpuSet::new();
    if set
        .set(processor)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .is_err()
    {
        // Not ours to use: whoever runs on the others is watched there.
        return;
    }
    while !ending.load(Ordering::Relaxed) {
        let start = Moment::now();
        thread::sleep(NAP);
        let length = Moment::now().since(start).saturating_sub(NAP);
        if length > WORTH_KEEPING {
            gaps.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(Gap { start, length });
        }
    }
}

impl Drop for Witnesses {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
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
        let mut witnesses = Witnesses::start();
        let at = Moment::from_ms;
        let gap = |start, length| Gap {
            start: at(start),
            length: Duration::from_millis(length),
        };
        // Long before this test began: no real gap can be there.
        witnesses.gaps = [vec![gap(100.0, 50), gap(200.0, 20)], vec![gap(100.0, 10)]]
            .map(|gaps| Arc::new(Mutex::new(gaps)))
            .into();
        assert_eq!(witnesses.stood_still(at(0.0), at(300.0)), Millis(70.0));
        assert_eq!(witnesses.stood_still(at(120.0), at(210.0)), Millis(40.0));
        assert_eq!(witnesses.stood_still(at(150.0), at(200.0)), Millis(0.0));
    }
}
