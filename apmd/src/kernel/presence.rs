// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the kernel module is there, and can be used.

use std::fmt;
use std::io;

/// What is known of the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Presence {
    Absent,
    /// It is loaded, and not used.
    Unusable(Unusable),
    Present,
}

/// Why the module is not used though it is loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unusable {
    /// apmd has not the right to.
    NotPermitted(String),
    /// The kernel lacks a fix, and `[kernel] allow_unfixed` is not set.
    Unfixed(String),
    /// ib_core is not the kernel's own, and `[kernel] strict` is set.
    Foreign(String),
    Failed(String),
}

impl From<&io::Error> for Unusable {
    fn from(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM) => Self::NotPermitted(format!("{error}; apmd needs CAP_NET_ADMIN")),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NotPermitted(why) | Self::Unfixed(why) | Self::Foreign(why) | Self::Failed(why)) =
            self;
        f.write_str(why)
    }
}

impl Unusable {
    /// What to do about it.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::NotPermitted(_) => {
                "install apmd-kernel.conf (docs/kernel.md) or unload the module"
            }
            Self::Unfixed(_) => {
                "install a fixed kernel, or accept the risk with allow_unfixed = true in [kernel] of apmd.toml and restart apmd, or unload the module"
            }
            Self::Foreign(_) => {
                "use the kernel's own ib_core, or accept this one with strict = false in [kernel] of apmd.toml and restart apmd, or unload the module"
            }
            Self::Failed(_) => "restart apmd or unload the module",
        }
    }
}
