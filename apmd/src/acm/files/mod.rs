// SPDX-License-Identifier: MIT OR Apache-2.0
//! ibacm's configuration files, read as they are. What ibacm skips, such as an unknown option or a
//! line that makes no sense, is skipped here too, with one warning for the file.

mod generate;
mod names;
mod options;
mod routes;

pub use generate::{PortName, addresses as generate_addresses, options as generate_options};
pub use names::names;
pub use options::{Mode, Options};
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
