// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the programs of a storm are run.

/// What makes the storm leaves the processors to who judges it.
pub(super) const NICE: [&str; 3] = ["nice", "-n", "10"];

/// For programs that are told when it is enough: longer than any storm.
pub(super) const SECONDS: &str = "40000";
