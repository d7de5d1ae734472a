// SPDX-License-Identifier: MIT OR Apache-2.0
//! umad: management datagrams of one port, by the kernel's own interface
//! (`include/uapi/rdma/ib_user_mad.h`, ABI 5; `drivers/infiniband/core/user_mad.c`).
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use cm_msgs::mad::MAD_LEN;
use cm_msgs::{Gid, Lid};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

const SYSFS: &str = "/sys/class/infiniband_mad";

/// Well-known Q_Key of QP1 (IBA 10.2.5).
const QP1_QKEY: u32 = 0x8001_0000;

/// `struct ib_user_mad_hdr` with the P_Key index.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawHeader {
    id: u32,
    status: u32,
    timeout_ms: u32,
    retries: u32,
    length: u32,
    qpn: [u8; 4],
    qkey: [u8; 4],
    lid: [u8; 2],
    sl: u8,
    path_bits: u8,
    grh_present: u8,
    gid_index: u8,
    hop_limit: u8,
    traffic_class: u8,
    gid: [u8; 16],
    flow_label: [u8; 4],
    pkey_index: u16,
    reserved: [u8; 6],
}

/// `struct ib_user_mad` with one MAD.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct RawPacket {
    header: RawHeader,
    mad: [u8; MAD_LEN],
}

/// `struct ib_user_mad_reg_req`, for kernels without the second.
#[repr(C)]
#[derive(Default)]
struct RawRegister {
    id: u32,
    method_mask: [u32; 4],
    qpn: u8,
    mgmt_class: u8,
    mgmt_class_version: u8,
    oui: [u8; 3],
    rmpp_version: u8,
}

/// `struct ib_user_mad_reg_req2`.
#[repr(C)]
#[derive(Default)]
struct RawRegister2 {
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
    assert!(size_of::<RawPacket>() == 64 + MAD_LEN);
    assert!(size_of::<RawRegister>() == 28);
    assert!(size_of::<RawRegister2>() == 40);
};

/// The requests of `user_mad.c`; nix makes the functions.
#[allow(missing_docs, unreachable_pub)]
mod request {
    nix::ioctl_readwrite!(register_agent, 0x1b, 1, super::RawRegister);
    nix::ioctl_none!(enable_pkey, 0x1b, 3);
    nix::ioctl_readwrite!(register_agent2, 0x1b, 4, super::RawRegister2);
}

/// A umad device of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UmadName {
    /// `/dev/infiniband/umadN`.
    pub path: PathBuf,
    /// The RDMA device.
    pub device: String,
    /// Its port, counted from 1.
    pub port: u8,
}

/// The umad devices that sysfs shows now.
pub fn list() -> Vec<UmadName> {
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
pub struct AgentClass {
    /// 0 or 1.
    pub qpn: u8,
    /// Management class.
    pub mgmt_class: u8,
    /// Its version.
    pub class_version: u8,
    /// The method of which unsolicited MADs are received, if any.
    pub receive: Option<u8>,
}

/// A registered agent, by the kernel's number for it on this file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AgentId(u32);

/// Where a MAD goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination {
    /// 0 or 1.
    pub qpn: u32,
    /// Destination LID.
    pub lid: Lid,
    /// Service level.
    pub sl: u8,
    /// Index into the port's P_Key table.
    pub pkey_index: u16,
    /// How long an answer is waited for; 0: none is expected.
    pub timeout_ms: u32,
}

/// What came in.
#[derive(Clone, Debug)]
pub enum Received {
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

/// A MAD that came in.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The agent that it is for.
    pub agent: AgentId,
    /// Source LID.
    pub lid: Lid,
    /// Source QP.
    pub qpn: u32,
    /// Source GID, if it had a GRH.
    pub gid: Option<Gid>,
    /// Its bytes.
    pub mad: [u8; MAD_LEN],
    /// How many there are; another number than 256 is malformed.
    pub len: usize,
}

impl Incoming {
    /// The bytes that came.
    pub fn bytes(&self) -> &[u8] {
        &self.mad[..self.len.min(MAD_LEN)]
    }
}

/// One port's umad file.
#[derive(Debug)]
pub struct Umad {
    fd: OwnedFd,
}

impl Umad {
    /// Opens a umad device, non-blocking.
    ///
    /// # Errors
    /// Missing, or no right to it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let fd = nix::fcntl::open(path, flags, Mode::empty())?;
        // SAFETY: the request takes no argument; the descriptor is open.
        unsafe { request::enable_pkey(fd.as_raw_fd()) }?;
        Ok(Self { fd })
    }

    /// Registers an agent.
    ///
    /// # Errors
    /// `EINVAL`: somebody else has this class and method on this port.
    pub fn register(&self, class: AgentClass) -> io::Result<AgentId> {
        match self.register2(class) {
            Err(Errno::EINVAL | Errno::ENOTTY | Errno::ENOSYS) => self.register1(class),
            other => other,
        }
        .map_err(io::Error::from)
    }

    fn register2(&self, class: AgentClass) -> Result<AgentId, Errno> {
        let mut request = RawRegister2 {
            qpn: class.qpn.into(),
            mgmt_class: class.mgmt_class,
            mgmt_class_version: class.class_version,
            ..RawRegister2::default()
        };
        if let Some(method) = class.receive {
            request.method_mask[usize::from(method) / 64] |= 1 << (method % 64);
        }
        // SAFETY: `request` has the layout and size that the request number announces, and lives
        // until the call returns.
        unsafe { request::register_agent2(self.fd.as_raw_fd(), &raw mut request) }?;
        Ok(AgentId(request.id))
    }

    fn register1(&self, class: AgentClass) -> Result<AgentId, Errno> {
        let mut request = RawRegister {
            qpn: class.qpn,
            mgmt_class: class.mgmt_class,
            mgmt_class_version: class.class_version,
            ..RawRegister::default()
        };
        if let Some(method) = class.receive {
            // The mask is of C longs: their words lie as the machine's byte order says.
            let mask = 1u128 << method;
            let longs = [mask as u64, (mask >> 64) as u64]
                .map(u64::to_ne_bytes)
                .concat();
            for (word, bytes) in request.method_mask.iter_mut().zip(longs.chunks_exact(4)) {
                *word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
        // SAFETY: as in `register2`.
        unsafe { request::register_agent(self.fd.as_raw_fd(), &raw mut request) }?;
        Ok(AgentId(request.id))
    }

    /// Sends a MAD.
    ///
    /// # Errors
    /// `EINVAL` for a transaction ID that is under way already; `EIO` once the port has gone.
    pub fn send(&self, agent: AgentId, to: Destination, mad: &[u8; MAD_LEN]) -> io::Result<()> {
        let qkey = if to.qpn == 0 { 0 } else { QP1_QKEY };
        let packet = RawPacket {
            header: RawHeader {
                id: agent.0,
                timeout_ms: to.timeout_ms,
                length: MAD_LEN as u32,
                qpn: to.qpn.to_be_bytes(),
                qkey: qkey.to_be_bytes(),
                lid: to.lid.0.to_be_bytes(),
                sl: to.sl,
                pkey_index: to.pkey_index,
                ..RawHeader::default()
            },
            mad: *mad,
        };
        // SAFETY: `RawPacket` is 320 bytes of integers without padding (asserted above).
        let bytes = unsafe {
            std::slice::from_raw_parts((&raw const packet).cast::<u8>(), size_of::<RawPacket>())
        };
        let written = nix::unistd::write(&self.fd, bytes)?;
        if written == bytes.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// The next thing that came in; `None` when there is nothing more for now.
    ///
    /// # Errors
    /// `EIO` once the port has gone.
    pub fn receive(&self) -> io::Result<Option<Received>> {
        let mut packet = RawPacket {
            header: RawHeader::default(),
            mad: [0; MAD_LEN],
        };
        // SAFETY: every bit pattern is a valid `RawPacket`, and its 320 bytes are ours alone.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut((&raw mut packet).cast::<u8>(), size_of::<RawPacket>())
        };
        let read = loop {
            match nix::unistd::read(&self.fd, bytes) {
                Ok(read) => break read,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        Ok(Some(received(
            &packet,
            read.saturating_sub(size_of::<RawHeader>()),
        )))
    }
}

fn received(packet: &RawPacket, len: usize) -> Received {
    let RawPacket { header, mad } = packet;
    let agent = AgentId(header.id);
    if header.status != 0 {
        // A request given back: its own header, with the transaction ID as umad completed it.
        let [.., a, b, c, d] = *mad.first_chunk::<16>().expect("a MAD has 256 bytes");
        let transaction_id = u32::from_be_bytes([a, b, c, d]);
        return Received::TimedOut {
            agent,
            transaction_id,
        };
    }
    Received::Mad(Box::new(Incoming {
        agent,
        lid: Lid(u16::from_be_bytes(header.lid)),
        qpn: u32::from_be_bytes(header.qpn),
        gid: (header.grh_present != 0).then_some(Gid(header.gid)),
        mad: *mad,
        len,
    }))
}

impl AsRawFd for Umad {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Umad {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_given_back_names_its_transaction() {
        let mut mad = [0; MAD_LEN];
        mad[8..16].copy_from_slice(&0x1122_3344_5566_7788u64.to_be_bytes());
        let header = RawHeader {
            id: 2,
            status: libc::ETIMEDOUT as u32,
            ..RawHeader::default()
        };
        let Received::TimedOut {
            agent,
            transaction_id,
        } = received(&RawPacket { header, mad }, MAD_LEN)
        else {
            panic!("a status is no MAD");
        };
        assert_eq!((agent, transaction_id), (AgentId(2), 0x5566_7788));
    }

    #[test]
    fn a_mad_keeps_its_source() {
        let header = RawHeader {
            lid: 7u16.to_be_bytes(),
            qpn: 1u32.to_be_bytes(),
            grh_present: 1,
            gid: [9; 16],
            ..RawHeader::default()
        };
        let Received::Mad(mad) = received(
            &RawPacket {
                header,
                mad: [1; MAD_LEN],
            },
            200,
        ) else {
            panic!("it has no status");
        };
        assert_eq!((mad.lid, mad.qpn, mad.gid), (Lid(7), 1, Some(Gid([9; 16]))));
        assert_eq!(mad.bytes().len(), 200);
    }
}
