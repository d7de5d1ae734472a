// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibacm_opts.cfg`: a name and a value a line; names without regard to case.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use super::{Parsed, lines};

/// Who may be a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// This host, by the Unix socket.
    Unix,
    /// This host, by TCP.
    Loop,
    /// Everybody, by TCP.
    Open,
}

/// What the file says. What it does not say is `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// `server_mode`.
    pub mode: Option<Mode>,
    /// `server_port`.
    pub port: Option<u16>,
    /// `acme_plus_kernel_only`: librdmacm does not find the service.
    pub acme_and_kernel_only: Option<bool>,
    /// `addr_timeout`, in minutes there; zero, which is `-1` there: for ever.
    pub address_timeout: Option<Duration>,
    /// `route_timeout`, the same.
    pub route_timeout: Option<Duration>,
    /// `loopback_prot local`.
    pub loopback: Option<bool>,
    /// `addr_preload acm_hosts`: addresses are read from a file.
    pub preload_addresses: bool,
    /// `addr_data_file`.
    pub address_file: Option<PathBuf>,
    /// `route_preload opensm_full_v1`: paths are read from a file.
    pub preload_routes: bool,
    /// `route_data_file`.
    pub route_file: Option<PathBuf>,
    /// `support_ips_in_addr_cfg`: the file of names may hold IP addresses.
    pub ips_in_names: bool,
    /// `route_prot acm`: paths are those of the multicast group.
    pub paths_of_group: Option<bool>,
    /// `min_mtu`, in bytes.
    pub min_mtu: Option<u16>,
    /// `min_rate`, in Gb/s, 2 for 2.5.
    pub min_rate: Option<u16>,
    /// `timeout`: the wait for another host's answer.
    pub timeout: Option<Duration>,
    /// `retries`: copies of a question to other hosts after the first.
    pub retries: Option<u8>,
}

/// Options of ibacm's own workings, which have no meaning here.
const OF_IBACM: &[&str] = &[
    "log_file",
    "log_level",
    "umad_debug_level",
    "lock_file",
    "addr_prot",
    "sa_depth",
    "resolve_depth",
    "send_depth",
    "recv_depth",
    "provider_lib_path",
    "provider",
];

impl Options {
    /// Reads the file's text. Nothing in it is an error: a line after which the options do not
    /// `fit` is skipped.
    pub fn parse(text: &str, fit: impl Fn(&Self) -> Result<(), Cow<'static, str>>) -> Parsed<Self> {
        let mut options = Self::default();
        let mut skipped = Vec::new();
        for (number, line) in lines(text) {
            let mut words = line.split_ascii_whitespace();
            let (Some(name), Some(value)) = (words.next(), words.next()) else {
                skipped.push((number, "want a name and a value".to_owned()));
                continue;
            };
            let mut changed = options.clone();
            let set = changed.set(&name.to_ascii_lowercase(), value);
            match set.map_err(Cow::from).and_then(|()| fit(&changed)) {
                Ok(()) => options = changed,
                Err(what) => skipped.push((number, format!("{name} {value}: {what}"))),
            }
        }
        Parsed {
            value: options,
            skipped,
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        let value_lower = value.to_ascii_lowercase();
        match name {
            "server_mode" => self.mode = Some(mode(&value_lower)?),
            "server_port" => self.port = Some(value.parse().map_err(|_| "want a port")?),
            "acme_plus_kernel_only" => self.acme_and_kernel_only = Some(is_yes(&value_lower)),
            "addr_timeout" => self.address_timeout = Some(minutes(value)?),
            "route_timeout" => self.route_timeout = Some(minutes(value)?),
            "loopback_prot" => self.loopback = Some(one_of(&value_lower, "none", "local")?),
            "addr_preload" => {
                self.preload_addresses =
                    value_lower != "no" && one_of(&value_lower, "none", "acm_hosts")?;
            }
            "addr_data_file" => self.address_file = Some(value.into()),
            "route_preload" => {
                self.preload_routes =
                    value_lower != "no" && one_of(&value_lower, "none", "opensm_full_v1")?;
            }
            "route_data_file" => self.route_file = Some(value.into()),
            "route_prot" => self.paths_of_group = Some(one_of(&value_lower, "sa", "acm")?),
            "min_mtu" => self.min_mtu = Some(value.parse().map_err(|_| "want bytes")?),
            "min_rate" => self.min_rate = Some(value.parse().map_err(|_| "want gb/s")?),
            "timeout" => {
                let millis = value.parse().map_err(|_| "want milliseconds")?;
                self.timeout = Some(Duration::from_millis(millis));
            }
            "retries" => self.retries = Some(value.parse().map_err(|_| "want a number")?),
            "support_ips_in_addr_cfg" => self.ips_in_names = is_yes(&value_lower),
            _ if OF_IBACM.contains(&name) => {}
            _ => return Err("no such option"),
        }
        Ok(())
    }
}

fn mode(value: &str) -> Result<Mode, &'static str> {
    match value {
        "unix" => Ok(Mode::Unix),
        "loop" => Ok(Mode::Loop),
        "open" => Ok(Mode::Open),
        _ => Err("want unix, loop or open"),
    }
}

/// Whether it is the second of two words.
fn one_of(value: &str, no: &str, yes: &str) -> Result<bool, &'static str> {
    match value {
        value if value == no => Ok(false),
        value if value == yes => Ok(true),
        _ => Err("no such value"),
    }
}

fn is_yes(value: &str) -> bool {
    matches!(value, "true" | "yes") || value.parse().is_ok_and(|number: i64| number != 0)
}

/// Minutes; a negative number is for ever, which here is zero, and zero is at once, for which the
/// least time that `[acm]` can say stands.
fn minutes(value: &str) -> Result<Duration, &'static str> {
    match value.parse::<i64>().map_err(|_| "want minutes, or -1")? {
        0 => Ok(Duration::from_secs(1)),
        minutes => Ok(Duration::from_secs(
            u64::try_from(minutes).unwrap_or(0).saturating_mul(60),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ibacm_understands() {
        let text = "# comment\n\nserver_mode open\nSERVER_PORT 7000\nacme_plus_kernel_only yes\n\
                    addr_timeout 1440\nroute_timeout -1\nloopback_prot local\nlog_level 2\n\
                    addr_preload acm_hosts\naddr_data_file /etc/rdma/hosts.data\n\
                    route_preload opensm_full_v1\nroute_data_file /etc/rdma/route.data\n\
                    support_ips_in_addr_cfg 1\nprovider ibacmp default\n\
                    route_prot ACM\nmin_mtu 4096\nmin_rate 40\ntimeout 500\nretries 1\n";
        let Parsed { value, skipped } = Options::parse(text, |_| Ok(()));
        assert_eq!(skipped, []);
        let want = Options {
            mode: Some(Mode::Open),
            port: Some(7000),
            acme_and_kernel_only: Some(true),
            address_timeout: Some(Duration::from_secs(86400)),
            route_timeout: Some(Duration::ZERO),
            loopback: Some(true),
            preload_addresses: true,
            address_file: Some("/etc/rdma/hosts.data".into()),
            preload_routes: true,
            route_file: Some("/etc/rdma/route.data".into()),
            ips_in_names: true,
            paths_of_group: Some(true),
            min_mtu: Some(4096),
            min_rate: Some(40),
            timeout: Some(Duration::from_millis(500)),
            retries: Some(1),
        };
        assert_eq!(value, want);
    }

    #[test]
    fn what_nobody_understands_is_skipped() {
        let text =
            "colour red\nserver_port many\nserver_mode\naddr_preload none\nroute_timeout 0\n";
        let Parsed { value, skipped } = Options::parse(text, |_| Ok(()));
        let want = [
            (1, "colour red: no such option".to_owned()),
            (2, "server_port many: want a port".to_owned()),
            (3, "want a name and a value".to_owned()),
        ];
        assert_eq!(skipped, want);
        assert_eq!(value.port, None);
        assert_eq!(value.route_timeout, Some(Duration::from_secs(1)));
    }
}
