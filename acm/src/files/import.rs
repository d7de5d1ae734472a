// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibacm_opts.cfg` put into the words of apmd's configuration: a name and a value a line, names
//! without regard to case.

use std::collections::BTreeMap;
use std::fmt::Write;

use cm_msgs::is_unprintable;

use super::lines;

/// Where apmd reads the data files, by the option that names one, and what else that takes.
const DATA: [(&str, &str, &str, &str); 2] = [
    (
        "addr_data_file",
        "addr_preload",
        "acm_hosts",
        "ibacm_hosts.data",
    ),
    (
        "route_data_file",
        "route_preload",
        "opensm_full_v1",
        "ibacm_route.data",
    ),
];

/// Options of which apmd has no key, and what it does.
const FIXED: [(&str, &str); 8] = [
    ("addr_timeout", "an address is believed for a day"),
    (
        "route_timeout",
        "a path is believed for an hour, and asked for again when the fabric changes",
    ),
    (
        "loopback_prot",
        "the path of this host to itself needs no question",
    ),
    (
        "timeout",
        "other hosts have 2 s and the port's SubnetTimeOut for an answer",
    ),
    ("retries", "other hosts are asked twice more"),
    (
        "min_mtu",
        "questions go to the group of MTU 2048: keep that value in ibacm's file on other hosts",
    ),
    (
        "min_rate",
        "questions go to the group of 10 Gb/s: keep that value in ibacm's file on other hosts",
    ),
    (
        "support_ips_in_addr_cfg",
        "IP addresses in ibacm_addr.cfg always count",
    ),
];

/// Where ibacm serves TCP unless it is told.
const PORT: u16 = 6125;

/// Options of ibacm's own workings.
const OF_IBACM: [&str; 11] = [
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

/// The section `[acm]` that does what the options say, with a comment for each that has no
/// counterpart.
pub fn import(text: &str) -> String {
    let mut imported = Imported::default();
    let mut options = BTreeMap::new();
    for (number, line) in lines(text) {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some(name), Some(value)) => {
                let name = name.to_ascii_lowercase();
                imported.take(number, &name, value);
                options.insert(name, value);
            }
            _ => imported.remark(format!("line {number}: want a name and a value")),
        }
    }
    imported.take_tcp(&options);
    imported.take_data(&options);
    imported.text()
}

/// What there is so far.
#[derive(Default)]
struct Imported {
    /// Keys and their values in TOML; of options that are there twice the last counts.
    keys: BTreeMap<&'static str, String>,
    remarks: Vec<String>,
}

impl Imported {
    fn remark(&mut self, what: String) {
        // It stays a comment, whatever the file has in it.
        self.remarks.push(what.replace(is_unprintable, " "));
    }

    fn take(&mut self, number: usize, name: &str, value: &str) {
        let lower = value.to_ascii_lowercase();
        let taken = match (name, lower.as_str()) {
            ("server_mode", "unix" | "loop" | "open") => return,
            ("server_port", port) if port.parse().is_ok_and(|port: u16| port != 0) => return,
            ("acme_plus_kernel_only", value) => {
                if is_yes(value) {
                    let what =
                        "no key; librdmacm finds what is served in /run: name another directory";
                    self.remark(format!("{name} {value}: {what}"));
                }
                return;
            }
            ("route_prot", "sa") => ("multicast", "\"addresses\"".to_owned()),
            ("route_prot", "acm") => ("multicast", "\"paths\"".to_owned()),
            _ => return self.take_other(number, name, value),
        };
        self.keys.insert(taken.0, taken.1);
    }

    fn take_other(&mut self, number: usize, name: &str, value: &str) {
        let fixed = FIXED.iter().find(|(fixed, _)| *fixed == name);
        let is_data = DATA.iter().any(|data| name == data.0 || name == data.1);
        if let Some((_, instead)) = fixed {
            self.remark(format!("{name} {value}: no key; {instead}"));
        } else if OF_IBACM.contains(&name) {
            self.remark(format!("{name} {value}: ibacm's own workings, no key"));
        } else if !is_data {
            self.remark(format!("line {number}: {name} {value}: not understood"));
        }
    }

    /// ibacm has a port, and says apart from it who may use it.
    fn take_tcp(&mut self, options: &BTreeMap<String, &str>) {
        let mode = options
            .get("server_mode")
            .map(|mode| mode.to_ascii_lowercase());
        if !matches!(mode.as_deref(), Some("loop" | "open")) {
            return;
        }
        let named = options
            .get("server_port")
            .and_then(|port| port.parse().ok());
        let port = named.filter(|port: &u16| *port != 0).unwrap_or(PORT);
        self.keys.insert("tcp_port", port.to_string());
        if mode.as_deref() == Some("open") {
            self.remark(
                "server_mode open: tcp_networks = [...] lets hosts of these networks in".to_owned(),
            );
        }
    }

    /// apmd reads data files where they are; ibacm wants to be told.
    fn take_data(&mut self, options: &BTreeMap<String, &str>) {
        for (option, preload, how, name) in DATA {
            let wanted = options
                .get(preload)
                .is_some_and(|value| value.eq_ignore_ascii_case(how));
            let usual = format!("/etc/rdma/{name}");
            let named = options.get(option).copied().unwrap_or(&usual);
            match wanted {
                true if named == usual => {}
                true => self.remark(format!(
                    "{option} {named}: link {usual} to it, or set data_dir"
                )),
                false => self.remark(format!(
                    "{preload} is not {how}: {usual} is read if it is there"
                )),
            }
        }
    }

    fn text(&self) -> String {
        let mut text = "[acm]\nserve = true\n".to_owned();
        for (key, value) in &self.keys {
            let _ = writeln!(text, "{key} = {value}");
        }
        for remark in &self.remarks {
            let _ = writeln!(text, "# {remark}");
        }
        text
    }
}

fn is_yes(value: &str) -> bool {
    matches!(value, "true" | "yes") || value.parse().is_ok_and(|number: i64| number != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<String> {
        let text = import(text);
        let lines = text.lines().skip(2);
        lines
            .filter(|line| !line.starts_with('#'))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn what_has_a_counterpart_becomes_that() {
        let text = "# comment\n\nserver_mode loop\nSERVER_PORT 7000\nacme_plus_kernel_only yes\n\
                    route_prot ACM\n";
        assert_eq!(keys(text), ["multicast = \"paths\"", "tcp_port = 7000"]);
        assert!(import(text).contains("# acme_plus_kernel_only yes: no key; "));
        assert_eq!(
            keys("server_mode loop\nserver_mode unix\nserver_port 7000\n"),
            [""; 0]
        );
        assert_eq!(keys("server_mode loop\n"), ["tcp_port = 6125"]);
    }

    #[test]
    fn nobody_is_let_in_by_it() {
        assert_eq!(keys("server_mode open\n"), ["tcp_port = 6125"]);
        assert!(import("server_mode open\n").contains("# server_mode open: tcp_networks = "));
    }

    #[test]
    fn what_has_none_is_a_comment() {
        let text = "colour red\nserver_port 0\nserver_mode\nroute_timeout 0\nlog_level\u{7} 2\nlog_level 2\n\
                    addr_preload acm_hosts\naddr_data_file /srv/hosts\n";
        assert_eq!(keys(text), [""; 0]);
        let text = import(text);
        for want in [
            "# line 1: colour red: not understood\n",
            "# line 2: server_port 0: not understood\n",
            "# line 3: want a name and a value\n",
            "# route_timeout 0: no key; a path is believed for an hour",
            "# line 5: log_level  2: not understood\n",
            "# log_level 2: ibacm's own workings, no key\n",
            "# addr_data_file /srv/hosts: link /etc/rdma/ibacm_hosts.data to it, or set data_dir\n",
            "# route_preload is not opensm_full_v1: /etc/rdma/ibacm_route.data is read if it is there\n",
        ] {
            assert!(text.contains(want), "{want} is not in {text}");
        }
    }
}
