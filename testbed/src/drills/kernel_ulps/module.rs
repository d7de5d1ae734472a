// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module `apm`, and what the kernel's consumers print.

use std::time::Duration;

use crate::command;
use crate::failure::Failure;
use crate::wait::{self, Seen};

/// Bound for the last queue pair to go.
const LIMIT: Duration = Duration::from_secs(60);

/// The module while it is loaded.
pub(super) struct Module(());

impl Module {
    pub(super) fn load() -> Result<Self, Failure> {
        command::run(&["modprobe", "apm"])?;
        Ok(Self(()))
    }

    /// It goes when no queue pair is left whose events are its own to pass on.
    pub(super) fn unload(self) -> Result<(), Failure> {
        wait::until("the module apm is unloaded", LIMIT, || {
            let output = command::attempt(&["rmmod", "apm"])?;
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Ok(Seen::when(output.status.success(), || why))
        })
    }
}

/// Lines of the kernel's log in which a consumer, or the disk above it, says that something went wrong.
pub(super) fn complaints() -> Result<Vec<String>, Failure> {
    const WHO: [&str; 9] = [
        "ib_srp",
        "ib_srpt",
        "nvme",
        "rpcrdma",
        "svcrdma",
        "nfs",
        "RDS",
        "scsi",
        "I/O error",
    ];
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
    let log = command::run(&["dmesg"])?;
    let has = |line: &str, words: &[&str]| words.iter().any(|word| line.contains(word));
    let complains = |line: &&str| has(line, &WHO) && has(line, &WHAT);
    Ok(log.lines().filter(complains).map(str::to_owned).collect())
}
