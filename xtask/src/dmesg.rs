// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks for what a kernel says when something is wrong with it.

const SPLATS: &[&str] = &[
    "BUG:",
    // So slub begins its reports.
    "] BUG ",
    "kernel BUG at",
    "Oops",
    "WARNING:",
    "general protection fault",
    "Kernel panic",
    "refcount_t:",
    "soft lockup",
    "hard LOCKUP",
    "UBSAN:",
    "detected stall",
    "self-detected stall",
    "blocked for more than",
    "unregister_netdevice: waiting",
    "possible circular locking",
    // What a checking kernel says besides: of locks, timers and work, and of leaks.
    "INFO: trying to register non-static key",
    "ODEBUG: ",
    "unreferenced object 0x",
];

/// The lines of a kernel log that report a fault of the kernel or of a module.
pub(crate) fn faults(log: &str) -> Vec<&str> {
    let mut previous = "";
    let mut faults = Vec::new();
    for line in log.lines() {
        let is_splat = SPLATS.iter().any(|splat| line.contains(splat));
        if is_splat && !is_stock_warning(previous, line) {
            faults.push(line.trim_end());
        }
        previous = line;
    }
    faults
}

/// The part of the log that tells most about a VM's end: from the first fault on, or the last lines.
pub(crate) fn decisive_part(log: &str) -> String {
    const LINES: usize = 40;
    let lines: Vec<&str> = log.lines().collect();
    let fault = faults(log).first().copied();
    let from = fault
        .and_then(|fault| lines.iter().position(|line| line.trim_end() == fault))
        .unwrap_or_else(|| lines.len().saturating_sub(LINES));
    lines[from..]
        .iter()
        .take(LINES)
        .map(|line| format!("\n    {}", line.trim_end()))
        .collect()
}

/// Debian's 6.1 rdmavt warns once per boot about a memcpy of its own across two fields of a work
/// request, whichever driver is below it.
fn is_stock_warning(previous: &str, line: &str) -> bool {
    line.contains("drivers/infiniband/sw/rdmavt/qp.c:") && previous.contains("field-spanning write")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOCK: &str = "[    9.1] ------------[ cut here ]------------\n\
        [    9.1] memcpy: detected field-spanning write (size 56) of single field \"&wqe->wr\" at drivers/infiniband/sw/rdmavt/qp.c:2041 (size 40)\n\
        [    9.1] WARNING: CPU: 0 PID: 90 at drivers/infiniband/sw/rdmavt/qp.c:2041 rvt_post_send+0x6c0/0x6f0 [rdmavt]\n";

    #[test]
    fn the_stock_warning_is_no_fault() {
        assert!(faults(STOCK).is_empty());
    }

    #[test]
    fn another_warning_in_the_same_file_is_one() {
        let log = "x\n[ 9.1] WARNING: CPU: 0 PID: 9 at drivers/infiniband/sw/rdmavt/qp.c:700 rvt_free_qp\n";
        assert_eq!(faults(log).len(), 1);
    }

    #[test]
    fn the_decisive_part_begins_with_the_first_fault() {
        let log = format!("[1] fine\n[2] BUG: x\n{}", "[3] more\n".repeat(60));
        let part = decisive_part(&log);
        assert!(part.starts_with("\n    [2] BUG: x\n"));
        assert_eq!(part.lines().count(), 41);
    }

    #[test]
    fn a_checking_kernels_reports_are_faults() {
        let log = "[1] BUG: KASAN: use-after-free in apm_forget+0x40/0x80 [apm]\n\
                   [2] WARNING: possible recursive locking detected\n\
                   [3] BUG: sleeping function called from invalid context at kernel/locking/mutex.c:580\n\
                   [4] ODEBUG: free active (active state 0) object type: timer_list hint: apm_later\n\
                   [5] INFO: trying to register non-static key.\n\
                   unreferenced object 0xffff888012345678 (size 64):\n\
                   [6] kmemleak: Kernel memory leak detector initialized (mem pool available: 38000)\n";
        assert_eq!(faults(log).len(), 6);
    }

    #[test]
    fn splats_are_found() {
        let log = "[1] usb 1-1: new device\n[2] BUG: kernel NULL pointer dereference\n\
                   [3] refcount_t: underflow; use-after-free.\n\
                   [4] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks\n\
                   [5] BUG kmalloc-2k (Tainted: G           OE     ): Poison overwritten\n";
        assert_eq!(faults(log).len(), 4);
    }
}
