// SPDX-License-Identifier: MIT OR Apache-2.0
//! The drills' runner, inside the VM.

use std::process::ExitCode;

fn main() -> ExitCode {
    testbed::runner::main(std::env::args_os())
}
