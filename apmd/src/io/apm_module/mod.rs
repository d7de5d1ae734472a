// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel module `apm`, by its generic netlink family (`docs/kernel.md`): which queue pairs there
//! are, and orders to them. The module may come and go at any time.

mod constants;
mod message;

#[cfg(test)]
pub(crate) use message::LeftAlone;
pub(crate) use message::{
    Ask, Cause, Cookie, KernelQp, KernelReport, Message, Owner, Protect, Rule,
};

use std::io::{self, ErrorKind};

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_generic::ctrl::nlas::{GenlCtrlAttrs, McastGrpAttrs};
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};

use super::netlink::{HEADER_LEN, messages};
use constants::GROUP_EVENTS;

/// `GENL_ID_CTRL`: also the number of the group `notify`, to which families that come and go are told
/// (`net/netlink/genetlink.c`).
const CONTROL: u16 = 0x10;
/// For a host with many queue pairs whose port has failed.
const BUFFER: usize = 4 << 20;

const TYPE_ERROR: u16 = 2;
const TYPE_DONE: u16 = 3;

/// What was received.
#[derive(Debug)]
pub(crate) enum Heard {
    /// The module is there.
    Appeared,
    /// It is no more.
    Vanished,
    /// It says something.
    Said(Message),
    /// All that is known has been said, in answer to a dump.
    Dumped,
    /// What was sent with this token cannot be done.
    Refused(u32, io::Error),
    /// More was said than there was room for: what is known is out of date.
    Overrun,
}

/// The family, while it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Family {
    id: u16,
    events: u32,
}

/// A socket of generic netlink. It does not block.
#[derive(Debug)]
pub(crate) struct ApmModule {
    socket: Socket,
    family: Option<Family>,
}

as_raw_fd!(ApmModule, socket);

impl ApmModule {
    /// Opens it, and asks whether the module is there.
    ///
    /// # Errors
    /// The kernel has no generic netlink.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.set_non_blocking(true)?;
        // Without the privilege for more, the system's limit has to do.
        let _ = socket.set_rx_buf_sz(BUFFER);
        socket.set_cap_ack(true)?;
        socket.bind_auto()?;
        socket.add_membership(CONTROL.into())?;
        let module = Self {
            socket,
            family: None,
        };
        let name = GenlCtrlAttrs::FamilyName(Message::family_name().to_owned());
        let ask = GenlMessage::from_payload(GenlCtrl {
            cmd: GenlCtrlCmd::GetFamily,
            nlas: vec![name],
        });
        module.send_to_kernel(NLM_F_REQUEST, 0, ask)?;
        Ok(module)
    }

    /// Hears of all that happens to queue pairs, and asks which there are.
    ///
    /// # Errors
    /// The module is not there, or CAP_NET_ADMIN is missing.
    pub(crate) fn listen(&self) -> io::Result<()> {
        let family = self.family.ok_or(ErrorKind::NotConnected)?;
        self.socket.add_membership(family.events)?;
        self.dump()
    }

    /// Asks which queue pairs there are.
    ///
    /// # Errors
    /// The module is not there.
    pub(crate) fn dump(&self) -> io::Result<()> {
        self.send(NLM_F_REQUEST | NLM_F_DUMP, 0, Message::Dump)
    }

    /// Sends an order or settings. If they are refused, this token is named.
    ///
    /// # Errors
    /// The module is not there.
    pub(crate) fn order(&self, token: u32, message: Message) -> io::Result<()> {
        self.send(NLM_F_REQUEST, token, message)
    }

    fn send(&self, flags: u16, token: u32, message: Message) -> io::Result<()> {
        let family = self.family.ok_or(ErrorKind::NotConnected)?;
        let mut message = GenlMessage::from_payload(message);
        message.set_resolved_family_id(family.id);
        self.send_to_kernel(flags, token, message)
    }

    fn send_to_kernel(
        &self,
        flags: u16,
        sequence: u32,
        message: impl NetlinkSerializable,
    ) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = sequence;
        header.message_type = message.message_type();
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        Ok(())
    }

    /// What came in next; `None`: nothing more for now.
    ///
    /// # Errors
    /// The socket fails.
    pub(crate) fn receive(&mut self) -> io::Result<Option<Vec<Heard>>> {
        loop {
            return match self.socket.recv_from_full() {
                // From another process: nobody else is asked.
                Ok((_, from)) if from.port_number() != 0 => continue,
                Ok((datagram, _)) => {
                    let heard = messages(&datagram).filter_map(|message| self.read(message));
                    Ok(Some(heard.collect()))
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    Ok(Some(vec![Heard::Overrun]))
                }
                Err(error) => Err(error),
            };
        }
    }

    fn read(&mut self, message: &[u8]) -> Option<Heard> {
        let number = |at: usize| message.get(at..).and_then(|rest| rest.first_chunk());
        let kind = u16::from_ne_bytes(*message.get(4..)?.first_chunk()?);
        let sequence = u32::from_ne_bytes(*number(8)?);
        match kind {
            TYPE_DONE => Some(Heard::Dumped),
            TYPE_ERROR => {
                let code = i32::from_ne_bytes(*number(HEADER_LEN)?);
                let error = io::Error::from_raw_os_error(code.checked_neg()?);
                (code != 0).then_some(Heard::Refused(sequence, error))
            }
            CONTROL => self.heard_of_family(message),
            _ if self.family.is_some_and(|family| family.id == kind) => {
                let read = NetlinkMessage::<GenlMessage<Message>>::deserialize(message);
                match read.map(|message| message.payload) {
                    Ok(NetlinkPayload::InnerMessage(message)) => Some(Heard::Said(message.payload)),
                    Ok(_) => None,
                    Err(error) => {
                        tracing::debug!(%error, "message of the kernel module skipped");
                        None
                    }
                }
            }
            _ => None,
        }
    }

    fn heard_of_family(&mut self, message: &[u8]) -> Option<Heard> {
        let read = NetlinkMessage::<GenlMessage<GenlCtrl>>::deserialize(message).ok()?;
        let NetlinkPayload::InnerMessage(message) = read.payload else {
            return None;
        };
        let GenlCtrl { cmd, nlas } = message.payload;
        let is_ours = |nla: &GenlCtrlAttrs| matches!(nla, GenlCtrlAttrs::FamilyName(name) if name == Message::family_name());
        if !nlas.iter().any(is_ours) {
            return None;
        }
        match cmd {
            GenlCtrlCmd::NewFamily => {
                let family = family(&nlas)?;
                // Both told and answered, where it comes just then.
                let before = self.family.replace(family);
                (before != Some(family)).then_some(Heard::Appeared)
            }
            GenlCtrlCmd::DelFamily => self.family.take().map(|_| Heard::Vanished),
            _ => None,
        }
    }
}

/// Its number, and that of its group.
fn family(nlas: &[GenlCtrlAttrs]) -> Option<Family> {
    let id = nlas.iter().find_map(|nla| match nla {
        GenlCtrlAttrs::FamilyId(id) => Some(*id),
        _ => None,
    });
    let groups = nlas.iter().find_map(|nla| match nla {
        GenlCtrlAttrs::McastGroups(groups) => Some(groups),
        _ => None,
    });
    let events = groups?.iter().find(|group| {
        let is_it = |attr: &McastGrpAttrs| matches!(attr, McastGrpAttrs::Name(name) if name == GROUP_EVENTS);
        group.iter().any(is_it)
    });
    let events = events?.iter().find_map(|attr| match attr {
        McastGrpAttrs::Id(id) => Some(*id),
        McastGrpAttrs::Name(_) => None,
    });
    Some(Family {
        id: id?,
        events: events?,
    })
}
