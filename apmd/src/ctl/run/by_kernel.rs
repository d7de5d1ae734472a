// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the kernel module will look after a program that is about to be run.

use std::fs;
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
            && !is_left_alone(&kernel.except, program)
    })
}

/// As the module will see it: by the name of its file, and by what it inherits.
fn is_left_alone(except: &[String], program: &Path) -> bool {
    let command = program.file_name().unwrap_or_default().to_string_lossy();
    let of_self = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let process = Process {
        command: &command,
        uid: getuid().as_raw(),
        cgroup: v2(&of_self),
    };
    let fits = |owner: &String| owner.parse().is_ok_and(|rule: Rule| rule.fits(&process));
    except.iter().any(fits)
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
        for (except, is) in [
            ("rping", true),
            ("ping", false),
            (&uid, true),
            ("cgroup:/none", false),
        ] {
            let left_alone = is_left_alone(&[except.to_owned()], Path::new("/usr/bin/rping"));
            assert_eq!(left_alone, is, "{except}");
        }
    }
}
