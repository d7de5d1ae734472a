// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of a newer Debian's kernel build, run on this one. Those that want a newer C library than this machine has are
//! run with that release's own.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, InFile};
use crate::userland;

/// Where the C library is, below the kernel's directory.
const LIBC: &str = "libc";

/// Has the programs in `kbuild`, a directory of `dir`, run here: has the C library of their release unpacked into a
/// directory below `dir` if one of them wants it.
pub(super) fn make_runnable(
    dir: &Path,
    kbuild: &Path,
    unpack_libc: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut programs = Vec::new();
    find_programs(kbuild, &mut programs)?;
    let ldd = Command::new("ldd")
        .args(&programs)
        .output()
        .map_err(|source| Error::Start {
            program: "ldd".to_owned(),
            source,
        })?;
    let said = [ldd.stdout, ldd.stderr].concat();
    let newer = want_newer_libc(&String::from_utf8_lossy(&said));
    if newer.is_empty() {
        return Ok(());
    }
    unpack_libc(&dir.join(LIBC))?;
    for program in newer {
        replace(&program, dir)?;
    }
    Ok(())
}

fn find_programs(directory: &Path, programs: &mut Vec<PathBuf>) -> Result<(), Error> {
    for entry in fs::read_dir(directory).in_file(directory)? {
        let entry = entry.in_file(directory)?;
        let path = entry.path();
        if entry.file_type().in_file(&path)?.is_dir() {
            find_programs(&path, programs)?;
        } else if userland::is_elf(&path) {
            programs.push(path);
        }
    }
    Ok(())
}

/// The programs that this machine's C library is too old for, as ldd says it.
fn want_newer_libc(ldd: &str) -> BTreeSet<PathBuf> {
    let about_libc = ldd
        .lines()
        .filter(|line| line.contains("version `GLIBC_") && line.contains("not found"));
    about_libc
        .filter_map(|line| {
            let (_, program) = line.split_once("(required by ")?;
            Some(PathBuf::from(program.strip_suffix(')')?))
        })
        .collect()
}

/// Puts a script in the place of a program below `dir` that runs it with the C library there. The directory may be moved.
fn replace(program: &Path, dir: &Path) -> Result<(), Error> {
    let mut real = program.to_path_buf().into_os_string();
    real.push(".elf");
    fs::rename(program, &real).in_file(program)?;
    fs::write(program, stand_in(program, dir)).in_file(program)?;
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).in_file(program)
}

fn stand_in(program: &Path, dir: &Path) -> String {
    let below = program.strip_prefix(dir).unwrap_or(program);
    let up = "/..".repeat(below.components().count().saturating_sub(1));
    format!(
        r#"#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
libc=$here{up}/{LIBC}/usr/lib/x86_64-linux-gnu
exec "$libc/ld-linux-x86-64.so.2" --library-path "$libc" "$here/$(basename "$0").elf" "$@"
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_want_a_newer_c_library_are_known_by_what_ldd_says() {
        let said = "/k/modpost:\n\tlibc.so.6 => /lib/x/libc.so.6 (0x1)\n/k/sign-file:\n\
                    \tlibcrypto.so.3 => not found\n\
                    /k/modpost: /lib/x/libc.so.6: version `GLIBC_2.38' not found (required by /k/modpost)\n\
                    /k/modpost: /lib/x/libc.so.6: version `GLIBC_2.37' not found (required by /k/modpost)\n";
        assert!(want_newer_libc(said).iter().eq([Path::new("/k/modpost")]));
        assert!(want_newer_libc("/k/modpost:\n\tlibc.so.6 => /lib/x/libc.so.6 (0x1)\n").is_empty());
    }

    /// With this machine's C library in the place of a newer one.
    #[test]
    fn a_program_with_a_c_library_beside_it_runs_wherever_both_are() {
        let place = tempfile::tempdir().expect("a directory");
        let dir = place.path().join("kernel");
        let libraries = dir.join(LIBC).join("usr/lib/x86_64-linux-gnu");
        let program = dir.join("usr/lib/linux-kbuild-7/scripts/mod/dirname");
        for (from, to) in [
            (
                "/lib64/ld-linux-x86-64.so.2",
                libraries.join("ld-linux-x86-64.so.2"),
            ),
            (
                "/lib/x86_64-linux-gnu/libc.so.6",
                libraries.join("libc.so.6"),
            ),
            ("/usr/bin/dirname", program.clone()),
        ] {
            fs::create_dir_all(to.parent().expect("one")).expect("made");
            fs::copy(from, to).expect("copied");
        }
        replace(&program, &dir).expect("replaced");
        let moved = place.path().join("moved");
        fs::rename(&dir, &moved).expect("renamed");
        let program = moved.join(program.strip_prefix(&dir).expect("below"));
        let done = Command::new(program)
            .arg("/a/b")
            .output()
            .expect("it starts");
        assert_eq!(String::from_utf8_lossy(&done.stdout), "/a\n");
    }
}
