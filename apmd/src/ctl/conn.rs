// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl conn`: connections, their paths, and why they are not armed.

use std::fmt::Write;

use clap::{Args, Subcommand};

use super::ask::ask;
use super::table::Table;
use super::{Failure, Options, Outcome, print};
use crate::observe::model::{self, Path, Show};

#[derive(Args)]
pub(super) struct Conn {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
#[command(infer_subcommands = true)]
enum Verb {
    /// Show connections
    Show(Filters),
}

/// Which connections.
#[derive(Args, Default)]
struct Filters {
    /// An ID, or: qpn N, device NAME, pid N, command NAME, state armed|... (all must fit)
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

/// One condition on a connection.
#[derive(PartialEq, Eq, Debug)]
enum Filter {
    Id(String),
    Qpn(u32),
    Device(String),
    Pid(i32),
    Command(String),
    State(String),
}

impl Conn {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let filters = match self.verb {
            Some(Verb::Show(filters)) => filters,
            None => Filters::default(),
        };
        let filters = parse(&filters.filters)?;
        let mut conns: Vec<model::Conn> = ask(options, Show::Conn)?;
        conns.retain(|conn| filters.iter().all(|filter| filter.fits(conn)));
        if options.wants_json() {
            options.print_json(&conns)?;
        } else if options.details {
            print(&conns.iter().map(details).collect::<Vec<_>>().join("\n"))?;
        } else {
            print(&table(&conns))?;
        }
        Ok(Outcome::Ok)
    }
}

/// Words in the manner of iproute2: a key and its value, or an ID alone.
fn parse(words: &[String]) -> Result<Vec<Filter>, Failure> {
    let wrong = |what: String| Failure::Failed(what);
    let mut filters = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            filters.push(Filter::Id(word.clone()));
            continue;
        }
        let keys = ["qpn", "device", "pid", "command", "state"];
        let fitting: Vec<_> = keys
            .iter()
            .filter(|key| key.starts_with(word.as_str()))
            .collect();
        let [key] = fitting[..] else {
            return Err(wrong(format!(
                "\"{word}\" is no connection ID and none of qpn, device, pid, command, state"
            )));
        };
        let value = words
            .next()
            .ok_or_else(|| wrong(format!("{key}: a value is missing")))?;
        let number =
            || number(value).ok_or_else(|| wrong(format!("{key}: \"{value}\" is no number")));
        filters.push(match *key {
            "qpn" => Filter::Qpn(number()?),
            "pid" => Filter::Pid(number()?.cast_signed()),
            "device" => Filter::Device(value.clone()),
            "command" => Filter::Command(value.clone()),
            _ => Filter::State(value.clone()),
        });
    }
    Ok(filters)
}

/// Decimal, or hexadecimal after 0x.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl Filter {
    fn fits(&self, conn: &model::Conn) -> bool {
        match self {
            Self::Id(id) => conn.id == *id,
            Self::Qpn(qpn) => conn.qpn == *qpn,
            Self::Device(device) => conn.device == *device,
            Self::Pid(pid) => conn.pid == *pid,
            Self::Command(command) => conn.command == *command,
            Self::State(state) => conn.protection.starts_with(state.as_str()),
        }
    }
}

fn table(conns: &[model::Conn]) -> String {
    let mut table = Table::new(&[
        "ID",
        "DEVICE",
        "QPN",
        "COMMAND",
        "PRIMARY",
        "ALTERNATE",
        "STATE",
        "WHY NOT",
    ]);
    for conn in conns {
        table.row([
            conn.id.clone(),
            conn.device.clone(),
            format!("0x{:06x}", conn.qpn),
            format!("{}[{}]", conn.command, conn.pid),
            brief(&conn.primary),
            conn.alternate
                .as_ref()
                .map_or_else(|| "-".to_owned(), brief),
            conn.protection.clone(),
            conn.reason.clone().unwrap_or_default(),
        ]);
    }
    if table.is_empty() {
        String::new()
    } else {
        table.text()
    }
}

fn brief(path: &Path) -> String {
    format!("port {} lid {}>{}", path.port, path.slid, path.dlid)
}

/// Everything about a connection, several lines.
fn details(conn: &model::Conn) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "    {name:<12} {value}");
    };
    line("state", state(conn));
    line(
        "queue pair",
        format!(
            "0x{:06x} of {} ({}), peer 0x{:06x}, {}, path migration {}",
            conn.qpn, conn.device, conn.node_guid, conn.peer_qpn, conn.qp_state, conn.migration
        ),
    );
    line(
        "process",
        format!(
            "{}[{}], {} side{}",
            conn.command,
            conn.pid,
            conn.role,
            opted(conn)
        ),
    );
    line("primary", long(&conn.primary));
    line(
        "alternate",
        conn.alternate
            .as_ref()
            .map_or_else(|| "none".to_owned(), long),
    );
    for (name, candidate) in [("chosen", &conn.chosen), ("runner-up", &conn.runner_up)] {
        if let Some(candidate) = candidate {
            line(
                name,
                format!(
                    "port {} {} to {}: {}",
                    candidate.port, candidate.sgid, candidate.dgid, candidate.score
                ),
            );
        }
    }
    line("association", association(&conn.association));
    for port in &conn.association.peer_ports {
        line("peer's port", format!("{} lid {}", port.gid, port.lid));
    }
    let counters = &conn.counters;
    line(
        "counters",
        format!(
            "migrations {} (ordered {}) rearms {} loads {} (stale {}) failed orders {} LAPs sent {} \
         received {} queries {}",
            counters.migrations,
            counters.ordered_migrations,
            counters.rearms,
            counters.loads,
            counters.stale_loads,
            counters.failed_orders,
            counters.laps_sent,
            counters.laps_received,
            counters.queries,
        ),
    );
    format!("conn {}\n{text}", conn.id)
}

fn opted(conn: &model::Conn) -> &'static str {
    if conn.opted_in { ", opted in" } else { "" }
}

fn state(conn: &model::Conn) -> String {
    let since = format!("for {:.1} s", conn.changed_seconds);
    match &conn.reason {
        None => format!("{} {since}", conn.protection),
        Some(reason) => format!("{} {since}: {reason}", conn.protection),
    }
}

fn long(path: &Path) -> String {
    format!(
        "port {} lid {} to {}, gid {} to {}, mtu {} sl {} rate {} pkey 0x{:04x} timeout {}",
        path.port,
        path.slid,
        path.dlid,
        path.sgid,
        path.dgid,
        path.mtu,
        path.sl,
        path.rate,
        path.pkey,
        path.ack_timeout,
    )
}

fn association(association: &model::Association) -> String {
    let id = |id: Option<u32>| id.map_or_else(|| "-".to_owned(), |id| format!("0x{id:08x}"));
    format!(
        "{}, comm id {} peer's {}",
        association.state,
        id(association.local_comm_id),
        id(association.remote_comm_id)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Result<Vec<Filter>, String> {
        let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        parse(&words).map_err(|failure| failure.to_string())
    }

    #[test]
    fn filters_are_keys_and_values_or_ids() {
        assert_eq!(
            words("3.1 q 0x12 dev mlx5_0 p 7"),
            Ok(vec![
                Filter::Id("3.1".to_owned()),
                Filter::Qpn(0x12),
                Filter::Device("mlx5_0".to_owned()),
                Filter::Pid(7),
            ])
        );
        assert_eq!(words("qpn").unwrap_err(), "qpn: a value is missing");
        assert_eq!(words("qpn abc").unwrap_err(), "qpn: \"abc\" is no number");
        assert!(
            words("port 1")
                .unwrap_err()
                .starts_with("\"port\" is no connection ID")
        );
    }
}
