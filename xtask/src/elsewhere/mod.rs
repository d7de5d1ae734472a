// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask elsewhere`: runs a command of `cargo xtask` on another release of Debian, in a root directory of it.

mod namespace;
mod root;

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};

use crate::apt::{BOOKWORM, Suites, TRIXIE};
use crate::error::{Error, InFile};
use crate::{shell, workspace};

/// What enters the root directory.
const ENTER: &str = include_str!("enter.sh");

/// Where Debian has programs.
const DEBIAN_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the help says besides.
const HELP: &str = "\
It needs root. The root directory of the release is made by debootstrap, once, below target/elsewhere; what the
command builds and fetches is there, too. The sources are in their place, read-only; the network, cargo's directory
and Rust are this machine's. Nothing stays mounted when the command ends or is killed.";

/// What the command line says.
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// The release
    #[arg(value_enum)]
    suite: Suite,
    /// Without `cargo xtask`: `drill`, `vm --check`. Files that it names are below the sources
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<String>,
}

/// Releases of Debian on which the project is to work.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Debian 12
    Bookworm,
    /// Debian 13
    Trixie,
}

impl Suite {
    fn suites(self) -> &'static Suites {
        match self {
            Self::Bookworm => &BOOKWORM.own,
            Self::Trixie => &TRIXIE.own,
        }
    }
}

impl Options {
    /// The command that is to run there.
    pub(crate) fn command(&self) -> impl Iterator<Item = &str> {
        self.command.iter().map(String::as_str)
    }
}

/// `cargo xtask elsewhere`.
pub(crate) fn run(options: &Options) -> Result<u8, Error> {
    if !is_root() {
        return Err(Error::Other(
            "cannot make and enter another root directory: this needs root; run it as root"
                .to_owned(),
        ));
    }
    let suites = options.suite.suites();
    let dir = workspace::target().join("elsewhere").join(suites.main);
    let place = Place::provide(suites, &dir)?;
    let _lock = place.lock()?;
    let mut command = place.enter();
    command.args(["cargo", "xtask"]).args(&options.command);
    let status = command.status().map_err(|source| Error::Start {
        program: "setpriv".to_owned(),
        source,
    })?;
    // Without a status it was killed by a signal.
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1))
}

fn is_root() -> bool {
    shell::output("id", Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// What is brought into the root directory, where it is here.
struct Place {
    dir: PathBuf,
    root: PathBuf,
    /// What stands in the place of the sources' `target` there.
    target: PathBuf,
    cargo_home: PathBuf,
    toolchain: PathBuf,
}

impl Place {
    fn provide(suites: &Suites, dir: &Path) -> Result<Self, Error> {
        let target = dir.join("target");
        // The latter is where the former is seen.
        for new in [&target, &workspace::root().join("target")] {
            fs::create_dir_all(new).in_file(new)?;
        }
        let toolchain = toolchain()?;
        let cargo_home = cargo_home()?;
        let dir = dir.canonicalize().in_file(dir)?;
        let made = File::create(dir.join("made")).in_file(&dir)?;
        made.lock().in_file(&dir)?;
        let root = root::provide(suites, &dir)?;
        Ok(Self {
            target: dir.join("target"),
            dir,
            root,
            cargo_home,
            toolchain,
        })
    }

    /// One command at a time: processes are told apart by numbers, which each has of its own there.
    fn lock(&self) -> Result<File, Error> {
        let path = self.dir.join("lock");
        let file = File::create(&path).in_file(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(Error::Other(format!(
                "another command runs in {}; wait for its end",
                self.root.display()
            ))),
            Err(TryLockError::Error(error)) => Err(error).in_file(&path),
        }
    }

    /// A command line to which the program and its arguments are added.
    fn enter(&self) -> Command {
        let mut command = namespace::command();
        command.args(["sh", "-c", ENTER, "enter"]);
        command.arg(&self.root).arg(workspace::root());
        command.args([&self.target, &self.cargo_home, &self.toolchain]);
        let kept = std::env::vars_os().filter(|(name, _)| is_kept(&name.to_string_lossy()));
        command.env_clear().envs(kept);
        command.env("HOME", "/root").env("LANG", "C.UTF-8");
        command.env("CARGO_HOME", &self.cargo_home);
        let programs = self.toolchain.join("bin");
        command.env("PATH", format!("{}:{DEBIAN_PATH}", programs.display()));
        command
    }
}

/// Whether a variable is passed on: the terminal's, proxies and their certificates, cargo's settings. All others describe
/// this machine, or the cargo that runs this program.
fn is_kept(variable: &str) -> bool {
    const SETTINGS: &[&str] = &["CARGO_BUILD_", "CARGO_HTTP_", "CARGO_NET_", "CARGO_TERM_"];
    variable == "TERM"
        || variable == "SSL_CERT_FILE"
        || variable == "no_proxy"
        || variable.to_ascii_lowercase().ends_with("_proxy")
        || SETTINGS.iter().any(|start| variable.starts_with(start))
}

/// The directory of this machine's Rust, which is not Debian's.
fn toolchain() -> Result<PathBuf, Error> {
    let sysroot = shell::output(
        "rustc --print sysroot",
        Command::new("rustc").args(["--print", "sysroot"]),
    )?;
    let sysroot = PathBuf::from(sysroot.trim_end());
    if sysroot.starts_with("/usr") && !sysroot.starts_with("/usr/local") {
        return Err(Error::Other(format!(
            "cannot take the Rust of {} to another release: it is this release's; install it by rustup",
            sysroot.display()
        )));
    }
    sysroot.canonicalize().in_file(&sysroot)
}

/// Where cargo keeps crates.
fn cargo_home() -> Result<PathBuf, Error> {
    let of_user = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"));
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home
        .or_else(of_user)
        .ok_or_else(|| Error::Other("cannot find cargo's directory: set CARGO_HOME".to_owned()))?;
    fs::create_dir_all(&home).in_file(&home)?;
    home.canonicalize().in_file(&home)
}

/// Whether a test can mount; one that must and cannot fails.
#[cfg(test)]
fn may_mount() -> bool {
    let required = std::env::var_os("APMD_REQUIRE_ROOT").is_some_and(|value| value == "1");
    assert!(is_root() || !required, "this test needs root");
    is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_those_of_this_machine_and_the_rest_is_not() {
        for kept in [
            "http_proxy",
            "HTTPS_PROXY",
            "TERM",
            "CARGO_NET_OFFLINE",
            "SSL_CERT_FILE",
        ] {
            assert!(is_kept(kept), "{kept}");
        }
        for dropped in ["CARGO_TARGET_DIR", "LD_LIBRARY_PATH", "RUSTUP_HOME", "PATH"] {
            assert!(!is_kept(dropped), "{dropped}");
        }
    }
}
