// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the dynamic linker will load a library into a program that is about to be run.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use elf::ElfStream;
use elf::abi::{DT_NEEDED, PT_INTERP};
use elf::endian::NativeEndian;
use elf::file::Class;
use nix::unistd::{AccessFlags, Uid, access, getegid, geteuid};

/// Where the kernel looks for what a file may do beyond its user's rights.
const FILE_CAPABILITIES: &str = "security.capability";

/// Why nothing can be loaded into `program`, as far as its file tells.
pub(super) fn obstacle(program: &OsStr) -> Option<String> {
    let path = find(program)?;
    let path = interpreter(&path).unwrap_or(path);
    let why = with_more_rights(&path).or_else(|| without_dynamic_linker(&path))?;
    Some(format!("{} {why}", path.display()))
}

/// The libraries that `program` is linked with, as it names them; none where that cannot be read.
pub(super) fn needed(program: &OsStr) -> Vec<String> {
    let of_file = |path: &Path| {
        let mut file = ElfStream::<NativeEndian, _>::open_stream(File::open(path).ok()?).ok()?;
        let dynamic = file.dynamic().ok()??;
        let names: Vec<_> = dynamic
            .iter()
            .filter(|entry| entry.d_tag == DT_NEEDED)
            .map(|entry| entry.d_val())
            .collect();
        let (_, strings) = file.dynamic_symbol_table().ok()??;
        let names = names
            .into_iter()
            .filter_map(|at| strings.get(usize::try_from(at).ok()?).ok());
        Some(names.map(str::to_owned).collect())
    };
    let path = find(program).map(|path| interpreter(&path).unwrap_or(path));
    path.and_then(|path| of_file(&path)).unwrap_or_default()
}

/// The file that would be executed.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = env::var_os("PATH")?;
    let mut files = env::split_paths(&path).map(|directory| directory.join(program));
    files.find(|file| file.is_file() && access(file, AccessFlags::X_OK).is_ok())
}

/// Of a script, the program that reads it.
fn interpreter(path: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    let mut file = BufReader::new(File::open(path).ok()?);
    file.read_until(b'\n', &mut line).ok()?;
    let words = line.strip_prefix(b"#!")?.trim_ascii();
    let name = words.split(u8::is_ascii_whitespace).next()?;
    Some(OsStr::from_bytes(name).into())
}

/// The dynamic linker ignores LD_PRELOAD in programs with other rights than their caller's.
fn with_more_rights(path: &Path) -> Option<&'static str> {
    const SET_USER_ID: u32 = 0o4000;
    /// Without the right to execute, the bit means something else.
    const SET_GROUP_ID: u32 = 0o2010;
    let metadata = fs::metadata(path).ok()?;
    let has = |bits| metadata.mode() & bits == bits;
    if has(SET_USER_ID) && metadata.uid() != geteuid().as_raw() {
        return Some("is set-user-ID");
    }
    if has(SET_GROUP_ID) && metadata.gid() != getegid().as_raw() {
        return Some("is set-group-ID");
    }
    let capabilities = xattr::get_deref(path, FILE_CAPABILITIES).ok()?;
    (capabilities.is_some() && !Uid::current().is_root()).then_some("has file capabilities")
}

fn without_dynamic_linker(path: &Path) -> Option<&'static str> {
    let file = ElfStream::<NativeEndian, _>::open_stream(File::open(path).ok()?).ok()?;
    if (file.ehdr.class == Class::ELF32) != cfg!(target_pointer_width = "32") {
        return Some("is of another word size than the library");
    }
    let mut segments = file.segments().iter();
    let dynamic = segments.any(|segment| segment.p_type == PT_INTERP);
    (!dynamic).then_some("is linked statically")
}
