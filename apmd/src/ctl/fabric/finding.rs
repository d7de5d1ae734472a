// SPDX-License-Identifier: MIT OR Apache-2.0
//! What several judgements of a fabric show in one form.

use pathdb::check::Example;
use pathdb::{Fabric, Path, PortId};
use serde::Serialize;

/// Findings of one kind that are shown unless all are asked for.
pub(super) const SHOWN: usize = 10;

/// A primary and its best alternate.
#[derive(Serialize)]
pub(super) struct Between {
    source: String,
    destination: String,
    primary: Lids,
    alternate: Option<Lids>,
}

#[derive(Serialize)]
struct Lids {
    slid: u16,
    dlid: u16,
}

impl Between {
    pub(super) fn new(fabric: &Fabric, example: &Example) -> Self {
        let lids = |path: Path| Lids {
            slid: path.slid.0,
            dlid: path.dlid.0,
        };
        let host_of = |lid| {
            let port = fabric.port_by_lid(lid);
            port.map_or(String::new(), |port| host(fabric, port))
        };
        Self {
            source: host_of(example.primary.slid),
            destination: host_of(example.primary.dlid),
            primary: lids(example.primary),
            alternate: example.alternate.map(lids),
        }
    }

    pub(super) fn text(&self) -> String {
        let Self {
            source,
            destination,
            primary,
            ..
        } = self;
        format!(
            "{source} (lid {}) and {destination} (lid {})",
            primary.slid, primary.dlid
        )
    }
}

/// The node that a port is at.
pub(super) fn host(fabric: &Fabric, port: PortId) -> String {
    fabric.node(fabric.port(port).node).name.to_string()
}
