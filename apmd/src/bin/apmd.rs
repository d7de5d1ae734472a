// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon.

use std::path::PathBuf;
use std::process::ExitCode;

use apmd::config::{Config, DEFAULT_PATH};
use apmd::event_loop::{Daemon, DaemonError};
use apmd::logging;
use clap::Parser;

/// Keeps RDMA connections armed with an alternate path.
///
/// Exit status: 0 after SIGTERM or a good --check-config, 1 on failure, 2 on wrong usage.
#[derive(Parser)]
#[command(name = "apmd", version)]
struct Arguments {
    /// Configuration file [default: /etc/rdma/apmd.toml, which need not exist]
    #[arg(short, long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// Read the configuration, say whether it is good, and end
    #[arg(long)]
    check_config: bool,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("apmd: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), DaemonError> {
    let config = Config::load(arguments.config.as_deref())?;
    if arguments.check_config {
        let path = arguments.config.unwrap_or_else(|| DEFAULT_PATH.into());
        let what = if path.exists() {
            "ok"
        } else {
            "not there, the defaults hold"
        };
        println!("{}: {what}", path.display());
        return Ok(());
    }
    let log = logging::start(&config.log);
    Daemon::start(config, arguments.config, log)?.run()
}
