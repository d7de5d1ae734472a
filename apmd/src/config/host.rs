// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds the names in a configuration against what this host has.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

use cm_msgs::control::Placement;
use nix::unistd::Group;
use statemachine::Origin;

use super::Config;
use super::check::Wrongs;
use super::control::EVERYBODY;
use super::finding::near_word;

/// The kernel's RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";

/// Of what there is nothing, or nothing good.
#[derive(Default)]
pub(super) struct Absent {
    pub(super) errors: Wrongs,
    /// What may come later, or is done without.
    pub(super) warnings: Wrongs,
}

impl Absent {
    /// `is_named` says whether the files name a key of a section: a default that is not there is
    /// done without.
    pub(super) fn of(config: &Config, is_named: impl Fn(&str, &str) -> bool) -> Self {
        let mut absent = Self::default();
        absent.devices(&config.devices);
        if let Placement::Prefer(port) = config.policy.default.policy.placement {
            absent.port(Path::new(DEVICES), port.get());
        }
        if is_named("control", "group") && config.control.group != EVERYBODY {
            absent.group(&config.control.group);
        }
        let has_static = config.source.has(Origin::Static);
        let fixed = has_static.then_some(config.fixed.file.as_path());
        for (section, key, path) in [
            ("ssa", "snapshot", Some(config.ssa.snapshot.as_path())),
            ("ssa", "risks", Some(config.ssa.risks.as_path())),
            ("static", "file", fixed),
            ("neigh", "file", Some(config.neigh.file.as_path())),
        ] {
            if let Some(path) =
                path.filter(|path| !path.as_os_str().is_empty() && is_named(section, key))
            {
                absent.file(section, key, path);
            }
        }
        absent
    }

    fn devices(&mut self, wanted: &[String]) {
        let entries = fs::read_dir(DEVICES);
        let entries = entries.into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let there: Vec<_> = names.collect();
        for name in wanted.iter().filter(|name| !there.contains(name)) {
            let near = near_word(name, there.iter().map(String::as_str));
            let what = format!("no device is called \"{name}\" now{near}");
            self.warnings.of("").refuse("devices", what);
        }
    }

    /// A port that connections are to go back to. A device that has it may come later.
    fn port(&mut self, devices: &Path, port: u8) {
        let entries = fs::read_dir(devices).into_iter().flatten().flatten();
        let has_it = |device: &Path| device.join("ports").join(port.to_string()).exists();
        let mut devices = entries.map(|entry| entry.path()).peekable();
        if devices.peek().is_some() && !devices.any(|device| has_it(&device)) {
            let what =
                format!("failback prefer {port}: no device of this host has a port {port} now");
            self.warnings.of("policy").refuse("default", what);
        }
    }

    fn group(&mut self, name: &str) {
        let what = match Group::from_name(name) {
            Ok(Some(_)) => return,
            Ok(None) => format!("there is no group \"{name}\""),
            Err(error) => format!("group \"{name}\": {error}"),
        };
        self.errors.of("control").refuse("group", what);
    }

    /// A file that may be written later, but must be a readable one if it is there.
    fn file(&mut self, section: &'static str, key: &'static str, path: &Path) {
        let Err(error) = open(path) else {
            return;
        };
        let wrongs = match error.kind() {
            ErrorKind::NotFound => &mut self.warnings,
            _ => &mut self.errors,
        };
        wrongs
            .of(section)
            .refuse(key, format!("{}: {error}", path.display()));
    }
}

fn open(path: &Path) -> io::Result<File> {
    match fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::other("no regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preferred_port_that_no_device_has_is_warned_of() {
        let sysfs = std::env::temp_dir().join(format!("apmd-ports-{}", std::process::id()));
        let warns = |port| {
            let mut absent = Absent::default();
            absent.port(&sysfs, port);
            !absent.warnings.into_found().is_empty()
        };
        assert!(!warns(7), "there is no device yet");
        for device in ["mlx5_0/ports/1", "mlx5_1/ports/1", "mlx5_1/ports/2"] {
            fs::create_dir_all(sysfs.join(device)).unwrap();
        }
        let found = [1, 2, 7].map(warns);
        fs::remove_dir_all(&sysfs).unwrap();
        assert_eq!(found, [false, false, true]);
    }
}
