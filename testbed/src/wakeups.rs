// SPDX-License-Identifier: MIT OR Apache-2.0
//! What wakes up though nothing happens: threads of a process, timers and work of the kernel module.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::command;
use crate::failure::Failure;

const TRACING: &str = "/sys/kernel/tracing";
/// Work that is queued, also by a delayed work's timer, and timers that are set.
const EVENTS: [&str; 3] = [
    "workqueue/workqueue_queue_work",
    "timer/timer_start",
    "timer/hrtimer_start",
];

/// What woke up within a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wakeups {
    /// How often threads of the processes went to sleep again, one number a process.
    pub processes: Vec<u64>,
    /// The kernel's lines about work and timers of the module `apm`.
    pub module: Vec<String>,
}

impl Wakeups {
    /// Nothing did.
    pub fn is_none(&self) -> bool {
        self.module.is_empty() && self.processes.iter().all(|count| *count == 0)
    }
}

/// Lets that time pass, and tells what woke up meanwhile.
///
/// # Errors
/// A process is not there, or the kernel does not trace.
pub fn within(time: Duration, pids: &[u32]) -> Result<Wakeups, Failure> {
    switch_tracing(true)?;
    let before = all_sleeps(pids)?;
    thread::sleep(time);
    let after = all_sleeps(pids)?;
    let trace = command::run(&["cat", &format!("{TRACING}/trace")])?;
    switch_tracing(false)?;
    let module = trace.lines().filter(|line| is_modules(line));
    Ok(Wakeups {
        processes: after
            .iter()
            .zip(before)
            .map(|(after, before)| after - before)
            .collect(),
        module: module.map(|line| line.trim().to_owned()).collect(),
    })
}

/// The function stands with its module behind it, which `%ps` of the kernel prints.
fn is_modules(line: &str) -> bool {
    line.contains("[apm]")
}

/// Switched on, it begins with an empty trace.
fn switch_tracing(on: bool) -> Result<(), Failure> {
    command::run(&[
        "sh",
        "-c",
        &format!("[ -d {TRACING}/events ] || mount -t tracefs nodev {TRACING}"),
    ])?;
    if on {
        write("trace", "")?;
    }
    let value = if on { "1" } else { "0" };
    EVENTS
        .iter()
        .try_for_each(|event| write(&format!("events/{event}/enable"), value))
}

fn write(name: &str, value: &str) -> Result<(), Failure> {
    let path = format!("{TRACING}/{name}");
    fs::write(&path, value).map_err(|source| Failure::File { path, source })
}

fn all_sleeps(pids: &[u32]) -> Result<Vec<u64>, Failure> {
    pids.iter().map(|pid| sleeps(*pid)).collect()
}

/// How often its threads have gone to sleep of their own accord.
fn sleeps(pid: u32) -> Result<u64, Failure> {
    let path = format!("/proc/{pid}/task");
    let failure = |source| Failure::File {
        path: path.clone(),
        source,
    };
    let mut sum = 0;
    for thread in fs::read_dir(&path).map_err(failure)? {
        let status = thread.map_err(failure)?.path().join("status");
        // A thread may have ended just now.
        let text = fs::read_to_string(status).unwrap_or_default();
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += value
            .and_then(|value| value.trim().parse::<u64>().ok())
            .unwrap_or(0);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_and_wakes_is_counted() {
        let pid = std::process::id();
        let before = sleeps(pid).expect("it runs");
        (0..5).for_each(|_| thread::sleep(Duration::from_millis(2)));
        assert!(sleeps(pid).expect("it runs") >= before + 5);
        assert!(sleeps(u32::MAX).is_err());
    }

    #[test]
    fn work_of_the_module_is_told_from_others() {
        let line = |function| {
            format!(
                "kworker/0:1-7 [000] d..1. 41.79: workqueue_queue_work: work struct=00 function={function} workqueue=apm req_cpu=8192 cpu=-1"
            )
        };
        assert!(is_modules(&line("look_work [apm]")));
        assert!(!is_modules(&line("local_completions [ib_core]")));
        let none = Wakeups {
            processes: vec![0, 0],
            module: Vec::new(),
        };
        assert!(none.is_none());
        let one = Wakeups {
            processes: vec![0, 1],
            ..none
        };
        assert!(!one.is_none());
    }
}
