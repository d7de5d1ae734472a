// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACM, served: what ibacm does for its clients, in its place. Clients of the socket protocol and
//! the kernel ask for the path to an address; answers come from a cache, and what is not there from
//! this host's own addresses, from address and route files, from the other hosts' services, and
//! from the path sources. No I/O here: that is `event_loop::acm_io` and those beside it.
//!
//! Unlike ibacm it takes requests one behind the other on one connection, forgets what is old, asks
//! again after the fabric has changed, and drops destinations that have gone.

mod cache;
mod clients;
mod doubtful;
mod endpoints;
pub mod files;
pub mod kernel;
mod locate;
pub mod net;
mod rechecks;
mod request;
mod resolve;
mod serve;
mod service;
#[cfg(test)]
mod tests;
mod verify;
mod view;

pub use cache::RouteOrigin;
pub use clients::{Buffers, Clients, Ended};
pub use endpoints::{Endpoint, EndpointId, Interface, LocalPort, Naming, Own, host_name};
pub use request::{Breach, frame};
pub use serve::SourceOf;
pub use service::{Answer, Asker, Service, Settings, Stats, With};
pub use view::{Known, State};
