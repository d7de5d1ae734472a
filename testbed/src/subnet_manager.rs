// SPDX-License-Identifier: MIT OR Apache-2.0
//! The VM's subnet managers: the OpenSM that the VM started, and a second one that can take over.
//! Both are on the last HCA, which is no host's.

use std::fs;
use std::io;
use std::time::Duration;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use crate::clock::Moment;
use crate::command;
use crate::failure::{Failure, ensure};
use crate::file;
use crate::host::Host;
use crate::port::Port;
use crate::program::Program;
use crate::timeline::Timeline;

const CONFIG: &str = "/etc/opensm/opensm.conf";
/// Which LIDs it has given to which ports.
const LIDS: &str = "/var/cache/opensm/guid2lid";
const DEVICES: &str = "/sys/class/infiniband";
const STANDBY_DIR: &str = "/run/drill/opensm";

/// Bound for a subnet manager's change of state.
const LIMIT: Duration = Duration::from_secs(60);

/// How the second one finds out soon that the first is dead: it asks every second, and three times.
const SOON: &str = "sminfo_polling_timeout 1000\npolling_retry_number 2\n\
                    log_file /var/log/opensm-standby.log\n";

/// Kills the subnet manager that the VM started as `kill -9` does; returns when.
///
/// # Errors
/// If there is none.
pub fn kill(timeline: &Timeline) -> Result<Moment, Failure> {
    let managers = daemons().map_err(|source| Failure::File {
        path: "/proc".to_owned(),
        source,
    })?;
    ensure(!managers.is_empty(), || {
        "no OpenSM to kill: it has ended by itself".to_owned()
    })?;
    let at = Moment::now();
    for pid in managers {
        signal::kill(pid, Signal::SIGKILL).map_err(|errno| Failure::Start {
            command: format!("kill -9 {pid}"),
            source: errno.into(),
        })?;
    }
    timeline.note_at(at, "opensm", "killed with -9");
    Ok(at)
}

/// Starts the VM's subnet manager again as the VM did.
///
/// # Errors
/// If it does not start.
pub fn start(timeline: &Timeline) -> Result<(), Failure> {
    let guid = port_guid(1)?;
    command::run(&["opensm", "-F", CONFIG, "-g", &guid, "-B"])?;
    timeline.note("opensm", "started again");
    Ok(())
}

/// Writes into OpenSM's memory, while it does not run, that the port is to have a LID that is nobody's;
/// which. For ports with one LID.
///
/// # Errors
/// If OpenSM has not given the port one.
pub fn assign_new_lid(port: Port) -> Result<u16, Failure> {
    let guid = port.guid()?;
    let failure = |source| Failure::File {
        path: LIDS.to_owned(),
        source,
    };
    let text = fs::read_to_string(LIDS).map_err(failure)?;
    // GUID, first LID, last LID
    let highest = text.split_whitespace().filter_map(|word| {
        let number = word.strip_prefix("0x").filter(|digits| digits.len() < 16)?;
        u16::from_str_radix(number, 16).ok()
    });
    let lid = highest.max().unwrap_or(0) + 1;
    let (others, known): (Vec<_>, Vec<_>) = text.lines().partition(|line| !line.starts_with(&guid));
    ensure(known.len() == 1, || {
        format!("{LIDS} has {} lines of {port}", known.len())
    })?;
    let line = format!("{guid} {lid:#06x} {lid:#06x}");
    file::write(LIDS, &format!("{}\n{line}\n", others.join("\n")))?;
    Ok(lid)
}

/// A second subnet manager; killed when dropped.
pub struct Standby {
    program: Program,
}

impl Standby {
    /// Starts it at the other port, and waits until it stands by.
    ///
    /// # Errors
    /// If it does not.
    pub fn start(timeline: &Timeline) -> Result<Self, Failure> {
        let path = write_config()?;
        let cache = format!("OSM_CACHE_DIR={STANDBY_DIR}");
        let shared = timeline.clone();
        let words = ["env", &cache, "opensm", "-F", &path, "-g", &port_guid(2)?];
        let program = Program::start_watched("second OpenSM", Host::B, &words, move |line| {
            if line.text.contains("Entering") || line.text.contains("SUBNET UP") {
                shared.note_at(line.at, "opensm 2", line.text.trim());
            }
        })?;
        let mut standby = Self { program };
        standby.wait_for("STANDBY")?;
        Ok(standby)
    }

    /// Waits until it is the master; returns when it was.
    ///
    /// # Errors
    /// If it does not become that.
    pub fn wait_master(&mut self) -> Result<Moment, Failure> {
        self.wait_for("MASTER")
    }

    fn wait_for(&mut self, state: &str) -> Result<Moment, Failure> {
        let says = format!("Entering {state} state");
        let line = self
            .program
            .wait_for_line(&says, LIMIT, |line| line.contains(&says))?;
        Ok(line.at)
    }

    /// Ends it.
    ///
    /// # Errors
    /// If it does not end.
    pub fn stop(mut self) -> Result<(), Failure> {
        self.program.signal(Signal::SIGTERM)?;
        self.program.wait(LIMIT).map(drop)
    }
}

fn write_config() -> Result<String, Failure> {
    let path = format!("{STANDBY_DIR}/opensm.conf");
    let write = || {
        fs::create_dir_all(STANDBY_DIR)?;
        let config = fs::read_to_string(CONFIG)?;
        let kept = config.lines().filter(|line| !line.starts_with("log_file"));
        let kept: Vec<_> = kept.collect();
        fs::write(&path, format!("{}\n{SOON}", kept.join("\n")))
    };
    write().map_err(|source| Failure::File {
        path: path.clone(),
        source,
    })?;
    Ok(path)
}

/// The GUID of a port of the last HCA, as OpenSM's files have it.
pub(crate) fn port_guid(port: u8) -> Result<String, Failure> {
    let failure = |source| Failure::File {
        path: DEVICES.to_owned(),
        source,
    };
    let devices: Result<Vec<_>, _> = fs::read_dir(DEVICES).map_err(failure)?.collect();
    let devices = devices.map_err(failure)?;
    let last = devices
        .iter()
        .map(fs::DirEntry::path)
        .max_by_key(|path| (path.as_os_str().len(), path.clone()))
        .ok_or_else(|| failure(io::ErrorKind::NotFound.into()))?;
    let gid = fs::read_to_string(last.join(format!("ports/{port}/gids/0"))).map_err(failure)?;
    let groups: Vec<_> = gid.trim().split(':').skip(4).collect();
    Ok(format!("0x{}", groups.concat()))
}

/// The processes of OpenSM that run as daemons: children of process 1.
fn daemons() -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let pid = path
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        let (Some(pid), Ok(stat)) = (pid, fs::read_to_string(path.join("stat"))) else {
            continue;
        };
        // PID (COMMAND) STATE PARENT ...
        let daemon = stat.split_once(") ").is_some_and(|(name, rest)| {
            name.ends_with("(opensm") && rest.split(' ').nth(1) == Some("1")
        });
        if daemon {
            found.push(Pid::from_raw(pid));
        }
    }
    Ok(found)
}
