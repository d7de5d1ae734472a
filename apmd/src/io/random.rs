// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one place where randomness enters the program.

use std::io;

use statemachine::Random;

/// Random numbers with a seed of the kernel's.
///
/// # Errors
/// The kernel has none to give.
pub(crate) fn from_kernel() -> io::Result<Random> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed)?;
    Ok(Random::new(seed))
}
