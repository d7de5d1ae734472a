// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of the resource tracker, and the attributes in them.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use cm_msgs::control::{MigrationState, QpState};
use cm_msgs::{Guid, Qpn};

use crate::io::netlink::{self, HEADER_LEN};

pub(super) const ATTR_DEV_INDEX: u16 = 1;
pub(super) const ATTR_DEV_NAME: u16 = 2;
pub(super) const ATTR_PORT_INDEX: u16 = 3;
pub(super) const ATTR_NODE_GUID: u16 = 6;
pub(super) const ATTR_RES_QP: u16 = 19;
pub(super) const ATTR_RES_LQPN: u16 = 21;
pub(super) const ATTR_RES_RQPN: u16 = 22;
pub(super) const ATTR_RES_PATH_MIG_STATE: u16 = 25;
pub(super) const ATTR_RES_TYPE: u16 = 26;
pub(super) const ATTR_RES_STATE: u16 = 27;
pub(super) const ATTR_RES_PID: u16 = 28;
pub(super) const ATTR_RES_KERN_NAME: u16 = 29;
pub(super) const ATTR_RES_CM_ID: u16 = 30;
pub(super) const ATTR_RES_SRC_ADDR: u16 = 33;
pub(super) const ATTR_RES_DST_ADDR: u16 = 34;
pub(super) const ATTR_RES_PDN: u16 = 60;
pub(super) const ATTR_RES_CTXN: u16 = 64;
pub(super) const ATTR_DEV_TYPE: u16 = 99;
pub(super) const ATTR_PARENT_NAME: u16 = 100;

/// `RDMA_DEVICE_TYPE_SMI`
const DEVICE_TYPE_SMI: u8 = 1;

/// `IB_QPT_RC`
const TYPE_RC: u8 = 2;

const ATTR_TYPE_MASK: u16 = 0x3fff;

/// Who made a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Maker {
    /// This thread, as our pid namespace names it.
    Thread(i32),
    /// Threads that have ended: the kernel cannot name their process.
    Ended,
    /// The kernel.
    Kernel,
}

/// A queue pair as the kernel has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueuePair {
    /// Who made it.
    pub(crate) maker: Maker,
    /// It is a reliable connection's.
    pub(crate) reliable: bool,
    /// Its state.
    pub(crate) state: Option<QpState>,
    /// Its migration state.
    pub(crate) migration: Option<MigrationState>,
    /// The queue pair at the other end.
    pub(crate) peer_qpn: Option<Qpn>,
}

/// An rdma_cm id that has a queue pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CmId {
    pub(crate) qpn: Qpn,
    pub(crate) source: IpAddr,
    pub(crate) destination: Option<SocketAddr>,
}

/// A device as the kernel has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Device {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) ports: u32,
}

/// A device that a driver shows beside the one that it is a part of (Linux 6.11 and later).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SubDevice {
    pub(crate) name: String,
    pub(crate) parent: String,
    /// It is there for subnet management alone.
    pub(crate) is_smi: bool,
}

pub(super) fn device_of(attributes: &HashMap<u16, &[u8]>) -> Option<Device> {
    Some(Device {
        index: value(attributes, ATTR_DEV_INDEX)?,
        name: string(attributes, ATTR_DEV_NAME)?,
        ports: value(attributes, ATTR_PORT_INDEX)?.min(u8::MAX.into()),
    })
}

/// Whether it is the device with this node GUID, which its part for subnet management has as well.
pub(super) fn is_device(attributes: &HashMap<u16, &[u8]>, node_guid: Guid) -> bool {
    let guid = attributes.get(&ATTR_NODE_GUID);
    let guid = guid.and_then(|value| value.first_chunk());
    let is_smi = sub_device_of(attributes).is_some_and(|device| device.is_smi);
    guid.map(|guid| u64::from_ne_bytes(*guid)) == Some(node_guid.0) && !is_smi
}

pub(super) fn sub_device_of(attributes: &HashMap<u16, &[u8]>) -> Option<SubDevice> {
    let kind = attributes.get(&ATTR_DEV_TYPE)?.first()?;
    Some(SubDevice {
        name: string(attributes, ATTR_DEV_NAME)?,
        parent: string(attributes, ATTR_PARENT_NAME)?,
        is_smi: *kind == DEVICE_TYPE_SMI,
    })
}

fn string(attributes: &HashMap<u16, &[u8]>, name: u16) -> Option<String> {
    let text = attributes.get(&name)?;
    let text = text.strip_suffix(b"\0").unwrap_or(text);
    Some(String::from_utf8_lossy(text).into_owned())
}

pub(super) fn queue_pair_of(attributes: &HashMap<u16, &[u8]>) -> QueuePair {
    let byte = |name| {
        attributes
            .get(&name)
            .and_then(|value| value.first().copied())
    };
    QueuePair {
        maker: maker_of(attributes),
        reliable: byte(ATTR_RES_TYPE) == Some(TYPE_RC),
        state: byte(ATTR_RES_STATE).and_then(QpState::from_code),
        migration: byte(ATTR_RES_PATH_MIG_STATE).and_then(MigrationState::from_code),
        peer_qpn: value(attributes, ATTR_RES_RQPN).map(|qpn| Qpn(qpn & 0xff_ffff)),
    }
}

/// The entries of a table of queue pairs.
pub(super) fn queue_pairs_of(payload: &[u8]) -> Vec<(Qpn, QueuePair)> {
    let tables = each_attribute(payload).filter(|(name, _)| *name == ATTR_RES_QP);
    let entries = tables.flat_map(|(_, table)| each_attribute(table));
    let entries = entries.filter_map(|(_, entry)| {
        let attributes = attributes_of(entry);
        let qpn = value(&attributes, ATTR_RES_LQPN)?;
        Some((Qpn(qpn), queue_pair_of(&attributes)))
    });
    entries.collect()
}

/// The entries of a table of rdma_cm ids.
pub(super) fn cm_ids_of(attributes: &HashMap<u16, &[u8]>) -> Vec<CmId> {
    let table = attributes.get(&ATTR_RES_CM_ID).copied();
    let entries = table.into_iter().flat_map(each_attribute);
    let entries = entries.filter_map(|(_, entry)| {
        let attributes = attributes_of(entry);
        let address = |name| socket_address(attributes.get(&name)?);
        Some(CmId {
            qpn: Qpn(value(&attributes, ATTR_RES_LQPN)?),
            source: address(ATTR_RES_SRC_ADDR)?.ip(),
            destination: address(ATTR_RES_DST_ADDR),
        })
    });
    entries.collect()
}

/// `struct sockaddr_storage`, as far as it is one of IP.
fn socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let ip = match libc::c_int::from(family) {
        libc::AF_INET => IpAddr::from(Ipv4Addr::from(*bytes.get(4..)?.first_chunk()?)),
        libc::AF_INET6 => IpAddr::from(Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

pub(super) fn maker_of(attributes: &HashMap<u16, &[u8]>) -> Maker {
    if attributes.contains_key(&ATTR_RES_KERN_NAME) {
        return Maker::Kernel;
    }
    match value(attributes, ATTR_RES_PID) {
        Some(tid) => Maker::Thread(tid.cast_signed()),
        None => Maker::Ended,
    }
}

pub(super) fn value(attributes: &HashMap<u16, &[u8]>, name: u16) -> Option<u32> {
    attributes.get(&name).and_then(|value| number(value))
}

pub(super) fn encode(kind: u16, flags: u16, sequence: u32, attributes: &[(u16, u32)]) -> Vec<u8> {
    let len = HEADER_LEN + 8 * attributes.len();
    let mut bytes = Vec::with_capacity(len);
    bytes.extend((len as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    for (name, value) in attributes {
        bytes.extend(8u16.to_ne_bytes());
        bytes.extend(name.to_ne_bytes());
        bytes.extend(value.to_ne_bytes());
    }
    bytes
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.first_chunk()?))
}

/// Messages in a datagram that answer question `sequence`: type and payload.
pub(super) fn answers(datagram: &[u8], sequence: u32) -> impl Iterator<Item = (u16, &[u8])> {
    netlink::messages(datagram).filter_map(move |message| {
        let (header, payload) = message.split_first_chunk::<HEADER_LEN>()?;
        let [_, _, _, _, t0, t1, _, _, s0, s1, s2, s3, ..] = *header;
        let answers = u32::from_ne_bytes([s0, s1, s2, s3]) == sequence;
        answers.then_some((u16::from_ne_bytes([t0, t1]), payload))
    })
}

/// Attributes by their type; of several of one type, the last.
pub(super) fn attributes_of(payload: &[u8]) -> HashMap<u16, &[u8]> {
    each_attribute(payload).collect()
}

/// Attributes in their order. A wrong length ends the reading.
fn each_attribute(payload: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = payload;
    std::iter::from_fn(move || {
        let [l0, l1, t0, t1] = *rest.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((u16::from_ne_bytes([t0, t1]) & ATTR_TYPE_MASK, value))
    })
}

/// `struct nlmsgerr`: a negative errno, or 0 for an acknowledgement.
pub(super) fn error_of(payload: &[u8]) -> io::Result<()> {
    match number(payload).map(u32::cast_signed) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// All that the readers of answers look at.
#[cfg(test)]
pub(in crate::io) fn read_all(datagram: &[u8], sequence: u32) {
    for (_, payload) in answers(datagram, sequence) {
        let attributes = attributes_of(payload);
        let _ = (device_of(&attributes), queue_pair_of(&attributes));
        let _ = (queue_pairs_of(payload), error_of(payload));
        let _ = cm_ids_of(&attributes);
    }
}

/// An attribute that has others in it.
#[cfg(test)]
pub(super) fn nested(name: u16, content: &[u8]) -> Vec<u8> {
    let len = 4 + content.len() as u16;
    let mut bytes = [len.to_ne_bytes(), (0x8000 | name).to_ne_bytes()].concat();
    bytes.extend(content);
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::{CMD_GET, CMD_RES_QP_GET, NLDEV};
    use super::*;

    #[test]
    fn a_question_reads_back() {
        let bytes = encode(
            NLDEV | CMD_RES_QP_GET,
            1,
            7,
            &[(ATTR_DEV_INDEX, 3), (21, 0x17)],
        );
        let (kind, payload) = answers(&bytes, 7).next().unwrap();
        assert_eq!(kind, 0x140a);
        let found = attributes_of(payload);
        assert_eq!(found.len(), 2);
        assert_eq!(number(found[&ATTR_DEV_INDEX]), Some(3));
        assert_eq!(number(found[&ATTR_RES_LQPN]), Some(0x17));
        assert_eq!(answers(&bytes, 8).count(), 0, "another question's answer");
    }

    #[test]
    fn a_table_of_queue_pairs_reads_back() {
        let entry = |qpn, state: u32| {
            let bytes = encode(
                0,
                0,
                1,
                &[(ATTR_RES_LQPN, qpn), (ATTR_RES_STATE, state.to_le())],
            );
            nested(20, &bytes[HEADER_LEN..])
        };
        let table = nested(ATTR_RES_QP, &[entry(7, 3), entry(9, 6)].concat());
        let mut payload = encode(0, 0, 1, &[(ATTR_DEV_INDEX, 3)]).split_off(HEADER_LEN);
        payload.extend(table);
        let found = queue_pairs_of(&payload);
        let states: Vec<_> = found.iter().map(|(qpn, qp)| (*qpn, qp.state)).collect();
        let expected = [(Qpn(7), Some(QpState::Rts)), (Qpn(9), Some(QpState::Error))];
        assert_eq!(states, expected);
        assert!(queue_pairs_of(&payload[..20]).is_empty());
    }

    /// An attribute of bytes, as netlink pads it.
    fn attribute(name: u16, content: &[u8]) -> Vec<u8> {
        let mut bytes = [(4 + content.len() as u16).to_ne_bytes(), name.to_ne_bytes()].concat();
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// ConnectX-8 shows a part for subnet management, with the node GUID of the device that it is a part of.
    #[test]
    fn a_device_is_not_mistaken_for_its_part_for_subnet_management() {
        let device = |name: &[u8], more: &[Vec<u8>]| {
            let attributes = [
                attribute(ATTR_DEV_NAME, name),
                attribute(ATTR_NODE_GUID, &0x11_u64.to_ne_bytes()),
                more.concat(),
            ];
            attributes.concat()
        };
        let part = |kind: u8| {
            let kind = attribute(ATTR_DEV_TYPE, &[kind]);
            device(b"smi1\0", &[kind, attribute(ATTR_PARENT_NAME, b"mlx5_0\0")])
        };
        let (whole, smi, other) = (device(b"mlx5_0\0", &[]), part(DEVICE_TYPE_SMI), part(9));
        let is = |payload: &[u8], guid| is_device(&attributes_of(payload), Guid(guid));
        assert!(is(&whole, 0x11) && !is(&smi, 0x11) && is(&other, 0x11));
        assert!(!is(&whole, 0x12));
        assert_eq!(sub_device_of(&attributes_of(&whole)), None);
        let known = sub_device_of(&attributes_of(&smi)).expect("a part");
        assert_eq!(
            (&*known.name, &*known.parent, known.is_smi),
            ("smi1", "mlx5_0", true)
        );
    }

    #[test]
    fn rdma_cm_ids_have_addresses() {
        let attribute = |name: u16, content: &[u8]| nested(name, content);
        let v4 = |last: u8| {
            let mut bytes = vec![0; 128];
            bytes[..2].copy_from_slice(&2u16.to_ne_bytes());
            bytes[2..8].copy_from_slice(&[0x11, 0x44, 10, 0, 0, last]);
            bytes
        };
        let mut v6 = vec![0; 128];
        v6[..2].copy_from_slice(&10u16.to_ne_bytes());
        v6[8..24].copy_from_slice(&[0xfe; 16]);
        let entry = |parts: &[Vec<u8>]| nested(31, &parts.concat());
        let qpn = attribute(ATTR_RES_LQPN, &0x17u32.to_ne_bytes());
        let table = [
            entry(&[
                qpn.clone(),
                attribute(ATTR_RES_SRC_ADDR, &v4(1)),
                attribute(ATTR_RES_DST_ADDR, &v4(2)),
            ]),
            entry(&[qpn.clone(), attribute(ATTR_RES_SRC_ADDR, &v6)]),
            // One that listens, one by GID, and one cut short.
            entry(&[attribute(ATTR_RES_SRC_ADDR, &v4(1))]),
            entry(&[qpn.clone(), attribute(ATTR_RES_SRC_ADDR, &[27; 128])]),
            entry(&[qpn, attribute(ATTR_RES_SRC_ADDR, &v4(1)[..6])]),
        ];
        let payload = nested(ATTR_RES_CM_ID, &table.concat());
        let found = cm_ids_of(&attributes_of(&payload));
        let shown: Vec<_> = found
            .iter()
            .map(|id| (id.source.to_string(), id.destination))
            .collect();
        let v6 = IpAddr::from([0xfe; 16]).to_string();
        let to = "10.0.0.2:4420".parse().ok();
        assert_eq!(shown, [("10.0.0.1".to_owned(), to), (v6, None)]);
        assert!(found.iter().all(|id| id.qpn == Qpn(0x17)));
    }

    #[test]
    fn wrong_lengths_end_the_reading() {
        let mut bytes = encode(NLDEV | CMD_GET, 1, 1, &[(1, 3)]);
        bytes[0] = 200;
        assert_eq!(answers(&bytes, 1).count(), 0);
        for len in [0u8, 3, 200] {
            assert!(attributes_of(&[len, 0, 1, 0, 9, 9, 9, 9]).is_empty());
        }
    }

    #[test]
    fn a_queue_pair_reads_back() {
        let read = |attributes: &[(u16, u32)]| {
            let bytes = encode(0, 0, 1, attributes);
            let (_, payload) = answers(&bytes, 1).next().unwrap();
            queue_pair_of(&attributes_of(payload))
        };
        let found = read(&[
            (ATTR_RES_PID, 77),
            (ATTR_RES_TYPE, 2u32.to_le()),
            (ATTR_RES_STATE, 3u32.to_le()),
            (ATTR_RES_PATH_MIG_STATE, 2u32.to_le()),
            (ATTR_RES_RQPN, 0x17),
        ]);
        assert_eq!(
            found,
            QueuePair {
                maker: Maker::Thread(77),
                reliable: true,
                state: Some(QpState::Rts),
                migration: Some(MigrationState::Armed),
                peer_qpn: Some(Qpn(0x17)),
            }
        );
        assert_eq!(read(&[(ATTR_RES_KERN_NAME, 0)]).maker, Maker::Kernel);
        let nothing = read(&[]);
        assert_eq!((nothing.maker, nothing.state), (Maker::Ended, None));
        assert!(!nothing.reliable);
    }
}
