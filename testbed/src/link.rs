// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be unplugged.

use std::fmt;

use crate::port::Port;

/// What the `cable` command can act upon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// The cable of a port.
    Port(Port),
    /// All links of a switch: 0 is rail A, 1 is rail B.
    Switch(u8),
    /// All links of a spine of `leaf-spine`.
    Spine(u8),
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
            Self::Spine(number) => vec![format!("spine{number}")],
            Self::SubnetManager => vec!["shca2".to_owned(), "1".to_owned()],
            Self::InterSwitch => vec!["switch0".to_owned(), "9".to_owned()],
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => port.fmt(f),
            Self::Switch(number) => write!(f, "switch{number}"),
            Self::Spine(number) => write!(f, "spine{number}"),
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
    use crate::host::Host;

    #[test]
    fn links_are_named_as_cable_wants_them() {
        assert_eq!(Link::from(Host::B.port(2)).words(), ["shca1", "2"]);
        assert_eq!(Link::Switch(0).words(), ["switch0"]);
        assert_eq!(Link::SubnetManager.words(), ["shca2", "1"]);
        assert_eq!(Host::A.port(1).other().to_string(), "shca0/2");
        assert_eq!(Link::Spine(1).words(), ["spine1"]);
    }
}
