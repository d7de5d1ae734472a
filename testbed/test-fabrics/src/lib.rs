// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fabrics to test and measure with. Only the tests and benches of other crates use them.
#![forbid(unsafe_code)]

mod fat_tree;
mod shortest_ways;
pub mod two_rails;

pub use fat_tree::{FatTree, Spread};
pub use shortest_ways::dump_fts;
