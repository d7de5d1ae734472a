// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scripts: what goes in, what must come out.

mod announcement;
mod association;
mod backpressure;
mod choice;
mod close;
mod fault;
mod forgery;
mod lost;
mod migration;
mod overlap;
mod pacing;
mod pair;
mod protection;
mod refusal;
mod restart;
mod roles;
mod schedule;
mod stranger;
