// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures apmd's ACM service beside the stock ibacm, inside the VM.

use std::process::ExitCode;

fn main() -> ExitCode {
    testbed::acm_bench::main(std::env::args_os())
}
