// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl conn`: connections, their paths, and why they are not armed.

mod set;

use std::fmt::Write;

use clap::{Args, Subcommand};
use statemachine::{Overlap, PathHealth};

use super::ask::ask;
use super::table::{self, Column, or_dash};
use super::which::{Filters, brief, pages, why_held};
use super::{Failure, Options, Outcome, order, print};
use crate::observe::filter;
use crate::observe::model::{self, Alternate, ModuleState, Path, SharedElement};
use crate::observe::request::Show;

#[derive(Args)]
pub(super) struct Conn {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
#[command(infer_subcommands = true)]
enum Verb {
    /// Show connections; one that is named by its ID with all that explains it
    Show(Filters),
    /// Say how a connection is to be protected
    Set(set::Set),
    /// Have armed connections leave their path for the alternate
    Migrate(order::Order),
    /// Look for an alternate again now, and wait until connections are armed
    Rearm(order::Order),
}

impl Conn {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let filters = match self.verb {
            Some(Verb::Set(set)) => return set.run(options),
            Some(Verb::Migrate(order)) => return order.run(options, order::Verb::Migrate),
            Some(Verb::Rearm(order)) => return order.run(options, order::Verb::Rearm),
            Some(Verb::Show(filters)) => filters,
            None => Filters::default(),
        };
        let filter = filters.parse()?;
        let is_any = filter.is_any();
        let explain = options.details || filter.id.is_some();
        let conns = pages(options, filter, options.answer_timeout, explain)?;
        if conns.is_empty() && !options.wants_json() {
            print(&match is_any {
                true => none_at_all(&ask(options, Show::Status)?),
                false => format!("no connection fits: {}", filters.words()),
            })?;
            return Ok(Outcome::Ok);
        }
        options.show(&conns, || match explain {
            true => conns.iter().map(details).collect::<Vec<_>>().join("\n"),
            false => table(&conns),
        })?;
        Ok(Outcome::Ok)
    }
}

/// Why there is no connection.
fn none_at_all(status: &model::Status) -> String {
    match status.libraries {
        _ if status.devices.is_empty() => {
            "no connections: apmd has no RDMA device (see `apmctl status`)".to_owned()
        }
        _ if status.kernel.state == ModuleState::Loaded => {
            "no connections: nothing on this host has an RC connection that apmd manages (see `apmctl qp`)"
                .to_owned()
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

fn table(conns: &[model::Conn]) -> String {
    let columns: [Column<model::Conn>; 10] = [
        ("ID", |conn| conn.id.clone()),
        ("DEVICE", |conn| conn.qp.device.clone()),
        ("QPN", |conn| format!("0x{:06x}", conn.qp.qpn)),
        ("COMMAND", |conn| {
            filter::owner(&conn.program.command, conn.program.pid)
        }),
        ("PEER", |conn| {
            match conn.association.peer_daemon.state.as_str() {
                "silent" => format!("{} (apmd silent)", peer(conn)),
                _ => peer(conn),
            }
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
        ("STATE", protection),
        ("REASON", |conn| {
            conn.standing.reason.clone().unwrap_or_default()
        }),
    ];
    table::table(conns, &columns)
}

/// The peer's name, else its GID, else its LID.
fn peer(conn: &model::Conn) -> String {
    let Path { dgid, dlid, .. } = &conn.primary;
    match &conn.qp.peer_node {
        Some(name) => name.clone(),
        None if dgid == "::" => format!("lid {dlid}"),
        None => dgid.clone(),
    }
}

/// Whether the peer's daemon answers, and when it was heard.
fn peer_daemon(daemon: &model::PeerDaemon) -> String {
    let heard = daemon
        .heard_seconds
        .map(|seconds| format!("heard {seconds:.1} s ago"));
    let version = daemon.protocol_version.map_or_else(String::new, |version| {
        format!(", protocol version {version}")
    });
    match (daemon.state.as_str(), heard) {
        ("answers", Some(heard)) => format!("answers, {heard}{version}"),
        ("silent", heard) => {
            let silent = daemon.silent_seconds.unwrap_or_default();
            let heard = heard.unwrap_or_else(|| "not heard before".to_owned());
            format!(
                "silent for {silent:.1} s: the peer's kernel answers in its place; {heard}{version}; start \
                 apmd on the peer's host"
            )
        }
        (_, Some(heard)) => format!("{heard}, nothing recent is known{version}"),
        (_, None) => "not heard yet".to_owned(),
    }
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
    if conn.standing.held.is_some() {
        line("stays", why_held(conn));
    }
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
        "owner",
        format!(
            "{}, {} side, by the {}{}",
            filter::owner(&conn.program.command, conn.program.pid),
            conn.qp.role,
            conn.program.by,
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
    line("peer's apmd", peer_daemon(&conn.association.peer_daemon));
    let probing = &conn.probing;
    line("primary", long(&conn.primary));
    line(
        "",
        probe(probing.primary_health, probing.primary_probe_age_ms),
    );
    line(
        "alternate",
        conn.alternate
            .as_ref()
            .map_or_else(|| "none".to_owned(), |alternate| long(&alternate.path)),
    );
    if let Some(alternate) = &conn.alternate {
        line(
            "",
            probe(probing.alternate_health, probing.alternate_probe_age_ms),
        );
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
    line("policy", set::words(&conn.standing.policy));
    line(
        "local loss",
        if conn.standing.standing_order {
            match conn.program.by.as_str() {
                "kernel" => "migrated at once by the kernel module (standing order)",
                _ => "migrated at once by the program's library (standing order)",
            }
        } else {
            "no standing order"
        }
        .to_owned(),
    );
    for warning in &conn.standing.warnings {
        line("warning", warning.clone());
    }
    line("association", association(&conn.association));
    for port in &conn.association.peer_ports {
        let drained = if port.drained { ", drained" } else { "" };
        line(
            "peer's port",
            format!("{} lid {}{drained}", port.gid, port.lid),
        );
    }
    let counters = &conn.counters;
    line(
        "counters",
        format!(
            "migrations {} (ordered {}, of these by standing order {}) rearms {} loads {} (stale {}) failed orders {} LAPs sent {} \
         received {} queries {}",
            counters.migrations,
            counters.ordered_migrations,
            counters.standing_migrations,
            counters.rearms,
            counters.loads,
            counters.stale_loads,
            counters.failed_orders,
            counters.laps_sent,
            counters.laps_received,
            counters.queries,
        ),
    );
    for (place, past) in conn.history.iter().flatten().enumerate() {
        let name = if place == 0 { "history" } else { "" };
        line(
            name,
            format!("{:>9.2} s ago: {}", past.seconds_ago, past.text),
        );
    }
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

/// The state of protection, and what it does not cover: nobody is to read "armed" of half of it.
fn protection(conn: &model::Conn) -> String {
    let standing = &conn.standing;
    let half = match (standing.grade.as_deref(), &standing.grade_detail) {
        (None | Some("full"), _) => return standing.protection.clone(),
        // By name, as `switch leaf3`, or how many.
        (Some("same_switch"), Some(detail)) if detail.ends_with("shared") => detail.clone(),
        (Some("same_switch"), Some(name)) => format!("same {name}"),
        (Some(grade), _) => grade.replace('_', " "),
    };
    format!("{} ({half})", standing.protection)
}

/// What probes say of a path.
fn probe(health: PathHealth, age_ms: Option<f64>) -> String {
    match (health, age_ms) {
        (PathHealth::Unknown, _) => "not verified".to_owned(),
        (health, None) => format!("{health}, no probe has come back"),
        (health, Some(ms)) => format!("{health}, last probe back {ms:.0} ms ago"),
    }
}

fn state(conn: &model::Conn) -> String {
    let since = format!("for {:.1} s", conn.standing.changed_seconds);
    match &conn.standing.reason {
        None => format!("{} {since}", protection(conn)),
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
    fn the_peers_daemon_is_shown_as_it_is_known() {
        let mut conn = conn(r#""origin":null,"overlap":null,"shared":null"#);
        let mut shown = |state: &str, heard: Option<f64>, silent: Option<f64>| {
            conn.association.peer_daemon = model::PeerDaemon {
                state: state.to_owned(),
                heard_seconds: heard,
                silent_seconds: silent,
                protocol_version: heard.map(|_| 2),
            };
            let details = details(&conn);
            let mut lines = details.lines().map(str::trim);
            let line = lines.find_map(|line| line.strip_prefix("peer's apmd"));
            let is_marked = table(std::slice::from_ref(&conn)).contains("fe80::2 (apmd silent)");
            assert_eq!(is_marked, state == "silent");
            line.expect("a line").trim().to_owned()
        };
        assert_eq!(
            shown("answers", Some(0.42), None),
            "answers, heard 0.4 s ago, protocol version 2"
        );
        assert_eq!(
            shown("silent", Some(7.5), Some(7.04)),
            "silent for 7.0 s: the peer's kernel answers in its place; heard 7.5 s ago, protocol version 2; \
             start apmd on the peer's host"
        );
        assert_eq!(
            shown("silent", None, Some(3.0)),
            "silent for 3.0 s: the peer's kernel answers in its place; not heard before; start apmd on the \
             peer's host"
        );
        assert_eq!(
            shown("unknown", Some(412.0), None),
            "heard 412.0 s ago, nothing recent is known, protocol version 2"
        );
        assert_eq!(shown("unknown", None, None), "not heard yet");
        // An apmd before this one says nothing of it.
        assert_eq!(shown("", None, None), "not heard yet");

        let port = |drained| model::PeerPort {
            gid: "fe80::2".to_owned(),
            lid: 8,
            drained,
        };
        conn.association.peer_ports = vec![port(false), port(true)];
        let details = details(&conn);
        let ports = details.lines().filter(|line| line.contains("peer's port"));
        let drained = ports.map(|line| line.ends_with("lid 8, drained"));
        assert_eq!(drained.collect::<Vec<_>>(), [false, true]);
        conn.primary.dgid = "::".to_owned();
        assert_eq!(peer(&conn), "lid 8");
        conn.qp.peer_node = Some("node7 mlx5_0".to_owned());
        assert_eq!(peer(&conn), "node7 mlx5_0");
    }

    #[test]
    fn half_a_protection_is_not_called_armed() {
        let shown = |grade: &str, detail: Option<&str>| {
            let mut conn = conn(r#""origin":null,"overlap":null,"shared":null"#);
            conn.standing.grade = Some(grade.to_owned());
            conn.standing.grade_detail = detail.map(str::to_owned);
            let table = table(std::slice::from_ref(&conn));
            let expected = protection(&conn);
            assert!(table.contains(&expected), "{table}");
            assert!(details(&conn).contains(&format!("{expected} for ")));
            expected
        };
        assert_eq!(shown("full", None), "armed");
        assert_eq!(shown("same_port", None), "armed (same port)");
        assert_eq!(shown("unverified", None), "armed (unverified)");
        let named = shown("same_switch", Some("switch spine1"));
        assert_eq!(named, "armed (same switch spine1)");
        let counted = shown("same_switch", Some("1 switch shared"));
        assert_eq!(counted, "armed (1 switch shared)");
    }
}
