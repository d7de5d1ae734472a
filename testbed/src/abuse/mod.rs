// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an unprivileged user can do to a daemon by its sockets alone. Each attack goes on until it is
//! killed, and prints each second a line of `STATS key=value...`, counted from its start.

mod claim;
mod crowd;
mod flood;
mod half_request;
mod library;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use cm_msgs::Gid;

/// Abuses a daemon's sockets
#[derive(Parser)]
#[command(name = "apm-abuse")]
struct Options {
    #[command(subcommand)]
    attack: Attack,
}

#[derive(Subcommand)]
enum Attack {
    /// Ask ACM for paths to ever new ports, as many requests at a time as it takes
    Flood {
        /// ACM's socket
        socket: PathBuf,
        /// Of a local port
        gid: Gid,
    },
    /// Send ACM half a request and see how long it waits for the rest
    HalfRequest {
        /// ACM's socket
        socket: PathBuf,
    },
    /// Connect to the libraries' socket and say nothing
    Silent {
        /// The socket
        socket: PathBuf,
        /// Connections, if so many are let in
        count: usize,
        /// Say hello first
        #[arg(long)]
        hello: bool,
    },
    /// Register at the libraries' socket what is refused, and never read that it is
    Deaf {
        /// The socket
        socket: PathBuf,
        /// Connections, if so many are let in
        count: usize,
    },
    /// Register a queue pair once, and print what comes of it
    Claim(claim::Options),
    /// Register a queue pair and close it, over and over
    Churn(claim::Options),
}

/// The program.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Err(error) = run(Options::parse_from(arguments).attack);
    eprintln!("apm-abuse: {error}");
    ExitCode::FAILURE
}

fn run(attack: Attack) -> io::Result<std::convert::Infallible> {
    match attack {
        Attack::Flood { socket, gid } => flood::run(&socket, gid),
        Attack::HalfRequest { socket } => half_request::run(&socket),
        Attack::Silent {
            socket,
            count,
            hello,
        } => crowd::silent(&socket, count, hello),
        Attack::Deaf { socket, count } => crowd::deaf(&socket, count),
        Attack::Claim(options) => claim::once(&options),
        Attack::Churn(options) => claim::over_and_over(&options),
    }
}

/// Says when it is time for the next line of statistics.
struct EachSecond(Instant);

impl EachSecond {
    const PERIOD: Duration = Duration::from_secs(1);

    fn new() -> Self {
        Self(Instant::now())
    }

    fn is_over(&mut self) -> bool {
        let over = self.0.elapsed() >= Self::PERIOD;
        if over {
            self.0 = Instant::now();
        }
        over
    }
}
