// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel's consumers print when something goes wrong.

use crate::command;
use crate::failure::Failure;
use crate::kernel_ulp::Ulp;

/// Words of a line that reports a fault.
const FAULTS: [&str; 9] = [
    "fail",
    "error",
    "timeout",
    "timed out",
    "reset",
    "abort",
    "drop",
    "lost",
    "disconnect",
];

/// What nfsd prints when it starts on a machine without rpcbind; later kernels print it where version 3 is off, too.
const HARMLESS: &str = "svc: failed to register nfs";

/// Returns the lines of the kernel's log in which this consumer, or the disk above it, reports a fault.
/// Lines of other consumers belong to an earlier drill: what a plain run has left behind may end minutes later.
pub(super) fn of(ulp: &Ulp) -> Result<Vec<String>, Failure> {
    Ok(in_log(&command::run(&["dmesg"])?, ulp))
}

/// Returns whether the line is one that a target prints when its client has logged out: ib_srpt prints one for each
/// receive that is still posted when the queue pair goes to the error state. Status 5 is `IB_WC_WR_FLUSH_ERR`.
/// ib_srp's logout is asynchronous, and ib_srpt ends the queue pair when the CM has left its time wait, so
/// these lines may come before or after the program that logs out has ended.
pub(super) fn is_of_logout(line: &str) -> bool {
    line.contains("ib_srpt receiving failed for ioctx ") && line.ends_with(" with status 5")
}

fn in_log(log: &str, ulp: &Ulp) -> Vec<String> {
    let has = |line: &str, words: &[&str]| words.iter().any(|word| line.contains(word));
    let is_fault =
        |line: &&str| has(line, ulp.speaks_as) && has(line, &FAULTS) && !line.contains(HARMLESS);
    log.lines().filter(is_fault).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_ulp;

    /// A logout, as 6.1 prints it.
    const LOGOUT: &str = "[  889.29] scsi host0: ib_srp: connection closed\n\
        [  889.29] ib_srpt Received CM TimeWait exit for ch 0653:4843:4100:0101-642.\n\
        [  889.30] srpt_recv_done: 246 callbacks suppressed\n\
        [  889.30] ib_srpt receiving failed for ioctx ffff8880765db940 with status 5\n";

    fn after_logout(log: &str) -> Vec<String> {
        let mut lines = in_log(log, &kernel_ulp::SRP);
        lines.retain(|line| !is_of_logout(line));
        lines
    }

    #[test]
    fn flushed_receives_are_a_fault_before_the_logout_only() {
        assert_eq!(in_log(LOGOUT, &kernel_ulp::SRP).len(), 1);
        assert_eq!(after_logout(LOGOUT), Vec::<String>::new());
    }

    #[test]
    fn other_faults_are_faults_at_any_time() {
        for line in [
            "[1] ib_srpt receiving failed for ioctx ffff8880765db940 with status 12",
            "[1] ib_srpt RDMA_READ for ioctx 0xffff8880765db940 failed with status 5",
            "[1] ib_srpt sending response for ioctx 0xffff8880765db940 failed with status 5",
            "[1] scsi host0: ib_srp: failed RECV status WR flushed (5) for CQE 00000000cafe",
            "[1] I/O error, dev sda, sector 8 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 2",
        ] {
            assert_eq!(after_logout(line), [line]);
        }
    }

    #[test]
    fn other_consumers_and_a_missing_rpcbind_are_no_faults() {
        let log = "[1] svc: failed to register nfsdv4 RPC service (errno 111).\n\
                   [2] ib_srpt receiving failed for ioctx ffff8880765db940 with status 12\n";
        assert_eq!(in_log(log, &kernel_ulp::NFS), Vec::<String>::new());
    }
}
