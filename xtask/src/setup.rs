// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask setup`: what the other commands need from the network, so that they need none.

use clap::Args;

use crate::error::Error;
use crate::kernel::{Choice, Kernel};
use crate::{emulator, packages, workspace};

/// What the command line says.
#[derive(Args)]
pub(crate) struct Options {
    /// Which of Debian's kernels to fetch, in the newest version that its suite has
    #[arg(long, value_name = "KERNEL", value_enum, default_value_t)]
    kernel: Choice,
}

/// `cargo xtask setup`.
pub(crate) fn run(options: &Options) -> Result<u8, Error> {
    packages::install(&packages::all())?;
    let dir = workspace::vm_dir()?;
    let _lock = workspace::lock()?;
    emulator::provide(&dir)?;
    let kernel = Kernel::provide_newest(options.kernel, &dir)?;
    println!("kernel {}", kernel.release);
    Ok(0)
}
