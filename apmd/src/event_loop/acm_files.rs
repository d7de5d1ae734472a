// SPDX-License-Identifier: MIT OR Apache-2.0
//! ibacm's configuration files, read for the served ACM.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

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
    pub(super) fn read(config: &config::Acm, multicast: &config::AcmMulticast) -> Self {
        let options = text(&config.ibacm_opts).map(|text| {
            let parsed = Options::parse(&text, |options| fit(config, multicast, options));
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

/// Whether the configuration is a good one with the options: the file's values have the limits of
/// apmd's own keys.
fn fit(
    config: &config::Acm,
    multicast: &config::AcmMulticast,
    options: &Options,
) -> Result<(), Cow<'static, str>> {
    let multicast = apply_multicast(multicast, options);
    let checked = apply(config, options).check();
    let checked = checked.and_then(|()| multicast.check());
    checked.map_err(|wrong| wrong.what)
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
    config.address_timeout_s = seconds(config.address_timeout_s, options.address_timeout);
    config.route_timeout_s = seconds(config.route_timeout_s, options.route_timeout);
    if let Some(loopback) = options.loopback {
        config.loopback = loopback;
    }
    config
}

/// The seconds of the configuration, unless the file, which knows minutes only, says other ones.
fn seconds(configured: u64, said: Option<Duration>) -> u64 {
    match said.map(|said| said.as_secs()) {
        Some(said) if Some(said) != configured.checked_next_multiple_of(60) => said,
        _ => configured,
    }
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

/// Lines of a file that are told of, when they are skipped.
const TOLD: usize = 8;

/// What the file says; what was skipped is told, up to a limit.
fn understood<T>(path: &Path, parsed: Parsed<T>) -> T {
    let (path, lines) = (path.display(), parsed.skipped.len());
    for (line, what) in parsed.skipped.iter().take(TOLD) {
        tracing::warn!(%path, line, what, lines, "not understood or out of range: skipped");
    }
    parsed.value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Options {
        Options::parse(text, |_| Ok(())).value
    }

    #[test]
    fn values_have_the_limits_of_the_configuration() {
        let text = "server_port 0\ntimeout 0\nretries 255\nmin_mtu 2000\nmin_rate 41\n\
                    retries 3\nmin_mtu 4096\n";
        let acm = config::Acm::default();
        let multicast = config::AcmMulticast::default();
        let parsed = Options::parse(text, |options| fit(&acm, &multicast, options));
        let lines: Vec<_> = parsed.skipped.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5]);
        assert_eq!(parsed.skipped[2].1, "retries 255: want 0 to 15");
        assert_eq!(apply(&acm, &parsed.value), acm);
        let want = config::AcmMulticast {
            retries: 3,
            min_mtu: 4096,
            ..multicast.clone()
        };
        assert_eq!(apply_multicast(&multicast, &parsed.value), want);
    }

    #[test]
    fn what_is_written_for_a_configuration_changes_nothing_of_it() {
        let defaults = (config::Acm::default(), config::AcmMulticast::default());
        let others = (
            config::Acm {
                tcp: Tcp::Open,
                tcp_port: 7000,
                socket_link: "".into(),
                tcp_link: "".into(),
                loopback: false,
                address_timeout_s: 90,
                route_timeout_s: 0,
                ..config::Acm::default()
            },
            config::AcmMulticast {
                route_prot: Prot::Acm,
                min_mtu: 4096,
                min_rate: 40,
                timeout_ms: 500,
                retries: 5,
                ..config::AcmMulticast::default()
            },
        );
        for (acm, multicast) in [defaults, others] {
            let text = files::generate_options(&acm, &multicast);
            let parsed = Options::parse(&text, |options| fit(&acm, &multicast, options));
            assert_eq!(parsed.skipped, []);
            let options = parsed.value;
            assert_eq!(apply(&acm, &options), acm);
            assert_eq!(apply_multicast(&multicast, &options), multicast);
            // ibacm is to go by it as well: nothing is left out.
            assert_eq!(
                options.paths_of_group,
                Some(multicast.route_prot == Prot::Acm)
            );
            assert_eq!(options.min_mtu, Some(multicast.min_mtu));
            assert_eq!(options.retries, Some(multicast.retries));
            // A setting of the configuration's own that is no longer the file's gives way.
            let later = config::Acm {
                address_timeout_s: 7200,
                ..acm.clone()
            };
            assert_ne!(apply(&later, &options).address_timeout_s, 7200);
        }
    }

    #[test]
    fn only_apmds_own_configuration_lets_other_hosts_in() {
        let open = parse("server_mode open\n");
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
        let applied = apply(&config::Acm::default(), &parse(options));
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
            &parse("route_prot acm\nmin_rate 40\nretries 1\n"),
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
