// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibacm_addr.cfg` for this host, as `ib_acme -A` writes it.

use std::fmt::Write;

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

#[cfg(test)]
mod tests {
    use super::super::names;
    use super::*;

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
        let parsed = names(&text);
        assert_eq!((parsed.value.len(), parsed.skipped.len()), (4, 0));
    }
}
