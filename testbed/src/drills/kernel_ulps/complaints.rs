// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel's consumers print when something goes wrong.

use crate::command;
use crate::failure::Failure;
use crate::kernel_ulp::Ulp;

/// Lines of the kernel's log in which this consumer, or the disk above it, says that something went wrong.
/// Another's are of the drill before: what a plain run has left behind may end minutes later.
pub(super) fn of(ulp: &Ulp) -> Result<Vec<String>, Failure> {
    const WHAT: [&str; 9] = [
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
    // What nfsd says at its start to a machine without rpcbind; later kernels say it where version 3 is off, too.
    const HARMLESS: [&str; 1] = ["svc: failed to register nfs"];
    let log = command::run(&["dmesg"])?;
    let has = |line: &str, words: &[&str]| words.iter().any(|word| line.contains(word));
    let complains =
        |line: &&str| has(line, ulp.speaks_as) && has(line, &WHAT) && !has(line, &HARMLESS);
    Ok(log.lines().filter(complains).map(str::to_owned).collect())
}
