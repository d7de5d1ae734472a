// SPDX-License-Identifier: MIT OR Apache-2.0
//! apmd as its systemd unit starts it, in a VM without systemd: user, group, capabilities, umask,
//! limits and niceness as the files of `apmd/dist` name them, the devices as its udev rule gives them away, and the
//! links of its tmpfiles.
//!
//! What only systemd can do is not there: system call filter, address families, file systems.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use crate::failure::Failure;
use crate::host::Host;

const SERVICE: &str = include_str!("../../apmd/dist/apmd.service");
const DROP_IN: &str = include_str!("../../apmd/dist/apmd-acm.conf");
const TMPFILES: &str = include_str!("../../apmd/dist/apmd-acm.tmpfiles");
const RULES: &str = include_str!("../../apmd/dist/60-apmd.rules");
const SYSUSERS: &str = include_str!("../../apmd/dist/apmd.sysusers");
const DOCUMENTATION: &str = include_str!("../../docs/acm.md");

/// The number of a system user that the VM does not have yet.
const USER_ID: u32 = 997;

/// What a daemon may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// Everything.
    Root,
    /// What `apmd.service` allows.
    Unit,
    /// That, and what `apmd-acm.conf` adds.
    UnitForAcm,
}

/// The section of the configuration that docs/acm.md wants with [`Rights::UnitForAcm`].
pub fn acm_section() -> &'static str {
    let block = DOCUMENTATION.split("```toml\n").nth(1).unwrap_or_default();
    block.split("```").next().unwrap_or_default()
}

/// What units say of how a process is started.
#[derive(Debug, PartialEq, Eq)]
struct Unit {
    user: String,
    group: String,
    bounding: Vec<String>,
    ambient: Vec<String>,
    umask: String,
    open_files: String,
    niceness: String,
    runtime_mode: u32,
}

impl Unit {
    /// From a unit and its drop-ins, in their order.
    fn parse(texts: &[&str]) -> Option<Self> {
        let one = |key| values(texts, key).last().map(|value| (*value).to_owned());
        Some(Self {
            user: one("User")?,
            group: one("Group")?,
            bounding: words(texts, "CapabilityBoundingSet"),
            ambient: words(texts, "AmbientCapabilities"),
            umask: one("UMask")?,
            open_files: one("LimitNOFILE")?,
            niceness: one("Nice")?,
            runtime_mode: u32::from_str_radix(&one("RuntimeDirectoryMode")?, 8).ok()?,
        })
    }

    /// The words before a command line that give it these rights.
    fn launch(&self) -> Vec<String> {
        let limits = format!(
            "umask {} && ulimit -n {} && exec \"$@\"",
            self.umask, self.open_files
        );
        let ambient = capabilities(&self.ambient);
        let words = [
            // Not busybox's shell, which would call its own setpriv.
            "bash",
            "-c",
            &limits,
            "sh",
            "nice",
            "-n",
            &self.niceness,
            "setpriv",
            "--no-new-privs",
            &format!("--reuid={}", self.user),
            &format!("--regid={}", self.group),
            "--clear-groups",
            &format!("--inh-caps={ambient}"),
            &format!("--ambient-caps={ambient}"),
            &format!("--bounding-set={}", capabilities(&self.bounding)),
        ];
        words.map(str::to_owned).to_vec()
    }

    /// What the kernel says of a process that was started so.
    fn status(&self, (user, group): (u32, u32)) -> Result<Vec<String>, Failure> {
        let mut lines = vec![
            format!("Uid:\t{user}\t{user}\t{user}\t{user}"),
            format!("Gid:\t{group}\t{group}\t{group}\t{group}"),
            "NoNewPrivs:\t1".to_owned(),
            format!("CapBnd:\t{}", capability_set(&self.bounding)?),
        ];
        let ambient = capability_set(&self.ambient)?;
        lines.extend(["Inh", "Prm", "Eff", "Amb"].map(|set| format!("Cap{set}:\t{ambient}")));
        Ok(lines)
    }
}

/// The values of all assignments to `key`.
fn values<'a>(texts: &[&'a str], key: &str) -> Vec<&'a str> {
    let lines = texts.iter().flat_map(|text| text.lines());
    let values = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.map(str::trim).collect()
}

/// The words of a list: assignments add to it, and an empty one empties it.
fn words(texts: &[&str], key: &str) -> Vec<String> {
    values(texts, key).iter().fold(Vec::new(), |mut all, more| {
        if more.is_empty() {
            all.clear();
        }
        all.extend(more.split_whitespace().map(str::to_owned));
        all
    })
}

/// These capabilities and no other, as setpriv wants them.
fn capabilities(names: &[String]) -> String {
    let names = names.iter().map(|name| {
        let name = name.trim_start_matches("CAP_").to_ascii_lowercase();
        format!(",+{name}")
    });
    format!("-all{}", names.collect::<String>())
}

/// The capabilities that units name, by their number (linux/capability.h).
const CAPABILITIES: [(&str, u32); 2] = [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13)];

/// The set of these capabilities, as `/proc/PID/status` has it.
fn capability_set(names: &[String]) -> Result<String, Failure> {
    let mut set = 0_u64;
    for name in names {
        let known = CAPABILITIES.iter().find(|(known, _)| known == name);
        let (_, bit) = known.ok_or_else(|| Failure::not_shown(format!("{name}: its number?")))?;
        set |= 1 << bit;
    }
    Ok(format!("{set:016x}"))
}

/// A process's rights as they have been prepared; what was put into `/run` for them goes when this is
/// dropped.
pub struct Prepared {
    launch: Vec<String>,
    status: Vec<String>,
    links: Vec<String>,
}

impl Prepared {
    /// Makes what a package and systemd would: the user, the daemon's directories, the devices'
    /// owners, the links.
    ///
    /// # Errors
    /// If the files of `apmd/dist` do not say how, or it cannot be done.
    pub fn new(rights: Rights, host: Host) -> Result<Self, Failure> {
        let texts: &[&str] = match rights {
            Rights::Root => return Ok(Self::root()),
            Rights::Unit => &[SERVICE],
            Rights::UnitForAcm => &[SERVICE, DROP_IN],
        };
        let unit = Unit::parse(texts)
            .ok_or_else(|| Failure::not_shown("apmd.service lacks a setting of the user's"))?;
        add_user(&unit.user)?;
        let owner = (USER_ID, group_id(&unit.group)?);
        let mut prepared = Self {
            launch: unit.launch(),
            status: unit.status(owner)?,
            links: Vec::new(),
        };
        give(host.runtime_dir(), owner, Some(unit.runtime_mode))?;
        for directory in words(texts, "StateDirectory") {
            give(&format!("/var/lib/{directory}"), owner, None)?;
        }
        give_devices(&unit.user)?;
        if rights == Rights::UnitForAcm {
            prepared.link()?;
        }
        Ok(prepared)
    }

    fn root() -> Self {
        Self {
            launch: Vec::new(),
            status: Vec::new(),
            links: Vec::new(),
        }
    }

    /// The words to put before a command line.
    pub fn launch(&self) -> &[String] {
        &self.launch
    }

    /// Lines that `/proc/PID/status` has for these rights.
    pub fn status(&self) -> &[String] {
        &self.status
    }

    /// The links of the tmpfiles, in place of whatever has their names.
    fn link(&mut self) -> Result<(), Failure> {
        for line in TMPFILES.lines().filter(|line| line.starts_with("L+ ")) {
            let fields: Vec<_> = line.split_whitespace().collect();
            let [_, path, _, _, _, _, target] = fields[..] else {
                return Err(Failure::not_shown(format!("apmd-acm.tmpfiles: {line}")));
            };
            remove(path)?;
            symlink(target, path).map_err(|source| failure(path, source))?;
            self.links.push(path.to_owned());
        }
        Ok(())
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        for link in &self.links {
            // Nothing can be done about one that cannot be removed.
            drop(fs::remove_file(link));
        }
    }
}

fn failure(path: impl AsRef<Path>, source: io::Error) -> Failure {
    Failure::File {
        path: path.as_ref().display().to_string(),
        source,
    }
}

fn remove(path: &str) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failure(path, error)),
        _ => Ok(()),
    }
}

/// The user of the sysusers file, as a line of the passwd file.
fn add_user(name: &str) -> Result<(), Failure> {
    const PASSWD: &str = "/etc/passwd";
    let wanted = format!("u {name} ");
    if !SYSUSERS.lines().any(|line| line.starts_with(&wanted)) {
        return Err(Failure::not_shown(format!("apmd.sysusers makes no {name}")));
    }
    let text = fs::read_to_string(PASSWD).map_err(|source| failure(PASSWD, source))?;
    if text
        .lines()
        .any(|line| line.starts_with(&format!("{name}:")))
    {
        return Ok(());
    }
    let line = format!("{name}:x:{USER_ID}:65534::/:/usr/sbin/nologin\n");
    fs::write(PASSWD, text + &line).map_err(|source| failure(PASSWD, source))
}

/// The number of a group.
///
/// # Errors
/// If there is none of this name.
pub fn group_id(name: &str) -> Result<u32, Failure> {
    const GROUP: &str = "/etc/group";
    let text = fs::read_to_string(GROUP).map_err(|source| failure(GROUP, source))?;
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{name}:")));
    let number = line.and_then(|line| line.split(':').nth(2)?.parse().ok());
    number.ok_or_else(|| Failure::not_shown(format!("there is no group {name}")))
}

/// Makes a directory, if there is none, and gives it away.
fn give(path: &str, (user, group): (u32, u32), mode: Option<u32>) -> Result<(), Failure> {
    fs::create_dir_all(path)
        .and_then(|()| chown(path, Some(user), Some(group)))
        .and_then(|()| match mode {
            Some(mode) => fs::set_permissions(path, fs::Permissions::from_mode(mode)),
            None => Ok(()),
        })
        .map_err(|source| failure(path, source))
}

/// Gives the devices of the udev rule to whom it names, which has to be the unit's user.
fn give_devices(user: &str) -> Result<(), Failure> {
    const DEVICES: &str = "/dev/infiniband";
    let wrong = || Failure::not_shown(format!("60-apmd.rules does not give devices to {user}"));
    let rule = RULES.lines().find(|line| line.starts_with("SUBSYSTEM=="));
    let value = |key: &str| {
        let (_, rest) = rule?.split_once(&format!("{key}\""))?;
        rest.split('"').next()
    };
    let kernel = value("KERNEL==").and_then(|name| name.strip_suffix('*'));
    let (kernel, group) = (
        kernel.ok_or_else(wrong)?,
        value("GROUP=").ok_or_else(wrong)?,
    );
    let mode = value("MODE=").and_then(|mode| u32::from_str_radix(mode, 8).ok());
    let (mode, group) = (mode.ok_or_else(wrong)?, group_id(group)?);
    if value("OWNER=") != Some(user) {
        return Err(wrong());
    }
    for entry in fs::read_dir(DEVICES).map_err(|source| failure(DEVICES, source))? {
        let path = entry.map_err(|source| failure(DEVICES, source))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with(kernel)) {
            chown(&path, Some(USER_ID), Some(group))
                .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
                .map_err(|source| failure(&path, source))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_units_grow_and_are_emptied() {
        let texts = ["Key=a b\nKeys=x\nKey=c\n", "[Service]\nKey=d\n"];
        assert_eq!(words(&texts, "Key"), ["a", "b", "c", "d"]);
        assert_eq!(words(&["Key=a\nKey=\nKey=b\n"], "Key"), ["b"]);
    }

    #[test]
    fn capabilities_are_as_setpriv_wants_them() {
        let names = ["CAP_NET_ADMIN".to_owned(), "CAP_NET_RAW".to_owned()];
        assert_eq!(capabilities(&names), "-all,+net_admin,+net_raw");
        assert_eq!(capabilities(&[]), "-all");
    }

    #[test]
    fn the_shipped_files_say_what_is_needed() {
        let alone = Unit::parse(&[SERVICE]).expect("all settings are there");
        assert_eq!(alone.bounding, [""; 0]);
        let unit = Unit::parse(&[SERVICE, DROP_IN]).expect("all settings are there");
        assert_eq!(unit.bounding, unit.ambient);
        assert!(!unit.ambient.is_empty());
        assert!(acm_section().contains("serve = true"), "{}", acm_section());
    }
}
