// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol between `librdmacm-apm` and `apmd`: one message a packet on a `SOCK_SEQPACKET`
//! Unix socket.
//!
//! A message is a 16-byte header and a body of fixed length, all integers big-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | magic 0x4150 |
//! | 2 | version, 3 |
//! | 3 | kind |
//! | 4..8 | length of the whole message |
//! | 8..16 | connection or question: the library's own number for it; else 0 |
//!
//! The library speaks first (`Hello`), registers its connections, and answers every order with a
//! [`Report`]. Either side ends by closing the socket. After a reconnect the library says it all
//! again: the daemon keeps nothing that the library cannot tell it.
//!
//! Programs live longer than daemons: what a later release adds is said only to who has shown that he
//! understands it. A daemon shows it by a message before `Welcome`, which earlier libraries pass over
//! as they do with any that they do not know.

mod codec;
mod message;
mod policy;

pub use codec::{DecodeError, MAX_LEN};
pub use message::{
    AppEvent, Cause, Ending, FromDaemon, FromLibrary, Load, Migrate, MigrationState, PeerPort,
    QpState, Refusal, Register, Report, Role, Snapshot, Stand,
};
pub use policy::{Mode, Placement, Policy, PolicyError, PolicyOverride, PolicyWords};

/// The protocol version spoken here.
pub const VERSION: u8 = 3;

/// The token of an order whose end nobody waits for.
pub const NO_TOKEN: u32 = 0;
