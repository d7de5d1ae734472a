// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a snapshot.

use std::io::{self, BufReader, Read};

use cm_msgs::{Guid, Lid, PKey};

use super::{EACH, MAGIC, NOT_KNOWN, SAME, SnapshotError, VERSION};
use crate::capability::Capability;
use crate::fabric::{Builder, Fabric, NAME, NodeId, NodeKind, NodeSpec, PathTerms, PortId, SlToVl};
use crate::lid_range::LidRange;
use cm_msgs::rate::{Mtu, Rate};

/// Reads a snapshot: all of it, or an error.
pub fn read(mut from: impl Read) -> Result<Fabric, SnapshotError> {
    let mut magic = [0; MAGIC.len()];
    from.read_exact(&mut magic)
        .map_err(|_| SnapshotError::NotASnapshot)?;
    if magic != MAGIC {
        return Err(SnapshotError::NotASnapshot);
    }
    let mut version = [0; 4];
    from.read_exact(&mut version)?;
    match u32::from_le_bytes(version) {
        VERSION => {}
        other => return Err(SnapshotError::Version(other)),
    }
    let decoder = zstd::Decoder::new(from)?;
    Body(BufReader::new(decoder)).fabric()
}

/// What is in the frame. What a fabric may have at most is the [`Builder`]'s affair; here nothing is
/// read, or made room for, before it is known that it may be.
struct Body<R>(R);

impl<R: Read> Body<R> {
    fn fabric(mut self) -> Result<Fabric, SnapshotError> {
        let mut builder = Builder::new();
        builder.epoch(self.u64()?);
        builder.terms(self.terms()?);
        self.nodes(&mut builder)?;
        let tables = self.pkey_tables(&mut builder)?;
        let ports = builder.fabric().ports().len() as u32;
        for port in 0..ports {
            self.port(&mut builder, port, tables)?;
        }
        let links = self.u32()?;
        // Each link has two ports to itself.
        if links > ports / 2 {
            return Err(field("the number of links", links));
        }
        for _ in 0..links {
            self.link(&mut builder)?;
        }
        self.sl_to_vl_tables(&mut builder)?;
        let rows = self.rows(builder.fabric().switch_count())?;
        self.end()?;
        Ok(builder.rows(rows)?)
    }

    fn rows(&mut self, switches: usize) -> Result<Vec<u8>, SnapshotError> {
        let lids = self.u32()?;
        if lids > u32::from(Lid::MAX_UNICAST.0) + 1 {
            return Err(field("the number of lids", lids));
        }
        let bytes = u64::from(lids) * switches as u64;
        // Grows with what is there: room for what a file of some bytes claims could be gigabytes.
        let mut rows = Vec::new();
        self.0.by_ref().take(bytes).read_to_end(&mut rows)?;
        if rows.len() as u64 != bytes {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        rows.shrink_to_fit();
        Ok(rows)
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

    fn nodes(&mut self, builder: &mut Builder) -> Result<(), SnapshotError> {
        for _ in 0..self.u32()? {
            let [kind, ports] = self.bytes()?;
            let kind = match kind {
                0 => NodeKind::Adapter,
                1 => NodeKind::Switch,
                other => return Err(field("the kind of a node", other)),
            };
            let (guid, system) = (Guid(self.u64()?), Guid(self.u64()?));
            let length = self.u16()?;
            if usize::from(length) > NAME {
                return Err(field("the length of a name", length));
            }
            // Node descriptions may be in any encoding.
            let mut name = vec![0; usize::from(length)];
            self.0.read_exact(&mut name)?;
            let spec = NodeSpec {
                kind,
                guid,
                system,
                name: String::from_utf8_lossy(&name).into(),
                ports,
            };
            builder.node(spec)?;
        }
        Ok(())
    }

    /// How many there are. Each is another, so that it has its place for its number.
    fn pkey_tables(&mut self, builder: &mut Builder) -> Result<u16, SnapshotError> {
        let tables = self.u16()?;
        for number in 0..tables {
            let mut table = Vec::new();
            for _ in 0..self.u16()? {
                table.push(PKey(self.u16()?));
            }
            let known = builder.pkey_table(&table);
            if known? != number {
                return Err(field("the place of a p_key table", number));
            }
        }
        Ok(tables)
    }

    fn port(&mut self, builder: &mut Builder, port: u32, tables: u16) -> Result<(), SnapshotError> {
        let guid = Some(Guid(self.u64()?));
        let base = self.u16()?;
        let [lmc] = self.bytes()?;
        let table = self.u16()?;
        let lids = match base {
            0 => None,
            base => Some(
                LidRange::new(Lid(base), lmc)
                    .ok_or_else(|| field("the base lid of a port", base))?,
            ),
        };
        if table >= tables {
            return Err(field("the p_key table of a port", table));
        }
        let (node, number) = end(builder, port)?;
        builder.describe(node, number, (guid, lids), table)?;
        Ok(())
    }

    fn link(&mut self, builder: &mut Builder) -> Result<(), SnapshotError> {
        let (a, b) = (self.u32()?, self.u32()?);
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
        let (a, b) = (end(builder, a)?, end(builder, b)?);
        Ok(builder.link(a, b, carries, up)?)
    }

    fn sl_to_vl_tables(&mut self, builder: &mut Builder) -> Result<(), SnapshotError> {
        let mut tables = Vec::new();
        for number in 1..=self.u16()? {
            let table = SlToVl(self.bytes()?);
            let known = builder.sl_to_vl_number(table);
            if known? != number {
                return Err(field("the place of an sl-to-vl table", number));
            }
            tables.push(table);
        }
        let mut last = None;
        for _ in 0..self.u32()? {
            let node = self.u32()?;
            // Each node once, in order.
            if last.replace(node).is_some_and(|last| last >= node) {
                return Err(field("the next node with sl-to-vl tables", node));
            }
            match self.bytes()? {
                [SAME] => {
                    let table = self.sl_to_vl_entry(&tables)?;
                    let (_, table) = table.ok_or_else(|| field("the only sl-to-vl table", 0u8))?;
                    let said = builder.same_sl_to_vl(NodeId(node), table);
                    said?;
                }
                [EACH] => self.each_sl_to_vl(builder, NodeId(node), &tables)?,
                [other] => return Err(field("the form of sl-to-vl tables", other)),
            }
        }
        Ok(())
    }

    fn each_sl_to_vl(
        &mut self,
        builder: &mut Builder,
        node: NodeId,
        tables: &[SlToVl],
    ) -> Result<(), SnapshotError> {
        builder.reserve_sl_to_vl(node)?;
        let ports = builder.fabric().node(node).ports;
        for from in 0..=ports {
            for to in 0..=ports {
                if let Some((number, _)) = self.sl_to_vl_entry(tables)? {
                    let said = builder.sl_to_vl_by_number(node, (from, to), number);
                    said?;
                }
            }
        }
        Ok(())
    }

    /// A number and its table, `None` for 0.
    fn sl_to_vl_entry(
        &mut self,
        tables: &[SlToVl],
    ) -> Result<Option<(u16, SlToVl)>, SnapshotError> {
        let number = self.u16()?;
        let Some(at) = usize::from(number).checked_sub(1) else {
            return Ok(None);
        };
        let table = tables.get(at).copied();
        let table = table.ok_or_else(|| field("the number of an sl-to-vl table", number))?;
        Ok(Some((number, table)))
    }

    /// Nothing may follow; finding that out also makes zstd compare the checksum.
    fn end(&mut self) -> Result<(), SnapshotError> {
        let mut rest = Vec::new();
        let more = self.0.by_ref().take(1).read_to_end(&mut rest);
        match more? {
            0 => Ok(()),
            _ => Err(SnapshotError::TooLong),
        }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
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

/// A port as its node has it.
fn end(builder: &Builder, port: u32) -> Result<(NodeId, u8), SnapshotError> {
    let fabric = builder.fabric();
    let known = fabric.ports().get(port as usize);
    let node = known.ok_or_else(|| field("a port", port))?.node;
    Ok((node, fabric.port_number(PortId(port))))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::BuildError;

    /// Endless content: a head, then items without end; an error when more is read than was to be.
    struct Bomb<F> {
        left: Vec<u8>,
        item: F,
        next: u64,
        budget: usize,
    }

    impl<F: FnMut(u64) -> Vec<u8>> Read for Bomb<F> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.left.is_empty() {
                self.left = (self.item)(self.next);
                self.next += 1;
            }
            let count = into.len().min(self.left.len());
            self.budget = self.budget.checked_sub(count).ok_or(io::ErrorKind::Other)?;
            into[..count].copy_from_slice(&self.left[..count]);
            self.left.drain(..count);
            Ok(count)
        }
    }

    /// What is said to a bomb of which at most `budget` bytes are to be read.
    fn read_in(
        budget: usize,
        head: &[&[u8]],
        item: impl FnMut(u64) -> Vec<u8>,
    ) -> Result<Fabric, SnapshotError> {
        let bomb = Bomb {
            left: head.concat(),
            item,
            next: 0,
            budget,
        };
        Body(BufReader::new(bomb)).fabric()
    }

    const NO_TERMS: [u8; 10] = [0xff; 10];
    const MANY: [u8; 4] = [0xff; 4];
    const NONE: [u8; 2] = [0; 2];

    fn node(kind: u8, ports: u8, guid: u64, name: &[u8]) -> Vec<u8> {
        let length = (name.len() as u16).to_le_bytes();
        let guid = guid.to_le_bytes();
        [&[kind, ports], &guid[..], &guid, &length, name].concat()
    }

    fn too_large(read: Result<Fabric, SnapshotError>) -> &'static str {
        match read.map(|fabric| fabric.nodes().count()) {
            Err(SnapshotError::Contradiction(BuildError::TooLarge { what, .. })) => what,
            other => panic!("{other:?}"),
        }
    }

    fn wrong_field(read: Result<Fabric, SnapshotError>) -> &'static str {
        match read.map(|fabric| fabric.nodes().count()) {
            Err(SnapshotError::Field { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_fabric_larger_than_there_can_be_is_not_read_to_its_end() {
        let head: &[&[u8]] = &[&NO_TERMS, &MANY];
        let named = |guid| node(0, 0, guid, &[b'n'; NAME]);
        assert_eq!(too_large(read_in(36 << 20, head, named)), "nodes");
        let wide = |guid| node(0, 254, guid, b"");
        assert_eq!(too_large(read_in(1 << 20, head, wide)), "ports");
        let switches = |guid| node(1, 0, guid, b"");
        assert_eq!(too_large(read_in(1 << 20, head, switches)), "switches");
        let long = |guid| node(0, 0, guid, &[b'n'; 0xffff]);
        let wrong = wrong_field(read_in(1 << 14, head, long));
        assert_eq!(wrong, "the length of a name");
    }

    #[test]
    fn p_keys_are_counted_in_all_tables_together() {
        let head: &[&[u8]] = &[&NO_TERMS, &[0; 4], &[0xff; 2], &NONE];
        let table = |first: u64| {
            let keys = (0..0xffff).map(|key| key ^ first as u16);
            let keys: Vec<u8> = keys.flat_map(u16::to_le_bytes).collect();
            [&[0xff; 2], &keys[..]].concat()
        };
        let read = read_in(3 << 20, head, |number| table(number + 1));
        assert_eq!(too_large(read), "p_keys in different tables");
        let read = read_in(1 << 20, head, |_| table(1));
        assert_eq!(wrong_field(read), "the place of a p_key table");
    }

    #[test]
    fn no_link_and_no_nodes_tables_are_read_twice() {
        let two = [node(0, 1, 1, b"a"), node(0, 1, 2, b"b")].concat();
        let ports = [0; 4 * 13];
        let no_keys: &[u8] = &[1, 0, 0, 0];
        let head = [&NO_TERMS, &[2, 0, 0, 0][..], &two, no_keys, &ports].concat();
        let link = |_| [1u32.to_le_bytes(), 3u32.to_le_bytes(), [0; 4]].concat()[..11].to_vec();
        let read = read_in(1 << 14, &[&head, &MANY], link);
        assert_eq!(wrong_field(read), "the number of links");
        let one_link = [&1u32.to_le_bytes()[..], &link(0)].concat();
        let tables = |_| [&[0; 4][..], &[EACH], &[0; 8]].concat();
        let read = read_in(1 << 14, &[&head, &one_link, &NONE, &MANY], tables);
        assert_eq!(wrong_field(read), "the next node with sl-to-vl tables");
    }

    #[test]
    fn sl_to_vl_entries_are_counted_before_there_is_room_for_them() {
        let mut builder = Builder::new();
        let switch = |guid| NodeSpec {
            kind: NodeKind::Switch,
            guid: Guid(guid),
            system: Guid(guid),
            name: "".into(),
            ports: 254,
        };
        let with_room = (0..5000).map_while(|guid| {
            let node = builder.node(switch(guid)).expect("not too many");
            builder.reserve_sl_to_vl(node).ok()
        });
        assert_eq!(with_room.count(), (1 << 26) / (255 * 255));
    }
}
