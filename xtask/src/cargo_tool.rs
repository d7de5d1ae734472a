// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs for developers that cargo installs, in the version that the project was written against: the user's own
//! if it is that version, and else one below the target directory.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, InFile};
use crate::{shell, workspace};

/// A crate that cargo installs as a program of the same name.
pub(crate) struct CargoTool {
    /// The crate.
    pub(crate) name: &'static str,
    /// Exactly this version.
    pub(crate) version: &'static str,
    /// Those without which there is no program.
    pub(crate) features: &'static [&'static str],
}

impl CargoTool {
    /// The program, installed if need be.
    pub(crate) fn provide(&self) -> Result<PathBuf, Error> {
        let users = OsString::from(self.name);
        if self.is_wanted(&users) {
            return Ok(users.into());
        }
        let tools = workspace::target().join("tools");
        fs::create_dir_all(&tools).in_file(&tools)?;
        let own = tools.join("bin").join(self.name);
        if !self.is_wanted(own.as_os_str()) {
            let Self { name, version, .. } = self;
            println!("set-up: installing {name} {version} (a minute or two, once)");
            self.install(&tools)?;
        }
        Ok(own)
    }

    fn is_wanted(&self, program: &OsStr) -> bool {
        // As cargo calls its subcommands.
        let subcommand = self.name.strip_prefix("cargo-").unwrap_or(self.name);
        let mut command = Command::new(program);
        command.args([subcommand, "--version"]);
        shell::output(self.name, &mut command)
            .is_ok_and(|text| text.split_whitespace().any(|word| word == self.version))
    }

    fn install(&self, into: &Path) -> Result<(), Error> {
        // Optimized, it takes three times as long to make, to be a second faster. Nobody debugs it.
        let mut command = workspace::cargo(&["install", "--debug", "--locked", "--quiet"]);
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        command.args(["--version", self.version]);
        command.args(self.features.iter().flat_map(|name| ["--features", name]));
        command.arg("--root").arg(into).arg(self.name);
        shell::output(&format!("cargo install {}", self.name), &mut command).map(drop)
    }
}
