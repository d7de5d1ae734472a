// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon.

use std::process::ExitCode;

use apmd::daemon::{self, Arguments};
use clap::Parser;

fn main() -> ExitCode {
    daemon::main(Arguments::parse())
}
