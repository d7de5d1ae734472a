// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl run`: a program with the library preloaded. It becomes the program.

mod by_kernel;
mod preload;
mod target;

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use super::{Failure, Options, Outcome, socket};
use crate::io::sigpipe;

/// Overrides where the library is.
const PRELOAD_VARIABLE: &str = "APMD_PRELOAD";
/// Tells the library to manage every connection.
const MODE: (&str, &str) = ("RDMA_APM", "all");

/// Exit status when the program is not run because it would be unprotected.
const REFUSED: u8 = 125;

#[derive(Args)]
pub(super) struct Run {
    /// Do not run a program that would be unprotected; exit status 125 then
    #[arg(long)]
    require: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl Run {
    /// A program that cannot be protected is run all the same, but not in silence: who runs it may
    /// need it more than its protection.
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let [program, arguments @ ..] = &self.command[..] else {
            return Err(Failure::Usage("a command is missing".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments).env(MODE.0, MODE.1);
        let mut obstacles = Vec::new();
        match library() {
            Ok(library) => {
                let users = env::var_os(preload::VARIABLE).unwrap_or_default();
                let all = preload::order(&target::needed(program), &users, &library);
                command.env(preload::VARIABLE, all);
            }
            Err(error) => obstacles.push(error),
        }
        obstacles.extend(target::obstacle(program).map(|why| {
            format!("{why}: the library cannot be preloaded; a program of one's own can be linked with it")
        }));
        let socket = socket::of_libraries(options);
        if options.socket.is_some() {
            command.env(socket::VARIABLE, &socket);
        }
        obstacles.extend(
            // Tried, not looked at: who is let in is the kernel's to say.
            socket::connect(&socket, options.answer_timeout)
                .err()
                .map(|error| error.to_string()),
        );

        let name = program.display();
        if by_kernel::protects(options, Path::new(program)) {
            eprintln!(
                "apmctl: the kernel module apm is loaded: `apmctl run` is not needed to protect {name}"
            );
            obstacles.clear();
        }
        for why in &obstacles {
            eprintln!("apmctl: warning: {name} is not protected: {why}");
        }
        if self.require && !obstacles.is_empty() {
            return Err(Failure::NotRun {
                what: format!("{name}: not run, because it would not be protected"),
                status: REFUSED,
            });
        }
        // Become, not started: signals, exit status and pid are the program's own.
        sigpipe::pass_on(&mut command);
        let error = command.exec();
        let status = match error.kind() {
            io::ErrorKind::NotFound => 127,
            _ => 126,
        };
        Err(Failure::NotRun {
            what: format!("{name}: {error}"),
            status,
        })
    }
}

/// Where the library is: as told, beside this program (a build), or where it is installed.
fn library() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os(PRELOAD_VARIABLE).map(PathBuf::from) {
        return if path.exists() {
            Ok(path)
        } else {
            Err(format!(
                "{}: no such file (${PRELOAD_VARIABLE})",
                path.display()
            ))
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
            format!(
                "library not found: none of {}; name it in {PRELOAD_VARIABLE}",
                names.join(", ")
            )
        })
}
