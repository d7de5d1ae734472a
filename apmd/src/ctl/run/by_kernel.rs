// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the kernel module will manage a program that is about to be run.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::getuid;

use super::super::ask::ask;
use super::super::{Failure, Options};
use crate::io::apm_module::{Process, Rule};
use crate::observe::model::{self, ModuleState};
use crate::observe::request::Show;

/// Whether the daemon says so; who may not ask it is told nothing.
pub(super) fn protects(options: &Options, program: &Path) -> bool {
    let status: Result<model::Status, Failure> = ask(options, Show::Status);
    status.is_ok_and(|status| {
        let kernel = &status.kernel;
        kernel.state == ModuleState::Loaded
            && kernel.protect == "all"
            && !is_left_alone(&kernel.except, program, is_of_host())
    })
}

/// Whether this process knows users and cgroups by the names that rules have.
fn is_of_host() -> bool {
    FIRST_NAMESPACES
        .iter()
        .all(|(path, inode)| fs::metadata(path).is_ok_and(|seen| seen.ino() == *inode))
}

/// The host's own namespaces (`include/linux/proc_ns.h`): in others, users and cgroups have other names than in rules.
const FIRST_NAMESPACES: [(&str, u64); 2] = [
    ("/proc/self/ns/cgroup", 0xefff_fffb),
    ("/proc/self/ns/user", 0xefff_fffd),
];

/// As the module will see it: by the name of its file, and by what it inherits. Where that is not known, any rule of users
/// or cgroups may fit.
fn is_left_alone(except: &[String], program: &Path, is_of_host: bool) -> bool {
    let command = program.file_name().unwrap_or_default().to_string_lossy();
    let of_self = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let process = Process {
        command: &command,
        uid: getuid().as_raw(),
        cgroup: v2(&of_self),
    };
    except.iter().any(|owner| match owner.parse::<Rule>() {
        Ok(Rule::Uid(_) | Rule::Cgroup(_)) if !is_of_host => true,
        Ok(rule) => rule.fits(&process),
        Err(_) => false,
    })
}

/// The path in the hierarchy of version 2 (cgroups(7)).
fn v2(cgroups: &str) -> &str {
    let paths = cgroups.lines();
    let mut of_v2 = paths.filter_map(|line| line.strip_prefix("0::"));
    of_v2.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_is_that_of_version_2() {
        assert_eq!(v2("1:name=systemd:/a\n0::/user.slice/b\n"), "/user.slice/b");
        assert_eq!(v2("1:cpu:/a\n"), "");
    }

    #[test]
    fn a_program_is_known_by_its_files_name_and_by_its_user() {
        let uid = format!("uid:{}", getuid());
        let another = "uid:4294967294";
        let left_alone = |except: &str, is_of_host| {
            is_left_alone(
                &[except.to_owned()],
                Path::new("/usr/bin/rping"),
                is_of_host,
            )
        };
        for (except, on_host, in_container) in [
            ("rping", true, true),
            ("ping", false, false),
            (&uid, true, true),
            (another, false, true),
            ("cgroup:/none", false, true),
        ] {
            assert_eq!(left_alone(except, true), on_host, "{except}");
            assert_eq!(left_alone(except, false), in_container, "{except}");
        }
    }
}
