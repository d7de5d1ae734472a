// SPDX-License-Identifier: MIT OR Apache-2.0
//! The QEMU that VMs run under: the installed one, or where that is too old the one of backports, unpacked
//! and not installed.
//!
//! Before 8.1 a virtual processor could go on with translated code that another had overwritten in the meantime
//! (fixed by "accel/tcg: Always lock pages before translation",
//! <https://github.com/ClangBuiltLinux/boot-utils/issues/111>). Linux patches its own code while it runs, at static
//! keys, tracepoints and probes, by a breakpoint instruction that is there for a moment: a processor that keeps that
//! moment's translation stands still for ever.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{Apt, Release};
use crate::error::{Error, InFile};
use crate::shell;

/// The program's name; the package's is not the same.
const PROGRAM: &str = "qemu-system-x86_64";

/// The packages with the program and its firmware; what they need besides is what the release's own need.
const PACKAGES: &[&str] = &["qemu-system-data", "seabios", "qemu-system-x86"];

/// The first version with the fix.
const LEAST: (u32, u32) = (8, 1);

/// Returns the program to run, fetched below `vm_dir` unless it is there or the installed one will do. Of the
/// unpacked one the firmware is found relative to the program.
pub(crate) fn provide(vm_dir: &Path) -> Result<PathBuf, Error> {
    if version_of(Path::new(PROGRAM)).is_some_and(|version| version >= LEAST) {
        return Ok(PROGRAM.into());
    }
    let dir = vm_dir.join("qemu");
    let program = dir.join("usr/bin").join(PROGRAM);
    if version_of(&program).is_none() {
        unpack(&dir, vm_dir)?;
    }
    match version_of(&program) {
        Some(version) if version >= LEAST => Ok(program),
        found => Err(Error::Other(format!(
            "{}: version {found:?} is older than {LEAST:?} or does not start; install QEMU {}.{} or newer",
            program.display(),
            LEAST.0,
            LEAST.1
        ))),
    }
}

/// The program's package is the last one, so that a run that was killed is seen.
fn unpack(dir: &Path, vm_dir: &Path) -> Result<(), Error> {
    if dir.exists() {
        fs::remove_dir_all(dir).in_file(dir)?;
    }
    let backports = &Release::of_machine()?.backports;
    let apt = Apt::of_suites(backports, &vm_dir.join("apt").join(backports.main))?;
    for package in PACKAGES {
        let version = apt.field(package, "Version")?;
        shell::progress(&format!("fetching {package} {version}"));
        let exact = format!("{package}={version}");
        apt.unpack(&exact, &["./usr"], dir, &vm_dir.join("download"))?;
    }
    Ok(())
}

fn version_of(program: &Path) -> Option<(u32, u32)> {
    let done = Command::new(program).arg("--version").output().ok()?;
    version(&String::from_utf8_lossy(&done.stdout))
}

/// Major and minor version in the first line of what `--version` prints.
fn version(text: &str) -> Option<(u32, u32)> {
    let after = text.lines().next()?.split_once("version ")?.1;
    let mut parts = after.split(|letter: char| !letter.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_12s_own_is_too_old_and_debian_13s_is_not() {
        let of = |line| version(line).is_some_and(|version| version >= LEAST);
        assert!(!of(
            "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b2)\nCopyright"
        ));
        assert!(of(
            "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2+deb13u1~bpo12+1)\nCopyright"
        ));
        assert!(!of("QEMU emulator version 8.0.4\n"));
        assert!(of("QEMU emulator version 8.1.0\n"));
        assert!(!of(""));
    }
}
