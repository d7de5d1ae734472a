// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures how long a connection stands still for a pulled cable, inside the VM.

use std::process::ExitCode;

fn main() -> ExitCode {
    testbed::failover_bench::main(std::env::args_os())
}
