// SPDX-License-Identifier: MIT OR Apache-2.0
//! Abuses a daemon's sockets as an unprivileged user can, for the drill `abuse`.

use std::process::ExitCode;

fn main() -> ExitCode {
    testbed::abuse::main(std::env::args_os())
}
