// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of a newer Debian's kernel build, run on this one: they want a newer C library than this machine has, so
//! each is run with that release's own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::apt::Apt;
use crate::error::{Error, InFile};

/// What a module's build runs and is linked with the newer library, below the directory of the kernel's build programs.
/// All others do with an older one, or are scripts.
const PROGRAMS: [&str; 2] = [
    "scripts/mod/modpost.real-lsb-64",
    "tools/objtool/objtool.real-x86",
];

/// Where the C library is, below the kernel's directory.
const LIBC: &str = "libc";

/// Stands in a program's place. Both are five directories below the kernel's.
const STAND_IN: &str = r#"#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
libc=$here/../../../../../libc/usr/lib/x86_64-linux-gnu
exec "$libc/ld-linux-x86-64.so.2" --library-path "$libc" "$here/$(basename "$0").elf" "$@"
"#;

/// Unpacks the C library of `apt`'s release below `dir`, and has the programs of `kbuild` (a directory of
/// `dir/usr/lib`) run with it.
pub(super) fn bring_libc(
    apt: &Apt,
    dir: &Path,
    kbuild: &str,
    download: &Path,
) -> Result<(), Error> {
    apt.unpack("libc6", &["./usr/lib"], &dir.join(LIBC), download)?;
    for program in PROGRAMS {
        let program = dir.join("usr/lib").join(kbuild).join(program);
        let mut real = program.clone().into_os_string();
        real.push(".elf");
        fs::rename(&program, &real).in_file(&program)?;
        fs::write(&program, STAND_IN).in_file(&program)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).in_file(&program)?;
    }
    Ok(())
}
