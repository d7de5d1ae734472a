// SPDX-License-Identifier: MIT OR Apache-2.0
//! What arrives at the hosts' ports, by their counters: whether a program moves data, over which
//! ports, and for how long it did not. What is sent again and again into nothing does not arrive.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clock::{Millis, Moment};
use crate::failure::Failure;
use crate::host::Host;
use crate::port::Port;
use crate::program::Program;
use crate::wait::{self, Seen};

/// How often the counters are read.
const PERIOD: Duration = Duration::from_millis(10);

/// Bound for a process to be in its host's namespace.
const LIMIT: Duration = Duration::from_secs(30);

/// Samples kept: three minutes.
const KEPT: usize = 18_000;

/// Traffic that goes on has something to show in each of these.
const STEP: Duration = Duration::from_millis(100);
const STEPS: u32 = 10;

/// Packets in a step by which a program is told from management.
const TRAFFIC: u64 = 4;

/// The time in which traffic must be seen to have resumed: long beside that in which what was under way, or
/// queued, still arrives.
const WINDOW: Duration = Duration::from_secs(1);

/// More packets than management has in a [`WINDOW`], while a subnet manager sweeps.
const MANAGEMENT: u64 = 200;

/// Portions of what usually comes in a [`WINDOW`], by which stalls are measured.
const PORTIONS: u64 = 50;

/// Packets received by each host's ports, ever; zeros for one that it does not have.
type Packets = [[u64; 2]; 2];

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Moment,
    packets: Packets,
}

impl Sample {
    fn sum(&self) -> u64 {
        sum(&self.packets)
    }
}

fn sum(packets: &Packets) -> u64 {
    packets.as_flattened().iter().sum()
}

type Samples = Arc<Mutex<Vec<Sample>>>;

/// The packets that arrive, sampled by a thread until this is dropped.
pub(super) struct Flow {
    samples: Samples,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flow {
    /// Begins to watch.
    pub(super) fn watch(hosts: [Host; 2]) -> Result<Self, Failure> {
        let files = [open_counters(hosts[0])?, open_counters(hosts[1])?];
        let samples = Samples::default();
        let ending = Arc::new(AtomicBool::new(false));
        let thread = {
            let (samples, ending) = (Arc::clone(&samples), Arc::clone(&ending));
            thread::spawn(move || sample(&files, &samples, &ending))
        };
        Ok(Self {
            samples,
            ending,
            thread: Some(thread),
        })
    }

    fn look<T>(&self, look: impl FnOnce(&[Sample]) -> T) -> T {
        look(&self.samples.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a program has moved data all the time for the last second.
    pub(super) fn is_steady(&self, since: Moment) -> bool {
        let now = Moment::now();
        now.since(since) >= STEP * STEPS && self.look(|samples| is_steady(samples, now))
    }

    /// The port of a host over which most came in the last second.
    pub(super) fn carrying(&self, host: Host) -> Port {
        let [first, second] = self.last_second()[host.index()];
        host.port(if second > first { 2 } else { 1 })
    }

    fn last_second(&self) -> Packets {
        let now = Moment::now();
        self.look(|samples| arrived(samples, now - STEP * STEPS, now))
    }

    /// How many packets came in the last [`WINDOW`].
    pub(super) fn usual(&self) -> u64 {
        sum(&self.last_second())
    }

    /// Whether there was a [`WINDOW`] after `since` in which enough came beside what is usual.
    pub(super) fn has_resumed(&self, since: Moment, usual: u64) -> bool {
        self.look(|samples| has_resumed(samples, since, usual))
    }

    /// The longest time, of which any part is after `since`, in which next to nothing came.
    pub(super) fn longest_stall(&self, since: Moment, usual: u64) -> Millis {
        self.look(|samples| longest_stall(samples, since, usual))
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            drop(thread.join());
        }
    }
}

/// The files are those of the host's namespace, and stay so when the process through which they were
/// opened is gone.
fn open_counters(host: Host) -> Result<Vec<File>, Failure> {
    let anchor = Program::start("sleep", host, &["sleep", "1000"])?;
    let root = format!("/proc/{}/root/sys/class/infiniband", anchor.pid());
    let open = |port: Port| {
        let path = format!(
            "{root}/{}/ports/{}/counters/port_rcv_packets",
            host.device(),
            port.number
        );
        File::open(&path).map_err(|source| Failure::File { path, source })
    };
    wait::until(&format!("counters of {host}"), LIMIT, || {
        let files: Result<_, Failure> = host.ports().map(open).collect();
        Ok(match files {
            Ok(files) => Seen::Ready(files),
            Err(failure) => Seen::NotYet(failure.to_string()),
        })
    })
}

fn read_all(files: &[File]) -> Option<[u64; 2]> {
    let mut packets = [0; 2];
    for (count, file) in packets.iter_mut().zip(files) {
        *count = read(file)?;
    }
    Some(packets)
}

fn read(file: &File) -> Option<u64> {
    let mut text = [0; 32];
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length])
        .ok()?
        .trim()
        .parse()
        .ok()
}

fn sample(files: &[Vec<File>; 2], samples: &Samples, ending: &AtomicBool) {
    while !ending.load(Ordering::Relaxed) {
        if let [Some(a), Some(b)] = files.each_ref().map(|files| read_all(files)) {
            let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
            if samples.len() >= KEPT {
                samples.drain(..KEPT / 2);
            }
            samples.push(Sample {
                at: Moment::now(),
                packets: [a, b],
            });
        }
        thread::sleep(PERIOD);
    }
}

/// The last sample that is not after `at`, or the first of all.
fn at(samples: &[Sample], at: Moment) -> Option<&Sample> {
    let after = samples.partition_point(|sample| sample.at <= at);
    samples.get(after.saturating_sub(1))
}

fn arrived(samples: &[Sample], from: Moment, to: Moment) -> Packets {
    let (Some(from), Some(to)) = (at(samples, from), at(samples, to)) else {
        return Packets::default();
    };
    let port =
        |host: usize, port: usize| to.packets[host][port].saturating_sub(from.packets[host][port]);
    [0, 1].map(|host| [0, 1].map(|number| port(host, number)))
}

fn is_steady(samples: &[Sample], now: Moment) -> bool {
    let enough = |step| {
        let to = now - STEP * step;
        sum(&arrived(samples, to - STEP, to)) >= TRAFFIC
    };
    (0..STEPS).all(enough)
}

/// What must come within a [`WINDOW`] for traffic to have resumed. On a busy machine a program's rate halves
/// by itself; only where that could be management's, half is not too much to ask.
fn enough(usual: u64) -> u64 {
    (usual / 4).max((usual / 2).min(MANAGEMENT)).max(TRAFFIC)
}

fn has_resumed(samples: &[Sample], since: Moment, usual: u64) -> bool {
    let first = samples.partition_point(|sample| sample.at < since);
    let samples = &samples[first..];
    samples.iter().any(|start| {
        let end = start.at + WINDOW;
        let complete = samples.last().is_some_and(|last| last.at >= end);
        let came = sum(&arrived(samples, start.at, end));
        complete && came >= enough(usual)
    })
}

/// Traffic is looked at in portions, so that the odd management packet does not end a stall; a portion
/// ends a stall that began at the one before. It has to come within a [`WINDOW`], or a long stall would
/// be ended by what management sums up to.
fn longest_stall(samples: &[Sample], since: Moment, usual: u64) -> Millis {
    let portion = (usual / PORTIONS).max(TRAFFIC);
    let mut longest = Millis::default();
    let Some(mut mark) = samples.first().copied() else {
        return longest;
    };
    for sample in samples {
        let from = at(samples, sample.at - WINDOW).map_or(0, Sample::sum);
        if sample.sum() - from.max(mark.sum()) < portion {
            continue;
        }
        if sample.at > since {
            longest = longest.max(Millis::from(sample.at.since(mark.at)));
        }
        mark = *sample;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten packets every 10 ms on host B's port 1, nothing between 1,000 and 1,400 ms but a packet of
    /// management in each 50 ms, then the same on port 2.
    fn samples() -> Vec<Sample> {
        let mut packets = [0, 0];
        (0..300)
            .map(|tick: u32| {
                match tick {
                    0..=99 => packets[0] += 10,
                    100..=139 => packets[1] += u64::from(tick.is_multiple_of(5)),
                    _ => packets[1] += 10,
                }
                Sample {
                    at: ms(tick * 10),
                    packets: [[0, 0], packets],
                }
            })
            .collect()
    }

    fn ms(ms: u32) -> Moment {
        Moment::from_ms(f64::from(ms) + 10_000.0)
    }

    #[test]
    fn traffic_is_steady_or_not() {
        assert!(is_steady(&samples(), ms(1000)));
        assert!(!is_steady(&samples(), ms(1300)));
        assert!(!is_steady(&samples(), ms(1990)));
        assert!(!is_steady(&samples()[..50], ms(490)));
    }

    #[test]
    fn traffic_is_counted_by_port() {
        let both = |from, to| arrived(&samples(), ms(from), ms(to));
        assert_eq!(both(500, 600), [[0, 0], [100, 0]]);
        assert_eq!(both(1500, 1600), [[0, 0], [0, 100]]);
        assert_eq!(arrived(&[], ms(0), ms(1)), Packets::default());
    }

    #[test]
    fn a_long_stall_is_not_ended_by_what_management_sums_up_to() {
        let mut packets = 0;
        let samples: Vec<_> = (0..3000)
            .map(|tick: u32| {
                match tick {
                    0..=99 | 2600.. => packets += 10,
                    _ => packets += u64::from(tick.is_multiple_of(20)),
                }
                Sample {
                    at: ms(tick * 10),
                    packets: [[0, 0], [packets, 0]],
                }
            })
            .collect();
        let stall = longest_stall(&samples, ms(1000), 1000);
        assert!((24_990.0..25_060.0).contains(&stall.0), "{stall}");
    }

    #[test]
    fn a_fast_program_may_go_on_more_slowly() {
        assert_eq!(enough(4000), 1000);
        assert_eq!(enough(600), 200);
        assert_eq!(enough(200), 100);
        assert_eq!(enough(0), TRAFFIC);
        assert!(has_resumed(&samples(), ms(1000), 4000));
        assert!(!has_resumed(&samples(), ms(1000), 4100));
    }

    #[test]
    fn a_stall_lasts_until_traffic_is_back_and_not_until_a_packet_of_management() {
        let samples = samples();
        let stall = longest_stall(&samples, ms(1000), 1000);
        assert!((390.0..440.0).contains(&stall.0), "{stall}");
        let later = longest_stall(&samples, ms(1600), 1000);
        assert!(later.0 < 50.0, "{later}");
        assert!(!has_resumed(&samples[..190], ms(1000), 1000));
        assert!(has_resumed(&samples, ms(1000), 1000));
    }
}
