// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl port drain --dry-run`: what a drain would do, judged by what the daemon shows. Nothing is changed.

use std::fmt::Write;

use serde::Serialize;
use statemachine::view::Held;

use super::NAMED;
use crate::ctl::ask::ask;
use crate::ctl::listed::listed;
use crate::ctl::which::{self, brief};
use crate::ctl::{Failure, Options, Outcome};
use crate::observe::filter::{self, ConnectionFilter};
use crate::observe::model::{self, Conn, Port};
use crate::observe::request::Show;

/// What a drain of the port would do.
#[derive(Serialize)]
struct Preview {
    port: String,
    dry_run: bool,
    /// Whether the port is drained already.
    drained: bool,
    /// Connections that would leave the port.
    moves: Vec<Move>,
    /// Connections that would keep their primary on it.
    stuck: Vec<Stays>,
    /// Connections with their primary elsewhere and their alternate on it.
    alternates: usize,
    /// Their IDs.
    alternate_ids: Vec<String>,
}

#[derive(Serialize)]
struct Move {
    id: String,
    pid: i32,
    command: String,
    /// The local port it would be on.
    to_port: u8,
    #[serde(skip)]
    path: String,
}

#[derive(Serialize)]
struct Stays {
    id: String,
    pid: i32,
    command: String,
    reason: String,
    /// An alternate that avoids the port is loaded: the connection moves once the reason is over.
    has_path: bool,
}

/// Shows what a drain would do; exit status 4 if a connection could not leave the port now.
pub(super) fn run(options: &Options, name: &str) -> Result<Outcome, Failure> {
    let ports: Vec<Port> = ask(options, Show::Port)?;
    let port = super::find(&ports, name)?;
    let filter = ConnectionFilter {
        device: Some(port.device.clone()),
        ..ConnectionFilter::default()
    };
    let conns = which::all(options, filter, options.answer_timeout)?;
    let preview = Preview::new(port, &conns);
    options.show(&preview, || {
        preview.text(if options.details { usize::MAX } else { NAMED })
    })?;
    Ok(match preview.stuck.is_empty() {
        true => Outcome::Ok,
        false => Outcome::Degraded,
    })
}

/// What a drain would do with one connection.
enum Verdict {
    Moves(u8, String),
    Stays { reason: String, has_path: bool },
}

impl Preview {
    fn new(port: &Port, conns: &[Conn]) -> Self {
        let mut preview = Self {
            port: port.label(),
            dry_run: true,
            drained: port.drained,
            moves: Vec::new(),
            stuck: Vec::new(),
            alternates: 0,
            alternate_ids: Vec::new(),
        };
        for conn in conns {
            let is_on = |path: &model::Path| path.port == port.port;
            if !is_on(&conn.primary) {
                if conn.alternate.as_ref().is_some_and(|alt| is_on(&alt.path)) {
                    preview.alternate_ids.push(conn.id.clone());
                }
                continue;
            }
            let (id, pid) = (conn.id.clone(), conn.program.pid);
            let command = conn.program.command.clone();
            match judge(conn, port) {
                Verdict::Moves(to_port, path) => preview.moves.push(Move {
                    id,
                    pid,
                    command,
                    to_port,
                    path,
                }),
                Verdict::Stays { reason, has_path } => preview.stuck.push(Stays {
                    id,
                    pid,
                    command,
                    reason,
                    has_path,
                }),
            }
        }
        preview.alternates = preview.alternate_ids.len();
        preview
    }

    fn text(&self, shown: usize) -> String {
        let Self {
            port,
            moves,
            stuck,
            alternates,
            ..
        } = self;
        let mut text = format!(
            "{port}, dry run (nothing is changed): {} connections would leave it, {} could not\n",
            moves.len(),
            stuck.len()
        );
        listed(&mut text, stuck, shown, |stays| {
            let owner = filter::owner(&stays.command, stays.pid);
            let later = match stays.has_path {
                true => " (it leaves when that is over)",
                false => "",
            };
            format!("conn {} {owner}: stays: {}{later}", stays.id, stays.reason)
        });
        listed(&mut text, moves, shown, |moves| {
            let owner = filter::owner(&moves.command, moves.pid);
            format!("conn {} {owner}: would move to {}", moves.id, moves.path)
        });
        if *alternates > 0 {
            let ids: Vec<&str> = self.alternate_ids.iter().map(String::as_str).collect();
            let more = if ids.len() > shown { ", ..." } else { "" };
            let _ = writeln!(
                text,
                "{alternates} connections have their alternate on it ({}{more}): it is replaced where \
                 there is another path; without one they are unprotected once the port is down",
                ids[..ids.len().min(shown)].join(", ")
            );
        }
        text
    }
}

/// Judges as the daemon does: it shows what would keep a connection from leaving its primary. That the port itself is not
/// drained yet is the only difference.
fn judge(conn: &Conn, port: &Port) -> Verdict {
    let standing = &conn.standing;
    let elsewhere = conn
        .alternate
        .as_ref()
        .map(|alternate| &alternate.path)
        .filter(|path| path.port != port.port);
    let stays = |reason: String, has_path: bool| Verdict::Stays { reason, has_path };
    let Some(path) = elsewhere else {
        return match &conn.alternate {
            Some(_) if standing.policy.mode == "lid" => stays(
                "both its paths are over this port, as its policy says (mode lid)".to_owned(),
                false,
            ),
            Some(_) => stays("both its paths are over this port".to_owned(), false),
            None => stays(unprotected(conn), false),
        };
    };
    match &standing.obstacle {
        // Its reason says more.
        Some(_) if standing.protection != "armed" => stays(unprotected(conn), true),
        Some(obstacle) => {
            let is_drained = *obstacle == Held::AlternateDrained.to_string();
            stays(obstacle.clone(), !is_drained)
        }
        None => Verdict::Moves(path.port, brief(path)),
    }
}

fn unprotected(conn: &Conn) -> String {
    let standing = &conn.standing;
    let reason = standing.reason.as_deref().unwrap_or("it is not armed");
    format!("{}: {reason}", standing.protection)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn port(number: u8) -> Port {
        let port = json!({"device": "mlx5_0", "port": number, "node_guid": "0x1", "state": "up", "apm": true,
            "mads": true, "link_layer": "infiniband", "lid": 4, "lmc": 0, "sm_lid": 1, "gid": "fe80::1",
            "mtu": 4096, "pkeys": [65535], "interface": null, "drained": false, "primaries": 0, "alternates": 0});
        serde_json::from_value(port).expect("as the model says")
    }

    fn path(port: u8) -> Value {
        json!({"port": port, "slid": 3 + port, "dlid": 7 + port, "sgid": "fe80::1", "dgid": "fe80::2", "sl": 0,
            "mtu": 4096, "rate": 7, "pkey": 65535, "ack_timeout": 14, "global": false, "traffic_class": 0,
            "hop_limit": 0, "flow_label": 0, "origin": null, "overlap": null, "shared": null})
    }

    fn conn(id: &str, primary: u8, alternate: Option<u8>, more: &Value) -> Conn {
        let counters = statemachine::view::ConnectionCounters::default();
        let mut conn = json!({"id": id, "device": "mlx5_0", "node_guid": "0x1", "qpn": 18, "peer_qpn": 19,
            "role": "active", "opted_in": false, "pid": 7, "command": "rping", "qp_state": "rts",
            "migration": "armed", "protection": "armed", "grade": "full", "reason": null, "primary": path(primary),
            "alternate": alternate.map(path), "chosen": null, "runner_up": null,
            "association": {"state": "established", "local_comm_id": 1, "remote_comm_id": 2, "peer_ports": []},
            "counters": counters, "changed_seconds": 1.0});
        let (Some(conn_keys), Some(more)) = (conn.as_object_mut(), more.as_object()) else {
            panic!("objects");
        };
        conn_keys.extend(more.clone());
        serde_json::from_value(conn).expect("as the model says")
    }

    #[test]
    fn every_connection_is_judged_as_a_drain_would_find_it() {
        let none = json!({});
        let idle = json!({"protection": "rearming (idle)", "grade": null,
            "reason": "the alternate waits for traffic", "obstacle": Held::NotArmed.to_string()});
        let alone = json!({"protection": "unprotected", "grade": null, "reason": "peer: no apmd",
            "obstacle": Held::NotArmed.to_string()});
        let lid = json!({"grade": "same_port", "policy": {"mode": "lid", "failback": "stay", "spread": false,
            "hold_down_seconds": 5.0, "by_default": false}});
        let kept = |held: Held| json!({"obstacle": held.to_string()});
        let conns = [
            conn("1.1", 1, Some(2), &none),
            conn("1.2", 1, Some(1), &none),
            conn("1.3", 1, Some(1), &lid),
            conn("1.4", 1, Some(3), &kept(Held::AlternateDrained)),
            conn("1.5", 1, Some(2), &idle),
            conn("1.6", 1, None, &alone),
            conn("1.7", 1, Some(2), &kept(Held::Unverified)),
            conn("1.9", 2, Some(1), &none),
            conn("2.1", 2, Some(3), &none),
        ];
        let preview = Preview::new(&port(1), &conns);
        let moves = preview.moves.iter().map(|one| (&*one.id, one.to_port));
        let moves: Vec<_> = moves.collect();
        assert_eq!(moves, [("1.1", 2)]);
        let stuck = preview.stuck.iter();
        let stuck: Vec<_> = stuck
            .map(|one| (&*one.id, &*one.reason, one.has_path))
            .collect();
        let lid = "both its paths are over this port, as its policy says (mode lid)";
        let idle = "rearming (idle): the alternate waits for traffic";
        assert_eq!(
            stuck,
            [
                ("1.2", "both its paths are over this port", false),
                ("1.3", lid, false),
                ("1.4", &*Held::AlternateDrained.to_string(), false),
                ("1.5", idle, true),
                ("1.6", "unprotected: peer: no apmd", false),
                ("1.7", "no probe of its alternate has come back yet", true),
            ]
        );
        assert_eq!(preview.alternate_ids, ["1.9"]);
        let text = preview.text(2);
        let lines: Vec<_> = text.lines().collect();
        let first =
            "mlx5_0/1, dry run (nothing is changed): 1 connections would leave it, 6 could not";
        assert_eq!(lines[0], first);
        assert_eq!(
            lines[1],
            "conn 1.2 rping[7]: stays: both its paths are over this port"
        );
        assert_eq!(lines[3], "and 4 more like that, see them with -d");
        assert_eq!(lines[4], "conn 1.1 rping[7]: would move to port 2 lid 5>9");
        assert!(lines[5].starts_with("1 connections have their alternate on it (1.9): "));
        let all = preview.text(usize::MAX);
        assert!(
            all.contains("has come back yet (it leaves when that is over)\n"),
            "{all}"
        );
    }
}
