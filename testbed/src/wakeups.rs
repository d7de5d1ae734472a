// SPDX-License-Identifier: MIT OR Apache-2.0
//! What wakes up though nothing happens: threads of a process, timers and work of the kernel module.

use std::fs;

use crate::command;
use crate::failure::Failure;
use crate::trace::Trace;

const MODULE: &str = "apm";

/// Work that is queued, also by a delayed work's timer, and timers that are set. Each has a `function`.
const EVENTS: [&str; 3] = [
    "workqueue/workqueue_queue_work",
    "timer/timer_start",
    "timer/hrtimer_start",
];

/// What has woken up since a watch began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wakeups {
    /// How often threads of the processes went to sleep again, one number a process.
    pub processes: Vec<u64>,
    /// The kernel's lines about work and timers of the module `apm`.
    pub module: Vec<String>,
}

impl Wakeups {
    /// Nothing has.
    pub fn is_none(&self) -> bool {
        self.module.is_empty() && self.processes.iter().all(|count| *count == 0)
    }

    /// Every process has, and the module.
    pub fn is_of_all(&self) -> bool {
        !self.module.is_empty() && self.processes.iter().all(|count| *count > 0)
    }
}

/// A watch over processes and the module.
#[derive(Debug)]
pub struct Watch<'a> {
    pids: &'a [u32],
    before: Vec<u64>,
    trace: Trace,
}

impl<'a> Watch<'a> {
    /// Begins with an empty trace. Of other functions than the module's the kernel notes nothing: timers of
    /// the soft HCA alone fill its trace within seconds.
    ///
    /// # Errors
    /// A process is not there, the module is not loaded, or the kernel does not trace.
    pub fn begin(pids: &'a [u32]) -> Result<Self, Failure> {
        let modules = command::run(&["cat", "/proc/modules"])?;
        let filter = filter(&modules).ok_or_else(|| Failure::Output {
            source_name: "/proc/modules".to_owned(),
            problem: format!("the module {MODULE} is not loaded, or where is not to be seen"),
        })?;
        let trace = Trace::begin(&EVENTS.map(|event| (event, filter.as_str())))?;
        let before = all_sleeps(pids)?;
        Ok(Self {
            pids,
            before,
            trace,
        })
    }

    /// Ends it.
    ///
    /// # Errors
    /// A process has gone, or the trace cannot be read.
    pub fn end(self) -> Result<Wakeups, Failure> {
        let after = all_sleeps(self.pids)?;
        let trace = self.trace.end()?;
        let module = trace.lines().filter(|line| is_modules(line));
        let both = after.iter().zip(self.before);
        Ok(Wakeups {
            // A thread that has ended takes its count with it, and has been awake for that.
            processes: both.map(|(after, before)| after.abs_diff(before)).collect(),
            module: module.map(|line| line.trim().to_owned()).collect(),
        })
    }
}

/// Functions from where the module begins to its whole size further on, by a line of `/proc/modules`: "apm 77824 0 -
/// Live 0xffffffffc0a6e000 (O)". Its code is at the beginning; what may be another's is left out afterwards.
fn filter(modules: &str) -> Option<String> {
    let mut words = modules
        .lines()
        .map(str::split_whitespace)
        .find_map(|mut words| (words.next() == Some(MODULE)).then_some(words))?;
    let size: u64 = words.next()?.parse().ok()?;
    let address = words.nth(3)?.strip_prefix("0x")?;
    let begin = u64::from_str_radix(address, 16).ok()?;
    let end = begin.checked_add(size)?;
    Some(format!("function >= {begin:#x} && function < {end:#x}"))
}

/// The function stands with its module behind it, which `%ps` of the kernel prints.
fn is_modules(line: &str) -> bool {
    line.contains(&format!("[{MODULE}]"))
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
    use std::thread;
    use std::time::Duration;

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
    fn a_filter_spans_the_module() {
        let modules = "ib_core 438272 9 rdma_cm,ib_cm, Live 0xffffffffc0100000\n\
                       apm 77824 0 - Live 0xffffffffc0a6e000 (O)\n";
        let wanted = "function >= 0xffffffffc0a6e000 && function < 0xffffffffc0a81000";
        assert_eq!(filter(modules).as_deref(), Some(wanted));
        assert_eq!(filter("apmx 77824 0 - Live 0xffffffffc0a6e000\n"), None);
        assert_eq!(filter("apm 77824 0 - Live\n"), None);
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
        let seen = |processes: [u64; 2], module: &[&str]| Wakeups {
            processes: processes.into(),
            module: module.iter().map(|line| (*line).to_owned()).collect(),
        };
        assert!(seen([0, 0], &[]).is_none());
        assert!(seen([1, 1], &["work"]).is_of_all());
        for some in [seen([0, 1], &[]), seen([0, 0], &["work"])] {
            assert!(!some.is_none() && !some.is_of_all());
        }
    }
}
