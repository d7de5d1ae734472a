// SPDX-License-Identifier: MIT OR Apache-2.0
//! Of which connections or destinations an operator speaks, as JSON. Described in `docs/apmctl.md`; keys
//! are added, never changed.

use serde::{Deserialize, Serialize};

/// Which connections; what is not said may be anything.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConnectionFilter {
    pub(crate) id: Option<String>,
    pub(crate) qpn: Option<u32>,
    pub(crate) device: Option<String>,
    pub(crate) pid: Option<i32>,
    pub(crate) command: Option<String>,
    /// Whose, as they are shown: `ib_srp`, `rping` or `rping[812]`; or `kernel`.
    pub(crate) owner: Option<String>,
    /// How `protection` begins.
    pub(crate) state: Option<String>,
    /// Go on behind this connection: `next` of the page before.
    pub(crate) after: Option<String>,
}

impl ConnectionFilter {
    pub(crate) fn is_any(&self) -> bool {
        *self == Self::default()
    }
}

/// Whose queue pair it is: `rping[77]`, or a kernel module's name.
pub(crate) fn owner(command: &str, pid: i32) -> String {
    match pid {
        0 => command.to_owned(),
        pid => format!("{command}[{pid}]"),
    }
}

/// Whether `owner` names this one; the kernel has no process.
pub(crate) fn is_owner(owner: &str, command: &str, pid: i32) -> bool {
    let with_pid = || {
        let (name, number) = owner.strip_suffix(']')?.rsplit_once('[')?;
        Some(name == command && number.parse() == Ok(pid))
    };
    owner == command || owner == "kernel" && pid == 0 || with_pid() == Some(true)
}

/// Which destinations; what is not said may be anything.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DestinationFilter {
    /// The address: a name, an IP address, a GID or a LID.
    pub(crate) address: Option<String>,
    /// The local device, or device and port such as `mlx5_0/1`, from which it is seen.
    pub(crate) from: Option<String>,
    /// How its state begins.
    pub(crate) state: Option<String>,
}

impl DestinationFilter {
    pub(crate) fn is_any(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_named_as_they_are_shown() {
        for owner in ["rping", "rping[812]"] {
            assert!(is_owner(owner, "rping", 812), "{owner}");
        }
        for owner in [
            "rpin",
            "rping[81]",
            "rping[]",
            "rping[812",
            "812]",
            "",
            "kernel",
        ] {
            assert!(!is_owner(owner, "rping", 812), "{owner}");
        }
        assert!(is_owner("kernel", "ib_srp", 0) && is_owner("ib_srp", "ib_srp", 0));
        assert!(is_owner("a[7]", "a[7]", 9), "a command may be called so");
    }
}
