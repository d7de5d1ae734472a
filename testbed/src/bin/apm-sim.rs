// SPDX-License-Identifier: MIT OR Apache-2.0
//! The deterministic simulation of many hosts.

use std::process::ExitCode;

fn main() -> ExitCode {
    testbed::sim::command_line::main(std::env::args_os())
}
