// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[acm]`: ACM served, in ibacm's place.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Check, want, want_absolute_or_none, want_mode, want_within};
use crate::acm::Settings;

/// A year: the longest time for which anything is believed that is not believed for ever.
const BELIEVED_MAX_S: u64 = 31_536_000;

/// `[acm]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Acm {
    /// Answer ACM's clients. Takes effect at start.
    pub serve: bool,
    /// The Unix socket; empty for none. Takes effect at start.
    pub socket: PathBuf,
    /// A symbolic link to the socket, by which librdmacm finds it; empty for none. Takes effect at
    /// start.
    pub socket_link: PathBuf,
    /// Access mode of the socket. Takes effect at start.
    pub mode: u32,
    /// Whether TCP is served as well, and to whom. Takes effect at start.
    pub tcp: Tcp,
    /// The TCP port. Takes effect at start.
    pub tcp_port: u16,
    /// The file that names the TCP port. Takes effect at start.
    pub tcp_file: PathBuf,
    /// A symbolic link to that file, by which librdmacm finds it; empty for none. Takes effect at
    /// start.
    pub tcp_link: PathBuf,
    /// Answer the kernel's path requests. Takes effect at start.
    pub kernel: bool,
    /// Subscribe to the SA's reports of ports that leave the fabric, to forget them at once, and
    /// of links that change, to ask for paths again. Takes effect at start.
    pub reports: bool,
    /// ibacm's file of options, which go before these; it need not exist; empty for none.
    pub ibacm_opts: PathBuf,
    /// ibacm's file of names; without it the ports are called after the host; empty for none.
    pub ibacm_addr: PathBuf,
    /// The path of this host to itself needs no question.
    pub loopback: bool,
    /// How long it is believed which port has an address, in seconds; 0: for ever.
    pub address_timeout_s: u64,
    /// How long a path is believed, in seconds; 0: for ever.
    pub route_timeout_s: u64,
    /// How long it is believed that there is no path.
    pub negative_ms: u64,
    /// Destinations kept.
    pub max_destinations: usize,
    /// Clients at the same time.
    pub max_clients: usize,
    /// Requests that wait for an answer at the same time.
    pub max_waiting: usize,
}

/// Who may use TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tcp {
    /// Nobody.
    Off,
    /// This host.
    Loop,
    /// Everybody.
    Open,
}

impl Default for Acm {
    fn default() -> Self {
        Self {
            serve: false,
            socket: PathBuf::from("/run/ibacm-unix.sock"),
            socket_link: PathBuf::from("/run/ibacm.sock"),
            mode: 0o666,
            tcp: Tcp::Off,
            tcp_port: 6125,
            tcp_file: PathBuf::from("/run/ibacm-tcp.port"),
            tcp_link: PathBuf::from("/run/ibacm.port"),
            kernel: true,
            reports: true,
            ibacm_opts: PathBuf::from("/etc/rdma/ibacm_opts.cfg"),
            ibacm_addr: PathBuf::from("/etc/rdma/ibacm_addr.cfg"),
            loopback: true,
            address_timeout_s: 86400,
            route_timeout_s: 3600,
            negative_ms: 1000,
            max_destinations: 65536,
            max_clients: 8192,
            max_waiting: 65536,
        }
    }
}

impl Acm {
    pub(crate) fn check(&self) -> Check {
        want_mode(self.mode, "mode")?;
        want_within(self.tcp_port, 1..=u16::MAX, "tcp_port")?;
        want(
            self.tcp == Tcp::Off || self.tcp_file.is_absolute(),
            "tcp_file",
            "want a path that begins with a slash",
        )?;
        want_absolute_or_none(&self.socket, "socket")?;
        want_absolute_or_none(&self.socket_link, "socket_link")?;
        want_absolute_or_none(&self.tcp_link, "tcp_link")?;
        let believed = 0..=BELIEVED_MAX_S;
        want_within(
            self.address_timeout_s,
            believed.clone(),
            "address_timeout_s",
        )?;
        want_within(self.route_timeout_s, believed, "route_timeout_s")?;
        want_within(self.negative_ms, 0..=3_600_000, "negative_ms")?;
        want_within(self.max_destinations, 1..=1_048_576, "max_destinations")?;
        want_within(self.max_clients, 1..=65_536, "max_clients")?;
        want_within(self.max_waiting, 1..=1_048_576, "max_waiting")
    }

    /// What the service goes by.
    pub fn settings(&self) -> Settings {
        Settings {
            address_timeout: Duration::from_secs(self.address_timeout_s),
            route_timeout: Duration::from_secs(self.route_timeout_s),
            negative: Duration::from_millis(self.negative_ms),
            loopback: self.loopback,
            max_destinations: self.max_destinations,
            max_waiting: self.max_waiting,
        }
    }

    /// These settings, with what takes effect at start only as `running` has it.
    #[must_use]
    pub(super) fn with_fixed_of(self, running: &Self) -> Self {
        Self {
            ibacm_opts: self.ibacm_opts,
            ibacm_addr: self.ibacm_addr,
            loopback: self.loopback,
            address_timeout_s: self.address_timeout_s,
            route_timeout_s: self.route_timeout_s,
            negative_ms: self.negative_ms,
            max_destinations: self.max_destinations,
            max_clients: self.max_clients,
            max_waiting: self.max_waiting,
            ..running.clone()
        }
    }
}
