// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's RDMA resource tracker by netlink (`include/uapi/rdma/rdma_netlink.h`,
//! `drivers/infiniband/core/nldev.c`): who owns a queue pair?

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use cm_msgs::Qpn;
use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol};

/// Client `RDMA_NL_NLDEV` in the upper bits of a message's type.
const NLDEV: u16 = 5 << 10;
const CMD_GET: u16 = 1;
const CMD_RES_QP_GET: u16 = 10;

const ATTR_DEV_INDEX: u16 = 1;
const ATTR_DEV_NAME: u16 = 2;
const ATTR_PORT_INDEX: u16 = 3;
const ATTR_RES_LQPN: u16 = 21;
const ATTR_RES_PID: u16 = 28;
const ATTR_RES_KERN_NAME: u16 = 29;

const HEADER_LEN: usize = 16;
const TYPE_ERROR: u16 = 2;
const TYPE_DONE: u16 = 3;
const FLAG_REQUEST: u16 = 0x1;
const FLAG_DUMP: u16 = 0x300;
const ATTR_TYPE_MASK: u16 = 0x3fff;

/// Who owns a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// This process (or this thread of it), as our pid namespace names it.
    Process(i32),
    /// A process, but the thread that made the queue pair has ended, so the kernel cannot say
    /// which.
    Ended,
    /// The kernel.
    Kernel,
    /// There is no such queue pair.
    Nobody,
}

/// A netlink socket to the resource tracker.
#[derive(Debug)]
pub struct Nldev {
    fd: OwnedFd,
    sequence: u32,
}

impl Nldev {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel has no RDMA netlink.
    pub fn open() -> io::Result<Self> {
        let fd = socket::socket(
            AddressFamily::Netlink,
            socket::SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkRDMA,
        )?;
        socket::bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Who owns queue pair `qpn` of `device`, which has `ports` ports.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn owner(&mut self, device: &str, ports: u8, qpn: Qpn) -> io::Result<Owner> {
        let Some(index) = self.device_index(device)? else {
            return Ok(Owner::Nobody);
        };
        // A queue pair is found under the port that it was set up on, which may not be the port
        // that it uses after a migration: ask for each.
        for port in 1..=ports {
            let attributes = [
                (ATTR_DEV_INDEX, index),
                (ATTR_PORT_INDEX, port.into()),
                (ATTR_RES_LQPN, qpn.0),
            ];
            let mut owner = None;
            let asked = self.ask(CMD_RES_QP_GET, 0, &attributes, |found| {
                owner = Some(owner_of(found));
            });
            match asked {
                Ok(()) => return Ok(owner.unwrap_or(Owner::Nobody)),
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                    return Ok(Owner::Nobody);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Owner::Nobody)
    }

    fn device_index(&mut self, device: &str) -> io::Result<Option<u32>> {
        let mut index = None;
        self.ask(CMD_GET, FLAG_DUMP, &[], |found| {
            let name = found
                .get(&ATTR_DEV_NAME)
                .and_then(|name| name.strip_suffix(b"\0"));
            if name == Some(device.as_bytes()) {
                index = found.get(&ATTR_DEV_INDEX).and_then(|value| number(value));
            }
        })?;
        Ok(index)
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
        self.drain();
        self.sequence = self.sequence.wrapping_add(1);
        let question = encode(
            NLDEV | command,
            FLAG_REQUEST | flags,
            self.sequence,
            attributes,
        );
        socket::send(self.fd.as_raw_fd(), &question, MsgFlags::empty())?;
        let mut buffer = vec![0; 32 * 1024];
        loop {
            let len = match socket::recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(len) => len,
                Err(Errno::EINTR) => continue,
                // Nothing more, although no end was marked: the kernel has no answer.
                Err(Errno::EAGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                Err(error) => return Err(error.into()),
            };
            for (kind, payload) in messages(&buffer[..len], self.sequence) {
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

    /// Throws away what an earlier question left.
    fn drain(&self) {
        let mut buffer = [0; 64];
        while socket::recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC).is_ok() {}
    }
}

/// Whether `owner` is process `pid`: the kernel names the thread that made the queue pair.
pub fn is_process(owner: Owner, pid: i32) -> bool {
    match owner {
        Owner::Process(task) => {
            task == pid || Path::new(&format!("/proc/{pid}/task/{task}")).exists()
        }
        Owner::Ended => true,
        Owner::Kernel | Owner::Nobody => false,
    }
}

fn owner_of(found: &HashMap<u16, &[u8]>) -> Owner {
    if found.contains_key(&ATTR_RES_KERN_NAME) {
        return Owner::Kernel;
    }
    match found.get(&ATTR_RES_PID).and_then(|value| number(value)) {
        Some(pid) => Owner::Process(pid.cast_signed()),
        None => Owner::Ended,
    }
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
fn messages(datagram: &[u8], sequence: u32) -> impl Iterator<Item = (u16, &[u8])> {
    pieces(datagram, move |rest| {
        let header: &[u8; HEADER_LEN] = rest.first_chunk()?;
        let [l0, l1, l2, l3, t0, t1, _, _, s0, s1, s2, s3, ..] = *header;
        let len = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        let answers = u32::from_ne_bytes([s0, s1, s2, s3]) == sequence;
        Some((
            len,
            HEADER_LEN,
            answers.then_some(u16::from_ne_bytes([t0, t1])),
        ))
    })
}

/// Attributes by their type; of several of one type, the last.
fn attributes_of(payload: &[u8]) -> HashMap<u16, &[u8]> {
    pieces(payload, |rest| {
        let [l0, l1, t0, t1] = *rest.first_chunk()?;
        let kind = u16::from_ne_bytes([t0, t1]) & ATTR_TYPE_MASK;
        Some((usize::from(u16::from_ne_bytes([l0, l1])), 4, Some(kind)))
    })
    .collect()
}

/// Cuts bytes into pieces that begin with their own length, aligned to 4. `head` reads length,
/// header length and kind; a piece of no kind is passed over, and a wrong length ends it all.
fn pieces(
    bytes: &[u8],
    head: impl Fn(&[u8]) -> Option<(usize, usize, Option<u16>)>,
) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        loop {
            let (len, header, kind) = head(rest)?;
            let payload = rest.get(header..len)?;
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
            if let Some(kind) = kind {
                return Some((kind, payload));
            }
        }
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
        let (kind, payload) = messages(&bytes, 7).next().unwrap();
        assert_eq!(kind, 0x140a);
        let found = attributes_of(payload);
        assert_eq!(found.len(), 2);
        assert_eq!(number(found[&ATTR_DEV_INDEX]), Some(3));
        assert_eq!(number(found[&ATTR_RES_LQPN]), Some(0x17));
        assert_eq!(messages(&bytes, 8).count(), 0, "another question's answer");
    }

    #[test]
    fn wrong_lengths_end_the_reading() {
        let mut bytes = encode(NLDEV | CMD_GET, 1, 1, &[(1, 3)]);
        bytes[0] = 200;
        assert_eq!(messages(&bytes, 1).count(), 0);
        for len in [0u8, 3, 200] {
            assert!(attributes_of(&[len, 0, 1, 0, 9, 9, 9, 9]).is_empty());
        }
    }

    #[test]
    fn owners() {
        let pid = std::process::id().cast_signed();
        let owner = |attributes: &[(u16, u32)]| {
            let bytes = encode(0, 0, 1, attributes);
            let (_, payload) = messages(&bytes, 1).next().unwrap();
            owner_of(&attributes_of(payload))
        };
        assert!(is_process(
            owner(&[(ATTR_RES_PID, pid.cast_unsigned())]),
            pid
        ));
        assert_eq!(owner(&[(ATTR_RES_KERN_NAME, 0)]), Owner::Kernel);
        assert_eq!(owner(&[]), Owner::Ended);
        assert!(!is_process(Owner::Process(1), pid));
        assert!(!is_process(Owner::Nobody, pid));
        let thread = std::thread::spawn(move || {
            let tid = nix::unistd::gettid().as_raw();
            (tid != pid, is_process(Owner::Process(tid), pid))
        });
        assert_eq!(
            thread.join().unwrap(),
            (true, true),
            "a thread is its process's"
        );
    }
}
