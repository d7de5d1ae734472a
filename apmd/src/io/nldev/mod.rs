// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's RDMA resource tracker by netlink (`include/uapi/rdma/rdma_netlink.h`,
//! `drivers/infiniband/core/nldev.c`): which process owns a queue pair, and its state.

mod answer;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use cm_msgs::{Guid, Qpn};
use nix::errno::Errno;
use nix::sys::socket::{self, MsgFlags};

#[cfg(test)]
pub(super) use self::answer::read_all;
use self::answer::{
    ATTR_DEV_INDEX, ATTR_PORT_INDEX, ATTR_RES_CTXN, ATTR_RES_LQPN, ATTR_RES_PDN, Device, answers,
    attributes_of, cm_ids_of, device_of, encode, error_of, is_device, maker_of, queue_pair_of,
    queue_pairs_of, sub_device_of, value,
};
pub(crate) use self::answer::{CmId, Maker, QueuePair, SubDevice};
use super::netlink;

/// Client `RDMA_NL_NLDEV` in the upper bits of a message's type.
const NLDEV: u16 = 5 << 10;
const CMD_GET: u16 = 1;
const CMD_RES_QP_GET: u16 = 10;
const CMD_RES_CM_ID_GET: u16 = 11;
const CMD_RES_PD_GET: u16 = 14;
const CMD_RES_CTX_GET: u16 = 22;

/// No datagram of the kernel's is longer.
const DATAGRAM: usize = 32 * 1024;

const TYPE_ERROR: u16 = 2;
const TYPE_DONE: u16 = 3;
const FLAG_REQUEST: u16 = 0x1;
const FLAG_DUMP: u16 = 0x300;

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
        let fd = netlink::rdma_socket()?;
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

/// A socket that does not block, and its other end.
#[cfg(test)]
pub(crate) fn socket_pair() -> (OwnedFd, OwnedFd) {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType};
    let (family, kind) = (AddressFamily::Unix, SockType::SeqPacket);
    socket::socketpair(family, kind, None, SockFlag::SOCK_NONBLOCK).expect("a socket pair")
}

#[cfg(test)]
mod tests {
    use super::answer::{ATTR_RES_QP, nested};
    use super::*;
    use crate::io::netlink::HEADER_LEN;

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
}
