// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACM, the address and route service of InfiniBand hosts: what its clients say on a Unix or TCP
//! stream (rdma-core `librdmacm/acm.h`, `ibacm/src/acm.c`), and in [`resolve`] what the services
//! of two hosts say to each other over the fabric (`ibacm/prov/acmp/src/acmp.c`).
//!
//! A message on the stream is a [`Header`] of 16 bytes and a body:
//!
//! | operation | request | answer |
//! |---|---|---|
//! | RESOLVE | [`Entry`]s of 72 bytes, at most 8 | the path, then the source if the client left it out |
//! | PERF | nothing, or one [`Entry`] | [`Counters`] |
//! | EP | nothing | [`Endpoint`], then 64 bytes for each of its addresses |
//!
//! Byte order is mixed. A RESOLVE message's length, flags and types are in the order of the host
//! (both ends are on it); lengths and bodies of the others are big-endian; addresses and path
//! records are big-endian always. An answer that is no success ends after its header.

mod address;
mod endpoint;
mod entry;
mod header;
mod message;
pub mod resolve;

pub use address::{ADDRESS_LEN, Address, AddressError, AddressKind, Name, NameTooLong};
pub use endpoint::{Counters, Endpoint, text};
pub use entry::{Entry, Flags, Info};
pub use header::{Header, Op, Status};
pub use message::{MAX_ENTRIES, MAX_LEN, MessageError, Resolve};

/// The protocol version spoken here.
pub const VERSION: u8 = 1;
