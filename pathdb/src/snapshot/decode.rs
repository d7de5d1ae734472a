// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a snapshot.

use std::io::{self, BufReader, Read};

use super::{EACH, MAGIC, NOT_KNOWN, SAME, SnapshotError, VERSION};
use crate::fabric::{Builder, Fabric, NodeId, NodeKind, NodeSpec, PathTerms, PortSpec, SlToVl};
use crate::ident::{Guid, Lid, LidRange, PKey};
use crate::rate::{Capability, Mtu, Rate};

/// Reads a snapshot: all of it, or an error.
pub fn read(mut from: impl Read) -> Result<Fabric, SnapshotError> {
    let mut magic = [0; MAGIC.len()];
    from.read_exact(&mut magic)
        .map_err(|_| SnapshotError::NotASnapshot)?;
    if magic != MAGIC {
        return Err(SnapshotError::NotASnapshot);
    }
    let mut version = [0; 4];
    from.read_exact(&mut version)
        .map_err(SnapshotError::Broken)?;
    match u32::from_le_bytes(version) {
        VERSION => {}
        other => return Err(SnapshotError::Version(other)),
    }
    let decoder = zstd::Decoder::new(from).map_err(SnapshotError::Broken)?;
    Body(BufReader::new(decoder)).fabric()
}

/// What is in the frame.
struct Body<R>(R);

impl<R: Read> Body<R> {
    fn fabric(mut self) -> Result<Fabric, SnapshotError> {
        let mut builder = Builder::new();
        builder.epoch(self.u64()?);
        builder.terms(self.terms()?);
        let nodes = self.nodes(&mut builder)?;
        let tables = self.pkey_tables(&mut builder)?;
        // Ports as the links name them.
        let mut ends = Vec::new();
        let counts = nodes.clone();
        for (node, count) in nodes {
            for number in 0..=count {
                self.port(&mut builder, (node, number), &tables)?;
                ends.push((node, number));
            }
        }
        for _ in 0..self.u32()? {
            self.link(&mut builder, &ends)?;
        }
        self.lanes(&mut builder, &counts)?;
        let lids = self.u32()?;
        if lids > u32::from(Lid::MAX) + 1 {
            return Err(field("the number of lids", lids));
        }
        let bytes = u64::from(lids) * builder.switch_count() as u64;
        let mut rows = Vec::new();
        self.0
            .by_ref()
            .take(bytes)
            .read_to_end(&mut rows)
            .map_err(SnapshotError::Broken)?;
        if rows.len() as u64 != bytes {
            return Err(SnapshotError::Broken(io::ErrorKind::UnexpectedEof.into()));
        }
        rows.shrink_to_fit();
        self.end()?;
        builder.rows(rows).map_err(SnapshotError::Contradiction)
    }

    fn terms(&mut self) -> Result<PathTerms, SnapshotError> {
        let [level, time] = self.bytes()?;
        let term = |code, max, what| match code {
            NOT_KNOWN => Ok(None),
            code if code <= max => Ok(Some(code)),
            code => Err(field(what, code)),
        };
        Ok(PathTerms {
            service_level: term(level, 15, "the service level of paths")?,
            packet_life_time: term(time, 63, "the packet life time of paths")?,
        })
    }

    /// The nodes and their numbers of ports.
    fn nodes(&mut self, builder: &mut Builder) -> Result<Vec<(NodeId, u8)>, SnapshotError> {
        let mut nodes = Vec::new();
        for _ in 0..self.u32()? {
            let [kind, ports] = self.bytes()?;
            let kind = match kind {
                0 => NodeKind::Adapter,
                1 => NodeKind::Switch,
                other => return Err(field("the kind of a node", other)),
            };
            let (guid, system) = (Guid(self.u64()?), Guid(self.u64()?));
            let mut name = vec![0; usize::from(self.u16()?)];
            self.0
                .read_exact(&mut name)
                .map_err(SnapshotError::Broken)?;
            let spec = NodeSpec {
                kind,
                guid,
                system,
                name: String::from_utf8_lossy(&name).into_owned(),
                ports,
            };
            let node = builder.node(spec).map_err(SnapshotError::Contradiction)?;
            nodes.push((node, ports));
        }
        Ok(nodes)
    }

    fn pkey_tables(&mut self, builder: &mut Builder) -> Result<Vec<Vec<PKey>>, SnapshotError> {
        let mut tables = Vec::new();
        for _ in 0..self.u16()? {
            let mut table = Vec::new();
            for _ in 0..self.u16()? {
                table.push(PKey(self.u16()?));
            }
            builder
                .pkey_table(&table)
                .map_err(SnapshotError::Contradiction)?;
            tables.push(table);
        }
        Ok(tables)
    }

    fn port(
        &mut self,
        builder: &mut Builder,
        (node, number): (NodeId, u8),
        tables: &[Vec<PKey>],
    ) -> Result<(), SnapshotError> {
        let guid = self.u64()?;
        let base = self.u16()?;
        let [lmc] = self.bytes()?;
        let table = self.u16()?;
        let lids = match base {
            0 => None,
            base => Some(
                Lid::new(base)
                    .and_then(|lid| LidRange::new(lid, lmc))
                    .ok_or_else(|| field("the base lid of a port", base))?,
            ),
        };
        let spec = PortSpec {
            guid: (guid != 0).then_some(Guid(guid)),
            lids,
            pkeys: tables
                .get(usize::from(table))
                .ok_or_else(|| field("the p_key table of a port", table))?
                .clone(),
        };
        builder
            .port(node, number, &spec)
            .map_err(SnapshotError::Contradiction)?;
        Ok(())
    }

    fn link(&mut self, builder: &mut Builder, ends: &[(NodeId, u8)]) -> Result<(), SnapshotError> {
        let mut end = || {
            let port = self.u32()?;
            let end = ends.get(port as usize).copied();
            end.ok_or_else(|| field("an end of a link", port))
        };
        let (a, b) = (end()?, end()?);
        let [mtu, rate, up] = self.bytes()?;
        let carries = Capability {
            mtu: known(mtu, Mtu::from_code, "the mtu of a link")?,
            rate: known(rate, Rate::from_code, "the rate of a link")?,
        };
        let up = match up {
            0 => false,
            1 => true,
            other => return Err(field("the state of a link", other)),
        };
        builder
            .link(a, b, carries, up)
            .map_err(SnapshotError::Contradiction)
    }

    /// SL-to-VL tables; `nodes` are all and their numbers of ports.
    fn lanes(
        &mut self,
        builder: &mut Builder,
        nodes: &[(NodeId, u8)],
    ) -> Result<(), SnapshotError> {
        let mut tables = Vec::new();
        for _ in 0..self.u16()? {
            let table = SlToVl(self.bytes()?);
            builder
                .lanes_table(table)
                .map_err(SnapshotError::Contradiction)?;
            tables.push(table);
        }
        for _ in 0..self.u32()? {
            let node = self.u32()?;
            let known = nodes.get(node as usize).copied();
            let (node, ports) = known.ok_or_else(|| field("a node with sl-to-vl tables", node))?;
            match self.bytes()? {
                [SAME] => {
                    let table = self.lanes_of(&tables)?;
                    let table = table.ok_or_else(|| field("the only sl-to-vl table", 0u8))?;
                    let said = builder.same_sl_to_vl(node, table);
                    said.map_err(SnapshotError::Contradiction)?;
                }
                [EACH] => self.each_lanes(builder, (node, ports), &tables)?,
                [other] => return Err(field("the form of sl-to-vl tables", other)),
            }
        }
        Ok(())
    }

    fn each_lanes(
        &mut self,
        builder: &mut Builder,
        (node, ports): (NodeId, u8),
        tables: &[SlToVl],
    ) -> Result<(), SnapshotError> {
        for from in 0..=ports {
            for to in 0..=ports {
                if let Some(table) = self.lanes_of(tables)? {
                    let said = builder.sl_to_vl(node, from, to, table);
                    said.map_err(SnapshotError::Contradiction)?;
                }
            }
        }
        Ok(())
    }

    /// The table of a number, `None` for 0.
    fn lanes_of(&mut self, tables: &[SlToVl]) -> Result<Option<SlToVl>, SnapshotError> {
        match self.u16()? {
            0 => Ok(None),
            number => tables
                .get(usize::from(number) - 1)
                .copied()
                .map(Some)
                .ok_or_else(|| field("the number of an sl-to-vl table", number)),
        }
    }

    /// Nothing may follow; finding that out also makes zstd compare the checksum.
    fn end(&mut self) -> Result<(), SnapshotError> {
        let mut rest = Vec::new();
        let more = self.0.by_ref().take(1).read_to_end(&mut rest);
        match more.map_err(SnapshotError::Broken)? {
            0 => Ok(()),
            _ => Err(SnapshotError::TooLong),
        }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let mut bytes = [0; N];
        self.0
            .read_exact(&mut bytes)
            .map_err(SnapshotError::Broken)?;
        Ok(bytes)
    }

    fn u16(&mut self) -> Result<u16, SnapshotError> {
        self.bytes().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, SnapshotError> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, SnapshotError> {
        self.bytes().map(u64::from_le_bytes)
    }
}

fn field(what: &'static str, value: impl Into<u64>) -> SnapshotError {
    SnapshotError::Field {
        what,
        value: value.into(),
    }
}

/// A code, 0 being not known.
fn known<T>(
    code: u8,
    from_code: fn(u8) -> Option<T>,
    what: &'static str,
) -> Result<Option<T>, SnapshotError> {
    match code {
        0 => Ok(None),
        code => from_code(code).map(Some).ok_or_else(|| field(what, code)),
    }
}
