// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACM on a thread with a poll of its own: its clients' streams, the kernel's path requests, the
//! queue pairs on which hosts ask each other, the kernel's routes and ibacm's data files. Strangers
//! on ACM's sockets are never in the way of a failover: the failover loop has a bounded channel each
//! way, gives what fits, and never waits.

mod alarm;
mod between_hosts;
mod channel;
mod counters;
mod files;
mod kernel;
mod latest;
mod looks;
mod neighbours;
mod opened;
mod part;
mod queue_pairs;
mod routes;
mod streams;
mod thread;
mod token;

pub(crate) use part::{AcmPart, Note};
