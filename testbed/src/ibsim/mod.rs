// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fabrics of any shape without hardware: ibsim simulates switches and adapters, OpenSM manages
//! them, and a [`Client`] asks both.
//!
//! - [`Net`]: nodes and cables, and the file in which ibsim reads them. [`Shape`]: nets of the usual
//!   shapes.
//! - [`Place`]: a directory and a socket name for one fabric.
//! - [`Simulator`], [`OpenSm`]: the two programs, both Debian's. OpenSM runs on ibsim's replacement
//!   of libibumad.
//! - [`Client`]: speaks ibsim's datagrams directly. The replacement of libibumad spoils the last 32
//!   bytes of what it receives and shows one port only; nothing that is compared goes through it.

mod child;
mod client;
mod datagram;
mod dice;
mod net;
mod opensm;
mod place;
mod shape;
mod simulator;

pub use client::{Client, Reply, Request, Target, Undeliverable};
pub use dice::Dice;
pub use net::{Cable, End, Net, Node};
pub use opensm::{Engine, OpenSm, Routing, Settings};
pub use place::Place;
pub use shape::Shape;
pub use simulator::Simulator;
