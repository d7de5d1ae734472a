// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures what the kernel module costs where it is loaded, inside the VM.

use std::process::ExitCode;

fn main() -> ExitCode {
    testbed::overhead_bench::main(std::env::args_os())
}
