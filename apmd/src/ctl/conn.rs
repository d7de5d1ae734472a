// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl conn`: connections, their paths, and why they are not armed.

use std::fmt::Write;

use clap::{Args, Subcommand};

use super::ask::ask;
use super::table::Table;
use super::{Failure, Options, Outcome};
use crate::observe::model::{self, Alternate, Overlap, Path, SharedElement, Show};

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
        options.show(&conns, || match options.details {
            true => conns.iter().map(details).collect::<Vec<_>>().join("\n"),
            false => table(&conns),
        })?;
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
        "SHARED",
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
                .map_or_else(|| "-".to_owned(), |alternate| brief(&alternate.path)),
            conn.alternate.as_ref().map_or_else(String::new, shared),
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

/// What an alternate shares with the primary, in a word or two.
fn shared(alternate: &Alternate) -> String {
    match alternate.overlap {
        None => "?".to_owned(),
        Some(Overlap {
            switches: 0,
            links: 0,
        }) => "nothing".to_owned(),
        Some(Overlap { switches, links }) => format!("{switches} sw {links} ln"),
    }
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
            .map_or_else(|| "none".to_owned(), |alternate| long(&alternate.path)),
    );
    if let Some(alternate) = &conn.alternate {
        line("overlap", overlap(alternate.overlap));
        for element in alternate.shared.iter().flatten() {
            line("", element_line(element));
        }
        line("source", origin(alternate.origin.as_deref()));
    }
    for (name, candidate) in [("chosen", &conn.chosen), ("runner-up", &conn.runner_up)] {
        if let Some(candidate) = candidate {
            line(
                name,
                format!(
                    "port {} {} to {}: {}{}",
                    candidate.port,
                    candidate.sgid,
                    candidate.dgid,
                    candidate.score,
                    from(candidate.origin.as_deref())
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

/// What paths share though they need not, in words.
fn overlap(overlap: Option<Overlap>) -> String {
    match overlap {
        None => "not known".to_owned(),
        Some(Overlap {
            switches: 0,
            links: 0,
        }) => "nothing avoidable shared with the primary".to_owned(),
        Some(Overlap { switches, links }) => format!(
            "{switches} switch{} and {links} link{} shared with the primary though others are there",
            if switches == 1 { "" } else { "es" },
            if links == 1 { "" } else { "s" },
        ),
    }
}

/// What both paths depend on, by name.
fn element_line(element: &SharedElement) -> String {
    let only = if element.avoidable {
        ""
    } else {
        " (no way around it)"
    };
    format!("{}{only}", element.name)
}

fn origin(origin: Option<&str>) -> String {
    origin.unwrap_or("not from this daemon").to_owned()
}

fn from(origin: Option<&str>) -> String {
    origin.map_or_else(String::new, |origin| format!(", path from {origin}"))
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

    /// A connection, as the daemon's JSON has it.
    fn conn(alternate: &str) -> model::Conn {
        let path = r#""port":1,"slid":4,"dlid":8,"sgid":"fe80::1","dgid":"fe80::2","sl":0,"mtu":4096,
            "rate":7,"pkey":65535,"ack_timeout":14,"global":false,"traffic_class":0,"hop_limit":0,
            "flow_label":0"#;
        let json = format!(
            r#"{{"id":"1.1","device":"mlx5_0","node_guid":"0x1","qpn":18,"peer_qpn":19,"role":"active",
            "opted_in":false,"pid":7,"command":"rping","qp_state":"rts","migration":"armed",
            "protection":"armed","reason":null,"primary":{{{path}}},
            "alternate":{{{path},{alternate}}},"chosen":null,"runner_up":null,
            "association":{{"state":"established","local_comm_id":1,"remote_comm_id":2,
            "peer_ports":[]}},"counters":{},"changed_seconds":1.0}}"#,
            serde_json::to_string(&model::ConnCounters::default()).expect("plain numbers")
        );
        serde_json::from_str(&json).expect("as the model says")
    }

    #[test]
    fn an_alternate_says_what_it_shares_and_who_knew_it() {
        let shown = |alternate| {
            let conn = conn(alternate);
            let kept = |line: &&str| {
                ["overlap ", "source ", "switch ", "link "]
                    .iter()
                    .any(|word| line.contains(word))
            };
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            let details = details(&conn);
            let lines: Vec<_> = details.lines().filter(kept).map(words).collect();
            (table(&[conn]).lines().last().map(words), lines)
        };
        let (row, lines) = shown(
            r#""origin":"ssa","overlap":{"switches":1,"links":2},"shared":[
            {"name":"switch spine1","avoidable":true},{"name":"switch leaf2","avoidable":false}]"#,
        );
        assert!(row.is_some_and(|row| row.contains("port 1 lid 4>8 1 sw 2 ln armed")));
        let overlap =
            "overlap 1 switch and 2 links shared with the primary though others are there";
        let elements = ["switch spine1", "switch leaf2 (no way around it)"];
        assert_eq!(lines, [overlap, elements[0], elements[1], "source ssa"]);
        let (row, lines) = shown(r#""origin":null,"overlap":null,"shared":null"#);
        assert!(row.is_some_and(|row| row.contains("port 1 lid 4>8 ? armed")));
        assert_eq!(lines, ["overlap not known", "source not from this daemon"]);
        let (row, _) = shown(r#""origin":"sa","overlap":{"switches":0,"links":0},"shared":[]"#);
        assert!(row.is_some_and(|row| row.contains("port 1 lid 4>8 nothing armed")));
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
