// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask bench`: measurements, here or in the VM.

use std::process::Command;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::error::Error;
use crate::{artefacts, fabric, packages, vm};

/// How long a benchmark in the VM may take, on a very busy machine.
const LIMIT: Duration = Duration::from_secs(7200);

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Subject {
    /// Path records, alternates and changes on generated fat trees of up to 40,960 end ports
    Pathdb,
    /// Path records a second of OpenSM's SA against pathdb's, on simulated fabrics of 1,024 and 4,096
    /// hosts, and every answer compared
    Sa,
    /// REQ, LAP, PathRecord and Notice written and read by cm-msgs and by libibmad's field functions,
    /// and every result compared
    Codec,
    /// The engine with up to 100,000 connections: first order after a port event, memory, allocations,
    /// messages in flight
    Engine,
    /// Requests a second and latencies of ACM as apmd serves it and as the stock ibacm does, in the
    /// VM, and every answer compared
    Acm,
    /// Time without protection after one failure in the simulated world, apmd's engine beside UEK's
    /// published schedule
    Rearm,
    /// How long 200 connections take under `apmctl run` and without, in the VM
    Connect,
    /// How long a busy connection stands still for a pulled cable: moved by its library, by the kernel module,
    /// by the daemon, by hardware armed by hand, by an application that connects again; and kernel ULPs', in
    /// the VM
    Failover,
    /// What the kernel module costs connections and messages where it is loaded, in the VM
    Overhead,
}

/// What measures.
enum Place {
    /// A benchmark of a crate, on this machine, with these Debian packages.
    Here {
        bench: &'static str,
        needs: &'static [&'static str],
    },
    /// A program of the testbed, in the VM; `counted` where its clock is (`xtask vm --counted`).
    Vm {
        program: &'static str,
        counted: bool,
    },
}

impl Subject {
    /// As on the command line.
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// What makes the program do the least that shows that it runs and that all answers are right.
    const fn short(self) -> &'static [&'static str] {
        match self {
            Self::Pathdb | Self::Sa | Self::Codec | Self::Rearm | Self::Engine => &["--short"],
            Self::Acm => &[
                "--no-goals",
                "--rounds=2",
                "--milliseconds=5",
                "--destinations=200",
            ],
            Self::Connect => &["--no-goals", "--pairs=1", "--connections=20"],
            Self::Failover => &["--no-goals", "--repetitions=1", "--quick"],
            Self::Overhead => &["--no-goals", "--rounds=1", "--connections=20"],
        }
    }

    const fn place(self) -> Place {
        match self {
            Self::Pathdb => Place::Here {
                bench: "pathdb",
                needs: &[],
            },
            Self::Sa => Place::Here {
                bench: "sa",
                needs: packages::FABRICS,
            },
            Self::Codec => Place::Here {
                bench: "codec",
                needs: packages::CODEC,
            },
            Self::Rearm => Place::Here {
                bench: "rearm",
                needs: &[],
            },
            Self::Engine => Place::Here {
                bench: "engine",
                needs: &[],
            },
            Self::Acm => Place::Vm {
                program: "apm-acm-bench",
                counted: false,
            },
            Self::Connect => Place::Vm {
                program: "apm-connect-bench",
                counted: false,
            },
            Self::Failover => Place::Vm {
                program: "apm-failover-bench",
                counted: false,
            },
            Self::Overhead => Place::Vm {
                program: "apm-overhead-bench",
                counted: true,
            },
        }
    }
}

/// What the command line says.
#[derive(Args)]
pub(crate) struct Options {
    /// What to measure, one after the other
    #[arg(value_name = "NAME", required = true)]
    subjects: Vec<Subject>,
    /// One JSON object a line instead of a table
    #[arg(long)]
    json: bool,
    /// Only fabrics with so many end ports (pathdb, sa)
    #[arg(long, value_name = "N")]
    end_ports: Option<u32>,
    /// The least of each that shows that it runs and that all answers are right; judges no speed
    #[arg(long, conflicts_with = "end_ports")]
    short: bool,
}

impl Options {
    /// What the program that measures is told.
    fn arguments(&self, subject: Subject) -> Vec<String> {
        let mut arguments = Vec::new();
        if self.json {
            arguments.push("--json".to_owned());
        }
        if let Some(size) = self.end_ports {
            arguments.extend(["--end-ports".to_owned(), size.to_string()]);
        }
        if self.short {
            let short = subject.short().iter();
            arguments.extend(short.map(|argument| (*argument).to_owned()));
        }
        arguments
    }
}

/// Exit status for a command line that makes no sense.
const USAGE: u8 = 2;

/// `cargo xtask bench`.
pub(crate) fn run(options: &Options) -> Result<u8, Error> {
    let without_fabrics = [
        Subject::Codec,
        Subject::Rearm,
        Subject::Engine,
        Subject::Acm,
        Subject::Connect,
        Subject::Failover,
        Subject::Overhead,
    ];
    let mut subjects = options.subjects.iter();
    if options.end_ports.is_some()
        && let Some(subject) = subjects.find(|subject| without_fabrics.contains(subject))
    {
        let name = subject.name();
        eprintln!("xtask: bench {name} has no fabrics: --end-ports is for pathdb and sa");
        return Ok(USAGE);
    }
    packages::install(packages::BUILD)?;
    for &subject in &options.subjects {
        let arguments = options.arguments(subject);
        match subject.place() {
            Place::Here { bench, needs } => {
                packages::install(needs)?;
                if here(bench, &arguments)? == Measured::NoSuchFabric {
                    return Ok(USAGE);
                }
            }
            Place::Vm { program, counted } => in_vm(program, &arguments, counted)?,
        }
        if options.short && !options.json {
            println!("bench {}: ok", subject.name());
        }
    }
    Ok(0)
}

/// What came of a benchmark.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measured {
    All,
    /// It has said so.
    NoSuchFabric,
}

/// Makes all benchmarks that run here, and runs none.
pub(crate) fn build() -> Command {
    artefacts::bench("*", &["--no-run"])
}

fn here(bench: &str, arguments: &[String]) -> Result<Measured, Error> {
    let mut command = artefacts::bench(bench, &["--quiet", "--"]);
    command.args(arguments);
    let status = command.status().map_err(|source| Error::Start {
        program: "cargo".to_owned(),
        source,
    })?;
    // Cargo hands on what its only benchmark ended with.
    if status.code() == Some(USAGE.into()) {
        return Ok(Measured::NoSuchFabric);
    }
    ended(bench, status.success(), status.to_string()).map(|()| Measured::All)
}

/// The daemons of the drills stay away: the program starts the servers that it measures.
fn in_vm(program: &str, arguments: &[String], counted: bool) -> Result<(), Error> {
    let arguments: String = arguments.iter().map(|word| format!(" {word}")).collect();
    let mut run = vm::Run::script(format!("exec {program}{arguments}\n"), fabric::DEFAULT)?;
    run.daemons = false;
    run.limit = Some(LIMIT);
    run.counted = counted;
    let status = vm::start(&run)?;
    ended(program, status == 0, format!("exit status {status}"))
}

fn ended(what: &str, success: bool, status: String) -> Result<(), Error> {
    if success {
        return Ok(());
    }
    Err(Error::Failed {
        what: format!("bench {what}"),
        status,
        output: String::new(),
    })
}
