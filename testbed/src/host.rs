// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hosts of the VM.

use std::fmt;

/// A host. By custom of the drills, A connects and B listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host {
    /// host-a, on shca0.
    A,
    /// host-b, on shca1.
    B,
    /// host-c of `leaf-spine`, on shca2, which has one port; it connects, as A does.
    C,
    /// host-d of `leaf-spine`, on shca3, which has one port; it listens, as B does.
    D,
}

impl Host {
    /// The two that every fabric has.
    pub const ALL: [Self; 2] = [Self::A, Self::B];

    /// The two with one port.
    pub const ONE_PORT: [Self; 2] = [Self::C, Self::D];

    /// Its name, which is also the command that runs a command there.
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "host-a",
            Self::B => "host-b",
            Self::C => "host-c",
            Self::D => "host-d",
        }
    }

    /// Its HCA.
    pub fn device(self) -> &'static str {
        match self {
            Self::A => "shca0",
            Self::B => "shca1",
            Self::C => "shca2",
            Self::D => "shca3",
        }
    }

    /// Where its daemon's sockets are.
    pub fn runtime_dir(self) -> &'static str {
        match self {
            Self::A => "/run/apmd",
            Self::B => "/run/host-b/apmd",
            Self::C => "/run/host-c/apmd",
            Self::D => "/run/host-d/apmd",
        }
    }

    /// The peer.
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
            Self::C => Self::D,
            Self::D => Self::C,
        }
    }

    /// The last byte of its IPv4 addresses.
    pub fn number(self) -> u8 {
        match self {
            Self::A => 1,
            Self::B => 2,
            Self::C => 3,
            Self::D => 4,
        }
    }

    /// Which of two ends it is: 0 connects, 1 listens.
    pub fn index(self) -> usize {
        match self {
            Self::A | Self::C => 0,
            Self::B | Self::D => 1,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
