// SPDX-License-Identifier: MIT OR Apache-2.0
//! What both servers know before they start: this host's port, and destinations that exist in two
//! files only, in ibacm's own formats.

use std::fmt::Write;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use cm_msgs::{Gid, Guid, Lid};

use crate::command;
use crate::failure::Failure;
use crate::host::Host;

/// Where the files are.
pub(super) const DIRECTORY: &str = "/run/acm-bench";

/// Addresses are of this network; this host's is the first.
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 0);
const PREFIX_LEN: u8 = 16;

/// LIDs from here on belong to no port of the VM.
const FIRST_LID: u16 = 0x1000;

/// IBA codes: 4096 bytes, 100 Gb/s.
pub(super) const MTU: u8 = 5;
pub(super) const RATE: u8 = 16;

/// A port: of this host, or one that only the files know.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) ip: Ipv4Addr,
    pub(super) gid: Gid,
    pub(super) lid: Lid,
}

/// What both servers know.
pub(super) struct Preload {
    pub(super) here: End,
    pub(super) destinations: Vec<End>,
}

fn ip(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(NETWORK) + number)
}

impl Preload {
    /// Gives this host's first port an address and writes the files.
    pub(super) fn provide(count: u16) -> Result<Self, Failure> {
        let here = local_end()?;
        let prefix = here.gid.subnet_prefix();
        let destination = |number: u16| End {
            ip: ip(u32::from(number) + 2),
            gid: Gid::new(prefix, Guid(0x0002_c903_0000_0000 + u64::from(number))),
            lid: Lid(FIRST_LID + number),
        };
        let preload = Self {
            here,
            destinations: (0..count).map(destination).collect(),
        };
        write(&routes_file(), &preload.routes())?;
        write(&hosts_file(), &preload.hosts())?;
        Ok(preload)
    }

    /// `opensm_full_v1`, as the OpenSM plugin dump_pr writes it: every port, and below this
    /// host's the way to each other one.
    fn routes(&self) -> String {
        let mut text = String::new();
        let mut line = |end: &End, name: &str| {
            let (guid, lid) = (end.gid.interface_id().0, end.lid);
            let _ = writeln!(
                text,
                "Channel Adapter {guid:#018x}, base LID {lid}, \"{name}\", port 1"
            );
        };
        for (number, end) in self.destinations.iter().enumerate() {
            line(end, &format!("there-{number}"));
        }
        line(&self.here, "here");
        for end in &self.destinations {
            let _ = writeln!(text, "{:#06X} : 0 : {MTU} : {RATE}", end.lid.0);
        }
        text
    }

    /// `ibacm_hosts.data`: addresses and GIDs.
    fn hosts(&self) -> String {
        let lines = self.destinations.iter();
        lines
            .map(|end| format!("{} {}\n", end.ip, end.gid))
            .collect()
    }
}

pub(super) fn routes_file() -> PathBuf {
    Path::new(DIRECTORY).join("ibacm_route.data")
}

pub(super) fn hosts_file() -> PathBuf {
    Path::new(DIRECTORY).join("ibacm_hosts.data")
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |source| Failure::File {
        path: path.display().to_string(),
        source,
    };
    fs::create_dir_all(DIRECTORY).map_err(failed)?;
    fs::write(path, text).map_err(failed)
}

fn read(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path).map_err(|source| Failure::File {
        path: path.display().to_string(),
        source,
    })?;
    Ok(text.trim().to_owned())
}

/// The first port of host-a's HCA, with an address on its IPoIB interface.
fn local_end() -> Result<End, Failure> {
    let port = format!("/sys/class/infiniband/{}/ports/1", Host::A.device());
    let port = Path::new(&port);
    let wrong = |what: &str, text: &str| Failure::Output {
        source_name: port.display().to_string(),
        problem: format!("{what} {text:?}"),
    };
    let text = read(&port.join("gids/0"))?;
    let gid: Gid = text.parse().map_err(|_| wrong("gid", &text))?;
    let text = read(&port.join("lid"))?;
    let lid = u16::from_str_radix(text.trim_start_matches("0x"), 16);
    let lid = Lid(lid.map_err(|_| wrong("lid", &text))?);
    let address = ip(1);
    let interface = interface_of(gid)?.ok_or_else(|| wrong("no interface with gid", &text))?;
    let with_prefix = format!("{address}/{PREFIX_LEN}");
    command::run(&["ip", "address", "replace", &with_prefix, "dev", &interface])?;
    Ok(End {
        ip: address,
        gid,
        lid,
    })
}

/// The IPoIB interface of the port with this GID: its hardware address ends with it.
fn interface_of(gid: Gid) -> Result<Option<String>, Failure> {
    let directory = Path::new("/sys/class/net");
    let failed = |source| Failure::File {
        path: directory.display().to_string(),
        source,
    };
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let address = read(&entry.path().join("address"))?;
        let bytes = address.split(':').map(|byte| u8::from_str_radix(byte, 16));
        let bytes: Vec<u8> = bytes.map_while(Result::ok).collect();
        if bytes.len() == 20 && bytes.ends_with(&gid.0) {
            return Ok(Some(entry.file_name().to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}
