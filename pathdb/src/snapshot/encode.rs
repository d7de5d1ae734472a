// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing a snapshot.

use std::io::{self, BufWriter, Write};

use super::{EACH, MAGIC, NOT_KNOWN, SAME, VERSION};
use crate::fabric::{Fabric, NodeKind, NodeTables, Port};
use cm_msgs::rate::{Mtu, Rate};

/// How hard zstd tries. Forwarding tables are so regular that more effort gains little.
const LEVEL: i32 = 3;

/// Writes a snapshot of `fabric`.
pub fn write(fabric: &Fabric, mut to: impl Write) -> io::Result<()> {
    to.write_all(&MAGIC)?;
    to.write_all(&VERSION.to_le_bytes())?;
    let mut encoder = zstd::Encoder::new(to, LEVEL)?;
    encoder.include_checksum(true)?;
    let mut buffered = BufWriter::new(encoder);
    body(fabric, &mut buffered)?;
    let encoder = buffered
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?;
    encoder.finish()?.flush()
}

fn body(fabric: &Fabric, to: &mut impl Write) -> io::Result<()> {
    to.write_all(&fabric.epoch().to_le_bytes())?;
    let terms = fabric.terms();
    let terms = [terms.service_level, terms.packet_life_time];
    to.write_all(&terms.map(|code| code.unwrap_or(NOT_KNOWN)))?;
    nodes(fabric, to)?;
    let tables = fabric.pkey_tables();
    to.write_all(&count(tables.len())?.to_le_bytes())?;
    for table in tables {
        to.write_all(&count(table.len())?.to_le_bytes())?;
        for pkey in table {
            to.write_all(&pkey.0.to_le_bytes())?;
        }
    }
    for each in fabric.ports() {
        port(each, to)?;
    }
    links(fabric, to)?;
    sl_to_vl_tables(fabric, to)?;
    let rows = fabric.forwarding();
    to.write_all(&(rows.lids() as u32).to_le_bytes())?;
    to.write_all(rows.rows())
}

fn nodes(fabric: &Fabric, to: &mut impl Write) -> io::Result<()> {
    to.write_all(&(fabric.nodes().count() as u32).to_le_bytes())?;
    for (_, node) in fabric.nodes() {
        let kind = match node.kind {
            NodeKind::Adapter => 0,
            NodeKind::Switch => 1,
        };
        to.write_all(&[kind, node.ports])?;
        to.write_all(&node.guid.0.to_le_bytes())?;
        to.write_all(&node.system.0.to_le_bytes())?;
        let name = node.name.as_bytes();
        to.write_all(&count(name.len())?.to_le_bytes())?;
        to.write_all(name)?;
    }
    Ok(())
}

fn port(port: &Port, to: &mut impl Write) -> io::Result<()> {
    let (base, lmc) = port.lids.map_or((0, 0), |r| (r.base().0, r.lmc()));
    to.write_all(&port.guid.map_or(0, |guid| guid.0).to_le_bytes())?;
    to.write_all(&base.to_le_bytes())?;
    to.write_all(&[lmc])?;
    to.write_all(&port.pkey_table().to_le_bytes())
}

fn links(fabric: &Fabric, to: &mut impl Write) -> io::Result<()> {
    to.write_all(&(fabric.links().count() as u32).to_le_bytes())?;
    for (port, peer) in fabric.links() {
        let carries = fabric.carries(port);
        to.write_all(&port.0.to_le_bytes())?;
        to.write_all(&peer.0.to_le_bytes())?;
        to.write_all(&[
            carries.mtu.map_or(0, Mtu::code),
            carries.rate.map_or(0, Rate::code),
            u8::from(fabric.is_up(port)),
        ])?;
    }
    Ok(())
}

fn sl_to_vl_tables(fabric: &Fabric, to: &mut impl Write) -> io::Result<()> {
    let known = fabric.sl_to_vl_tables();
    to.write_all(&count(known.tables().len())?.to_le_bytes())?;
    for table in known.tables() {
        to.write_all(&table.0)?;
    }
    let nodes = fabric.nodes();
    let nodes: Vec<_> = nodes
        .filter_map(|(id, _)| Some((id, known.of(id)?)))
        .collect();
    to.write_all(&(nodes.len() as u32).to_le_bytes())?;
    for (node, tables) in nodes {
        let (form, numbers) = match tables {
            NodeTables::Same(number) => (SAME, std::slice::from_ref(number)),
            NodeTables::Each(each) => (EACH, &**each),
        };
        to.write_all(&node.0.to_le_bytes())?;
        to.write_all(&[form])?;
        for number in numbers {
            to.write_all(&number.to_le_bytes())?;
        }
    }
    Ok(())
}

/// A length that the format has two bytes for.
fn count(length: usize) -> io::Result<u16> {
    u16::try_from(length).map_err(|_| {
        let text = format!("{length} are more than a snapshot can hold: at most 65535");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}
