// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's RDMA resource tracker by netlink (`include/uapi/rdma/rdma_netlink.h`,
//! `drivers/infiniband/core/nldev.c`): whose is a queue pair, and how is it?

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use cm_msgs::control::{MigrationState, QpState};
use cm_msgs::{Guid, Qpn};
use nix::errno::Errno;
use nix::sys::socket::{self, MsgFlags};

use super::netlink::{self, HEADER_LEN};

/// Client `RDMA_NL_NLDEV` in the upper bits of a message's type.
const NLDEV: u16 = 5 << 10;
const CMD_GET: u16 = 1;
const CMD_RES_QP_GET: u16 = 10;
const CMD_RES_CM_ID_GET: u16 = 11;
const CMD_RES_PD_GET: u16 = 14;
const CMD_RES_CTX_GET: u16 = 22;

const ATTR_DEV_INDEX: u16 = 1;
const ATTR_DEV_NAME: u16 = 2;
const ATTR_PORT_INDEX: u16 = 3;
const ATTR_NODE_GUID: u16 = 6;
const ATTR_RES_QP: u16 = 19;
const ATTR_RES_LQPN: u16 = 21;
const ATTR_RES_RQPN: u16 = 22;
const ATTR_RES_PATH_MIG_STATE: u16 = 25;
const ATTR_RES_TYPE: u16 = 26;
const ATTR_RES_STATE: u16 = 27;
const ATTR_RES_PID: u16 = 28;
const ATTR_RES_KERN_NAME: u16 = 29;
const ATTR_RES_CM_ID: u16 = 30;
const ATTR_RES_SRC_ADDR: u16 = 33;
const ATTR_RES_DST_ADDR: u16 = 34;
const ATTR_RES_PDN: u16 = 60;
const ATTR_RES_CTXN: u16 = 64;
const ATTR_DEV_TYPE: u16 = 99;
const ATTR_PARENT_NAME: u16 = 100;

/// `RDMA_DEVICE_TYPE_SMI`
const DEVICE_TYPE_SMI: u8 = 1;

/// `IB_QPT_RC`
const TYPE_RC: u8 = 2;

/// No datagram of the kernel's is longer.
const DATAGRAM: usize = 32 * 1024;

const TYPE_ERROR: u16 = 2;
const TYPE_DONE: u16 = 3;
const FLAG_REQUEST: u16 = 0x1;
const FLAG_DUMP: u16 = 0x300;
const ATTR_TYPE_MASK: u16 = 0x3fff;

/// Who made a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Maker {
    /// This thread, as our pid namespace names it.
    Thread(i32),
    /// Threads that have ended: the kernel cannot say whose they were.
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
struct Device {
    index: u32,
    name: String,
    ports: u32,
}

/// A device that a driver shows beside the one that it is a part of (Linux 6.11 and later).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SubDevice {
    pub(crate) name: String,
    pub(crate) parent: String,
    /// It is there for subnet management alone.
    pub(crate) is_smi: bool,
}

/// A netlink socket to the resource tracker.
#[derive(Debug)]
pub(crate) struct Nldev {
    fd: OwnedFd,
    sequence: u32,
    /// The end of an answer came with its last part.
    has_ended: bool,
}

impl Nldev {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel has no RDMA netlink.
    pub(crate) fn open() -> io::Result<Self> {
        let fd = netlink::rdma_socket(0)?;
        Ok(Self {
            fd,
            sequence: 0,
            has_ended: false,
        })
    }

    /// Over a socket that does not block, to whoever answers in the kernel's place.
    #[cfg(test)]
    pub(crate) fn over(fd: OwnedFd) -> Self {
        Self {
            fd,
            sequence: 0,
            has_ended: false,
        }
    }

    /// Queue pair `qpn` of the device with this node GUID; `None` if there is none.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub(crate) fn queue_pair(
        &mut self,
        node_guid: Guid,
        qpn: Qpn,
    ) -> io::Result<Option<QueuePair>> {
        let Some(device) = self.device(node_guid)? else {
            return Ok(None);
        };
        // A queue pair is found under the port that it was set up on, which may not be the port
        // that it uses after a migration: ask for each.
        for port in 1..=device.ports {
            let by = [(ATTR_PORT_INDEX, port), (ATTR_RES_LQPN, qpn.0)];
            let mut found = None;
            let asked = self.resource(CMD_RES_QP_GET, &device, &by, |attributes| {
                found = Some((queue_pair_of(attributes), value(attributes, ATTR_RES_PDN)));
            });
            match asked {
                Ok(()) => {}
                // So nldev answers where the queue pair is another port's (`fill_res_qp_entry`).
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => continue,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
                Err(error) => return Err(error),
            }
            let Some((mut queue_pair, domain)) = found else {
                return Ok(None);
            };
            if let (Maker::Ended, Some(domain)) = (queue_pair.maker, domain) {
                queue_pair.maker = self.maker_of_domain(&device, domain);
            }
            return Ok(Some(queue_pair));
        }
        Ok(None)
    }

    /// Asks for all queue pairs of a device; [`Self::next_queue_pairs`] tells. Another question
    /// ends that. False: there is no such device.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub(crate) fn begin_queue_pairs(&mut self, node_guid: Guid) -> io::Result<bool> {
        let Some(device) = self.device(node_guid)? else {
            return Ok(false);
        };
        let attributes = [(ATTR_DEV_INDEX, device.index)];
        self.send(CMD_RES_QP_GET, FLAG_DUMP, &attributes)?;
        Ok(true)
    }

    /// The rdma_cm ids of a device that have a queue pair and an IP address.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub(crate) fn cm_ids(&mut self, node_guid: Guid) -> io::Result<Vec<CmId>> {
        let mut found = Vec::new();
        if let Some(device) = self.device(node_guid)? {
            let by = [(ATTR_DEV_INDEX, device.index)];
            self.ask(CMD_RES_CM_ID_GET, FLAG_DUMP, &by, |attributes| {
                found.extend(cm_ids_of(attributes));
            })?;
        }
        Ok(found)
    }

    /// The device's name.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub(crate) fn name_of(&mut self, node_guid: Guid) -> io::Result<Option<String>> {
        Ok(self.device(node_guid)?.map(|device| device.name))
    }

    /// The kernel's number for the device, as other families of netlink take it.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub(crate) fn index_of(&mut self, node_guid: Guid) -> io::Result<Option<u32>> {
        Ok(self.device(node_guid)?.map(|device| device.index))
    }

    /// The next of them, a hundred or so; `None`: there are no more. The kernel asks the device for
    /// the state of each, so they are taken at the reader's pace.
    ///
    /// # Errors
    /// The kernel has given up.
    pub(crate) fn next_queue_pairs(&mut self) -> io::Result<Option<Vec<(Qpn, QueuePair)>>> {
        if std::mem::take(&mut self.has_ended) {
            return Ok(None);
        }
        let mut buffer = vec![0; DATAGRAM];
        let len = self.receive(&mut buffer)?;
        let mut found = Vec::new();
        for (kind, payload) in answers(&buffer[..len], self.sequence) {
            match kind {
                TYPE_DONE => {
                    self.has_ended = !found.is_empty();
                    return Ok(self.has_ended.then_some(found));
                }
                TYPE_ERROR => return error_of(payload).map(|()| None),
                _ => found.extend(queue_pairs_of(payload)),
            }
        }
        Ok(Some(found))
    }

    /// The thread that made a queue pair may have ended, but often the one that made its protection
    /// domain lives, or the one that opened the device.
    fn maker_of_domain(&mut self, device: &Device, domain: u32) -> Maker {
        let (mut maker, mut context) = (Maker::Ended, None);
        let by = [(ATTR_RES_PDN, domain)];
        let asked = self.resource(CMD_RES_PD_GET, device, &by, |attributes| {
            maker = maker_of(attributes);
            context = value(attributes, ATTR_RES_CTXN);
        });
        if let (Ok(()), Maker::Ended, Some(context)) = (asked, maker, context) {
            let by = [(ATTR_RES_CTXN, context)];
            // An older kernel does not know the question: the maker stays unknown.
            let _ = self.resource(CMD_RES_CTX_GET, device, &by, |attributes| {
                maker = maker_of(attributes);
            });
        }
        maker
    }

    fn resource(
        &mut self,
        command: u16,
        device: &Device,
        by: &[(u16, u32)],
        each: impl FnMut(&HashMap<u16, &[u8]>),
    ) -> io::Result<()> {
        let attributes: Vec<_> = [(ATTR_DEV_INDEX, device.index)]
            .into_iter()
            .chain(by.iter().copied())
            .collect();
        self.ask(command, 0, &attributes, each)
    }

    /// Devices that are parts of others.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub(crate) fn sub_devices(&mut self) -> io::Result<Vec<SubDevice>> {
        let mut found = Vec::new();
        self.ask(CMD_GET, FLAG_DUMP, &[], |attributes| {
            found.extend(sub_device_of(attributes));
        })?;
        Ok(found)
    }

    fn device(&mut self, node_guid: Guid) -> io::Result<Option<Device>> {
        let mut device = None;
        self.ask(CMD_GET, FLAG_DUMP, &[], |attributes| {
            if is_device(attributes, node_guid) {
                device = device_of(attributes);
            }
        })?;
        Ok(device)
    }

    /// Asks, and shows `each` the attributes of every message in answer. The kernel answers while
    /// it takes the question: nothing is waited for.
    fn ask(
        &mut self,
        command: u16,
        flags: u16,
        attributes: &[(u16, u32)],
        mut each: impl FnMut(&HashMap<u16, &[u8]>),
    ) -> io::Result<()> {
        self.send(command, flags, attributes)?;
        let mut buffer = vec![0; DATAGRAM];
        loop {
            let len = self.receive(&mut buffer)?;
            for (kind, payload) in answers(&buffer[..len], self.sequence) {
                match kind {
                    TYPE_DONE => return Ok(()),
                    TYPE_ERROR => return error_of(payload),
                    _ => each(&attributes_of(payload)),
                }
                if flags & FLAG_DUMP == 0 {
                    return Ok(());
                }
            }
        }
    }

    fn send(&mut self, command: u16, flags: u16, attributes: &[(u16, u32)]) -> io::Result<()> {
        self.drain();
        self.has_ended = false;
        self.sequence = self.sequence.wrapping_add(1);
        let flags = FLAG_REQUEST | flags;
        let question = encode(NLDEV | command, flags, self.sequence, attributes);
        socket::send(self.fd.as_raw_fd(), &question, MsgFlags::empty())?;
        Ok(())
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            return match socket::recv(self.fd.as_raw_fd(), buffer, MsgFlags::empty()) {
                Ok(len) => Ok(len),
                Err(Errno::EINTR) => continue,
                // Nothing more, although no end was marked: the kernel has no answer.
                Err(Errno::EAGAIN) => Err(io::ErrorKind::TimedOut.into()),
                Err(error) => Err(error.into()),
            };
        }
    }

    /// Throws away what an earlier question left.
    fn drain(&self) {
        let mut buffer = [0; 64];
        while socket::recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC).is_ok() {}
    }
}

fn device_of(attributes: &HashMap<u16, &[u8]>) -> Option<Device> {
    Some(Device {
        index: value(attributes, ATTR_DEV_INDEX)?,
        name: string(attributes, ATTR_DEV_NAME)?,
        ports: value(attributes, ATTR_PORT_INDEX)?.min(u8::MAX.into()),
    })
}

/// Whether it is the device with this node GUID, which its part for subnet management has as well.
fn is_device(attributes: &HashMap<u16, &[u8]>, node_guid: Guid) -> bool {
    let guid = attributes.get(&ATTR_NODE_GUID);
    let guid = guid.and_then(|value| value.first_chunk());
    let is_smi = sub_device_of(attributes).is_some_and(|device| device.is_smi);
    guid.map(|guid| u64::from_ne_bytes(*guid)) == Some(node_guid.0) && !is_smi
}

fn sub_device_of(attributes: &HashMap<u16, &[u8]>) -> Option<SubDevice> {
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

fn queue_pair_of(attributes: &HashMap<u16, &[u8]>) -> QueuePair {
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
fn queue_pairs_of(payload: &[u8]) -> Vec<(Qpn, QueuePair)> {
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
fn cm_ids_of(attributes: &HashMap<u16, &[u8]>) -> Vec<CmId> {
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

fn maker_of(attributes: &HashMap<u16, &[u8]>) -> Maker {
    if attributes.contains_key(&ATTR_RES_KERN_NAME) {
        return Maker::Kernel;
    }
    match value(attributes, ATTR_RES_PID) {
        Some(tid) => Maker::Thread(tid.cast_signed()),
        None => Maker::Ended,
    }
}

fn value(attributes: &HashMap<u16, &[u8]>, name: u16) -> Option<u32> {
    attributes.get(&name).and_then(|value| number(value))
}

fn encode(kind: u16, flags: u16, sequence: u32, attributes: &[(u16, u32)]) -> Vec<u8> {
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
fn answers(datagram: &[u8], sequence: u32) -> impl Iterator<Item = (u16, &[u8])> {
    netlink::messages(datagram).filter_map(move |message| {
        let (header, payload) = message.split_first_chunk::<HEADER_LEN>()?;
        let [_, _, _, _, t0, t1, _, _, s0, s1, s2, s3, ..] = *header;
        let answers = u32::from_ne_bytes([s0, s1, s2, s3]) == sequence;
        answers.then_some((u16::from_ne_bytes([t0, t1]), payload))
    })
}

/// Attributes by their type; of several of one type, the last.
fn attributes_of(payload: &[u8]) -> HashMap<u16, &[u8]> {
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
fn error_of(payload: &[u8]) -> io::Result<()> {
    match number(payload).map(u32::cast_signed) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// All that the readers of answers look at.
#[cfg(test)]
pub(super) fn read_all(datagram: &[u8], sequence: u32) {
    for (_, payload) in answers(datagram, sequence) {
        let attributes = attributes_of(payload);
        let _ = (device_of(&attributes), queue_pair_of(&attributes));
        let _ = (queue_pairs_of(payload), error_of(payload));
        let _ = cm_ids_of(&attributes);
    }
}

/// A socket that does not block, and its other end.
#[cfg(test)]
pub(crate) fn socket_pair() -> (OwnedFd, OwnedFd) {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType};
    let (family, kind) = (AddressFamily::Unix, SockType::SeqPacket);
    socket::socketpair(family, kind, None, SockFlag::SOCK_NONBLOCK).expect("a socket pair")
}

#[cfg(test)]
mod tests {
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

    fn nested(name: u16, content: &[u8]) -> Vec<u8> {
        let len = 4 + content.len() as u16;
        let mut bytes = [len.to_ne_bytes(), (0x8000 | name).to_ne_bytes()].concat();
        bytes.extend(content);
        bytes
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

    /// A later kernel puts it there if there is room.
    #[test]
    fn the_end_of_a_table_may_come_with_its_last_part() {
        let (ours, kernels) = socket_pair();
        let mut nldev = Nldev::over(ours);
        let table = encode(0, 0, 0, &[(ATTR_RES_LQPN, 7)]).split_off(HEADER_LEN);
        let table = nested(ATTR_RES_QP, &nested(20, &table));
        let mut part = encode(NLDEV | CMD_RES_QP_GET, 2, 0, &[]);
        part[..4].copy_from_slice(&((HEADER_LEN + table.len()) as u32).to_ne_bytes());
        part.extend(table);
        let end = encode(TYPE_DONE, 2, 0, &[]);
        let qpns = |nldev: &mut Nldev| {
            let found = nldev.next_queue_pairs().expect("an answer");
            found.map(|found| found.iter().map(|(qpn, _)| *qpn).collect::<Vec<_>>())
        };
        let tell = |datagram: &[u8]| {
            socket::send(kernels.as_raw_fd(), datagram, MsgFlags::empty()).expect("sent");
        };
        tell(&part);
        assert_eq!(qpns(&mut nldev), Some(vec![Qpn(7)]));
        assert!(nldev.next_queue_pairs().is_err(), "there is no end");
        tell(&[part, end.clone()].concat());
        assert_eq!(qpns(&mut nldev), Some(vec![Qpn(7)]));
        assert_eq!(qpns(&mut nldev), None);
        tell(&end);
        assert_eq!(qpns(&mut nldev), None);
        assert!(nldev.next_queue_pairs().is_err(), "nothing was asked");
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
