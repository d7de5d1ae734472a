// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sans-IO state machines that keep RDMA connections armed.
//!
//! Fully deterministic: no clock, file descriptor, thread or randomness of its own. Time and the
//! random seed are inputs.
//!
//! The contract is that of quinn-proto and str0m: tell the [`Engine`] one [`Input`]
//! (`handle`), then drain [`Output`]s (`poll_output`) until there are none, then sleep until
//! `poll_timeout` or the next input. Time never goes backwards.
//!
//! Inside, every connection has one function that decides (`drive`), called after whatever
//! happened to it; it looks at the QP as its library last reported it, at the ports, and at what is
//! under way, and does the next thing. So no sequence of events needs a case of its own. An armed
//! connection whose alternate is the best thinkable sets no timer; one whose better alternates are
//! in doubt (remote port out of service, path left by hardware without a cause) asks the path
//! sources for those with pauses from 1 s to 60 s.
//!
//! Candidates are ranked by doubts, by the ports that they share with the primary, and by what they
//! share with it inside the fabric ([`Assess`]); the loaded alternate is assessed with them. What
//! was answered is kept until the fabric changes.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod candidate;
mod closing;
mod config;
mod conn;
mod context;
mod engine;
mod input;
mod output;
mod overlap;
mod parked;
mod port;
mod random;
mod sweep;
mod time;
mod timer;
pub mod trace;
pub mod view;

pub use candidate::{Candidate, Doubt, Score, Shared};
pub use config::{Config, SERVICE_ID};
pub use engine::Engine;
pub use input::{ConnId, Input, MadSource, Origin, PortId, PortStatus, QueryError, UnknownOrigin};
pub use output::{Order, Output, PathQuery, Send};
pub use overlap::{Assess, Overlap, Way};
pub use time::Time;
pub use trace::{Level, Trace};
pub use view::{ConnectionView, Counters, PortView};
