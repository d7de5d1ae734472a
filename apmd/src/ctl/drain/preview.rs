// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl port drain --dry-run`: what a drain would do, judged by what the daemon shows. Nothing is changed.

use std::fmt::Write;

use serde::Serialize;

use super::NAMED;
use crate::ctl::ask::ask;
use crate::ctl::which::{self, brief};
use crate::ctl::{Failure, Options, Outcome};
use crate::observe::filter::{self, ConnectionFilter};
use crate::observe::model::{self, Alternate, Conn, Port};
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
    /// Connections whose primary would stay on it.
    stuck: Vec<Stays>,
    /// Connections whose primary is elsewhere, and whose alternate is on it.
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
    let preview = Preview::new(port, &ports, &conns);
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
    fn new(port: &Port, ports: &[Port], conns: &[Conn]) -> Self {
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
            match judge(conn, port, ports) {
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
        list(&mut text, stuck, shown, |stays| {
            let owner = filter::owner(&stays.command, stays.pid);
            let later = match stays.has_path {
                true => " (it leaves when that is over)",
                false => "",
            };
            format!("conn {} {owner}: stays: {}{later}", stays.id, stays.reason)
        });
        list(&mut text, moves, shown, |moves| {
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

fn list<T>(text: &mut String, items: &[T], shown: usize, line: impl Fn(&T) -> String) {
    for item in items.iter().take(shown) {
        let _ = writeln!(text, "{}", line(item));
    }
    if items.len() > shown {
        let more = items.len() - shown;
        let _ = writeln!(text, "and {more} more like that, see them with -d");
    }
}

/// As the engine decides whether a connection leaves a drained port (`statemachine`, `conn/leaving.rs`).
fn judge(conn: &Conn, port: &Port, ports: &[Port]) -> Verdict {
    let standing = &conn.standing;
    let blocked = conn
        .alternate
        .as_ref()
        .and_then(|alternate| obstacle(conn, alternate, port, ports));
    let has_path = conn.alternate.is_some() && blocked.is_none();
    let stays = |reason: String| Verdict::Stays { reason, has_path };
    if let Some(reason) = blocked {
        return stays(reason);
    }
    let alternate = match &conn.alternate {
        Some(alternate) if standing.protection == "armed" => &alternate.path,
        // Its reason says more than that the order would be held.
        _ => {
            let reason = standing.reason.as_deref().unwrap_or("it is not armed");
            return stays(format!("{}: {reason}", standing.protection));
        }
    };
    if let Some(held) = &standing.held {
        return stays(held.clone());
    }
    if standing.grade.as_deref() == Some("unverified") {
        return stays("no probe of its alternate has come back yet".to_owned());
    }
    if conn.association.state != "established" {
        let state = &conn.association.state;
        return stays(format!(
            "the peer's apmd has to agree first, and the association with it is not open ({state})"
        ));
    }
    Verdict::Moves(alternate.port, brief(alternate))
}

/// Why the loaded alternate is no way off the port.
fn obstacle(conn: &Conn, alternate: &Alternate, port: &Port, ports: &[Port]) -> Option<String> {
    let path = &alternate.path;
    if path.port == port.port {
        return Some(match conn.standing.policy.mode.as_str() {
            "lid" => "both its paths are over this port, as its policy says (mode lid)".to_owned(),
            _ => "both its paths are over this port".to_owned(),
        });
    }
    let mut others = ports.iter();
    let is_it = |other: &&Port| other.device == port.device && other.port == path.port;
    if others.find(is_it).is_some_and(|other| other.drained) {
        return Some(format!(
            "its alternate is over port {}, which is drained",
            path.port
        ));
    }
    let mut far = conn.association.peer_ports.iter();
    if far.any(|far| far.drained && far.gid == path.dgid) {
        return Some("its alternate is over a port that is drained at the peer".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn port(number: u8, drained: bool) -> Port {
        let port = json!({"device": "mlx5_0", "port": number, "node_guid": "0x1", "state": "up", "apm": true,
            "mads": true, "link_layer": "infiniband", "lid": 4, "lmc": 0, "sm_lid": 1, "gid": "fe80::1",
            "mtu": 4096, "pkeys": [65535], "interface": null, "drained": drained, "primaries": 0, "alternates": 0});
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
        let idle = json!({"protection": "rearming (idle)", "grade": null,
            "reason": "the alternate waits for traffic"});
        let alone = json!({"protection": "unprotected", "grade": null, "reason": "peer: no apmd"});
        let unverified = json!({"grade": "unverified"});
        let lost = json!({"association": {"state": "opening", "local_comm_id": 1, "remote_comm_id": null,
            "peer_ports": []}});
        let lid = json!({"grade": "same_port", "policy": {"mode": "lid", "failback": "stay", "spread": false,
            "hold_down_seconds": 5.0, "by_default": false}});
        let peer_drains = json!({"association": {"state": "established", "local_comm_id": 1, "remote_comm_id": 2,
            "peer_ports": [{"gid": "fe80::2", "lid": 9, "drained": true}]}});
        let none = json!({});
        let conns = [
            conn("1.1", 1, Some(2), &none),
            conn("1.2", 1, Some(1), &none),
            conn("1.3", 1, Some(1), &lid),
            conn("1.4", 1, Some(3), &none),
            conn("1.5", 1, Some(2), &idle),
            conn("1.6", 1, None, &alone),
            conn("1.7", 1, Some(2), &unverified),
            conn("1.8", 1, Some(2), &lost),
            conn("1.9", 2, Some(1), &none),
            conn("2.1", 2, Some(3), &none),
            conn("2.2", 1, Some(2), &peer_drains),
        ];
        let ports = [port(1, false), port(2, false), port(3, true)];
        let preview = Preview::new(&ports[0], &ports, &conns);
        let moves = preview.moves.iter().map(|one| (&*one.id, one.to_port));
        let moves: Vec<_> = moves.collect();
        assert_eq!(moves, [("1.1", 2)]);
        let stuck = preview.stuck.iter();
        let stuck: Vec<_> = stuck
            .map(|one| (&*one.id, &*one.reason, one.has_path))
            .collect();
        let lid = "both its paths are over this port, as its policy says (mode lid)";
        let opening =
            "the peer's apmd has to agree first, and the association with it is not open (opening)";
        let at_peer = "its alternate is over a port that is drained at the peer";
        let idle = "rearming (idle): the alternate waits for traffic";
        assert_eq!(
            stuck,
            [
                ("1.2", "both its paths are over this port", false),
                ("1.3", lid, false),
                (
                    "1.4",
                    "its alternate is over port 3, which is drained",
                    false
                ),
                ("1.5", idle, true),
                ("1.6", "unprotected: peer: no apmd", false),
                ("1.7", "no probe of its alternate has come back yet", true),
                ("1.8", opening, true),
                ("2.2", at_peer, false),
            ]
        );
        assert_eq!(preview.alternate_ids, ["1.9"]);
        let text = preview.text(2);
        let lines: Vec<_> = text.lines().collect();
        let first =
            "mlx5_0/1, dry run (nothing is changed): 1 connections would leave it, 8 could not";
        assert_eq!(lines[0], first);
        assert_eq!(
            lines[1],
            "conn 1.2 rping[7]: stays: both its paths are over this port"
        );
        assert_eq!(lines[3], "and 6 more like that, see them with -d");
        assert_eq!(lines[4], "conn 1.1 rping[7]: would move to port 2 lid 5>9");
        assert!(lines[5].starts_with("1 connections have their alternate on it (1.9): "));
        let all = preview.text(usize::MAX);
        assert!(
            all.contains("not open (opening) (it leaves when that is over)\n"),
            "{all}"
        );
    }
}
