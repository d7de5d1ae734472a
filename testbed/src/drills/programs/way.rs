// SPDX-License-Identifier: MIT OR Apache-2.0
//! By what programs are protected.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What protects a program; daemons run on both hosts either way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Way {
    /// The kernel module `apm`: nothing is preloaded.
    Kernel,
    /// The library, preloaded into both ends by `apmctl run`: the module is not loaded.
    Library,
}

impl Way {
    pub(super) const ALL: &'static [Self] = &[Self::Kernel, Self::Library];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Library => "library",
        }
    }
}

/// Which ways the command line asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum By {
    /// The kernel module, with nothing preloaded
    Kernel,
    /// The library, preloaded by apmctl run
    Library,
    /// One after the other
    Both,
}

impl By {
    pub(super) fn ways(self) -> &'static [Way] {
        match self {
            Self::Kernel => &[Way::Kernel],
            Self::Library => &[Way::Library],
            Self::Both => Way::ALL,
        }
    }
}
