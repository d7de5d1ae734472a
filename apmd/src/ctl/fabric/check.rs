// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl fabric check`: what is wrong with a fabric.

use std::fmt::Write;

use clap::Args;
use pathdb::check::{self, Cause, Needless, OneSwitch, Stuck};
use pathdb::{Fabric, NodeId};
use serde::Serialize;

use super::Source;
use super::finding::{Between, SHOWN, host};
use crate::ctl::listed::listed;
use crate::ctl::terminal::Bar;
use crate::ctl::{Failure, Options, Outcome};

#[derive(Args)]
pub(super) struct Check {
    #[command(flatten)]
    source: Source,
    /// Pairs of multi-port devices to look at, at most; they are spread evenly
    #[arg(long, value_name = "N", default_value_t = super::PAIRS)]
    pairs: u64,
    /// What depends on this switch (its GUID, or a name that no other switch has), before it is taken down; exit status
    /// 4 if a host, a pair of devices or a connection of this host would have no path
    #[arg(long, value_name = "NODE")]
    without: Option<String>,
}

/// What was found. Empty lists are good.
#[derive(Serialize)]
struct Found {
    /// LIDs that packets for which go in circles.
    loops: Vec<Lost>,
    /// LIDs for which some switch does not send packets on.
    dead_ends: Vec<Lost>,
    /// Pairs of a host's port and a LID between which packets do not arrive.
    unreachable: usize,
    one_switch: Vec<Hanging>,
    /// Hosts that have several ports, each a device of its own.
    hosts_without_multi_port_device: usize,
    pairs: u64,
    pairs_looked_at: u64,
    /// Pairs of devices whose paths meet needlessly.
    pairs_joined: u64,
    needless: Vec<Joining>,
    /// Pairs of devices that have a path and no alternate.
    pairs_alone: u64,
    alone_examples: Vec<Between>,
}

#[derive(Serialize)]
struct Lost {
    lid: u16,
    port: String,
    /// How many ports of hosts cannot reach it, of how many.
    sources: usize,
    of: usize,
    example: String,
    /// The switches of the circle, or the one that does not send on.
    switches: Vec<String>,
    /// Why it does not.
    cause: String,
}

#[derive(Serialize)]
struct Hanging {
    host: String,
    ports: usize,
    switch: String,
}

#[derive(Serialize)]
struct Joining {
    kind: &'static str,
    name: String,
    pairs: u64,
    examples: Vec<Between>,
}

impl Check {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let fabric = self.source.load()?;
        if let Some(node) = &self.without {
            return super::without::run(options, &fabric, node, self.pairs);
        }
        let bar = Bar::new();
        let lost = fabric.unreachable_with(&mut |done, all| {
            bar.show("lids", done, all);
        });
        let survey = check::survey(&fabric, self.pairs, &mut |done, all| {
            bar.show("pairs of devices", done, all);
        });
        drop(bar);
        let found = Found::new(&fabric, &lost, survey);
        options.show(&found, || {
            found.text(if options.details { usize::MAX } else { SHOWN })
        })?;
        Ok(match found.is_clean() {
            true => Outcome::Ok,
            false => Outcome::Degraded,
        })
    }
}

impl Found {
    fn new(fabric: &Fabric, lost: &[check::Unreachable], survey: check::Survey) -> Self {
        let of = fabric.source_count();
        let (mut loops, mut dead_ends) = (Vec::new(), Vec::new());
        for found in lost {
            for cause in &found.causes {
                let list = match cause {
                    Cause::Loop(_) => &mut loops,
                    Cause::DeadEnd(..) => &mut dead_ends,
                };
                list.push(Lost::new(fabric, found, of, cause));
            }
        }
        let hanging = fabric.devices_on_one_switch();
        let needless = survey.needless.iter();
        let alone = survey.alone_examples.iter();
        Self {
            loops,
            dead_ends,
            unreachable: lost.iter().map(|found| found.sources).sum(),
            one_switch: hanging.iter().map(|h| Hanging::new(fabric, h)).collect(),
            hosts_without_multi_port_device: fabric.hosts_without_multi_port_device(),
            pairs: survey.pairs,
            pairs_looked_at: survey.looked_at,
            pairs_joined: survey.joined,
            needless: needless.map(|n| Joining::new(fabric, n)).collect(),
            pairs_alone: survey.alone,
            alone_examples: alone.map(|e| Between::new(fabric, e)).collect(),
        }
    }

    fn is_clean(&self) -> bool {
        self.unreachable == 0
            && self.one_switch.is_empty()
            && self.pairs_joined == 0
            && self.pairs_alone == 0
    }

    fn text(&self, shown: usize) -> String {
        let mut text = String::new();
        for (what, list) in [("loop", &self.loops), ("dead end", &self.dead_ends)] {
            listed(&mut text, list, shown, |lost| lost.text(what));
        }
        listed(&mut text, &self.one_switch, shown, |hanging| {
            let Hanging {
                host,
                ports,
                switch,
            } = hanging;
            format!(
                "cabling: all {ports} ports of {host} hang on {switch}; forwarding tables cannot \
                 help"
            )
        });
        listed(&mut text, &self.needless, shown, Joining::text);
        if self.pairs_alone > 0 {
            let examples = self.alone_examples.iter().map(Between::text);
            let examples: Vec<_> = examples.collect();
            let _ = writeln!(
                text,
                "no alternate: {} pairs of devices have none, such as {}",
                self.pairs_alone,
                examples.join(", ")
            );
        }
        match self.hosts_without_multi_port_device {
            0 => {}
            count => {
                let _ = writeln!(
                    text,
                    "{count} hosts have several ports, each another device: apm moves no connection between these"
                );
            }
        }
        let _ = writeln!(
            text,
            "looked at {} of {} pairs of devices with several ports: {} share something needlessly, \
             {} have no alternate",
            self.pairs_looked_at, self.pairs, self.pairs_joined, self.pairs_alone
        );
        let _ = match self.unreachable {
            0 => writeln!(text, "every port of a host reaches every lid"),
            count => writeln!(text, "{count} pairs of a host's port and a lid are apart"),
        };
        text
    }
}

impl Lost {
    fn new(fabric: &Fabric, found: &check::Unreachable, of: usize, cause: &Cause) -> Self {
        let name = |node: NodeId| fabric.node(node).name.to_string();
        let (switches, cause) = match cause {
            Cause::Loop(switches) => {
                let names = switches.iter().copied().map(name).collect();
                (names, "its packets go in circles".to_owned())
            }
            Cause::DeadEnd(switch, stuck) => (vec![name(*switch)], words(*stuck)),
        };
        Self {
            lid: found.lid.0,
            port: fabric.name(found.port).to_string(),
            sources: found.sources,
            of,
            example: fabric.name(found.example).to_string(),
            switches,
            cause,
        }
    }

    fn text(&self, what: &str) -> String {
        format!(
            "{what}: lid {} ({}) is out of reach of {} of {} ports, such as {}: {}: {}",
            self.lid,
            self.port,
            self.sources,
            self.of,
            self.example,
            self.switches.join(", "),
            self.cause
        )
    }
}

fn words(stuck: Stuck) -> String {
    match stuck {
        Stuck::NoEntry => "no entry in the forwarding table".to_owned(),
        Stuck::Itself => "taken for its own".to_owned(),
        Stuck::Unplugged(port) => format!("sent out of port {port}, which has no link"),
        Stuck::Down(port) => format!("sent out of port {port}, whose link is down"),
        Stuck::Stranger(port) => format!("sent out of port {port}, to an adapter without the lid"),
    }
}

impl Hanging {
    fn new(fabric: &Fabric, hanging: &OneSwitch) -> Self {
        Self {
            host: host(fabric, hanging.device.ports[0]),
            ports: hanging.device.ports.len(),
            switch: fabric.node(hanging.switch).name.to_string(),
        }
    }
}

impl Joining {
    fn new(fabric: &Fabric, needless: &Needless) -> Self {
        let examples = needless.examples.iter();
        Self {
            kind: super::kind(needless.element),
            name: fabric.element_name(needless.element).to_string(),
            pairs: needless.pairs,
            examples: examples.map(|e| Between::new(fabric, e)).collect(),
        }
    }

    fn text(&self) -> String {
        let examples: Vec<_> = self.examples.iter().map(Between::text).collect();
        format!(
            "needless: {} joins primary and alternate of {} pairs of devices, though the cables \
             lead around it: forwarding tables could do better; such as {}",
            self.name,
            self.pairs,
            examples.join(", ")
        )
    }
}
