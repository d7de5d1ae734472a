// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings from the environment, which only an unprivileged program may take from its caller.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::privilege;

/// The daemon's socket unless `APMD_SOCKET` names another.
pub(crate) const DEFAULT_SOCKET: &str = "/run/apmd/apmd.sock";

/// 67 ms a try: four tries and a migration in well under half a second.
const DEFAULT_ACK_TIMEOUT: u8 = 14;

/// The largest value of the 5-bit field (IBA 9.9.2.1.3).
const MAX_ACK_TIMEOUT: u8 = 31;

/// Settings of this process, read once.
#[derive(Debug)]
pub(crate) struct Settings {
    /// `RDMA_APM=all`: manage every reliable connection, also of applications that never
    /// heard of path migration. `apmctl run` sets it.
    pub(crate) all: bool,
    /// `RDMA_APM_ACK_TIMEOUT`: local ACK timeout for connections under APM, 4.096 us * 2^n;
    /// `None` (written 0) leaves rdma_cm's.
    pub(crate) ack_timeout: Option<u8>,
    /// `APMD_SOCKET`: the daemon's socket.
    pub(crate) socket: PathBuf,
}

impl Settings {
    /// The settings of this process. A program that its caller has not the rights of (set-user-ID, file
    /// capabilities) gets the defaults: the environment is the caller's, who could name a false daemon.
    pub(crate) fn of_process() -> Self {
        match privilege::is_elevated() {
            true => Self::read(|_| None),
            false => Self::read(|name| env::var_os(name)),
        }
    }

    fn read(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let text = |name| variable(name).and_then(|value| value.into_string().ok());
        let socket = variable("APMD_SOCKET").filter(|path| !path.is_empty());
        Self {
            all: text("RDMA_APM").is_some_and(|value| value == "all"),
            ack_timeout: ack_timeout(text("RDMA_APM_ACK_TIMEOUT").as_deref()),
            socket: socket.map_or_else(|| DEFAULT_SOCKET.into(), PathBuf::from),
        }
    }
}

fn ack_timeout(text: Option<&str>) -> Option<u8> {
    let Some(text) = text else {
        return Some(DEFAULT_ACK_TIMEOUT);
    };
    match text.parse() {
        Ok(0) => None,
        Ok(n @ 1..=MAX_ACK_TIMEOUT) => Some(n),
        _ => {
            crate::log::warn(&format_args!(
                "RDMA_APM_ACK_TIMEOUT is {text:?}, want 0 to {MAX_ACK_TIMEOUT}: using {DEFAULT_ACK_TIMEOUT}"
            ));
            Some(DEFAULT_ACK_TIMEOUT)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_environment_gives_the_defaults() {
        let defaults = Settings::read(|_| None);
        assert!(!defaults.all);
        assert_eq!(defaults.ack_timeout, Some(14));
        assert_eq!(defaults.socket, PathBuf::from(DEFAULT_SOCKET));
        let set = Settings::read(|name| {
            let value = match name {
                "RDMA_APM" => "all",
                "RDMA_APM_ACK_TIMEOUT" => "0",
                "APMD_SOCKET" => "/tmp/apmd.sock",
                _ => return None,
            };
            Some(value.into())
        });
        assert!(set.all && set.ack_timeout.is_none());
        assert_eq!(set.socket, PathBuf::from("/tmp/apmd.sock"));
        let empty = Settings::read(|name| (name == "APMD_SOCKET").then(OsString::new));
        assert_eq!(empty.socket, PathBuf::from(DEFAULT_SOCKET));
    }

    #[test]
    fn ack_timeout_is_five_bits_and_zero_leaves_it_alone() {
        assert_eq!(ack_timeout(None), Some(14));
        assert_eq!(ack_timeout(Some("0")), None);
        assert_eq!(ack_timeout(Some("31")), Some(31));
        assert_eq!(ack_timeout(Some("32")), Some(14));
        assert_eq!(ack_timeout(Some("fast")), Some(14));
    }
}
