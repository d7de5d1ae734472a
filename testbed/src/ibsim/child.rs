// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that end with this one.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::place::in_file;
use crate::failure::Failure;

/// A command that is killed when this process ends, however it ends. Nothing milder: OpenSM asked to
/// end waits for its simulator, which is gone by then.
pub(super) fn bound_to_us(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]);
    // Debian keeps opensm where only root's search path leads.
    let directories = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
    let mut places = directories.iter().map(|dir| Path::new(dir).join(program));
    let found = places.find(|path| path.exists());
    command.arg(
        found
            .as_deref()
            .map_or(OsStr::new(program), Path::as_os_str),
    );
    command
}

/// Starts it with both outputs in a file.
pub(super) fn spawn(mut command: Command, name: &str, log: &Path) -> Result<Child, Failure> {
    let file = File::create(log).map_err(|source| in_file(log, source))?;
    let again = file.try_clone().map_err(|source| in_file(log, source))?;
    command
        .stdin(Stdio::piped())
        .stdout(file)
        .stderr(again)
        .spawn()
        .map_err(|source| Failure::Start {
            command: name.to_owned(),
            source,
        })
}

/// A program that should run has ended.
pub(super) fn ended(name: &str, status: &str, text: &str) -> Failure {
    Failure::Command {
        command: name.to_owned(),
        status: status.to_owned(),
        stderr: text.lines().last().unwrap_or("no message").to_owned(),
    }
}
