// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a storm may leave behind: nothing.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::Duration;

use crate::command;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::wait::{self, Seen};

/// What is freed by RCU, or by whoever has lost a peer, takes its time.
const LIMIT: Duration = Duration::from_secs(120);

/// Whoever waits without a way to be killed, and does so still after this, hangs.
const HANGS: Duration = Duration::from_secs(5);

/// What has not changed for so long stays.
const SETTLED: Duration = Duration::from_secs(2);

/// The programs of the storm.
const PROGRAMS: [&str; 6] = [
    "cm_peers",
    "cmtime",
    "dead_qps",
    "apm_hammer",
    "apm_fuzz",
    "block_writer",
];

/// Flags of `/proc/sys/kernel/tainted`: a corrupted page or slab, an oops, a lockup. For warnings the log is
/// read: there is a known one.
const TAINTS: u64 = 1 << 5 | 1 << 7 | 1 << 14;

/// The one that Debian's 6.1 has of its own, of rdmavt.
const STOCK_WARNING: &str = "drivers/infiniband/sw/rdmavt/qp.c:";

/// What both hosts hold.
pub(super) struct Before {
    resources: String,
    queue_pairs: BTreeSet<String>,
    taints: u64,
    warnings: usize,
    waiting: BTreeSet<String>,
}

impl Before {
    /// When nobody is connected any more, and nothing changes.
    pub(super) fn look() -> Result<Self, Failure> {
        wait::until("nobody is connected, and nothing changes", LIMIT, || {
            let first = resources()?;
            thread::sleep(SETTLED);
            let (now, all) = (
                resources()?,
                command::run(&["rdma", "resource", "show", "qp"])?,
            );
            let calm = now == first && !all.contains(" type RC ");
            Ok(Seen::when(calm, || now))
        })?;
        Ok(Self {
            resources: resources()?,
            queue_pairs: queue_pairs()?,
            taints: taints()?,
            warnings: warnings()?.len(),
            waiting: waiting()?,
        })
    }

    /// Fails unless all is as it was, soon.
    pub(super) fn compare(&self) -> Result<(), Failure> {
        let what = format!("resources as before: {}", self.resources);
        wait::until(&what, LIMIT, || {
            let now = resources()?;
            Ok(Seen::when(now == self.resources, || now))
        })?;
        let now = queue_pairs()?;
        ensure(now == self.queue_pairs, || {
            format!("queue pairs: {now:?}, before: {:?}", self.queue_pairs)
        })
    }

    /// Fails if a process hangs or the kernel has complained.
    pub(super) fn judge(&self) -> Result<(), Failure> {
        let left = processes(|name, _| PROGRAMS.contains(&name))?;
        ensure(left.is_empty(), || format!("still there: {left:?}"))?;
        let first = waiting()?;
        thread::sleep(HANGS);
        let both: BTreeSet<_> = waiting()?.intersection(&first).cloned().collect();
        let hang: Vec<_> = both.difference(&self.waiting).collect();
        ensure(hang.is_empty(), || format!("in state D: {hang:?}"))?;
        validate_heap()?;
        let taints = taints()?;
        ensure(taints == self.taints, || {
            format!(
                "the kernel is tainted: {taints:#x}, before: {:#x}",
                self.taints
            )
        })?;
        let warnings = warnings()?;
        ensure(warnings.len() == self.warnings, || warnings.join("; "))
    }
}

/// Of both hosts' HCAs: how many there are of each. Completion queues count that are in use: ib_core has a pool
/// of them for ULPs, which grows with the first logins and stays.
fn resources() -> Result<String, Failure> {
    let queues = command::run(&["rdma", "resource", "show", "cq"])?;
    let of = |host: Host| {
        let device = host.device();
        let text = command::run(&["rdma", "resource", "show", device])?;
        let (start, rest) = text.split_once(" cq ").unwrap_or((&text, ""));
        let (_, end) = rest.split_once(' ').unwrap_or_default();
        let count = queues.lines().filter(|line| is_used(line, device)).count();
        Ok::<_, Failure>(format!("{start} cq in use {count} {}", end.trim()))
    };
    Ok(format!("{}; {}", of(Host::A)?, of(Host::B)?))
}

/// Whether this is the line of a completion queue of the device that is not idle in the pool.
fn is_used(line: &str, device: &str) -> bool {
    let is_idle = line.contains(" users 0 ") && line.contains("comm [ib_core]");
    line.split_whitespace().nth(1) == Some(device) && !is_idle
}

/// Those of both hosts, by number and owner.
fn queue_pairs() -> Result<BTreeSet<String>, Failure> {
    let all = command::run(&["rdma", "resource", "show", "qp"])?;
    let of_hosts = |line: &&str| Host::ALL.iter().any(|host| line.contains(host.device()));
    let name = |line: &str| {
        let words: Vec<_> = line.split_whitespace().take(4).collect();
        let owner = line.split_once(" comm ").map_or("", |(_, owner)| owner);
        format!("{} {}", words.join(" "), owner.trim())
    };
    Ok(all.lines().filter(of_hosts).map(name).collect())
}

/// Objects of the kernel's heap that the module `apm` has taken: how many, and where. What KASAN keeps back of freed ones
/// goes when a cache shrinks.
pub(super) fn objects() -> Result<(u64, String), Failure> {
    let line = "for cache in /sys/kernel/slab/kmalloc-*; do echo 1 >$cache/shrink; done; \
                cat /sys/kernel/debug/slab/kmalloc-*/alloc_traces";
    let all = command::run(&["sh", "-c", line])?;
    // Below each there are its callers.
    let count = |line: &str| line.split_whitespace().next()?.parse::<u64>().ok();
    let ours = all
        .lines()
        .filter(|line| line.contains("[apm]"))
        .filter_map(|line| Some((count(line)?, line.trim())));
    let (counts, lines): (Vec<_>, Vec<_>) = ours.unzip();
    Ok((counts.iter().sum(), lines.join("; ")))
}

/// Waits until there are no more of these than before.
pub(super) fn wait_for_objects(before: u64) -> Result<(), Failure> {
    let what = format!("the module holds {before} objects, as before");
    wait::until(&what, LIMIT, || {
        let (now, taken) = objects()?;
        Ok(Seen::when(now <= before, || taken))
    })
}

/// Has the kernel look at its heap; what is wrong it says in its log.
fn validate_heap() -> Result<(), Failure> {
    let line = "for cache in /sys/kernel/slab/shca_packet_* /sys/kernel/slab/kmalloc-*; do \
                echo 1 >$cache/validate || exit; done";
    command::run(&["sh", "-c", line]).map(drop)
}

fn taints() -> Result<u64, Failure> {
    let path = "/proc/sys/kernel/tainted";
    let text = fs::read_to_string(path).map_err(|source| Failure::File {
        path: path.to_owned(),
        source,
    })?;
    text.trim()
        .parse()
        .map(|flags: u64| flags & TAINTS)
        .map_err(|_| Failure::Output {
            source_name: path.to_owned(),
            problem: format!("not a number: {text}"),
        })
}

fn warnings() -> Result<Vec<String>, Failure> {
    let log = command::run(&["dmesg"])?;
    let is_one = |line: &&str| line.contains("WARNING:") && !line.contains(STOCK_WARNING);
    Ok(log.lines().filter(is_one).map(str::to_owned).collect())
}

/// Processes and threads of the kernel that wait and cannot be killed.
fn waiting() -> Result<BTreeSet<String>, Failure> {
    processes(|_, state| state == "D")
}

/// `PID NAME` of those whose name and state are `wanted`.
fn processes(wanted: impl Fn(&str, &str) -> bool) -> Result<BTreeSet<String>, Failure> {
    let entries = fs::read_dir("/proc").map_err(|source| Failure::File {
        path: "/proc".to_owned(),
        source,
    })?;
    // Who has ended meanwhile has no file any more.
    let stats =
        entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    let read = |stat: String| {
        let (pid, rest) = stat.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let state = rest.split(' ').next()?;
        wanted(name, state).then(|| format!("{pid} {name}"))
    };
    Ok(stats.filter_map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_queues_of_the_pool_do_not_count() {
        let line = |users: u32, owner: &str| {
            format!("dev shca1 cqn 6 cqe 4224 users {users} poll-ctx SOFTIRQ comm [{owner}] ")
        };
        assert!(!is_used(&line(0, "ib_core"), "shca1"));
        assert!(is_used(&line(1, "ib_core"), "shca1"));
        assert!(is_used(&line(0, "ib_srp"), "shca1"));
        assert!(!is_used(&line(1, "ib_core"), "shca0"));
    }

    #[test]
    fn a_process_is_found_by_name_and_state() {
        let own = std::process::id().to_string();
        let all = processes(|_, state| state != "Z").expect("/proc");
        assert!(all.iter().any(|one| one.starts_with(&format!("{own} "))));
        assert!(processes(|_, _| false).expect("/proc").is_empty());
    }
}
