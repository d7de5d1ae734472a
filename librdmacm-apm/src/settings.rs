// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the environment says.

use std::env;
use std::path::PathBuf;

/// Where the daemon listens if `APMD_SOCKET` does not say.
const DEFAULT_SOCKET: &str = "/run/apmd/apmd.sock";

/// 67 ms a try: four tries and a migration in well under half a second.
const DEFAULT_ACK_TIMEOUT: u8 = 14;

/// The largest value of the 5-bit field (IBA 9.9.2.1.3).
const MAX_ACK_TIMEOUT: u8 = 31;

/// Settings of this process, read once.
#[derive(Debug)]
pub(crate) struct Settings {
    /// `RDMA_APM=all`: look after every reliable connection, also of applications that never
    /// heard of path migration. `apmctl run` sets it.
    pub(crate) all: bool,
    /// `RDMA_APM_ACK_TIMEOUT`: local ACK timeout for connections under APM, 4.096 us * 2^n;
    /// `None` (written 0) leaves rdma_cm's.
    pub(crate) ack_timeout: Option<u8>,
    /// `APMD_SOCKET`: the daemon's socket.
    pub(crate) socket: PathBuf,
}

impl Settings {
    pub(crate) fn from_environment() -> Self {
        let socket = env::var_os("APMD_SOCKET").filter(|path| !path.is_empty());
        Self {
            all: env::var("RDMA_APM").is_ok_and(|value| value == "all"),
            ack_timeout: ack_timeout(env::var("RDMA_APM_ACK_TIMEOUT").ok().as_deref()),
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
    use super::ack_timeout;

    #[test]
    fn ack_timeout_is_five_bits_and_zero_leaves_it_alone() {
        assert_eq!(ack_timeout(None), Some(14));
        assert_eq!(ack_timeout(Some("0")), None);
        assert_eq!(ack_timeout(Some("31")), Some(31));
        assert_eq!(ack_timeout(Some("32")), Some(14));
        assert_eq!(ack_timeout(Some("fast")), Some(14));
    }
}
