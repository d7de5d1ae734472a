// SPDX-License-Identifier: MIT OR Apache-2.0
//! The root directory of another release of Debian, made by debootstrap from the mirror that this machine's apt uses.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::namespace;
use crate::apt::{self, Suites};
use crate::error::{Error, InFile};
use crate::{packages, shell};

/// What cargo needs to build this program there: a linker, and certificates to fetch crates. This program installs the
/// rest.
const PACKAGES: &str = "ca-certificates,gcc,libc6-dev";

/// Packages ask this before they start their services, OpenSM among them: nothing is to be started there.
const NO_SERVICES: &str = "#!/bin/sh\nexit 101\n";

/// Returns the root directory of `suites` below `dir`, made if it is not there.
pub(super) fn provide(suites: &Suites, dir: &Path) -> Result<PathBuf, Error> {
    let root = dir.join("root");
    if root.is_dir() {
        return Ok(root);
    }
    packages::install(packages::ELSEWHERE)?;
    let unfinished = dir.join("root.new");
    remove(&unfinished)?;
    shell::progress(&format!("making a root of Debian {}", suites.main));
    let mut debootstrap = namespace::command();
    debootstrap
        .args(["debootstrap", "--variant=minbase"])
        .arg(format!("--include={PACKAGES}"))
        .arg(format!("--keyring={}", apt::KEYRING))
        .arg(suites.main)
        .arg(&unfinished)
        .arg(apt::main_mirror()?);
    shell::output(&format!("debootstrap {}", suites.main), &mut debootstrap)?;
    configure(&unfinished, suites)?;
    fs::rename(&unfinished, &root).in_file(&root)?;
    Ok(root)
}

/// Has apt there fetch as it does on this machine, and no service started.
fn configure(root: &Path, suites: &Suites) -> Result<(), Error> {
    let of_debootstrap = root.join("etc/apt/sources.list");
    fs::remove_file(&of_debootstrap).in_file(&of_debootstrap)?;
    let write = |place: &str, text: &str| {
        let path = root.join(place);
        fs::write(&path, text).in_file(&path).map(|()| path)
    };
    write(
        "etc/apt/sources.list.d/debian.sources",
        &apt::machine_sources(suites)?,
    )?;
    write("etc/apt/apt.conf.d/50machine", &apt::machine_acquire()?)?;
    let policy = write("usr/sbin/policy-rc.d", NO_SERVICES)?;
    fs::set_permissions(&policy, fs::Permissions::from_mode(0o755)).in_file(&policy)
}

/// Removes what a killed debootstrap has left. Nothing is mounted there unless somebody else did it; then nothing is
/// removed, since it may be anything.
fn remove(directory: &Path) -> Result<(), Error> {
    if !directory.exists() {
        return Ok(());
    }
    let path = directory.canonicalize().in_file(directory)?;
    let table = Path::new("/proc/self/mountinfo");
    let mounts = fs::read_to_string(table).in_file(table)?;
    if let Some(mount) = mount_below(&mounts, &path) {
        return Err(Error::Other(format!(
            "cannot remove {}: {mount} is mounted; unmount it",
            path.display()
        )));
    }
    let mut rm = Command::new("rm");
    rm.args(["-r", "--one-file-system", "--"]).arg(&path);
    shell::output(&format!("removing {}", path.display()), &mut rm).map(drop)
}

/// The first mount at `directory` or below it. (The table has spaces and the like as octal numbers: such a path of ours
/// is in the same form first.)
fn mount_below<'a>(mountinfo: &'a str, directory: &Path) -> Option<&'a str> {
    let mut directory = directory.to_string_lossy().into_owned();
    for (character, octal) in [('\\', "\\134"), (' ', "\\040"), ('\t', "\\011")] {
        directory = directory.replace(character, octal);
    }
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    points
        .into_iter()
        .find(|point| Path::new(point).starts_with(&directory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elsewhere::may_mount;

    #[test]
    fn mounts_at_a_directory_and_below_are_found() {
        let table = "22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n\
                     30 22 0:5 / /a/root.new/dev rw - devtmpfs none rw\n\
                     31 22 0:5 / /a\\040b/root.new rw - tmpfs none rw\n";
        let of = |path| mount_below(table, Path::new(path));
        assert_eq!(of("/a/root.new"), Some("/a/root.new/dev"));
        assert_eq!(of("/a/root.new/dev"), Some("/a/root.new/dev"));
        assert_eq!(of("/a b/root.new"), Some("/a\\040b/root.new"));
        assert_eq!(of("/a/root"), None);
        assert_eq!(of("/b"), None);
    }

    /// A mount below the root may be anybody's: a killed debootstrap leaves none, since its mounts are in a namespace of its own.
    #[test]
    fn nothing_is_removed_below_which_something_is_mounted() {
        let directory = tempfile::tempdir().expect("a directory");
        let [theirs, root] = ["theirs", "root"].map(|name| directory.path().join(name));
        fs::create_dir(&theirs).expect("made");
        fs::write(theirs.join("file"), "").expect("written");
        fs::create_dir_all(root.join("work")).expect("made");
        if may_mount() {
            let mount = |program: &str, paths: &[&Path]| {
                let mut command = Command::new(program);
                if program == "mount" {
                    command.arg("--bind");
                }
                let status = command.args(paths).status().expect("it starts");
                assert!(status.success());
            };
            mount("mount", &[&theirs, &root.join("work")]);
            let refused = remove(&root);
            let is_there = theirs.join("file").exists();
            mount("umount", &[&root.join("work")]);
            assert!(is_there);
            let text = refused.expect_err("refused").to_string();
            assert!(
                text.ends_with("/root/work is mounted; unmount it"),
                "{text}"
            );
        }
        remove(&root).expect("nothing is mounted any more");
        assert!(!root.exists() && theirs.join("file").exists());
    }

    #[test]
    fn the_root_gets_this_machines_sources_and_no_services() {
        let root = tempfile::tempdir().expect("a directory");
        let path = |place: &str| root.path().join(place);
        for directory in ["etc/apt/sources.list.d", "etc/apt/apt.conf.d", "usr/sbin"] {
            fs::create_dir_all(path(directory)).expect("made");
        }
        fs::write(path("etc/apt/sources.list"), "deb http://a.example b c\n").expect("written");
        configure(root.path(), &apt::TRIXIE.own).expect("written");
        assert!(!path("etc/apt/sources.list").exists());
        let sources = fs::read_to_string(path("etc/apt/sources.list.d/debian.sources"));
        let sources = sources.expect("written");
        assert!(sources.contains("\nSuites: trixie\n"), "{sources}");
        assert!(sources.contains("\nSuites: trixie-security\n"), "{sources}");
        let policy = Command::new(path("usr/sbin/policy-rc.d")).status();
        assert_eq!(policy.expect("it starts").code(), Some(101));
    }
}
