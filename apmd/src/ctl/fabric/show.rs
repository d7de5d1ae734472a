// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl fabric show`: a fabric in numbers.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use clap::Args;
use pathdb::{Fabric, Mtu, Rate};
use serde::Serialize;

use super::Source;
use crate::ctl::{Failure, Options, Outcome};

#[derive(Args, Default)]
pub(super) struct Show {
    #[command(flatten)]
    source: Source,
}

impl Show {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let fabric = self.source.load()?;
        let path = &self.source.fabric;
        let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let numbers = Numbers::new(path, bytes, &fabric);
        options.show(&numbers, || numbers.text())?;
        Ok(Outcome::Ok)
    }
}

/// A fabric in numbers.
#[derive(Serialize)]
pub(super) struct Numbers {
    snapshot: String,
    snapshot_bytes: u64,
    epoch: u64,
    #[serde(flatten)]
    nodes: Nodes,
    #[serde(flatten)]
    links: Links,
    partitions: Vec<u16>,
    service_level: Option<u8>,
    packet_life_time: Option<u8>,
    shared_risk_groups: usize,
    memory_bytes: usize,
}

#[derive(Serialize)]
struct Nodes {
    switches: usize,
    adapters: usize,
    systems: usize,
    multi_port_systems: usize,
    multi_port_adapters: usize,
    /// Ports of adapters by LID mask count.
    end_ports: BTreeMap<u8, usize>,
    lids: usize,
    /// Nodes with SL-to-VL tables, and how many of those differ.
    sl_to_vl_nodes: usize,
    sl_to_vl_tables: usize,
}

#[derive(Serialize)]
struct Links {
    /// By rate in Gb/s.
    links_up: BTreeMap<String, usize>,
    links_down: usize,
    /// By bytes.
    mtus: BTreeMap<String, usize>,
}

const NOT_KNOWN: &str = "unknown";

impl Numbers {
    pub(super) fn new(path: &Path, bytes: u64, fabric: &Fabric) -> Self {
        let summary = fabric.summary();
        let terms = fabric.terms();
        let rate = |rate: Option<Rate>| rate.map_or(NOT_KNOWN.to_owned(), |r| r.text().to_owned());
        let mtu = |mtu: Option<Mtu>| mtu.map_or(NOT_KNOWN.to_owned(), |mtu| mtu.to_string());
        Self {
            snapshot: path.display().to_string(),
            snapshot_bytes: bytes,
            epoch: fabric.epoch(),
            nodes: Nodes {
                switches: summary.switches,
                adapters: summary.adapters,
                systems: summary.systems,
                multi_port_systems: summary.multi_port_systems,
                multi_port_adapters: summary.multi_port_adapters,
                end_ports: summary.end_ports,
                lids: summary.lids,
                sl_to_vl_nodes: summary.sl_to_vl_nodes,
                sl_to_vl_tables: summary.sl_to_vl_tables,
            },
            links: Links {
                links_up: summary.up.into_iter().map(|(r, n)| (rate(r), n)).collect(),
                links_down: summary.down,
                mtus: summary.mtus.into_iter().map(|(m, n)| (mtu(m), n)).collect(),
            },
            partitions: summary.partitions.into_iter().collect(),
            service_level: terms.service_level,
            packet_life_time: terms.packet_life_time,
            shared_risk_groups: fabric.risks().len(),
            memory_bytes: fabric.table_bytes(),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<13} {value}");
        };
        let bytes = self.snapshot_bytes;
        line("snapshot", format!("{}, {bytes} bytes", self.snapshot));
        line("epoch", self.epoch.to_string());
        line("switches", self.nodes.switches.to_string());
        line(
            "hosts",
            format!(
                "{} with {} adapters; {} with several ports",
                self.nodes.systems, self.nodes.adapters, self.nodes.multi_port_systems
            ),
        );
        let ports = self.nodes.end_ports.iter();
        let ports = ports.map(|(lmc, ports)| format!("{ports} with LMC {lmc}"));
        line("host ports", listed(ports));
        line("lids", self.nodes.lids.to_string());
        let links = self.links.links_up.iter();
        let links = links.map(|(rate, links)| format!("{links} up at {rate} Gb/s"));
        let down = (self.links.links_down > 0).then(|| format!("{} down", self.links.links_down));
        line("links", listed(links.chain(down)));
        let mtus = self.links.mtus.iter();
        line(
            "mtu",
            listed(mtus.map(|(mtu, links)| format!("{mtu} on {links} links"))),
        );
        let partitions = self.partitions.iter().map(|key| format!("0x{key:04x}"));
        line("partitions", listed(partitions));
        let term = |term: Option<u8>| term.map_or(NOT_KNOWN.to_owned(), |term| term.to_string());
        line("service level", term(self.service_level));
        line("life time", term(self.packet_life_time));
        line(
            "sl to vl",
            match self.nodes.sl_to_vl_nodes {
                0 => NOT_KNOWN.to_owned(),
                known => format!(
                    "known of {known} of {} nodes, different tables: {}",
                    self.nodes.switches + self.nodes.adapters,
                    self.nodes.sl_to_vl_tables
                ),
            },
        );
        if self.shared_risk_groups > 0 {
            line("risk groups", self.shared_risk_groups.to_string());
        }
        line(
            "memory",
            format!("{:.1} MB of tables", self.memory_bytes as f64 / 1e6),
        );
        text
    }
}

fn listed(items: impl Iterator<Item = String>) -> String {
    match items.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => NOT_KNOWN.to_owned(),
        all => all,
    }
}
