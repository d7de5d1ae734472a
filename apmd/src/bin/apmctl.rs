// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator's tool.

use std::process::ExitCode;

use apmd::ctl::{self, Arguments};
use clap::Parser;

fn main() -> ExitCode {
    ctl::main(Arguments::parse())
}
