// SPDX-License-Identifier: MIT OR Apache-2.0
//! The VM's user space: this machine's Debian programs, with the libraries they load.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, InFile};
use crate::fingerprint::Fingerprint;
use crate::{artefacts, shell};

/// Which programs of a package the VM gets.
enum Programs {
    All,
    Only(&'static [&'static str]),
}

const PACKAGES: &[(&str, Programs)] = &[
    ("bash", Programs::Only(&["bash"])),
    ("busybox-static", Programs::Only(&["busybox"])),
    ("coreutils", Programs::Only(&["nice"])),
    ("fio", Programs::Only(&["fio"])),
    ("ibacm", Programs::All),
    ("ibverbs-utils", Programs::All),
    ("infiniband-diags", Programs::All),
    ("iproute2", Programs::Only(&["ip", "rdma", "ss", "tc"])),
    (
        "kmod",
        Programs::Only(&[
            "kmod", "insmod", "lsmod", "modinfo", "modprobe", "rmmod", "depmod",
        ]),
    ),
    ("libfabric-bin", Programs::Only(&["fi_info", "fi_pingpong"])),
    ("nfs-common", Programs::Only(&["mount.nfs", "mount.nfs4"])),
    (
        "nfs-kernel-server",
        Programs::Only(&["exportfs", "rpc.mountd"]),
    ),
    ("nvme-cli", Programs::Only(&["nvme"])),
    ("openmpi-bin", Programs::Only(&["orted", "orterun"])),
    ("opensm", Programs::Only(&["opensm", "osmtest"])),
    ("perftest", Programs::All),
    ("qperf", Programs::All),
    ("rdmacm-utils", Programs::All),
    (
        "ucx-utils",
        Programs::Only(&["io_demo", "ucx_info", "ucx_perftest"]),
    ),
    ("util-linux", Programs::Only(&["setpriv"])),
    ("valgrind", Programs::Only(&["valgrind.bin"])),
];

/// What is loaded by name at run time, so that no program's list of libraries shows it, and data. A `*` stands for what
/// each release of Debian has otherwise: a version, or where terminals are described.
const LOADED_BY_NAME: &[&str] = &[
    "/etc/libibverbs.d/hfi1verbs.driver",
    "/etc/libibverbs.d/rxe.driver",
    "/usr/lib/x86_64-linux-gnu/ibacm/libibacmp.so",
    "/usr/lib/x86_64-linux-gnu/libibverbs/libhfi1verbs-rdmav*.so",
    "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so",
    "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so",
    "/usr/lib/x86_64-linux-gnu/libgcc_s.so.1",
    "/usr/libexec/valgrind/default.supp",
    "/usr/libexec/valgrind/memcheck-amd64-linux",
    "/usr/libexec/valgrind/vgpreload_core-amd64-linux.so",
    "/usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so",
    "/usr/*/terminfo/d/dumb",
    "/usr/*/terminfo/l/linux",
    "/usr/*/terminfo/s/screen",
    "/usr/*/terminfo/s/screen-256color",
    "/usr/*/terminfo/t/tmux-256color",
    "/usr/*/terminfo/v/vt100",
    "/usr/*/terminfo/v/vt220",
    "/usr/*/terminfo/x/xterm",
    "/usr/*/terminfo/x/xterm-256color",
];

/// The loader. Valgrind replaces functions in it that only its symbols name.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Directories of which all is loaded by name.
const DIRECTORIES: &[&str] = &[
    "/etc/openmpi",
    "/usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi[0-9]*",
    "/usr/lib/x86_64-linux-gnu/pmix[0-9]*/lib/pmix",
    "/usr/lib/x86_64-linux-gnu/ucx",
    "/usr/share/openmpi",
];

/// The place in the VM of a file of this machine: without the leading slash, and below `usr` as
/// Debian's merged root has it.
pub(crate) fn place(path: &Path) -> String {
    let name = path.to_string_lossy();
    let name = name.trim_start_matches('/');
    let first = name.split('/').next().unwrap_or_default();
    match first {
        "bin" | "sbin" | "lib" | "lib64" => format!("usr/{name}"),
        _ => name.to_owned(),
    }
}

/// The programs and files of the VM that come from Debian packages, without shared libraries.
pub(crate) fn files() -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for pattern in LOADED_BY_NAME {
        files.extend(matching(pattern)?);
    }
    files.push(symbols_of(LOADER)?);
    for pattern in DIRECTORIES {
        for directory in matching(pattern)? {
            add_files_below(&directory, &mut files)?;
        }
    }
    for (package, programs) in PACKAGES {
        let what = format!("dpkg-query --listfiles {package}");
        let listing = shell::output(
            &what,
            Command::new("dpkg-query").args(["--listfiles", package]),
        )?;
        files.extend(
            listing
                .lines()
                .map(PathBuf::from)
                .filter(|path| is_wanted_program(path, programs) && can_run(path)),
        );
    }
    Ok(files)
}

/// Returns this machine's files that match `pattern`. Fails if there is none.
pub(crate) fn matching(pattern: &str) -> Result<Vec<PathBuf>, Error> {
    let paths = glob::glob(pattern).map_err(|error| Error::Other(format!("{pattern}: {error}")))?;
    let found: Vec<_> = paths.flatten().collect();
    if found.is_empty() {
        return Err(Error::Other(format!(
            "{pattern}: no such file on this machine, where Debian's packages have one"
        )));
    }
    Ok(found)
}

/// Where libc6-dbg has the symbols of a file of the C library: below its build ID.
fn symbols_of(path: &str) -> Result<PathBuf, Error> {
    let what = format!("readelf --notes {path}");
    let notes = shell::output(&what, Command::new("readelf").args(["--notes", path]))?;
    let id = notes
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "));
    let parts = id.and_then(|id| id.split_at_checked(2));
    let (first, rest) = parts.ok_or_else(|| Error::Other(format!("{what}: no build ID")))?;
    Ok(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug").into())
}

fn add_files_below(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    for entry in fs::read_dir(directory).in_file(directory)? {
        let entry = entry.in_file(directory)?;
        if entry.file_type().in_file(directory)?.is_dir() {
            add_files_below(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn is_wanted_program(path: &Path, programs: &Programs) -> bool {
    let in_bin = path
        .parent()
        .is_some_and(|dir| dir.ends_with("bin") || dir.ends_with("sbin"));
    in_bin
        && match programs {
            Programs::All => true,
            Programs::Only(names) => path
                .file_name()
                .is_some_and(|name| names.iter().any(|wanted| name == *wanted)),
        }
}

/// Machine code or a shell script: there is no Perl or Python in the VM.
fn can_run(path: &Path) -> bool {
    let mut start = [0; 12];
    let read = fs::File::open(path)
        .and_then(|mut file| file.read(&mut start))
        .unwrap_or(0);
    let start = &start[..read];
    [b"\x7fELF".as_slice(), b"#!/bin/sh", b"#!/bin/bash"]
        .iter()
        .any(|kind| start.starts_with(kind))
}

/// Whether the file is machine code.
pub(crate) fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    fs::File::open(path)
        .and_then(|mut file| file.read_exact(&mut magic))
        .is_ok()
        && magic == *b"\x7fELF"
}

/// Every shared library that `programs` load, by the path at which the loader looks for it. It is remembered in the file
/// `known`, since ldd starts the loader some hundred times.
pub(crate) fn libraries(programs: &[&Path], known: &Path) -> Result<BTreeSet<PathBuf>, Error> {
    let text = fs::read_to_string(known).unwrap_or_default();
    let (then, listing) = text.split_once('\n').unwrap_or_default();
    let paths = library_paths(listing);
    if fingerprint(programs, &paths).to_string() == then {
        return Ok(paths);
    }
    let listing = ldd(programs)?;
    let paths = library_paths(&listing);
    let text = format!("{}\n{listing}", fingerprint(programs, &paths));
    fs::write(known, text).in_file(known)?;
    Ok(paths)
}

/// Of programs and of what they load: that may need something else some day, too.
fn fingerprint(programs: &[&Path], libraries: &BTreeSet<PathBuf>) -> Fingerprint {
    let mut fingerprint = Fingerprint::default();
    let libraries = libraries.iter().map(PathBuf::as_path);
    let all = programs.iter().copied().chain(libraries);
    all.for_each(|path| fingerprint.add_file(path));
    fingerprint
}

fn ldd(programs: &[&Path]) -> Result<String, Error> {
    // ldd fails when one of the files is statically linked; what it says of the others counts.
    let done = Command::new("ldd")
        .args(programs)
        .output()
        .map_err(|source| Error::Start {
            program: "ldd".to_owned(),
            source,
        })?;
    let listing = String::from_utf8_lossy(&done.stdout).into_owned();
    let missing = |line: &&str| line.contains("not found") && !artefacts::is_own_library(line);
    if let Some(line) = listing.lines().find(missing) {
        return Err(Error::Other(format!(
            "shared library missing: {}",
            line.trim()
        )));
    }
    Ok(listing)
}

fn library_paths(listing: &str) -> BTreeSet<PathBuf> {
    listing
        .lines()
        .filter(|line| line.starts_with(char::is_whitespace))
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect()
}

/// The names under which busybox can be called.
pub(crate) fn busybox_applets() -> Result<Vec<String>, Error> {
    let listing = shell::output("busybox --list", Command::new("busybox").arg("--list"))?;
    Ok(listing.lines().map(str::to_owned).collect())
}

/// Where a symbolic link among the programs points, if it is one.
pub(crate) fn link_target(path: &Path) -> Result<Option<String>, Error> {
    let metadata = fs::symlink_metadata(path).in_file(path)?;
    if !metadata.is_symlink() {
        return Ok(None);
    }
    let target = fs::read_link(path).in_file(path)?;
    Ok(Some(target.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_the_merged_root() {
        assert_eq!(
            place(Path::new("/lib64/ld-linux-x86-64.so.2")),
            "usr/lib64/ld-linux-x86-64.so.2"
        );
        assert_eq!(place(Path::new("/sbin/ip")), "usr/sbin/ip");
        assert_eq!(place(Path::new("/etc/protocols")), "etc/protocols");
    }

    #[test]
    fn a_file_is_found_whatever_its_version_and_missed_if_there_is_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().join("libhfi1verbs-rdmav57.so");
        fs::write(&place, "").expect("written");
        let pattern = format!("{}/libhfi1verbs-rdmav*.so", directory.path().display());
        assert_eq!(matching(&pattern).expect("found"), [place]);
        let pattern = format!("{}/librxe-rdmav*.so", directory.path().display());
        let text = matching(&pattern).expect_err("missing").to_string();
        assert!(text.starts_with(&pattern), "{text}");
    }

    #[test]
    fn ldd_output_gives_paths() {
        let listing = "/usr/bin/ibstat:\n\tlinux-vdso.so.1 (0x1)\n\tlibibumad.so.3 => /lib/x/libibumad.so.3 (0x2)\n\t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        let paths = library_paths(listing);
        assert_eq!(paths.len(), 2);
        assert!(paths.contains(Path::new("/lib/x/libibumad.so.3")));
    }

    #[test]
    fn the_loader_is_not_asked_again_for_what_is_known() {
        let directory = tempfile::tempdir().expect("a directory");
        let known = directory.path().join("libraries");
        let of = |programs: &[&str]| {
            let programs: Vec<_> = programs.iter().map(Path::new).collect();
            libraries(&programs, &known).expect("they have libraries")
        };
        let shell = of(&["/bin/bash"]);
        assert!(shell.iter().any(|path| path.ends_with("libc.so.6")));
        let remembered = || fs::read_to_string(&known).expect("it is remembered");
        fs::write(&known, format!("{}\tmark\n", remembered())).expect("written");
        assert_eq!(of(&["/bin/bash"]), shell);
        assert!(remembered().ends_with("\tmark\n"));
        fs::write(&known, remembered().replace("libc.so.6", "libc.so.7")).expect("written");
        assert_eq!(of(&["/bin/bash"]), shell, "one that is not there");
        let with_another = format!("{}\t/bin/true (0x1)\n", remembered());
        fs::write(&known, with_another).expect("written");
        assert_eq!(of(&["/bin/bash"]), shell, "one that is not loaded");
        let both = of(&["/bin/bash", "/usr/bin/gcc"]);
        assert!(both.is_superset(&shell) && !remembered().contains("mark"));
    }
}
