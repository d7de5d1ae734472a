// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[acm]`: ACM served, in ibacm's place.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use acm::Settings;
use acm::net::{self, RouteProt};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::check::Wrongs;
use super::section::section;

section! {
    /// `[acm]`
    Acm {
        /// Answer ACM's clients. Takes effect at start.
        serve: bool = false,
        /// Directory of the Unix socket, and of the file that names the TCP port. Takes effect at start.
        directory: PathBuf = PathBuf::from("/run"),
        /// Serve TCP as well, at this port (ibacm's is 6125); 0 is none. Takes effect at start.
        tcp_port: u16 = 0,
        /// The networks whose hosts may use it, besides this host. Takes effect at start.
        tcp_networks: Vec<IpNet> = Vec::new(),
        /// Answer the kernel's path requests. Takes effect at start.
        kernel: bool = true,
        /// What other hosts are asked for.
        multicast: Multicast = Multicast::Addresses,
        /// Directory of ibacm's files of names, addresses and routes; empty: none are read.
        data_dir: PathBuf = PathBuf::from("/etc/rdma"),
    }
}

/// What the ACM services of other hosts are asked for, and told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Multicast {
    /// Nothing.
    Off,
    /// Addresses; paths come from the path sources.
    Addresses,
    /// Addresses, and the path is that of the best group that both hosts are in.
    Paths,
}

impl Acm {
    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        wrongs.want_absolute(&self.directory, "directory");
        wrongs.want_absolute_or_none(&self.data_dir, "data_dir");
        let everybody = |network: &IpNet| network.prefix_len() == 0;
        let good = !self.tcp_networks.iter().any(everybody);
        let what =
            "a network of all addresses lets everybody in: name those whose hosts are to come";
        wrongs.want(good, "tcp_networks", what);
    }

    pub(super) fn check_together(&self, wrongs: &mut Wrongs) {
        let good = self.tcp_networks.is_empty() || self.tcp_port != 0;
        let what = "nobody can come from there without a tcp_port (ibacm's is 6125)";
        wrongs.want(good, "tcp_networks", what);
    }

    /// The address to listen at for TCP, if it is served.
    pub(crate) fn tcp(&self) -> Option<SocketAddr> {
        let ip = match self.tcp_networks.is_empty() {
            true => Ipv4Addr::LOCALHOST,
            false => Ipv4Addr::UNSPECIFIED,
        };
        (self.tcp_port != 0).then(|| (ip, self.tcp_port).into())
    }

    /// The Unix socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("ibacm-unix.sock")
    }

    /// Its second name, which librdmacm looks for.
    pub(crate) fn socket_link(&self) -> PathBuf {
        self.directory.join("ibacm.sock")
    }

    /// The file that names the TCP port.
    pub(crate) fn port_file(&self) -> PathBuf {
        self.directory.join("ibacm-tcp.port")
    }

    /// Its second name: librdmacm, where there is one, calls by TCP.
    pub(crate) fn port_link(&self) -> PathBuf {
        self.directory.join("ibacm.port")
    }

    /// One of ibacm's data files, if any are to be read.
    pub(crate) fn data_file(&self, name: &str) -> Option<PathBuf> {
        let directory = self.data_dir.as_path();
        (directory != Path::new("")).then(|| directory.join(name))
    }

    /// What the service goes by.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            address_timeout: Duration::from_secs(86_400),
            route_timeout: Duration::from_secs(3600),
            negative: Duration::from_secs(1),
            loopback: true,
            max_destinations: 65_536,
            max_waiting: 4096,
        }
    }

    /// How other hosts are asked, if they are.
    pub(crate) fn multicast(&self) -> net::Settings {
        net::Settings {
            route_prot: match self.multicast {
                Multicast::Off | Multicast::Addresses => RouteProt::Sa,
                Multicast::Paths => RouteProt::Acm,
            },
            ..net::Settings::default()
        }
    }

    /// These settings, with what takes effect at start only as `running` has it.
    #[must_use]
    pub(super) fn with_fixed_of(self, running: &Self) -> Self {
        Self {
            multicast: self.multicast,
            data_dir: self.data_dir,
            ..running.clone()
        }
    }
}
