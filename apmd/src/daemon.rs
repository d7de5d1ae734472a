// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's command line.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::config::{ConfigError, DEFAULT_PATH, Loaded};
use crate::event_loop::{Daemon, DaemonError};
use crate::logging;
use clap::Parser;

/// Keeps RDMA connections armed with an alternate path.
///
/// Exit status: 0 after SIGTERM or a good --check-config, 1 on failure, 2 on wrong usage.
#[derive(Parser)]
#[command(name = "apmd", version)]
pub struct Arguments {
    /// Configuration file [default: /etc/rdma/apmd.toml, which need not exist]; then *.toml of the
    /// directory called after it, /etc/rdma/apmd.d
    #[arg(short, long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// Read the configuration, say all that is wrong with it, and end
    #[arg(long)]
    check_config: bool,
}

/// Does what the command line says.
pub fn main(arguments: Arguments) -> ExitCode {
    let loaded = Loaded::read(arguments.config.as_deref());
    let done = match loaded {
        Err(error) => Err(each(&error)),
        Ok(loaded) if arguments.check_config => {
            say_good(&loaded);
            Ok(())
        }
        Ok(loaded) => run(loaded, arguments.config).map_err(|error| vec![error.to_string()]),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reasons) => {
            for reason in reasons {
                eprintln!("apmd: {reason}");
            }
            ExitCode::FAILURE
        }
    }
}

fn each(error: &ConfigError) -> Vec<String> {
    error.findings().iter().map(ToString::to_string).collect()
}

fn say_good(loaded: &Loaded) {
    for warning in &loaded.warnings {
        eprintln!("apmd: warning: {warning}");
    }
    for file in &loaded.files {
        println!("{}: ok", file.display());
    }
    if loaded.files.is_empty() {
        println!("{DEFAULT_PATH}: not there, the defaults hold");
    }
}

fn run(loaded: Loaded, path: Option<PathBuf>) -> Result<(), DaemonError> {
    let log = logging::start(&loaded.config.log);
    Daemon::start(loaded.config, path, log)?.run()
}
