// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sans-IO state machines that keep RDMA connections armed.
//!
//! Fully deterministic: no clock, file descriptor, thread or randomness of its own. Time and the
//! random seed are inputs. [`Time`], [`Timers`], [`Backoff`], [`Random`] and [`FairShare`] are what the other sans-IO
//! crates use for theirs.
//!
//! The contract is that of quinn-proto and str0m: tell the [`Engine`] one [`Input`]
//! (`handle`), then drain its outputs (`poll_order`, `poll_transmit`, `poll_probe`, `poll_query`,
//! `poll_trace`), then
//! sleep until `poll_timeout` or the next input. Time never goes backwards.
//!
//! Inside, every connection has one function that decides (`drive`), called after whatever
//! happened to it; it looks at the QP as its library last reported it, at the ports, and at what is
//! under way, and does the next thing. So no sequence of events needs a case of its own. An armed
//! connection whose alternate is the best thinkable sets no timer; one whose better alternates are
//! in doubt (remote port out of service, path left by hardware without a cause) asks the path
//! sources for those with pauses from 1 s to 60 s.
//!
//! The two ends tell each other their *state* with every message, and by one without a path where
//! there is nothing else to say. What a peer says is believed when it names what was sent only to
//! where the QP leads (`conn/passive/handshake.rs`).
//!
//! Paths that connections use are probed (`probe`): an alternate that carries nothing is replaced, and a
//! primary that carries nothing is left for an alternate that does. Nothing else wakes a daemon whose
//! connections are well.
//!
//! What somebody else can cause is bounded: MADs wait once each while their port has no room, replies
//! to strangers are limited, REQs of unknown connections are parked in a small table, and new
//! connections are taken up at a pace and asked paths for last, so that whatever a program
//! registers, re-arming those that lost their protection is not held up.
//!
//! Beside the engine, [`PeerPresence`] knows at which ports a daemon answers, and answers for this one.
//!
//! Candidates are ranked by doubts, by the ports that they share with the primary, and by what they
//! share with it inside the fabric ([`Assess`]); the loaded alternate is assessed with them. What
//! was answered is kept until the fabric changes.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod admission;
mod assessment;
mod backoff;
mod candidate;
mod closing;
mod config;
mod conn;
mod context;
mod engine;
mod exchange;
mod failback;
mod fair_share;
mod guard;
mod id;
mod input;
mod members;
#[cfg(test)]
mod model;
mod notices;
mod outbox;
mod output;
mod overlap;
mod parked;
mod path_index;
mod port;
mod port_hosts;
mod presence;
mod probe;
mod proven_ports;
mod questions;
mod random;
mod round_robin;
mod schedule;
mod sender;
mod shared_values;
mod subnet;
mod time;
mod timers;
mod token_bucket;
pub mod trace;
mod verifications;
pub mod view;

pub use backoff::Backoff;
pub use candidate::{Candidate, Doubt, Score, Shared};
pub use config::{Config, PortDown, SERVICE_ID};
pub use engine::Engine;
pub use fair_share::FairShare;
pub use id::{ConnId, Payer, PortId};
pub use input::{Command, Input, MadSource, Origin, PortStatus, QueryError, UnknownOrigin};
pub use notices::Notice;
pub use output::{Order, PathQuery, Query, Transmit};
pub use overlap::{Assess, Overlap, PathEnds};
pub use presence::{
    FarPort, MadWay, PeerPresence, PeerQuestion, PresenceCounters, PresenceTransmit,
};
pub use probe::{Answerer, PathHealth, Probe, ProbePath};
pub use random::Random;
pub use round_robin::key_after;
pub use sender::Sender;
pub use time::Time;
pub use timers::Timers;
pub use token_bucket::TokenBucket;
pub use trace::{Level, Trace};
pub use view::{ConnectionView, Counters, PortView};
