// SPDX-License-Identifier: MIT OR Apache-2.0
//! pathdb against OpenSM on simulated fabrics.

use std::process::ExitCode;

fn main() -> ExitCode {
    testbed::fabrics::command_line::main(std::env::args_os())
}
