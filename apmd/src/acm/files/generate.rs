// SPDX-License-Identifier: MIT OR Apache-2.0
//! ibacm's configuration files, written for this host, as `ib_acme -A -O` does it.

use std::fmt::Write;

use crate::config;

/// A port, in the order in which ports are counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortName {
    /// The device's name.
    pub device: String,
    /// The port, counted from 1.
    pub port: u8,
    /// It is up.
    pub active: bool,
}

/// `ibacm_addr.cfg`: the host's name for the first port that is up, and for every port the name with
/// the port's number among all.
pub fn addresses(host: &str, ports: &[PortName]) -> String {
    let mut text = "\
# Names of this host's InfiniBand ports for ACM (ibacm, apmd).
#
# NAME DEVICE PORT PKEY
#
# NAME    a host name of up to 31 characters; IP addresses are read from the interfaces
# DEVICE  as in ibv_devices
# PORT    counted from 1
# PKEY    hexadecimal, or default: the first of the port's table
"
    .to_owned();
    let mut named = false;
    for (
        index,
        PortName {
            device,
            port,
            active,
        },
    ) in ports.iter().enumerate()
    {
        if *active && !std::mem::replace(&mut named, true) {
            let _ = writeln!(text, "{host} {device} {port} default");
        }
        let _ = writeln!(text, "{host}-{} {device} {port} default", index + 1);
    }
    text
}

/// `ibacm_opts.cfg` with what the configuration says, as far as the file can say it, and the
/// defaults of ibacm for the rest.
pub fn options(config: &config::Acm, multicast: &config::AcmMulticast) -> String {
    let mode = match config.tcp {
        config::Tcp::Off => "unix",
        config::Tcp::Loop => "loop",
        config::Tcp::Open => "open",
    };
    let hidden = [&config.socket_link, &config.tcp_link]
        .iter()
        .all(|link| link.as_os_str().is_empty());
    let route_prot = match multicast.route_prot {
        config::Prot::Sa => "sa",
        config::Prot::Acm => "acm",
    };
    let minutes = |seconds: u64| match seconds {
        0 => "-1".to_owned(),
        seconds => seconds.div_ceil(60).to_string(),
    };
    format!(
        "\
# Options of ACM (ibacm, apmd): NAME VALUE a line. What apmd has no use for is ibacm's alone.

# ibacm's log: stdout, stderr or a file; 0 errors, 1 configuration as well, 2 every step.
log_file /var/log/ibacm.log
log_level 0
umad_debug_level 0

# Keeps a second ibacm from starting.
lock_file /var/run/ibacm.pid

# Who may be a client: unix (this host, by socket), loop (this host, by TCP), open (everybody).
server_mode {mode}
server_port {port}

# yes: only ib_acme and the kernel, not librdmacm.
acme_plus_kernel_only {hidden}

# Addresses are looked for among hosts by multicast (acm). Minutes for which one found is believed,
# -1: for ever.
addr_prot acm
addr_timeout {address_timeout}

# Paths come from subnet administration (sa) or from the multicast group (acm). Minutes for which one
# is believed, -1: for ever.
route_prot {route_prot}
route_timeout {route_timeout}

# local: the path of this host to itself needs no question; none: it is asked for as any other.
loopback_prot {loopback}

# Milliseconds for an answer of other hosts or of subnet administration, and further tries.
timeout {timeout}
retries {retries}

# Questions to other hosts and to subnet administration at a time; sends and receives posted.
resolve_depth 1
sa_depth 1
send_depth 1
recv_depth 1024

# What every port of the fabric can do: MTU in bytes, rate in Gb/s. The same on all hosts.
min_mtu {min_mtu}
min_rate {min_rate}

# Paths read from a file at start: none, or opensm_full_v1 from route_data_file.
route_preload none
# route_data_file /etc/rdma/ibacm_route.data

# Addresses read from a file at start: none, or acm_hosts from addr_data_file.
addr_preload none
# addr_data_file /etc/rdma/ibacm_hosts.data

# 1: IP addresses in ibacm_addr.cfg count.
support_ips_in_addr_cfg 0
",
        port = config.tcp_port,
        hidden = if hidden { "yes" } else { "no" },
        loopback = if config.loopback { "local" } else { "none" },
        timeout = multicast.timeout_ms,
        retries = multicast.retries,
        min_mtu = multicast.min_mtu,
        min_rate = multicast.min_rate,
        address_timeout = minutes(config.address_timeout_s),
        route_timeout = minutes(config.route_timeout_s),
    )
}

#[cfg(test)]
mod tests {
    use super::super::{Options, Parsed, names};
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_written_is_understood() {
        let config = config::Acm::default();
        let text = options(&config, &config::AcmMulticast::default());
        let Parsed { value, skipped } = Options::parse(&text, |_| Ok(()));
        assert_eq!(skipped, []);
        let timeouts = (value.address_timeout, value.route_timeout);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(timeouts, (seconds(86400), seconds(3600)));
        assert_eq!(value.port, Some(6125));
    }

    #[test]
    fn the_first_port_that_is_up_has_the_hosts_name() {
        let port = |device: &str, port, active| PortName {
            device: device.to_owned(),
            port,
            active,
        };
        let ports = [
            port("mlx5_0", 1, false),
            port("mlx5_0", 2, true),
            port("mlx5_1", 1, true),
        ];
        let text = addresses("node", &ports);
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let want = [
            "node-1 mlx5_0 1 default",
            "node mlx5_0 2 default",
            "node-2 mlx5_0 2 default",
            "node-3 mlx5_1 1 default",
        ];
        assert_eq!(lines, want);
        let parsed = names(&text, false);
        assert_eq!((parsed.value.len(), parsed.skipped.len()), (4, 0));
    }
}
