// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures what it costs to connect under `apmctl run`, inside the VM.

use std::process::ExitCode;

fn main() -> ExitCode {
    testbed::connect_bench::main(std::env::args_os())
}
