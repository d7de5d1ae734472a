// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two of perftest's programs that exchange their queue pairs' numbers over TCP: no connection manager knows of them.

use std::time::Duration;

use crate::command;
use crate::failure::Failure;
use crate::host::Host;
use crate::patience;
use crate::program::Program;
use crate::wait::{self, Seen};

const LIMIT: Duration = Duration::from_secs(60);

/// Starts `words` on both hosts, over this TCP port; their queue pairs are in RTS. They run for so many seconds, on a
/// kernel that checks itself longer.
pub(super) fn start(words: &[&str], port: &str, seconds: u32) -> Result<[Program; 2], Failure> {
    let seconds = &(seconds * patience::factor()).to_string();
    let words = |host: Host| {
        let options = ["-F", "-D", seconds, "-p", port, "-d", host.device()];
        [words, &options].concat()
    };
    let server = Program::start("server", Host::A, &words(Host::A))?;
    wait::until("the server listens", LIMIT, || {
        let listening = command::run(&["ss", "-Htln", &format!("sport = :{port}")])?;
        let somebody = listening.contains("LISTEN");
        Ok(Seen::when(somebody, || "nobody does".to_owned()))
    })?;
    let client = [&words(Host::B)[..], &["127.0.0.1"]].concat();
    let programs = [server, Program::start("client", Host::B, &client)?];
    wait::until("the programs are connected", LIMIT, || {
        let all = command::run(&["rdma", "resource", "show", "qp"])?;
        let is_connected = |program: &Program| {
            let pid = format!(" pid {} ", program.pid());
            let connected = |line: &str| line.contains("type RC state RTS") && line.contains(&pid);
            all.lines().any(connected)
        };
        let both = programs.iter().all(is_connected);
        Ok(Seen::when(both, || all.clone()))
    })?;
    Ok(programs)
}
