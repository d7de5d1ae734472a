// SPDX-License-Identifier: MIT OR Apache-2.0
//! The deterministic simulation: the real engine, many hosts, in virtual time, one process, one seed.
//!
//! - [`plan`]: what a seed stands for: hosts, connections, and [`fault`]s with their times.
//!   [`profile`]: which kinds of fault there are, and what is judged.
//! - [`fabric`]: leaf and spine switches, cables, and what fails of them. [`addresses`]: LIDs and GIDs.
//!   [`queue`]: virtual time.
//!   [`qp`]: a queue pair with retries and IBA's rules of path migration. [`host`]: a daemon's engine
//!   and what its libraries wait for.
//! - [`world`]: all of it running. [`verdict`]: what must not happen.
//! - [`diagram`]: which states follow each other, as seen. [`shrink`]: the shortest history that still fails. [`command_line`]: the program,
//!   and `batch`, many seeds in a row.

pub mod addresses;
mod batch;
pub mod command_line;
pub mod diagram;
pub mod fabric;
pub mod fault;
pub mod host;
pub mod plan;
pub mod profile;
pub mod qp;
pub mod queue;
pub mod shrink;
pub mod verdict;
pub mod world;
