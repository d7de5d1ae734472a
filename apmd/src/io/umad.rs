// SPDX-License-Identifier: MIT OR Apache-2.0
//! umad: management datagrams of one port, by the kernel's own interface
//! (`include/uapi/rdma/ib_user_mad.h`, ABI 5; `drivers/infiniband/core/user_mad.c`).
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use cm_msgs::Lid;
use cm_msgs::mad::MAD_LEN;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

const SYSFS: &str = "/sys/class/infiniband_mad";

/// Well-known Q_Key of QP1 (IBA 10.2.5).
const QP1_QKEY: u32 = 0x8001_0000;

/// Longest transfer that is taken: 900,000 NodeRecords, or the forwarding tables of a thousand
/// switches at once. A longer one would only hold up everything else.
const TRANSFER_MAX: usize = 64 << 20;

/// What is read at once: all single MADs and short tables.
const BUFFER_LEN: usize = 4096;

/// The part of `struct ib_user_mad_hdr` that says to or from whom.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawAddress {
    qpn: [u8; 4],
    qkey: [u8; 4],
    lid: [u8; 2],
    sl: u8,
    path_bits: u8,
}

/// The part of `struct ib_user_mad_hdr` that is about a global route.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawGrh {
    present: u8,
    gid_index: u8,
    hop_limit: u8,
    traffic_class: u8,
    gid: [u8; 16],
    flow_label: [u8; 4],
}

/// `struct ib_user_mad_hdr` with the P_Key index.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawHeader {
    id: u32,
    status: u32,
    timeout_ms: u32,
    retries: u32,
    length: u32,
    address: RawAddress,
    grh: RawGrh,
    pkey_index: u16,
    reserved: [u8; 6],
}

impl RawHeader {
    /// The header at the front of what umad wrote.
    fn of(packet: &[u8]) -> io::Result<Self> {
        let header: &[u8; size_of::<Self>()] =
            packet.first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
        // SAFETY: the array has the header's size, every bit pattern is a valid header, and an
        // unaligned read asks nothing of the address.
        Ok(unsafe { header.as_ptr().cast::<Self>().read_unaligned() })
    }
}

/// `struct ib_user_mad` with one MAD.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct RawPacket {
    header: RawHeader,
    mad: [u8; MAD_LEN],
}

impl RawPacket {
    fn bytes(&self) -> &[u8] {
        // SAFETY: `RawPacket` is 320 bytes of integers without padding (asserted below), borrowed
        // for as long as the slice.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast::<u8>(), size_of::<Self>()) }
    }
}

/// `struct ib_user_mad_reg_req2`.
#[repr(C)]
#[derive(Default)]
struct RawRegister {
    id: u32,
    qpn: u32,
    mgmt_class: u8,
    mgmt_class_version: u8,
    res: u16,
    flags: u32,
    method_mask: [u64; 2],
    oui: u32,
    rmpp_version: u8,
    reserved: [u8; 3],
}

const _: () = {
    assert!(size_of::<RawHeader>() == 64);
    assert!(std::mem::offset_of!(RawHeader, address) == 20);
    assert!(std::mem::offset_of!(RawHeader, grh) == 32);
    assert!(std::mem::offset_of!(RawHeader, pkey_index) == 56);
    assert!(size_of::<RawPacket>() == 64 + MAD_LEN);
    assert!(size_of::<RawRegister>() == 40);
};

/// The requests of `user_mad.c`; nix makes the functions.
#[allow(missing_docs, unreachable_pub)]
mod request {
    nix::ioctl_none!(enable_pkey, 0x1b, 3);
    nix::ioctl_readwrite!(register_agent2, 0x1b, 4, super::RawRegister);
}

/// A umad device of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UmadName {
    /// `/dev/infiniband/umadN`.
    pub(crate) path: PathBuf,
    /// The RDMA device.
    pub(crate) device: String,
    /// Its port, counted from 1.
    pub(crate) port: u8,
}

/// The umad devices that sysfs shows now.
pub(crate) fn list() -> Vec<UmadName> {
    let Ok(entries) = std::fs::read_dir(SYSFS) else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .flatten()
        .filter_map(|entry| name_of(&entry.path()))
        .collect();
    names.sort_by(|a, b| (&a.device, a.port).cmp(&(&b.device, b.port)));
    names
}

fn name_of(dir: &Path) -> Option<UmadName> {
    let name = dir.file_name()?.to_str()?;
    if !name.starts_with("umad") {
        return None;
    }
    let device = std::fs::read_to_string(dir.join("ibdev"))
        .ok()?
        .trim()
        .to_owned();
    let port = std::fs::read_to_string(dir.join("port"))
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(UmadName {
        path: Path::new("/dev/infiniband").join(name),
        device,
        port,
    })
}

/// What an agent is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AgentClass {
    /// 0 or 1.
    pub(crate) qpn: u8,
    /// Management class.
    pub(crate) mgmt_class: u8,
    /// Its version.
    pub(crate) class_version: u8,
    /// The methods of which unsolicited MADs are received.
    pub(crate) receive: &'static [u8],
    /// Transfers of many MADs (IBA 13.6) are put together by the kernel (`mad_rmpp.c`). Otherwise
    /// their MADs come one by one, and nobody acknowledges them.
    pub(crate) rmpp: bool,
}

impl AgentClass {
    /// An agent that sends requests, and receives the answers to them.
    pub(crate) const fn sender(qpn: u8, mgmt_class: u8, class_version: u8) -> Self {
        Self {
            qpn,
            mgmt_class,
            class_version,
            receive: &[],
            rmpp: false,
        }
    }
}

/// A registered agent, by the kernel's number for it on this file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AgentId(u32);

/// Where a MAD goes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Destination {
    /// 0 or 1.
    pub(crate) qpn: u32,
    /// Destination LID.
    pub(crate) lid: Lid,
    /// Service level.
    pub(crate) sl: u8,
    /// Index into the port's P_Key table.
    pub(crate) pkey_index: u16,
    /// The low bits of the source LID.
    pub(crate) path_bits: u8,
    /// How long an answer is waited for; 0: none is expected.
    pub(crate) timeout_ms: u32,
}

/// What came in.
#[derive(Clone, Debug)]
pub(crate) enum Received {
    /// A MAD.
    Mad(Box<Incoming>),
    /// A request of ours went unanswered; the lower half of its transaction ID.
    TimedOut {
        /// The agent that sent it.
        agent: AgentId,
        /// The lower half of its transaction ID.
        transaction_id: u32,
    },
}

/// A MAD that came in, or a transfer of many.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    /// The agent that it is for.
    pub(crate) agent: AgentId,
    /// Source LID.
    pub(crate) lid: Lid,
    /// Source QP.
    pub(crate) qpn: u32,
    /// The low bits of the LID that it was sent to.
    pub(crate) path_bits: u8,
    /// Service level.
    pub(crate) sl: u8,
    /// Index in the port's P_Key table of the key that it came with.
    pub(crate) pkey_index: u16,
    /// Its bytes: 256, or of a transfer the headers of the first MAD and then the data of all.
    pub(crate) bytes: Vec<u8>,
}

/// One port's umad file.
#[derive(Debug)]
pub(crate) struct Umad {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

impl Umad {
    /// Opens a umad device, non-blocking.
    ///
    /// # Errors
    /// Missing, or no right to it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let fd = nix::fcntl::open(path, flags, Mode::empty())?;
        // SAFETY: the request takes no argument; the descriptor is open.
        unsafe { request::enable_pkey(fd.as_raw_fd()) }?;
        Ok(Self {
            fd,
            buffer: vec![0; BUFFER_LEN],
        })
    }

    /// Registers an agent.
    ///
    /// # Errors
    /// `EINVAL`: somebody else has this class and method on this port.
    pub(crate) fn register(&self, class: AgentClass) -> io::Result<AgentId> {
        let mut request = RawRegister {
            qpn: class.qpn.into(),
            mgmt_class: class.mgmt_class,
            mgmt_class_version: class.class_version,
            rmpp_version: class.rmpp.into(),
            ..RawRegister::default()
        };
        for method in class.receive {
            request.method_mask[usize::from(*method) / 64] |= 1 << (method % 64);
        }
        // SAFETY: `request` has the layout and size that the request number announces, and lives
        // until the call returns.
        unsafe { request::register_agent2(self.fd.as_raw_fd(), &raw mut request) }?;
        Ok(AgentId(request.id))
    }

    /// Sends a MAD.
    ///
    /// # Errors
    /// `EINVAL` for a transaction ID that is under way already; `EIO` once the port has gone.
    pub(crate) fn send(
        &self,
        agent: AgentId,
        to: Destination,
        mad: &[u8; MAD_LEN],
    ) -> io::Result<()> {
        let qkey = if to.qpn == 0 { 0 } else { QP1_QKEY };
        let packet = RawPacket {
            header: RawHeader {
                id: agent.0,
                timeout_ms: to.timeout_ms,
                length: MAD_LEN as u32,
                address: RawAddress {
                    qpn: to.qpn.to_be_bytes(),
                    qkey: qkey.to_be_bytes(),
                    lid: to.lid.0.to_be_bytes(),
                    sl: to.sl,
                    path_bits: to.path_bits,
                },
                pkey_index: to.pkey_index,
                ..RawHeader::default()
            },
            mad: *mad,
        };
        let written = nix::unistd::write(&self.fd, packet.bytes())?;
        if written == size_of::<RawPacket>() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// The next thing that came in; `None` when there is nothing more for now.
    ///
    /// # Errors
    /// `EIO` once the port has gone; [`io::ErrorKind::FileTooLarge`] for a transfer of more than
    /// [`TRANSFER_MAX`] bytes, which can only be got rid of with the file.
    pub(crate) fn receive(&mut self) -> io::Result<Option<Received>> {
        match read(&self.fd, &mut self.buffer) {
            Ok(len) => received(&self.buffer[..len]).map(Some),
            Err(Errno::EAGAIN) => Ok(None),
            // A transfer that is longer than the buffer stays in the queue; its length is in the
            // header, which was written all the same (`copy_recv_mad`).
            Err(Errno::ENOSPC) => self.receive_transfer().map(Some),
            Err(error) => Err(error.into()),
        }
    }

    fn receive_transfer(&self) -> io::Result<Received> {
        let len = RawHeader::of(&self.buffer)?.length as usize;
        if len > size_of::<RawHeader>() + TRANSFER_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut transfer = vec![0; len];
        let len = read(&self.fd, &mut transfer)?;
        received(&transfer[..len])
    }
}

fn read(fd: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match nix::unistd::read(fd, buffer) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// What umad wrote: its header, and a MAD, a transfer, or the first bytes of a request given back.
fn received(packet: &[u8]) -> io::Result<Received> {
    let header = RawHeader::of(packet)?;
    let bytes = &packet[size_of::<RawHeader>()..];
    let agent = AgentId(header.id);
    if header.status != 0 {
        // A request given back has its transaction ID as umad completed it.
        let mad = bytes.first_chunk::<16>();
        let [.., a, b, c, d] = *mad.ok_or(io::ErrorKind::UnexpectedEof)?;
        let transaction_id = u32::from_be_bytes([a, b, c, d]);
        return Ok(Received::TimedOut {
            agent,
            transaction_id,
        });
    }
    Ok(Received::Mad(Box::new(Incoming {
        agent,
        lid: Lid(u16::from_be_bytes(header.address.lid)),
        qpn: u32::from_be_bytes(header.address.qpn),
        path_bits: header.address.path_bits,
        sl: header.address.sl,
        pkey_index: header.pkey_index,
        bytes: bytes.to_vec(),
    })))
}

as_raw_fd!(Umad, fd);

impl AsFd for Umad {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(header: RawHeader, bytes: &[u8]) -> Vec<u8> {
        let raw = RawPacket {
            header,
            mad: [0; MAD_LEN],
        };
        [&raw.bytes()[..size_of::<RawHeader>()], bytes].concat()
    }

    #[test]
    fn a_request_given_back_names_its_transaction() {
        let mut mad = [0; 24];
        mad[8..16].copy_from_slice(&0x1122_3344_5566_7788u64.to_be_bytes());
        let header = RawHeader {
            id: 2,
            status: libc::ETIMEDOUT as u32,
            ..RawHeader::default()
        };
        let Received::TimedOut {
            agent,
            transaction_id,
        } = received(&packet(header, &mad)).unwrap()
        else {
            panic!("a status is no MAD");
        };
        assert_eq!((agent, transaction_id), (AgentId(2), 0x5566_7788));
        assert!(received(&packet(header, &mad[..15])).is_err());
    }

    #[test]
    fn a_mad_keeps_its_source() {
        let header = RawHeader {
            address: RawAddress {
                lid: 7u16.to_be_bytes(),
                qpn: 1u32.to_be_bytes(),
                ..RawAddress::default()
            },
            grh: RawGrh {
                present: 1,
                gid: [9; 16],
                ..RawGrh::default()
            },
            ..RawHeader::default()
        };
        let Received::Mad(mad) = received(&packet(header, &[1; 1000])).unwrap() else {
            panic!("it has no status");
        };
        assert_eq!((mad.lid, mad.qpn), (Lid(7), 1));
        assert_eq!(mad.bytes, [1; 1000]);
    }

    #[test]
    fn a_packet_has_a_header() {
        assert!(received(&[0; 63]).is_err());
        assert!(received(&[0; 64]).is_ok());
    }
}
