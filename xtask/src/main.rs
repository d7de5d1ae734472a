// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask`: the project's VM, its checks, drills and tests. Every command first installs the
//! Debian packages that it needs and lacks.

mod apt;
mod artefacts;
mod attach;
mod bench;
mod c_programs;
mod cargo_tool;
mod cpio;
mod cross;
mod deny;
mod dmesg;
mod drill;
mod elsewhere;
mod emulator;
mod error;
mod fabric;
mod fabrics;
mod fingerprint;
mod fuzz;
mod guest;
mod image;
mod kernel;
mod mutants;
mod netlink_spec;
mod notices;
mod own_modules;
mod packages;
mod qemu;
mod readme;
mod setup;
mod shell;
mod sim;
mod sparse;
mod terminal;
mod test;
mod userland;
mod vm;
mod workspace;
mod ynl;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::Error;

/// How this program is called.
const BIN_NAME: &str = "cargo xtask";

/// The project's VM, its checks, drills and tests.
#[derive(Parser)]
#[command(name = BIN_NAME, bin_name = BIN_NAME)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Boot a stock Debian kernel with the software HCA: shell, script or check
    Vm(vm::Options),
    /// Run drills in the VM: programs whose cables are pulled must not notice
    Drill(drill::Options),
    /// Measure, on this machine
    Bench(bench::Options),
    /// Hold pathdb against OpenSM on simulated fabrics: every path record
    #[command(disable_help_flag = true)]
    Fabrics(fabrics::Options),
    /// Run the engines of many hosts in virtual time, with faults that a seed decides
    #[command(disable_help_flag = true)]
    Sim(sim::Options),
    /// Give decoders, files and the engine anything, for as long as is asked
    Fuzz(fuzz::Options),
    /// Change the engine's conditions one by one: its tests must notice. Hours; files or a share can be named
    Mutants(mutants::Options),
    /// Run everything that must hold: format, lints, licences, tests, the VM's check, the fabrics,
    /// the benchmarks in short, the drills
    Test,
    /// Hold the dependencies against deny.toml, by cargo-deny, which is installed below target/ if need be
    Deny,
    /// Hold the kernel modules against sparse, for the stock kernel and that of backports
    Sparse,
    /// Compile the kernel module for arm64 and ppc64el, with Debian's cross compilers
    Cross,
    /// Write the kernel module's constants anew, from its netlink specification
    KernelHeader,
    /// Have the kernel's own generator read that specification, and compare what it makes. Fetches a kernel's source, 150 MB
    Ynl,
    /// Write the licence texts of the crates that are linked, by cargo-about, which is installed below target/ if need be.
    /// Minutes
    Notices,
    /// Run the commands that the README and docs/install.md show
    Readme,
    /// Run one of these commands on another release of Debian: `elsewhere trixie drill`
    Elsewhere(elsewhere::Options),
    /// Install the Debian packages that the other commands need, fetch the VM's kernel, and nothing
    /// else
    Setup(setup::Options),
}

fn run(command: Command) -> Result<u8, Error> {
    match command {
        Command::Vm(options) => vm::run(&options),
        Command::Drill(options) => drill::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Fabrics(options) => fabrics::run(&options),
        Command::Sim(options) => sim::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Mutants(options) => mutants::run(&options),
        Command::Test => test::run(),
        Command::Deny => deny::run(),
        Command::Sparse => sparse::run(),
        Command::Cross => cross::run(),
        Command::KernelHeader => netlink_spec::run(),
        Command::Ynl => ynl::run(),
        Command::Notices => notices::run(),
        Command::Readme => {
            readme::run(|arguments| Cli::try_parse_from(["xtask"].iter().chain(arguments)).is_ok())
        }
        Command::Elsewhere(options) => {
            // What is no command, or asks for help, needs no other release.
            Cli::parse_from([BIN_NAME].into_iter().chain(options.command()));
            elsewhere::run(&options)
        }
        Command::Setup(options) => setup::run(&options),
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("xtask: {error}");
            match error {
                Error::Usage(_) => ExitCode::from(2),
                _ => ExitCode::FAILURE,
            }
        }
    }
}
