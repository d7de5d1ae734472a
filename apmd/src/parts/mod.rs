// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of the daemon. Each owns its core and its descriptors and nothing of another's. It takes
//! readiness (`handle_...`), time (`handle_time`, due at `poll_timeout`) and what others found out,
//! and leaves notes (`poll_note`) of what concerns others; `event_loop` carries these from part to
//! part. No part calls another.

pub(crate) mod acm_links;
pub(crate) mod connections;
mod device_indexes;
pub(crate) mod fabric;
pub(crate) mod fabric_worker;
pub(crate) mod kernel;
pub(crate) mod libraries;
pub(crate) mod neighbours;
pub(crate) mod operators;
pub(crate) mod patrol;
pub(crate) mod ports;
pub(crate) mod sa;
pub(crate) mod sources;
mod traps;
