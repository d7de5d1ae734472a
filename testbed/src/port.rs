// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ports of the hosts, and what sysfs says of them.

use std::fmt;
use std::fs;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::command;
use crate::failure::Failure;
use crate::host::Host;
use crate::wait::{self, Seen};

/// Bound for the subnet manager to bring a port up.
const LIMIT: Duration = Duration::from_secs(120);

/// A port of a host's HCA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    /// Whose.
    pub host: Host,
    /// Of two rails, 1 is on rail A and 2 on rail B.
    pub number: u8,
}

impl Host {
    /// Its port with this number, 1 or 2.
    pub fn port(self, number: u8) -> Port {
        Port { host: self, number }
    }

    /// Its ports.
    pub fn ports(self) -> impl Iterator<Item = Port> {
        let count = match self {
            Self::A | Self::B => 2,
            Self::C | Self::D => 1,
        };
        (1..=count).map(move |number| self.port(number))
    }
}

impl Port {
    /// The host's other port.
    pub fn other(self) -> Self {
        self.host.port(3 - self.number)
    }

    /// Its GID.
    ///
    /// # Errors
    /// If the port does not exist.
    pub fn gid(self) -> Result<String, Failure> {
        self.attribute("gids/0")
    }

    /// Its GUID, as OpenSM's files have it.
    ///
    /// # Errors
    /// If the port does not exist.
    pub fn guid(self) -> Result<String, Failure> {
        let gid = self.gid()?;
        let groups: Vec<_> = gid.split(':').skip(4).collect();
        Ok(format!("0x{}", groups.concat()))
    }

    /// The first entries of its P_Key table; 0 for nothing.
    ///
    /// # Errors
    /// If the port does not exist, or its table is shorter.
    pub fn pkeys(self, entries: u16) -> Result<Vec<u16>, Failure> {
        let Self { host, number } = self;
        let directory = format!(
            "/sys/class/infiniband/{}/ports/{number}/pkeys",
            host.device()
        );
        let paths: Vec<_> = (0..entries)
            .map(|index| format!("{directory}/{index}"))
            .collect();
        let words: Vec<_> = ["cat"]
            .into_iter()
            .chain(paths.iter().map(String::as_str))
            .collect();
        let text = command::run_as(host, &words)?;
        text.lines()
            .map(|line| self.parse_hexadecimal("pkeys", line))
            .collect()
    }

    /// Its LID; the first, where it has several.
    ///
    /// # Errors
    /// If the port does not exist.
    pub fn lid(self) -> Result<u16, Failure> {
        self.hexadecimal("lid")
    }

    /// The LID of its subnet manager.
    ///
    /// # Errors
    /// If the port does not exist.
    pub fn sm_lid(self) -> Result<u16, Failure> {
        self.hexadecimal("sm_lid")
    }

    /// Its LMC: it has 2^LMC LIDs.
    ///
    /// # Errors
    /// If the port does not exist.
    pub fn lmc(self) -> Result<u8, Failure> {
        let text = self.attribute("lid_mask_count")?;
        text.parse().map_err(|_| Failure::Output {
            source_name: format!("lid_mask_count of {self}"),
            problem: format!("not a number: {text}"),
        })
    }

    fn hexadecimal(self, name: &str) -> Result<u16, Failure> {
        self.parse_hexadecimal(name, &self.attribute(name)?)
    }

    fn parse_hexadecimal(self, name: &str, text: &str) -> Result<u16, Failure> {
        let number = u16::from_str_radix(text.trim_start_matches("0x"), 16);
        number.map_err(|_| Failure::Output {
            source_name: format!("{name} of {self}"),
            problem: format!("not a hexadecimal number: {text}"),
        })
    }

    /// An attribute in sysfs, as its host sees it.
    fn attribute(self, name: &str) -> Result<String, Failure> {
        let Self { host, number } = self;
        let path = format!(
            "/sys/class/infiniband/{}/ports/{number}/{name}",
            host.device()
        );
        Ok(command::run_as(host, &["cat", &path])?.trim().to_owned())
    }

    /// Packets received and sent, as the process `pid` of its host would see them: that is quick,
    /// since nothing has to be started in the host's namespace.
    ///
    /// # Errors
    /// If the process has ended, or the port does not count.
    pub fn packets(self, pid: u32) -> Result<u64, Failure> {
        let Self { host, number } = self;
        let directory = format!(
            "/proc/{pid}/root/sys/class/infiniband/{}/ports/{number}/counters",
            host.device()
        );
        let mut sum = 0;
        for name in ["port_rcv_packets", "port_xmit_packets"] {
            let path = format!("{directory}/{name}");
            let text = fs::read_to_string(&path).map_err(|source| Failure::File {
                path: path.clone(),
                source,
            })?;
            sum += text.trim().parse::<u64>().map_err(|_| Failure::Output {
                source_name: path,
                problem: format!("not a number: {text}"),
            })?;
        }
        Ok(sum)
    }

    /// Waits until it has this LMC, and LIDs for it.
    ///
    /// # Errors
    /// [`Failure::Timeout`] if the subnet manager does not give it that.
    pub fn wait_lmc(self, wanted: u8) -> Result<(), Failure> {
        wait::until(&format!("{self} has LMC {wanted}"), LIMIT, || {
            let (lmc, lid) = (self.lmc()?, self.lid()?);
            let seen = || format!("LMC {lmc}, LID {lid}");
            Ok(Seen::when(lmc == wanted && lid % (1 << lmc) == 0, seen))
        })?;
        self.wait_active()
    }

    /// Whether it is active at the moment.
    ///
    /// # Errors
    /// If its state cannot be read.
    pub fn is_active(self) -> Result<bool, Failure> {
        Ok(self.attribute("state")?.contains("ACTIVE"))
    }

    /// Waits until it is active.
    ///
    /// # Errors
    /// [`Failure::Timeout`] if the subnet manager does not bring it up.
    pub fn wait_active(self) -> Result<(), Failure> {
        wait::until(&format!("{self} is active"), LIMIT, || {
            Ok(match self.attribute("state") {
                Ok(state) => Seen::when(state.contains("ACTIVE"), || state),
                // Its device is on its way from another namespace.
                Err(failure) => Seen::NotYet(failure.to_string()),
            })
        })
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host.device(), self.number)
    }
}

impl Serialize for Port {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
