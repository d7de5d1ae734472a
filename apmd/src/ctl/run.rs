// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl run`: a program with the library preloaded. It becomes the program.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use super::{Failure, Outcome};

/// Overrides where the library is.
const PRELOAD_VARIABLE: &str = "APMD_PRELOAD";
/// Tells the library to look after every connection.
const MODE: (&str, &str) = ("RDMA_APM", "all");

#[derive(Args)]
pub(super) struct Run {
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl Run {
    pub(super) fn run(self) -> Result<Outcome, Failure> {
        let library = library()?;
        let mut preload = library.into_os_string();
        if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let [program, arguments @ ..] = &self.command[..] else {
            return Err(Failure::Failed("a command is missing".to_owned()));
        };
        let error = Command::new(program)
            .args(arguments)
            .env("LD_PRELOAD", preload)
            .env(MODE.0, MODE.1)
            .exec();
        let status = if error.kind() == io::ErrorKind::NotFound {
            127
        } else {
            126
        };
        Err(Failure::NotRun {
            what: format!("{}: {error}", program.display()),
            status,
        })
    }
}

/// Where the library is: as told, beside this program (a build), or where it is installed.
fn library() -> Result<PathBuf, Failure> {
    if let Some(path) = env::var_os(PRELOAD_VARIABLE).map(PathBuf::from) {
        return if path.exists() {
            Ok(path)
        } else {
            Err(Failure::Failed(format!(
                "{}: no such file (${PRELOAD_VARIABLE})",
                path.display()
            )))
        };
    }
    let beside = env::current_exe()
        .ok()
        .and_then(|exe| Some(exe.parent()?.to_owned()));
    let triple = format!("{}-linux-gnu", env::consts::ARCH);
    let candidates = beside
        .iter()
        .map(|dir| dir.join("librdmacm_apm.so"))
        .chain([
            Path::new("/usr/lib")
                .join(&triple)
                .join("rdmacm-apm/librdmacm-apm.so"),
            PathBuf::from("/usr/lib64/rdmacm-apm/librdmacm-apm.so"),
            PathBuf::from("/usr/lib/rdmacm-apm/librdmacm-apm.so"),
        ])
        .collect::<Vec<_>>();
    candidates
        .iter()
        .find(|path| path.exists())
        .cloned()
        .ok_or_else(|| {
            let names: Vec<_> = candidates
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            Failure::Failed(format!(
                "library not found: none of {}; name it in {PRELOAD_VARIABLE}",
                names.join(", ")
            ))
        })
}
