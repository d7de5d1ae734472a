// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fabric around this host: read from subnet administration, compared with what was known, and
//! asked what paths there are and what they share. No I/O and no thread here.

mod change;
mod job;
mod lanes;
mod overlap;
mod paths;
mod reader;
mod tables;

pub use change::matters;
pub use job::{Interest, Job, Outcome, Task};
pub use overlap::{Common, PortsDown, assess, common};
pub use paths::records;
pub use reader::{Progress, ReadError, Reader, Reading, Step};
pub use tables::Contradiction;
