// SPDX-License-Identifier: MIT OR Apache-2.0
//! ibacm's files: data is read as it is, and lines that make no sense are skipped, as ibacm does it.
//! Options become a section of apmd's configuration, once.

mod generate;
mod import;
mod names;
mod routes;

pub use generate::{PortName, addresses as generate_addresses};
pub use import::import;
pub use names::names;
pub use routes::routes;

/// What a file says, and what in it was not understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parsed<T> {
    /// What it says.
    pub value: T,
    /// Lines that were skipped: their numbers, and why.
    pub skipped: Vec<(usize, String)>,
}

/// The lines of a file that say something, with their numbers: neither empty nor comments.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate();
    let numbered = numbered.map(|(index, line)| (index + 1, line));
    numbered.filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty())
}
