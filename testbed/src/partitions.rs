// SPDX-License-Identifier: MIT OR Apache-2.0
//! The partitions that the VM's subnet manager makes, and the P_Key tables that come of them.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use crate::command;
use crate::failure::Failure;
use crate::file;
use crate::host::Host;
use crate::port::Port;
use crate::timeline::Timeline;
use crate::wait::{self, Seen};

/// Where OpenSM looks for them.
const CONFIG: &str = "/etc/opensm/partitions.conf";

/// Hosts are limited members of the default partition, as where they are to be kept apart: they hear the
/// subnet manager there, and not each other.
const DEFAULT: &str =
    "Default=0x7fff, ipoib, defmember=limited : ALL=limited, ALL_SWITCHES=full, SELF=full;\n";

/// A limited member's P_Key of the default partition, and a full one's. The latter is what OpenSM gives to
/// all without a file.
const LIMITED: u16 = 0x7fff;
const WHOLE: u16 = 0xffff;

/// Bound for the subnet manager to write the tables.
const LIMIT: Duration = Duration::from_secs(60);

/// A port's table is read so far: more partitions than a drill makes.
const TABLE: u16 = 8;

/// Bit 15 of a P_Key: full membership.
const FULL: u16 = 0x8000;

/// A partition with full members, and IPoIB in it.
pub struct Partition {
    name: &'static str,
    pkey: u16,
    members: Vec<Port>,
}

impl Partition {
    /// `pkey` as its members have it in their tables.
    pub fn new(name: &'static str, pkey: u16, members: &[Port]) -> Self {
        Self {
            name,
            pkey,
            members: members.to_vec(),
        }
    }

    /// The line of the configuration file.
    fn line(&self) -> Result<String, Failure> {
        let guids: Result<Vec<_>, _> = self.members.iter().map(|port| port.guid()).collect();
        let (name, number) = (self.name, self.pkey & !FULL);
        let guids = guids?.join(", ");
        Ok(format!(
            "{name}={number:#06x}, ipoib, defmember=full : {guids};\n"
        ))
    }
}

/// Has the subnet manager make these partitions besides the default one, of which the hosts become limited
/// members; returns when all their ports have these P_Keys and no others.
///
/// # Errors
/// If it does not.
pub fn set(timeline: &Timeline, partitions: &[Partition]) -> Result<(), Failure> {
    let lines: Result<Vec<_>, _> = partitions.iter().map(Partition::line).collect();
    file::write(CONFIG, &format!("{DEFAULT}{}", lines?.concat()))?;
    for Partition {
        name,
        pkey,
        members,
    } in partitions
    {
        let members: Vec<_> = members.iter().map(Port::to_string).collect();
        let text = format!("partition {name}, P_Key {pkey:#06x}: {}", members.join(" "));
        timeline.note("opensm", text);
    }
    command::run(&["killall", "-HUP", "opensm"])?;
    wait_for(|port| {
        let of_port = partitions.iter().filter(|one| one.members.contains(&port));
        let keys = of_port.map(|one| one.pkey);
        keys.chain([LIMITED]).collect()
    })
}

/// The default partition is the only one again.
///
/// # Errors
/// If the subnet manager does not write the tables.
pub fn remove(timeline: &Timeline) -> Result<(), Failure> {
    match fs::remove_file(CONFIG) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|source| Failure::File {
            path: CONFIG.to_owned(),
            source,
        })?,
    }
    timeline.note("opensm", "the default partition only");
    command::run(&["killall", "-HUP", "opensm"])?;
    wait_for(|_| BTreeSet::from([WHOLE]))
}

/// Waits until each port of the hosts has just the keys that are wanted.
fn wait_for(wanted: impl Fn(Port) -> BTreeSet<u16>) -> Result<(), Failure> {
    for port in Host::ALL.into_iter().flat_map(Host::ports) {
        let wanted = wanted(port);
        let what = format!("{port} has the P_Keys {wanted:x?}");
        wait::until(&what, LIMIT, || {
            let mut keys: BTreeSet<_> = port.pkeys(TABLE)?.into_iter().collect();
            keys.remove(&0);
            Ok(Seen::when(keys == wanted, || format!("{keys:x?}")))
        })?;
    }
    Ok(())
}

/// Where the port's table has the P_Key.
///
/// # Errors
/// If the port does not exist.
pub fn index(port: Port, pkey: u16) -> Result<Option<u16>, Failure> {
    let table = port.pkeys(TABLE)?;
    let index = table.iter().position(|&key| key == pkey);
    Ok(index.and_then(|index| u16::try_from(index).ok()))
}
