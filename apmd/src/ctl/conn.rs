// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl conn`: connections, their paths, and why they are not armed.

use std::fmt::Write;
use std::time::Duration;

use clap::{Args, Subcommand};
use statemachine::Overlap;
use statemachine::view::Protection;
use strum::VariantArray;

use super::ask::{PATIENCE, ask, ask_within};
use super::table::{self, Column, or_dash};
use super::{Failure, Options, Outcome, print};
use crate::observe::connections::ConnectionPage;
use crate::observe::model::{self, Alternate, Path, SharedElement};
use crate::observe::request::{ConnectionFilter, Request, Show};

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
pub(super) struct Filters {
    /// An ID, or: qpn N, device NAME, pid N, command NAME, state armed|... (all must fit)
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

impl Filters {
    /// An ID that was named otherwise.
    pub(super) fn add_id(&mut self, id: String) -> Result<(), Failure> {
        if !id.starts_with(|c: char| c.is_ascii_digit()) {
            let text = format!("\"{id}\" is no connection ID, such as 3.1");
            return Err(Failure::Usage(text));
        }
        self.filters.push(id);
        Ok(())
    }

    pub(super) fn parse(&self) -> Result<ConnectionFilter, Failure> {
        parse(&self.filters)
    }
}

impl Conn {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let Filters { filters } = match self.verb {
            Some(Verb::Show(filters)) => filters,
            None => Filters::default(),
        };
        let filter = parse(&filters)?;
        let is_any = filter.is_any();
        let conns = all(options, filter, PATIENCE)?;
        if conns.is_empty() && !options.wants_json() {
            print(&match is_any {
                true => none_at_all(&ask(options, Show::Status)?),
                false => format!("no connection fits: {}", filters.join(" ")),
            })?;
            return Ok(Outcome::Ok);
        }
        options.show(&conns, || match options.details {
            true => conns.iter().map(details).collect::<Vec<_>>().join("\n"),
            false => table(&conns),
        })?;
        Ok(Outcome::Ok)
    }
}

/// All that fit, which the daemon tells a page at a time.
pub(super) fn all(
    options: &Options,
    filter: ConnectionFilter,
    patience: Duration,
) -> Result<Vec<model::Conn>, Failure> {
    let mut request = Request {
        connections: filter,
        ..Show::Conn.into()
    };
    let mut conns = Vec::new();
    loop {
        let page: ConnectionPage = ask_within(options, request.clone(), patience)?;
        conns.extend(page.connections);
        match page.next {
            Some(next) => request.connections.after = Some(next),
            None => return Ok(conns),
        }
    }
}

/// Why there is no connection.
fn none_at_all(status: &model::Status) -> String {
    match status.libraries {
        _ if status.devices.is_empty() => {
            "no connections: apmd has no RDMA device (see `apmctl status`)".to_owned()
        }
        0 => {
            "no connections: no program under `apmctl run`, or linked with the library, is running"
                .to_owned()
        }
        programs => format!(
            "no connections: of the {programs} programs that are connected to apmd, none has an \
             established RC connection"
        ),
    }
}

/// Words in the manner of iproute2: a key and its value, or an ID alone.
fn parse(words: &[String]) -> Result<ConnectionFilter, Failure> {
    let mut filter = ConnectionFilter::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            once(&mut filter.id, "ID", word.clone())?;
            continue;
        }
        let keys = ["qpn", "device", "pid", "command", "state"];
        let fitting: Vec<_> = keys
            .iter()
            .filter(|key| key.starts_with(word.as_str()))
            .collect();
        let [key] = fitting[..] else {
            return Err(Failure::Usage(format!(
                "\"{word}\" is no connection ID and none of {}",
                keys.join(", ")
            )));
        };
        let value = words
            .next()
            .ok_or_else(|| Failure::Usage(format!("{key}: a value is missing")))?;
        let number = || {
            number(value).ok_or_else(|| Failure::Usage(format!("{key}: \"{value}\" is no number")))
        };
        match *key {
            "qpn" => once(&mut filter.qpn, key, number()?)?,
            "pid" => once(&mut filter.pid, key, number()?.cast_signed())?,
            "device" => once(&mut filter.device, key, value.clone())?,
            "command" => once(&mut filter.command, key, value.clone())?,
            _ => once(&mut filter.state, key, state_word(value)?)?,
        }
    }
    Ok(filter)
}

fn once<T>(place: &mut Option<T>, key: &str, value: T) -> Result<(), Failure> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Failure::Usage(format!("{key}: one at most"))),
    }
}

/// A state of protection, or its beginning.
fn state_word(word: &str) -> Result<String, Failure> {
    let states: Vec<_> = Protection::VARIANTS
        .iter()
        .map(ToString::to_string)
        .collect();
    if states.iter().any(|state| state.starts_with(word)) {
        return Ok(word.to_owned());
    }
    let states = states.join(", ");
    Err(Failure::Usage(format!(
        "state: \"{word}\" is none of {states}"
    )))
}

/// Decimal, or hexadecimal after 0x.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn table(conns: &[model::Conn]) -> String {
    let columns: [Column<model::Conn>; 10] = [
        ("ID", |conn| conn.id.clone()),
        ("DEVICE", |conn| conn.qp.device.clone()),
        ("QPN", |conn| format!("0x{:06x}", conn.qp.qpn)),
        ("COMMAND", |conn| {
            format!("{}[{}]", conn.program.command, conn.program.pid)
        }),
        ("PEER", |conn| {
            let node = conn.qp.peer_node.as_ref();
            node.unwrap_or(&conn.primary.dgid).clone()
        }),
        ("PRIMARY", |conn| brief(&conn.primary)),
        ("ALTERNATE", |conn| {
            or_dash(
                conn.alternate
                    .as_ref()
                    .map(|alternate| brief(&alternate.path)),
            )
        }),
        ("SHARED", |conn| {
            conn.alternate.as_ref().map_or_else(String::new, shared)
        }),
        ("STATE", |conn| conn.standing.protection.clone()),
        ("REASON", |conn| {
            conn.standing.reason.clone().unwrap_or_default()
        }),
    ];
    table::table(conns, &columns)
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
            conn.qp.qpn,
            conn.qp.device,
            conn.qp.node_guid,
            conn.qp.peer_qpn,
            conn.qp.qp_state,
            conn.qp.migration
        ),
    );
    line(
        "process",
        format!(
            "{}[{}], {} side{}",
            conn.program.command,
            conn.program.pid,
            conn.qp.role,
            opted(conn)
        ),
    );
    line(
        "peer",
        match &conn.qp.peer_node {
            Some(name) => format!("{name}, gid {}", conn.primary.dgid),
            None => format!("gid {}", conn.primary.dgid),
        },
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
        }) => "nothing shared with the primary that could be avoided".to_owned(),
        Some(Overlap { switches, links }) => format!(
            "{switches} switch{} and {links} link{} shared with the primary, though avoidable",
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
        " (unavoidable)"
    };
    format!("{}{only}", element.name)
}

fn origin(origin: Option<&str>) -> String {
    let elsewhere = "not known: the peer proposed it, or it was loaded before this apmd started";
    origin.unwrap_or(elsewhere).to_owned()
}

fn from(origin: Option<&str>) -> String {
    origin.map_or_else(String::new, |origin| format!(", path from {origin}"))
}

fn opted(conn: &model::Conn) -> &'static str {
    if conn.program.opted_in {
        ", opted in"
    } else {
        ""
    }
}

fn state(conn: &model::Conn) -> String {
    let since = format!("for {:.1} s", conn.standing.changed_seconds);
    match &conn.standing.reason {
        None => format!("{} {since}", conn.standing.protection),
        Some(reason) => format!("{} {since}: {reason}", conn.standing.protection),
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
    if association.comm_ids_hidden {
        let state = &association.state;
        return format!("{state}, comm IDs are shown to its user and to root only");
    }
    let id = |id: Option<u32>| id.map_or_else(|| "-".to_owned(), |id| format!("0x{id:08x}"));
    format!(
        "{}, comm ID {} peer's {}",
        association.state,
        id(association.local_comm_id),
        id(association.remote_comm_id)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use statemachine::view::ConnectionCounters;

    fn words(text: &str) -> Result<ConnectionFilter, String> {
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
            serde_json::to_string(&ConnectionCounters::default()).expect("plain numbers")
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
        let overlap = "overlap 1 switch and 2 links shared with the primary, though avoidable";
        let elements = ["switch spine1", "switch leaf2 (unavoidable)"];
        assert_eq!(lines, [overlap, elements[0], elements[1], "source ssa"]);
        let (row, lines) = shown(r#""origin":null,"overlap":null,"shared":null"#);
        assert!(row.is_some_and(|row| row.contains("port 1 lid 4>8 ? armed")));
        assert_eq!(
            lines,
            [
                "overlap not known",
                "source not known: the peer proposed it, or it was loaded before this apmd started"
            ]
        );
        let (row, _) = shown(r#""origin":"sa","overlap":{"switches":0,"links":0},"shared":[]"#);
        assert!(row.is_some_and(|row| row.contains("port 1 lid 4>8 nothing armed")));
    }

    #[test]
    fn filters_are_keys_and_values_or_an_id() {
        let want = ConnectionFilter {
            id: Some("3.1".to_owned()),
            qpn: Some(0x12),
            device: Some("mlx5_0".to_owned()),
            pid: Some(7),
            ..ConnectionFilter::default()
        };
        assert_eq!(words("3.1 q 0x12 dev mlx5_0 p 7"), Ok(want));
        assert_eq!(words("qpn").unwrap_err(), "qpn: a value is missing");
        assert_eq!(words("qpn abc").unwrap_err(), "qpn: \"abc\" is no number");
        assert_eq!(words("3.1 4.1").unwrap_err(), "ID: one at most");
        assert!(
            words("port 1")
                .unwrap_err()
                .starts_with("\"port\" is no connection ID")
        );
        assert!(words("state rearming").is_ok());
        let error = words("state nonsense").unwrap_err();
        assert!(error.contains("none of armed, rearming, "), "{error}");
    }
}
