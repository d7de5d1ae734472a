// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hosts of the VM, and what can be unplugged.

use std::fmt;

use crate::port::Port;

/// One of the two hosts. By custom of the drills, A connects and B listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host {
    /// host-a, on shca0.
    A,
    /// host-b, on shca1.
    B,
}

impl Host {
    /// Both.
    pub const ALL: [Self; 2] = [Self::A, Self::B];

    /// Its name, which is also the command that runs a command there.
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "host-a",
            Self::B => "host-b",
        }
    }

    /// Its HCA.
    pub fn device(self) -> &'static str {
        match self {
            Self::A => "shca0",
            Self::B => "shca1",
        }
    }

    /// Where its daemon's sockets are.
    pub fn runtime_dir(self) -> &'static str {
        match self {
            Self::A => "/run/apmd",
            Self::B => "/run/host-b/apmd",
        }
    }

    /// The peer.
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// Its port with this number, 1 or 2.
    pub fn port(self, number: u8) -> Port {
        Port { host: self, number }
    }

    /// Both its ports.
    pub fn ports(self) -> [Port; 2] {
        [self.port(1), self.port(2)]
    }

    /// 0 or 1.
    pub fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What the `cable` command can act upon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// The cable of a port.
    Port(Port),
    /// All links of a switch: 0 is rail A, 1 is rail B.
    Switch(u8),
    /// The cable of the subnet manager's port.
    SubnetManager,
    /// The link between the switches.
    InterSwitch,
}

impl Link {
    /// The words that name it on `cable`'s command line.
    pub fn words(self) -> Vec<String> {
        match self {
            Self::Port(port) => vec![port.host.device().to_owned(), port.number.to_string()],
            Self::Switch(number) => vec![format!("switch{number}")],
            Self::SubnetManager => vec!["shca2".to_owned(), "1".to_owned()],
            Self::InterSwitch => vec!["isl".to_owned()],
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => port.fmt(f),
            Self::Switch(number) => write!(f, "switch{number}"),
            Self::SubnetManager => f.write_str("the subnet manager"),
            Self::InterSwitch => f.write_str("link between the switches"),
        }
    }
}

impl From<Port> for Link {
    fn from(port: Port) -> Self {
        Self::Port(port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_named_as_cable_wants_them() {
        assert_eq!(Link::from(Host::B.port(2)).words(), ["shca1", "2"]);
        assert_eq!(Link::Switch(0).words(), ["switch0"]);
        assert_eq!(Link::SubnetManager.words(), ["shca2", "1"]);
        assert_eq!(Host::A.port(1).other().to_string(), "shca0/2");
        assert_eq!(Port::all().count(), 4);
    }
}
