// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon that keeps RDMA connections armed, and apmctl.
//!
//! The daemon takes no protocol decision: those are in `statemachine`. It is the engine's hands:
//! `event_loop` is the one loop, `io` the kernel's interfaces, `devices` and `ports` what is
//! known of the machine, `sa` the talk with subnet administration, `fabric` what it tells of
//! switches and links, `source` where paths come from, `acm` the served ACM, `control` and `observe`
//! the sockets. `ctl` is the operator's tool.

pub mod acm;
pub mod config;
pub mod control;
pub mod counters;
pub mod ctl;
pub mod devices;
pub mod event_loop;
pub mod fabric;
pub mod io;
pub mod log_limit;
pub mod logging;
pub mod neigh;
pub mod notify;
pub mod observe;
pub mod ports;
pub mod sa;
pub mod server;
pub mod source;
