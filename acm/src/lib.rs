// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACM, served: what ibacm does for its clients, in its place. Clients of the socket protocol and
//! the kernel ask for the path to an address; answers come from a cache, and what is not there from
//! this host's own addresses, from address and route files, from the other hosts' services, and
//! from the path sources. Sans-IO: requests, answers,
//! news of ports and time come in; answers, questions and datagrams are polled for.
//!
//! Unlike ibacm it takes requests one behind the other on one connection, forgets what is old, asks
//! again after the fabric has changed, and drops destinations that have gone.
#![forbid(unsafe_code)]

mod answer;
mod asks;
mod cache;
mod clients;
mod doubtful;
mod endpoints;
pub mod files;
mod info;
pub mod kernel;
mod local;
pub mod net;
mod rechecks;
mod request;
mod requester;
mod resolver;
mod service;
mod start;
#[cfg(test)]
mod tests;
mod verifier;
mod view;

pub use answer::Answer;
pub use cache::RouteOrigin;
pub use clients::{Buffers, Clients, Ended, Served};
pub use endpoints::{Arrival, Endpoint, EndpointId, Interface, LocalPort, Naming, OwnAddress};
pub use request::{Breach, frame};
pub use requester::{Client, Extra, Host, Requester, User};
pub use resolver::{Settings, Stats};
pub use service::Service;
pub use start::SourceOf;
pub use view::{KnownDestination, State};
