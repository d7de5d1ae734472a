// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two servers.

use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;

use super::client::{Client, Place};
use super::preload::{DIRECTORY, Preload, hosts_file, routes_file, write};
use super::question::{Kind, Question};
use crate::failure::Failure;
use crate::host::Host;
use crate::program::Program;
use crate::wait::{self, Seen};

/// Bound for a server's start.
const LIMIT: Duration = Duration::from_secs(60);

/// What serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Software {
    /// rdma-core's, as Debian has it.
    Ibacm,
    /// Ours.
    Apmd,
}

/// How it is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Transport {
    Unix,
    Tcp,
}

impl Transport {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unix => "unix",
            Self::Tcp => "tcp",
        }
    }
}

/// A running server; killed when dropped.
pub(super) struct Server {
    name: &'static str,
    place: Place,
    program: Program,
}

impl Server {
    /// Starts it and waits until it answers from what it was given.
    pub(super) fn start(
        software: Software,
        transport: Transport,
        preload: &Preload,
    ) -> Result<Self, Failure> {
        let mut server = match software {
            Software::Ibacm => Self::ibacm(transport)?,
            Software::Apmd => Self::apmd(transport)?,
        };
        let last = preload.destinations.last().unwrap_or(&preload.here);
        let question = Question::new(Kind::Gid, &preload.here, last);
        wait::until(&format!("{} answers", server.name), LIMIT, || {
            server.program.ensure_running()?;
            let answer = server
                .client(1, 1)
                .and_then(|mut client| client.ask(&question));
            Ok(match answer {
                Ok(answer) if answer.len() == question.answer.len() => Seen::Ready(()),
                Ok(answer) => Seen::NotYet(format!("{answer:02x?}")),
                Err(failure) => Seen::NotYet(failure.to_string()),
            })
        })?;
        Ok(server)
    }

    /// One server has one listening socket, Unix or TCP.
    fn ibacm(transport: Transport) -> Result<Self, Failure> {
        let port = 6125;
        let (mode, place) = match transport {
            Transport::Unix => ("unix", Place::Unix("/run/ibacm-unix.sock".into())),
            Transport::Tcp => ("loop", Place::Tcp(port)),
        };
        let options = format!(
            "log_file {DIRECTORY}/ibacm.log\nlog_level 0\nlock_file {DIRECTORY}/ibacm.pid\n\
             server_mode {mode}\nserver_port {port}\n{}",
            preloading()
        );
        let options = file("ibacm_opts.cfg", &options)?;
        let names = file("ibacm_addr.cfg", &names())?;
        let words = ["ibacm", "-P", "-A", &names, "-O", &options];
        Ok(Self {
            name: "ibacm",
            place,
            program: Program::start("ibacm", Host::A, &words)?,
        })
    }

    /// One server has both, here beside ibacm's.
    fn apmd(transport: Transport) -> Result<Self, Failure> {
        let port = 6126;
        let socket = Path::new(DIRECTORY).join("ibacm-unix.sock");
        file("ibacm_addr.cfg", &names())?;
        let text = format!(
            "devices = [\"{}\"]\nruntime_dir = \"{DIRECTORY}/apmd\"\n\
             [log]\nlevel = \"warn\"\n\
             [acm]\nserve = true\ndirectory = \"{DIRECTORY}\"\n\
             tcp_port = {port}\nkernel = false\n\
             data_dir = \"{DIRECTORY}\"\n",
            Host::A.device(),
        );
        let config = file("apmd.toml", &text)?;
        Ok(Self {
            name: "apmd",
            place: match transport {
                Transport::Unix => Place::Unix(socket),
                Transport::Tcp => Place::Tcp(port),
            },
            program: Program::start("apmd", Host::A, &["apmd", "--config", &config])?,
        })
    }

    /// Connects to it, with so many requests under way on each connection.
    pub(super) fn client(&self, connections: usize, depth: usize) -> Result<Client, Failure> {
        Client::new(self.name, &self.place, connections, depth)
    }

    /// Processor time that its threads have had.
    pub(super) fn cpu_time(&self) -> Result<Duration, Failure> {
        let tasks = format!("/proc/{}/task", self.program.pid());
        let failed = |source| Failure::File {
            path: tasks.clone(),
            source,
        };
        let tasks = fs::read_dir(&tasks).map_err(failed)?;
        tasks
            .map(|task| cpu_time_of(&task.map_err(failed)?.path()))
            .sum()
    }
}

/// Processor time that a thread has had, by its directory in `/proc`.
pub(super) fn cpu_time_of(task: &Path) -> Result<Duration, Failure> {
    let path = task.join("schedstat").display().to_string();
    let text = fs::read_to_string(&path).map_err(|source| Failure::File {
        path: path.clone(),
        source,
    })?;
    let first = text.split(' ').next();
    let on_cpu = first.and_then(|word| word.parse().ok());
    let on_cpu = on_cpu.ok_or_else(|| Failure::Output {
        source_name: path,
        problem: format!("not a time: {text:?}"),
    })?;
    Ok(Duration::from_nanos(on_cpu))
}

/// What ibacm is to read at start; apmd reads what is there.
fn preloading() -> String {
    format!(
        "route_preload opensm_full_v1\nroute_data_file {}\n\
         addr_preload acm_hosts\naddr_data_file {}\n",
        routes_file().display(),
        hosts_file().display()
    )
}

/// What the port is called.
fn names() -> String {
    format!("here {} 1 default\n", Host::A.device())
}

/// Writes a file; its path.
fn file(name: &str, text: &str) -> Result<String, Failure> {
    let path = Path::new(DIRECTORY).join(name);
    write(&path, text)?;
    Ok(path.display().to_string())
}
