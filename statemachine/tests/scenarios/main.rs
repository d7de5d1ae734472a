// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scripts: what goes in, what must come out.

mod announcement;
mod association;
mod backpressure;
mod choice;
mod close;
mod failback;
mod fault;
mod forgery;
mod found_by_model;
mod freshness;
mod lost;
mod lost_primary;
mod migration;
mod notices;
mod operator;
mod overlap;
mod pacing;
mod pair;
mod partition;
mod policy;
mod probing;
mod protection;
mod refusal;
mod relabel;
mod restart;
mod roles;
mod schedule;
mod sharing;
mod standing;
mod storm;
mod stranger;
mod turns;
mod two_subnets;
mod unknown_gid;
