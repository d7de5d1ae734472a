// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Debian packages that each command needs, and their installation.

use std::collections::BTreeSet;
use std::process::Command;

use crate::error::Error;
use crate::shell;

/// What the crates with C below them need to build: headers, a linker, and libclang for bindgen.
pub(crate) const BUILD: &[&str] = &[
    "gcc",
    "libc6-dev",
    "libclang-dev",
    "libibverbs-dev",
    "librdmacm-dev",
    "pkg-config",
];

/// What the VM is made of and run by.
pub(crate) const VM: &[&str] = &[
    "bash",
    "busybox-static",
    "fio",
    "gcc",
    "ibacm",
    "ibverbs-providers",
    "ibverbs-utils",
    "infiniband-diags",
    "iproute2",
    "kmod",
    "libc6-dbg",
    "libc6-dev",
    "libibverbs-dev",
    "librdmacm-dev",
    "libfabric-bin",
    "libopenmpi-dev",
    "libucx-dev",
    "linux-headers-amd64",
    "make",
    "ncurses-base",
    "nfs-common",
    "nfs-kernel-server",
    "nvme-cli",
    "openmpi-bin",
    "opensm",
    "perftest",
    "qemu-system-x86",
    "qperf",
    "rdma-core",
    "rdmacm-utils",
    "tar",
    "ucx-utils",
    "util-linux",
    "valgrind",
];

/// What the tests need besides.
pub(crate) const TEST: &[&str] = &["tshark"];

/// What checks the kernel modules' C.
pub(crate) const SPARSE: &[&str] = &["sparse"];

/// What compiles the kernel module for other architectures.
pub(crate) const CROSS: &[&str] = &["gcc-aarch64-linux-gnu", "gcc-powerpc64le-linux-gnu", "make"];

/// What runs the kernel's generator for netlink specifications.
pub(crate) const YNL: &[&str] = &[
    "python3",
    "python3-jsonschema",
    "python3-yaml",
    "tar",
    "xz-utils",
];

/// What builds the checking kernel.
pub(crate) const KERNEL: &[&str] = &[
    "bc",
    "bison",
    "flex",
    "gcc",
    "libc6-dev",
    "libelf-dev",
    "make",
    "tar",
    "xz-utils",
];

/// What simulates fabrics.
pub(crate) const FABRICS: &[&str] = &["ibsim-utils", "opensm", "util-linux"];

/// What the codecs are measured against.
pub(crate) const CODEC: &[&str] = &["libibmad-dev"];

/// What makes the root directory of another release.
pub(crate) const ELSEWHERE: &[&str] = &["debian-archive-keyring", "debootstrap", "util-linux"];

/// Everything that is for this machine's own release.
pub(crate) fn all() -> Vec<&'static str> {
    let every: BTreeSet<_> = [BUILD, VM, TEST, SPARSE, CROSS, FABRICS, CODEC]
        .concat()
        .into_iter()
        .collect();
    every.into_iter().collect()
}

/// Those of `wanted` that `listing` (lines of "name status") does not show as installed.
fn lacking<'a>(wanted: &[&'a str], listing: &str) -> Vec<&'a str> {
    let installed: BTreeSet<&str> = listing
        .lines()
        .filter_map(|line| line.strip_suffix(" installed"))
        .collect();
    wanted
        .iter()
        .copied()
        .filter(|name| !installed.contains(name))
        .collect()
}

fn missing<'a>(wanted: &[&'a str]) -> Result<Vec<&'a str>, Error> {
    // dpkg-query fails when it knows one of the names not at all: its output counts all the same.
    let listing = Command::new("dpkg-query")
        .args(["-W", "-f", "${Package} ${db:Status-Status}\n"])
        .args(wanted)
        .output()
        .map_err(|source| Error::Start {
            program: "dpkg-query".to_owned(),
            source,
        })?;
    Ok(lacking(wanted, &String::from_utf8_lossy(&listing.stdout)))
}

/// The command line that runs `apt-get` as root, or nothing if there is no way to.
fn apt_get() -> Option<Command> {
    let id = Command::new("id").arg("-u").output().ok()?;
    let mut command = if id.stdout == b"0\n" {
        Command::new("apt-get")
    } else {
        let sudo = Command::new("sudo").args(["-n", "true"]).output().ok()?;
        if !sudo.status.success() {
            return None;
        }
        let mut command = Command::new("sudo");
        command.args(["-n", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        command
    };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    Some(command)
}

fn apt_install(packages: &[&str]) -> Option<Command> {
    let mut command = apt_get()?;
    command
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(packages);
    Some(command)
}

/// Installs those of `wanted` that are missing.
pub(crate) fn install(wanted: &[&str]) -> Result<(), Error> {
    let missing = missing(wanted)?;
    if missing.is_empty() {
        return Ok(());
    }
    let (Some(mut first), Some(mut update), Some(mut again)) =
        (apt_install(&missing), apt_get(), apt_install(&missing))
    else {
        return Err(Error::Packages(missing.join(" ")));
    };
    shell::progress(&format!("installing {}", missing.join(" ")));
    if shell::output("apt-get install", &mut first).is_ok() {
        return Ok(());
    }
    // The package lists are absent or older than the archive.
    shell::output("apt-get update", update.args(["update", "-qq"]))?;
    shell::output("apt-get install", &mut again).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lacking_names_what_is_absent_or_only_configured() {
        let listing = "gcc installed\nopensm config-files\nperftest not-installed\n";
        assert_eq!(
            lacking(&["gcc", "opensm", "perftest", "kmod"], listing),
            ["opensm", "perftest", "kmod"]
        );
    }

    #[test]
    fn all_has_each_package_once() {
        let all = all();
        assert_eq!(all.len(), all.iter().collect::<BTreeSet<_>>().len());
        assert!(all.contains(&"libclang-dev") && all.contains(&"opensm"));
    }

    /// Each release of Debian has other versions, and names packages by them.
    #[test]
    fn no_name_has_a_version_that_a_release_decides() {
        const NO_VERSIONS: &[&str] = &[
            "gcc-aarch64-linux-gnu",
            "gcc-powerpc64le-linux-gnu",
            "iproute2",
            "libc6-dbg",
            "libc6-dev",
            "linux-headers-amd64",
            "qemu-system-x86",
        ];
        for name in [&all(), KERNEL, ELSEWHERE].concat() {
            let has_digit = name.contains(|c: char| c.is_ascii_digit());
            assert!(!has_digit || NO_VERSIONS.contains(&name), "{name}");
        }
    }
}
