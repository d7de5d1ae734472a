// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl fabric diff`: what differs between two snapshots.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use pathdb::check::{self, Difference};
use pathdb::{Capability, Fabric, LidRange, PortId, Sharing};
use serde::Serialize;

use super::load;
use crate::ctl::terminal::Bar;
use crate::ctl::{Failure, Options, Outcome};

/// Findings of one kind that are shown unless all are asked for.
const SHOWN: usize = 20;

#[derive(Args)]
pub(super) struct Diff {
    /// A snapshot
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// Another
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// Pairs of multi-port devices to look at, at most; they are spread evenly
    #[arg(long, value_name = "N", default_value_t = super::PAIRS)]
    pairs: u64,
}

#[derive(Serialize)]
struct Differs {
    nodes_gone: Vec<String>,
    nodes_new: Vec<String>,
    links_gone: Vec<String>,
    links_new: Vec<String>,
    links_changed: Vec<Link>,
    lids_moved: Vec<Moved>,
    routes_changed: Vec<Routes>,
    /// Hosts that had several ports up, and have fewer.
    ports_lost: Vec<Lost>,
    pairs: u64,
    pairs_looked_at: u64,
    /// Pairs of devices that share more, or have no alternate any more.
    pairs_worse: Vec<Worse>,
    pairs_better: u64,
}

#[derive(Serialize)]
struct Link {
    link: String,
    before: State,
    after: State,
}

#[derive(Serialize)]
struct State {
    up: bool,
    /// In Gb/s.
    rate: Option<&'static str>,
    rate_mbps: Option<u32>,
    mtu: Option<u16>,
}

#[derive(Serialize)]
struct Moved {
    port: String,
    before: Option<String>,
    after: Option<String>,
}

#[derive(Serialize)]
struct Routes {
    switch: String,
    entries: usize,
}

#[derive(Serialize)]
struct Lost {
    host: String,
    before: usize,
    after: usize,
}

#[derive(Serialize)]
struct Worse {
    source: String,
    destination: String,
    before: Option<Sharing>,
    after: Option<Sharing>,
}

impl Diff {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let (before, after) = (load(&self.before)?, load(&self.after)?);
        let bar = Bar::new();
        let difference = check::difference(&before, &after, self.pairs, &mut |done, all| {
            bar.show("pairs of devices", done, all);
        });
        drop(bar);
        let differs = Differs::new(&before, &after, &difference);
        options.show(&differs, || match difference.is_none() {
            true => differs.looked_at(),
            false => differs.text(if options.details { usize::MAX } else { SHOWN }),
        })?;
        Ok(
            match difference.worse.is_empty() && difference.lost_ports.is_empty() {
                true => Outcome::Ok,
                false => Outcome::Degraded,
            },
        )
    }
}

impl Differs {
    fn new(before: &Fabric, after: &Fabric, difference: &Difference) -> Self {
        let nodes = |fabric: &Fabric, nodes: &[pathdb::NodeId]| {
            nodes
                .iter()
                .map(|&id| fabric.node(id).name.to_string())
                .collect()
        };
        let links = |fabric: &Fabric, ports: &[PortId]| {
            ports.iter().map(|&port| link(fabric, port)).collect()
        };
        let changed = difference.changed.iter().map(|change| Link {
            link: link(after, change.port),
            before: State::new(change.states[0]),
            after: State::new(change.states[1]),
        });
        let lids = |lids: Option<LidRange>| lids.map(|lids| lids.to_string());
        let moved = difference.moved.iter().map(|moved| Moved {
            port: after.name(moved.port).to_string(),
            before: lids(moved.lids[0]),
            after: lids(moved.lids[1]),
        });
        let routes = difference.routes.iter().map(|&(switch, entries)| Routes {
            switch: after.node(switch).name.to_string(),
            entries,
        });
        let host = |port: PortId| after.node(after.port(port).node).name.to_string();
        let lost = difference.lost_ports.iter().map(|lost| Lost {
            host: before.node(before.port(lost.port).node).name.to_string(),
            before: lost.up[0],
            after: lost.up[1],
        });
        let worse = difference.worse.iter().map(|worse| Worse {
            source: host(worse.hosts[0]),
            destination: host(worse.hosts[1]),
            before: worse.shared[0],
            after: worse.shared[1],
        });
        Self {
            nodes_gone: nodes(before, &difference.gone),
            nodes_new: nodes(after, &difference.new),
            links_gone: links(before, &difference.unplugged),
            links_new: links(after, &difference.plugged),
            links_changed: changed.collect(),
            lids_moved: moved.collect(),
            routes_changed: routes.collect(),
            ports_lost: lost.collect(),
            pairs: difference.pairs,
            pairs_looked_at: difference.looked_at,
            pairs_worse: worse.collect(),
            pairs_better: difference.better,
        }
    }

    fn text(&self, shown: usize) -> String {
        let mut text = String::new();
        for (what, names) in [
            ("node gone", &self.nodes_gone),
            ("node new", &self.nodes_new),
            ("link gone", &self.links_gone),
            ("link new", &self.links_new),
        ] {
            listed(&mut text, what, names.iter().cloned(), shown);
        }
        let changed = self.links_changed.iter().map(|change| {
            let Link {
                link,
                before,
                after,
            } = change;
            format!("{link}: {} -> {}", before.text(), after.text())
        });
        listed(&mut text, "link changed", changed, shown);
        let none = || "none".to_owned();
        let moved = self.lids_moved.iter().map(|moved| {
            let [before, after] =
                [&moved.before, &moved.after].map(|l| l.clone().unwrap_or_else(none));
            format!("{}: {before} -> {after}", moved.port)
        });
        listed(&mut text, "lids moved", moved, shown);
        let routes = self.routes_changed.iter();
        let routes = routes.map(|routes| format!("{}: {} lids", routes.switch, routes.entries));
        listed(&mut text, "routes changed", routes, shown);
        let lost = self.ports_lost.iter().map(|lost| {
            let Lost {
                host,
                before,
                after,
            } = lost;
            format!("{host}: {before} up -> {after} up")
        });
        listed(&mut text, "ports lost", lost, shown);
        let worse = self.pairs_worse.iter().map(|worse| {
            let [before, after] = [&worse.before, &worse.after].map(words);
            format!(
                "{} and {}: {before} -> {after}",
                worse.source, worse.destination
            )
        });
        listed(&mut text, "pair worse", worse, shown);
        text + &self.looked_at()
    }

    fn looked_at(&self) -> String {
        format!(
            "looked at {} of {} pairs of devices with several ports: {} share more than before, {} \
             less\n",
            self.pairs_looked_at,
            self.pairs,
            self.pairs_worse.len(),
            self.pairs_better
        )
    }
}

fn listed(
    text: &mut String,
    what: &str,
    items: impl ExactSizeIterator<Item = String>,
    shown: usize,
) {
    let hidden = items.len().saturating_sub(shown);
    for item in items.take(shown) {
        let _ = writeln!(text, "{what:<15} {item}");
    }
    if hidden > 0 {
        let _ = writeln!(text, "{what:<15} and {hidden} more, see them with -d");
    }
}

fn link(fabric: &Fabric, port: PortId) -> String {
    match fabric.peer(port) {
        Some(peer) => format!("{} - {}", fabric.name(port), fabric.name(peer)),
        None => fabric.name(port).to_string(),
    }
}

fn words(score: &Option<Sharing>) -> String {
    match score {
        None => "no alternate".to_owned(),
        Some(score) if score.is_none() => "nothing shared".to_owned(),
        Some(score) => format!(
            "{} switches, {} groups, {} links shared",
            score.switches, score.groups, score.links
        ),
    }
}

impl State {
    fn new((up, carries): (bool, Capability)) -> Self {
        Self {
            up,
            rate: carries.rate.map(pathdb::Rate::text),
            rate_mbps: carries.rate.map(pathdb::Rate::megabits),
            mtu: carries.mtu.map(pathdb::Mtu::bytes),
        }
    }

    fn text(&self) -> String {
        let rate = self.rate.map(|rate| format!(" {rate} Gb/s"));
        let mtu = self.mtu.map(|mtu| format!(" mtu {mtu}"));
        let up = if self.up { "up" } else { "down" };
        [Some(up.to_owned()), rate, mtu]
            .into_iter()
            .flatten()
            .collect()
    }
}
