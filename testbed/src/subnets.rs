// SPDX-License-Identifier: MIT OR Apache-2.0
//! LIDs and prefixes of the fabric `two-subnets`, in which each rail has its own subnet manager.

use std::fmt;
use std::fs;
use std::time::Duration;

use crate::failure::Failure;
use crate::file;
use crate::host::Host;
use crate::port::Port;
use crate::subnet_manager;
use crate::wait::{self, Seen};

/// Bound for a port to get its LID and its prefix.
const LIMIT: Duration = Duration::from_secs(120);

/// OpenSM's default, and another one.
const DEFAULT_PREFIX: &str = "fe80:0000:0000:0000";
const OTHER_PREFIX: &str = "fe80:0000:0000:0001";

/// The LID of the subnet manager's port in either subnet; the hosts' LIDs follow.
const MANAGER_LID: u16 = 1;

/// How the second subnet's numbers relate to the first one's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbering {
    /// Both ports of a host have the same LID, and both subnets the same prefix.
    Equal,
    /// The LIDs are as in `Equal`, and the prefixes differ.
    OtherPrefix,
    /// A host's LID in one subnet is its peer's LID in the other one; the prefixes are the same.
    Crossed,
    /// The LIDs are as in `Crossed`, and the prefixes differ.
    CrossedOtherPrefix,
}

impl Numbering {
    /// Every one.
    pub const ALL: [Self; 4] = [
        Self::Equal,
        Self::OtherPrefix,
        Self::Crossed,
        Self::CrossedOtherPrefix,
    ];

    fn is_crossed(self) -> bool {
        matches!(self, Self::Crossed | Self::CrossedOtherPrefix)
    }

    /// The LID of a host's port.
    fn lid(self, port: Port) -> u16 {
        let host = match port.number == 2 && self.is_crossed() {
            true => port.host.other(),
            false => port.host,
        };
        MANAGER_LID + u16::from(host.number())
    }

    /// The prefix of a port's subnet, as in its GID.
    fn prefix(self, port: Port) -> &'static str {
        let differs = matches!(self, Self::OtherPrefix | Self::CrossedOtherPrefix);
        match port.number == 2 && differs {
            true => OTHER_PREFIX,
            false => DEFAULT_PREFIX,
        }
    }

    /// Writes what both OpenSMs read when they start. They must not run.
    ///
    /// # Errors
    /// If a port does not exist, or a file cannot be written.
    pub fn write(self) -> Result<(), Failure> {
        for (number, cache) in [(1, "/var/cache/opensm"), (2, "/var/cache/opensm-2")] {
            fs::create_dir_all(cache).map_err(|source| Failure::File {
                path: cache.to_owned(),
                source,
            })?;
            let mut lids = vec![(subnet_manager::port_guid(number)?, MANAGER_LID)];
            for port in Host::ALL.map(|host| host.port(number)) {
                lids.push((port.guid()?, self.lid(port)));
            }
            file::write(format!("{cache}/guid2lid"), &guid2lid(&lids))?;
        }
        let prefix = self.prefix(Host::A.port(2)).replace(':', "");
        let text = format!("subnet_prefix 0x{prefix}\n");
        file::write("/etc/opensm/subnet-2.conf", &text)
    }

    /// Waits until a port is active with its LID and its prefix.
    ///
    /// # Errors
    /// [`Failure::Timeout`] if it does not get them.
    pub fn wait(self, port: Port) -> Result<(), Failure> {
        let (lid, prefix) = (self.lid(port), self.prefix(port));
        let what = format!("{port} has LID {lid} and prefix {prefix}");
        wait::until(&what, LIMIT, || {
            let (lid_now, gid_now) = (port.lid()?, port.gid()?);
            let is_right = lid_now == lid && gid_now.starts_with(prefix);
            Ok(Seen::when(is_right, || {
                format!("LID {lid_now}, GID {gid_now}")
            }))
        })?;
        port.wait_active()
    }
}

impl fmt::Display for Numbering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "equal LIDs, equal prefixes",
            Self::OtherPrefix => "equal LIDs, different prefixes",
            Self::Crossed => "crossed LIDs, equal prefixes",
            Self::CrossedOtherPrefix => "crossed LIDs, different prefixes",
        })
    }
}

/// A file of OpenSM's: GUID, first LID, last LID. A blank line ends a record.
fn guid2lid(lids: &[(String, u16)]) -> String {
    let lines = lids
        .iter()
        .map(|(guid, lid)| format!("{guid} {lid:#06x} {lid:#06x}\n\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crossed_lids_are_the_peers_of_the_other_subnet() {
        let [a, b] = Host::ALL;
        for numbering in Numbering::ALL {
            let lid = |host: Host, number| numbering.lid(host.port(number));
            assert_ne!(lid(a, 1), lid(b, 1));
            assert_ne!(lid(a, 2), lid(b, 2));
            let same = lid(a, 1) == lid(a, 2) && lid(b, 1) == lid(b, 2);
            let swapped = lid(a, 1) == lid(b, 2) && lid(b, 1) == lid(a, 2);
            assert_eq!(
                (same, swapped),
                (!numbering.is_crossed(), numbering.is_crossed())
            );
        }
    }

    #[test]
    fn the_hosts_of_a_subnet_have_one_prefix() {
        for numbering in Numbering::ALL {
            let prefix = |host: Host, number| numbering.prefix(host.port(number));
            assert_eq!(prefix(Host::A, 2), prefix(Host::B, 2));
            assert_eq!(prefix(Host::A, 1), DEFAULT_PREFIX);
        }
    }

    #[test]
    fn the_file_is_as_opensm_writes_it() {
        let lids = [
            ("0x0653484300000001".to_owned(), 1),
            ("0x0653484300000011".to_owned(), 18),
        ];
        assert_eq!(
            guid2lid(&lids),
            "0x0653484300000001 0x0001 0x0001\n\n0x0653484300000011 0x0012 0x0012\n\n"
        );
    }
}
