// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl fabric check --without NODE`: what depends on a switch that is to go down.

use std::fmt::Write;

use cm_msgs::{Gid, Lid};
use pathdb::check::{Attached, Dependence, Fate, Without};
use pathdb::{Fabric, Path};
use serde::Serialize;

use super::finding::{Between, SHOWN, host};
use crate::ctl::listed::listed;
use crate::ctl::terminal::Bar;
use crate::ctl::{Failure, Options, Outcome, which};
use crate::observe::filter::{self, ConnectionFilter};
use crate::observe::model;

/// What depends on the switch.
#[derive(Serialize)]
struct Found {
    without: Switch,
    /// Hosts with all of their ports on it.
    hosts_cut_off: Vec<Hanging>,
    /// Hosts with some of their ports on it.
    hosts_with_fewer_ports: Vec<Hanging>,
    pairs: u64,
    pairs_looked_at: u64,
    /// Pairs of devices that have a path, and none without it.
    pairs_cut: u64,
    /// Of these, those that cables lead around it for.
    pairs_cut_until_rerouted: u64,
    cut_examples: Vec<Between>,
    /// Pairs of devices that have an alternate, and without it a path and no alternate.
    pairs_alone: u64,
    alone_examples: Vec<Between>,
    /// This host's; null where the daemon cannot be reached.
    connections: Option<Live>,
    /// Why `connections` is null.
    connections_error: Option<String>,
}

#[derive(Serialize)]
struct Switch {
    name: String,
    guid: String,
}

#[derive(Serialize)]
struct Hanging {
    host: String,
    /// Of the device, those that are up.
    ports: usize,
    /// Of these, those on the switch.
    lost: usize,
}

/// This host's connections.
#[derive(Serialize, Default)]
struct Live {
    total: usize,
    /// Those that would have no path.
    cut: Vec<Affected>,
    /// Those that would move to their alternate.
    moves: Vec<Affected>,
    /// Those that would stay, and lose their alternate.
    lose_alternate: Vec<Affected>,
    /// Those with a path that is not in this snapshot.
    unknown: Vec<Affected>,
}

#[derive(Serialize)]
struct Affected {
    id: String,
    pid: i32,
    command: String,
    reason: String,
}

/// Judges the fabric without the switch called `node`. Exit status 4 if that leaves a host, a pair of devices or a
/// connection without any path.
pub(super) fn run(
    options: &Options,
    fabric: &Fabric,
    node: &str,
    most: u64,
) -> Result<Outcome, Failure> {
    let failed = |error: pathdb::LocateError| Failure::Failed(error.to_string());
    let switch = fabric.locate_switch(node).map_err(failed)?;
    let without = Without::new(fabric, switch);
    let without = without.ok_or_else(|| Failure::Failed(format!("'{node}' is not a switch")))?;
    let bar = Bar::new();
    let dependence = without.dependence(most, &mut |done, all| {
        bar.show("pairs of devices", done, all);
    });
    drop(bar);
    let known = fabric.node(switch);
    let switch = Switch {
        name: known.name.to_string(),
        guid: known.guid.to_string(),
    };
    let mut found = Found::new(fabric, switch, &without.attached(), &dependence);
    match which::all(options, ConnectionFilter::default(), options.answer_timeout) {
        Ok(conns) => found.connections = Some(Live::new(fabric, &without, conns)),
        Err(Failure::Unreachable(why)) => found.connections_error = Some(why.to_string()),
        Err(other) => return Err(other),
    }
    options.show(&found, || {
        found.text(if options.details { usize::MAX } else { SHOWN })
    })?;
    Ok(match found.cuts() {
        false => Outcome::Ok,
        true => Outcome::Degraded,
    })
}

impl Found {
    fn new(fabric: &Fabric, without: Switch, attached: &[Attached], pairs: &Dependence) -> Self {
        let hanging = |attached: &Attached| Hanging {
            host: host(fabric, attached.device.ports[0]),
            ports: attached.device.ports.len(),
            lost: attached.lost,
        };
        let all = attached.iter().map(hanging);
        let (hosts_cut_off, hosts_with_fewer_ports) = all.partition(|one| one.lost == one.ports);
        let between = |examples: &[pathdb::check::Example]| {
            let examples = examples.iter();
            examples.map(|e| Between::new(fabric, e)).collect()
        };
        Self {
            without,
            hosts_cut_off,
            hosts_with_fewer_ports,
            pairs: pairs.pairs,
            pairs_looked_at: pairs.looked_at,
            pairs_cut: pairs.cut,
            pairs_cut_until_rerouted: pairs.cut_until_rerouted,
            cut_examples: between(&pairs.cut_examples),
            pairs_alone: pairs.alone,
            alone_examples: between(&pairs.alone_examples),
            connections: None,
            connections_error: None,
        }
    }

    /// Whether anything would have no path.
    fn cuts(&self) -> bool {
        let live = self.connections.as_ref();
        !self.hosts_cut_off.is_empty()
            || self.pairs_cut > 0
            || live.is_some_and(|live| !live.cut.is_empty())
    }

    fn text(&self, shown: usize) -> String {
        let Switch { name, guid } = &self.without;
        let mut text = format!("without switch {name} ({guid}):\n");
        listed(&mut text, &self.hosts_cut_off, shown, |hanging| {
            let Hanging { host, ports, .. } = hanging;
            format!("cut off: {host} (all {ports} ports of the device are on it)")
        });
        listed(&mut text, &self.hosts_with_fewer_ports, shown, |hanging| {
            let Hanging { host, ports, lost } = hanging;
            format!("fewer ports: {host} loses {lost} of {ports} ports of the device")
        });
        let such_as = |examples: &[Between]| {
            let examples: Vec<_> = examples.iter().map(Between::text).collect();
            examples.join(", ")
        };
        if self.pairs_cut > 0 {
            let _ = writeln!(
                text,
                "no path: {} pairs of devices have none, {} of them until the subnet manager routes \
                 around it; such as {}",
                self.pairs_cut,
                self.pairs_cut_until_rerouted,
                such_as(&self.cut_examples)
            );
        }
        if self.pairs_alone > 0 {
            let _ = writeln!(
                text,
                "no alternate: {} pairs of devices keep a path and lose their alternate; such as {}",
                self.pairs_alone,
                such_as(&self.alone_examples)
            );
        }
        let _ = writeln!(
            text,
            "looked at {} of {} pairs of devices, with the forwarding tables as they are: {} have no \
             path, {} no alternate any more",
            self.pairs_looked_at, self.pairs, self.pairs_cut, self.pairs_alone
        );
        match (&self.connections, &self.connections_error) {
            (Some(live), _) => live.text(&mut text, shown),
            (None, Some(error)) => {
                let _ = writeln!(text, "this host's connections are not known: {error}");
            }
            (None, None) => {}
        }
        text
    }
}

impl Live {
    fn new(fabric: &Fabric, without: &Without<'_>, conns: Vec<model::Conn>) -> Self {
        let mut live = Self {
            total: conns.len(),
            ..Self::default()
        };
        for conn in conns {
            let fate = |path: &model::Path| fate(fabric, without, path);
            let primary = fate(&conn.primary);
            let alternate = conn.alternate.as_ref().map(|alt| fate(&alt.path));
            let protection = &conn.standing.protection;
            let (list, reason) = match (primary, alternate) {
                (Fate::Unknown, _) => (
                    &mut live.unknown,
                    "its primary is not in this snapshot".to_owned(),
                ),
                (Fate::Lost, None) => (
                    &mut live.cut,
                    format!("its primary is lost, and it has no alternate ({protection})"),
                ),
                (Fate::Lost, Some(Fate::Lost)) => {
                    (&mut live.cut, "both its paths are lost".to_owned())
                }
                (Fate::Lost, Some(Fate::Unknown)) => (
                    &mut live.unknown,
                    "its primary is lost, and its alternate is not in this snapshot".to_owned(),
                ),
                (Fate::Lost, Some(Fate::Works)) => match protection.as_str() {
                    "armed" => (&mut live.moves, "to its alternate".to_owned()),
                    _ => (
                        &mut live.cut,
                        format!(
                            "its primary is lost, and its alternate is not armed ({protection})"
                        ),
                    ),
                },
                (Fate::Works, Some(Fate::Lost)) => {
                    (&mut live.lose_alternate, "its alternate is lost".to_owned())
                }
                (Fate::Works, Some(Fate::Unknown)) => (
                    &mut live.unknown,
                    "its alternate is not in this snapshot".to_owned(),
                ),
                (Fate::Works, None | Some(Fate::Works)) => continue,
            };
            list.push(Affected {
                id: conn.id,
                pid: conn.program.pid,
                command: conn.program.command,
                reason,
            });
        }
        live
    }

    fn text(&self, text: &mut String, shown: usize) {
        let lists = [
            ("is cut", &self.cut),
            ("moves", &self.moves),
            ("stays", &self.lose_alternate),
            ("not known", &self.unknown),
        ];
        for (what, list) in lists {
            listed(text, list, shown, |affected| {
                let owner = filter::owner(&affected.command, affected.pid);
                format!("conn {} {owner}: {what}: {}", affected.id, affected.reason)
            });
        }
        let unknown = match self.unknown.len() {
            0 => String::new(),
            count => {
                format!("; the paths of {count} are not in this snapshot: import the fabric again")
            }
        };
        let _ = writeln!(
            text,
            "of {} connections of this host {} would be cut, {} move, {} lose their alternate{unknown}",
            self.total,
            self.cut.len(),
            self.moves.len(),
            self.lose_alternate.len()
        );
    }
}

/// What becomes of a connection's path. Its LIDs may be of another subnet than the snapshot, or older or newer: its
/// GIDs have to be of the same ports.
fn fate(fabric: &Fabric, without: &Without<'_>, path: &model::Path) -> Fate {
    let fits = |gid: &str, lid: u16| {
        let gid = gid.parse::<Gid>().ok().filter(|gid| !gid.is_unspecified());
        let port = fabric.port_by_lid(Lid(lid));
        port.is_some() && gid.is_none_or(|gid| fabric.port_by_guid(gid.interface_id()) == port)
    };
    if !fits(&path.sgid, path.slid) || !fits(&path.dgid, path.dlid) {
        return Fate::Unknown;
    }
    without.fate(Path {
        slid: Lid(path.slid),
        dlid: Lid(path.dlid),
    })
}
