// SPDX-License-Identifier: MIT OR Apache-2.0
//! Codecs for InfiniBand CM, SA and ACM messages and for apmd's client protocol.
//!
//! Bytes to values and back, nothing else: no I/O, no allocation, no unsafe code, and no input that
//! panics. All integers on the wire are big-endian, but for a few of ACM's ([`acm`]). Each attribute
//! is a plain struct with public fields and one table that says where each field lies; the tables
//! are read together with the chapter of IBA vol. 1 (release 1.4) that they name.
//!
//! Two rules hold for every attribute here:
//! - bits that no field names are reserved: written as zero, ignored on reading;
//! - a value wider than its field is cut to the field's low bits when written (a 24-bit queue pair
//!   number lives in a `u32`), so that encoding never fails.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod acm;
mod address;
pub mod association;
pub mod cm;
mod codes;
pub mod control;
mod error;
mod escaped;
pub mod fields;
mod layout;
pub mod mad;
pub mod path;
mod presence;
pub mod pretty;
pub mod rate;
pub mod sa;
pub mod smp;

pub use address::{Gid, Guid, Lid, PKey, ParseGidError, ParsePKeyError, Qpn};
pub use error::DecodeError;
pub use escaped::{Escaped, is_unprintable};
pub use fields::PrivateData;
pub use presence::Presence;
