// SPDX-License-Identifier: MIT OR Apache-2.0
//! ibacm's configuration files, read for the served ACM.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use cm_msgs::Gid;
use cm_msgs::sa::PathRecord;

use crate::acm::Naming;
use crate::acm::files::{self, Mode, Options, Parsed};
use crate::config::{self, Prot, Tcp};

/// What the files say.
#[derive(Debug)]
pub(super) struct Files {
    /// The configuration, and what `ibacm_opts.cfg` says instead.
    pub(super) config: config::Acm,
    /// What the ports are called; `None`: there is no file of names.
    pub(super) names: Option<Vec<Naming>>,
    options: Options,
}

impl Files {
    /// Reads `ibacm_opts.cfg` and `ibacm_addr.cfg`. Neither need exist.
    pub(super) fn read(config: &config::Acm) -> Self {
        let options = text(&config.ibacm_opts).map(|text| {
            let parsed = Options::parse(&text);
            understood(&config.ibacm_opts, parsed)
        });
        let options = options.unwrap_or_default();
        let names = text(&config.ibacm_addr).map(|text| {
            let parsed = files::names(&text, options.ips_in_names);
            understood(&config.ibacm_addr, parsed)
        });
        let applied = apply(config, &options);
        if options.mode == Some(Mode::Open) && applied.tcp != Tcp::Open {
            let (path, port) = (config.ibacm_opts.display(), applied.tcp_port);
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            tracing::warn!(%path, %address, "server_mode open: served to this host only, unless \
                           tcp = \"open\" in [acm]");
        }
        Self {
            config: applied,
            names,
            options,
        }
    }

    /// How other hosts are asked: the configuration, and what `ibacm_opts.cfg` says instead.
    pub(super) fn multicast(&self, config: &config::AcmMulticast) -> config::AcmMulticast {
        apply_multicast(config, &self.options)
    }

    /// The file of addresses, if one is to be read.
    pub(super) fn addresses(&self) -> pathdb::Addresses {
        let path = self.options.address_file.as_deref();
        let path = path.unwrap_or(Path::new("/etc/rdma/ibacm_hosts.data"));
        if !self.options.preload_addresses {
            return pathdb::Addresses::default();
        }
        pathdb::Addresses::read(path).unwrap_or_else(|error| {
            tracing::error!(%error, "addresses not taken");
            pathdb::Addresses::default()
        })
    }

    /// The file of paths, if one is to be read: the paths that start from these ports.
    pub(super) fn routes(&self, from: &[Gid]) -> Vec<PathRecord> {
        let path = self.options.route_file.as_deref();
        let path = path.unwrap_or(Path::new("/etc/rdma/ibacm_route.data"));
        if !self.options.preload_routes || from.is_empty() {
            return Vec::new();
        }
        let text = text(path).unwrap_or_default();
        understood(path, files::routes(&text, from))
    }
}

/// What the options say goes before the configuration.
fn apply(config: &config::Acm, options: &Options) -> config::Acm {
    let mut config = config.clone();
    if let Some(mode) = options.mode {
        config.tcp = match mode {
            Mode::Unix => Tcp::Off,
            Mode::Open if config.tcp == Tcp::Open => Tcp::Open,
            // Other hosts are let in by apmd's own configuration only: the file may be older than
            // apmd here, and meant for a network that is not this one.
            Mode::Loop | Mode::Open => Tcp::Loop,
        };
    }
    if let Some(port) = options.port {
        config.tcp_port = port;
    }
    if options.acme_and_kernel_only == Some(true) {
        config.socket_link = Path::new("").to_owned();
        config.tcp_link = Path::new("").to_owned();
    }
    if let Some(timeout) = options.address_timeout {
        config.address_timeout_s = timeout.as_secs();
    }
    if let Some(timeout) = options.route_timeout {
        config.route_timeout_s = timeout.as_secs();
    }
    if let Some(loopback) = options.loopback {
        config.loopback = loopback;
    }
    config
}

fn apply_multicast(config: &config::AcmMulticast, options: &Options) -> config::AcmMulticast {
    let route_prot = options.paths_of_group.map(|of_group| match of_group {
        true => Prot::Acm,
        false => Prot::Sa,
    });
    let timeout_ms = options.timeout.map(|timeout| timeout.as_millis() as u64);
    config::AcmMulticast {
        route_prot: route_prot.unwrap_or(config.route_prot),
        min_mtu: options.min_mtu.unwrap_or(config.min_mtu),
        min_rate: options.min_rate.unwrap_or(config.min_rate),
        timeout_ms: timeout_ms.unwrap_or(config.timeout_ms),
        retries: options.retries.unwrap_or(config.retries),
        ..config.clone()
    }
}

fn text(path: &Path) -> Option<String> {
    if path.as_os_str().is_empty() {
        return None;
    }
    match fs::read_to_string(path) {
        Ok(text) => {
            tracing::info!(path = %path.display(), "file of ibacm's read");
            Some(text)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "file of ibacm's not read");
            None
        }
    }
}

/// What the file says; what was skipped is told once, all of it in one line.
fn understood<T>(path: &Path, parsed: Parsed<T>) -> T {
    if let Some((line, what)) = parsed.skipped.first() {
        let (path, lines) = (path.display(), parsed.skipped.len());
        tracing::warn!(%path, line, what, lines, "not understood and skipped, as ibacm does");
    }
    parsed.value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_apmds_own_configuration_lets_other_hosts_in() {
        let open = Options::parse("server_mode open\n").value;
        for (tcp, want) in [
            (Tcp::Off, Tcp::Loop),
            (Tcp::Loop, Tcp::Loop),
            (Tcp::Open, Tcp::Open),
        ] {
            let config = config::Acm {
                tcp,
                ..config::Acm::default()
            };
            assert_eq!(apply(&config, &open).tcp, want);
        }
    }

    #[test]
    fn ibacms_options_go_before_the_configuration() {
        let options = "server_mode loop\nserver_port 7000\nacme_plus_kernel_only 1\n\
                       route_timeout -1\nloopback_prot none\n";
        let applied = apply(&config::Acm::default(), &Options::parse(options).value);
        let want = config::Acm {
            tcp: Tcp::Loop,
            tcp_port: 7000,
            socket_link: "".into(),
            tcp_link: "".into(),
            route_timeout_s: 0,
            loopback: false,
            ..config::Acm::default()
        };
        assert_eq!(applied, want);
        let default = config::Acm::default();
        assert_eq!(apply(&default, &Options::default()), default);
        let applied = apply_multicast(
            &config::AcmMulticast::default(),
            &Options::parse("route_prot acm\nmin_rate 40\nretries 1\n").value,
        );
        let want = config::AcmMulticast {
            route_prot: Prot::Acm,
            min_rate: 40,
            retries: 1,
            ..config::AcmMulticast::default()
        };
        assert_eq!(applied, want);
    }
}
