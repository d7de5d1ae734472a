// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon.

use std::process::ExitCode;

use apmd::{command_line, daemon};

fn main() -> ExitCode {
    command_line::read(std::env::args_os()).map_or_else(|ended| ended, daemon::main)
}
