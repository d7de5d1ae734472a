// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon that keeps RDMA connections armed, and apmctl.
//!
//! The daemon takes no protocol decision: those are in `statemachine`. It is the engine's hands:
//! `event_loop` is the one loop, `io` the kernel's interfaces, `parts` what the loop serves, `observe`
//! what operators are told. `ctl` is the operator's tool. docs/architecture.md has the map.

// Nobody but this package's own programs and tests uses it: a name that says enough needs no more.
#![allow(missing_docs)]

pub(crate) mod acm_thread;
pub(crate) mod client;
pub(crate) mod clock;
pub mod command_line;
pub(crate) mod config;
pub(crate) mod counters;
pub mod ctl;
pub mod daemon;
pub(crate) mod descriptors;
pub(crate) mod devices;
pub(crate) mod event_loop;
pub mod io;
mod journal;
pub(crate) mod kernel;
mod log_limit;
pub(crate) mod logging;
pub(crate) mod neigh;
pub(crate) mod notify;
pub(crate) mod observe;
pub(crate) mod parts;
pub(crate) mod peer_daemons;
pub(crate) mod port_watch;
pub(crate) mod redundancy;
pub(crate) mod registrations;
mod reload;
mod second_path;
pub(crate) mod server;
pub(crate) mod token;
