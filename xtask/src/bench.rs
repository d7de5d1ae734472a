// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask bench`: measurements, here or in the VM.

use std::process::Command;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::error::Error;
use crate::{packages, vm, workspace};

/// How long a benchmark in the VM may take, on a very busy machine.
const LIMIT: Duration = Duration::from_secs(1200);

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Subject {
    /// Path records, alternates and changes on generated fat trees of up to 40,960 end ports
    Pathdb,
    /// Path records a second of OpenSM's SA against pathdb's, on simulated fabrics of 1,024 and 4,096
    /// hosts, and every answer compared
    Sa,
    /// Requests a second and latencies of ACM as apmd serves it and as the stock ibacm does, in the
    /// VM, and every answer compared
    Acm,
}

/// What measures.
enum Place {
    /// A benchmark of a crate, on this machine, with these Debian packages.
    Here {
        package: &'static str,
        bench: &'static str,
        needs: &'static [&'static str],
    },
    /// A program of the testbed, in the VM.
    Vm { program: &'static str },
}

impl Subject {
    const fn place(self) -> Place {
        match self {
            Self::Pathdb => Place::Here {
                package: "pathdb",
                bench: "pathdb",
                needs: &[],
            },
            Self::Sa => Place::Here {
                package: "testbed",
                bench: "sa",
                needs: packages::FABRICS,
            },
            Self::Acm => Place::Vm {
                program: "apm-acm-bench",
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
}

/// Exit status for a command line that makes no sense.
const USAGE: u8 = 2;

/// `cargo xtask bench`.
pub(crate) fn run(options: &Options) -> Result<u8, Error> {
    let size = options.end_ports;
    if size.is_some() && options.subjects.contains(&Subject::Acm) {
        eprintln!("xtask: bench acm has no fabrics: --end-ports is for pathdb and sa");
        return Ok(USAGE);
    }
    packages::install(packages::BUILD)?;
    let json = options.json.then_some("--json");
    for subject in &options.subjects {
        match subject.place() {
            Place::Here {
                package,
                bench,
                needs,
            } => {
                packages::install(needs)?;
                if here(package, bench, json, size)? == Measured::NoSuchFabric {
                    return Ok(USAGE);
                }
            }
            Place::Vm { program } => in_vm(program, json)?,
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

fn here(
    package: &str,
    bench: &str,
    json: Option<&str>,
    end_ports: Option<u32>,
) -> Result<Measured, Error> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command
        .current_dir(workspace::root())
        .args(["bench", "--quiet", "--package", package])
        .args(["--bench", bench, "--"])
        .args(json);
    if let Some(size) = end_ports {
        command.arg("--end-ports").arg(size.to_string());
    }
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
fn in_vm(program: &str, json: Option<&str>) -> Result<(), Error> {
    let json = json.map_or_else(String::new, |json| format!(" {json}"));
    let mut run = vm::Run::script(format!("exec {program}{json}\n"));
    run.daemons = false;
    run.limit = Some(LIMIT);
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
