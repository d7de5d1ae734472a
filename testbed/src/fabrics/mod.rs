// SPDX-License-Identifier: MIT OR Apache-2.0
//! pathdb held against OpenSM: the same fabric, path by path, as `apm-fabrics` does it.
//!
//! - [`case`]: which fabrics, routed how.
//! - [`run`]: one of them from its start over cuts to its end. [`garble`]: with wrong tables.
//! - [`records`]: every PathRecord that the SA answers. [`hardware`]: what switches and ports say
//!   themselves. [`dumped`]: OpenSM's files read a second time, by other code than pathdb's.
//!   [`alternates`]: the least sharing alternates, found by trying all. [`reroute`]: what becomes of
//!   them. [`unreached`]: what hosts do not reach.
//! - [`tally`]: what was compared, and what differs. [`command_line`]: the program.

pub mod alternates;
pub mod case;
pub mod command_line;
pub mod dumped;
pub mod garble;
pub mod hardware;
pub mod records;
pub mod reroute;
pub mod run;
pub mod tally;
pub mod unreached;
