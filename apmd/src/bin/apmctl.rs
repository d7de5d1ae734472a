// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator's tool.

use std::process::ExitCode;

use apmd::{command_line, ctl};

fn main() -> ExitCode {
    command_line::read(std::env::args_os()).map_or_else(|ended| ended, ctl::main)
}
