// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel module `apm`, by its generic netlink family (`docs/kernel.md`): which queue pairs there
//! are, and orders to them. The module may come and go at any time.

mod attributes;
mod care;
mod constants;
mod hearing;
mod message;

pub(crate) use care::{Process, Protect, Rule};
pub(crate) use hearing::{Heard, Request};
pub(crate) use message::{
    Ask, Cause, Cookie, KernelQp, KernelReport, LeftAlone, Message, ModuleState, Owner,
};

use std::io::{self, ErrorKind};

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};

use super::netlink::{messages, set_receive_buffer};
use hearing::{CONTROL, Family, Hearing};

/// For a host with many queue pairs whose port has failed.
const BUFFER: usize = 4 << 20;

/// A socket of generic netlink. It does not block.
#[derive(Debug)]
pub(crate) struct ApmModule {
    socket: Socket,
    hearing: Hearing,
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
        socket.set_cap_ack(true)?;
        socket.bind_auto()?;
        socket.add_membership(CONTROL.into())?;
        let module = Self {
            socket,
            hearing: Hearing::default(),
        };
        module.ask_family()?;
        Ok(module)
    }

    /// Asks whether the module is there.
    ///
    /// # Errors
    /// The socket fails.
    pub(crate) fn ask_family(&self) -> io::Result<()> {
        let name = GenlCtrlAttrs::FamilyName(Message::family_name().to_owned());
        let ask = GenlMessage::from_payload(GenlCtrl {
            cmd: GenlCtrlCmd::GetFamily,
            nlas: vec![name],
        });
        self.send_to_kernel(NLM_F_REQUEST, Request::Family.sequence(), ask)
    }

    /// Hears of all that happens to queue pairs.
    ///
    /// # Errors
    /// The module is not there, or CAP_NET_ADMIN is missing.
    pub(crate) fn listen(&self) -> io::Result<()> {
        // The module counts what this socket has no room for: apmctl status shows it.
        self.socket.set_broadcast_error(true)?;
        self.socket.add_membership(self.family()?.events)?;
        set_receive_buffer(&self.socket, BUFFER);
        Ok(())
    }

    /// Hears of nothing that happens to queue pairs.
    ///
    /// # Errors
    /// The module is not there.
    pub(crate) fn leave(&self) -> io::Result<()> {
        self.socket.drop_membership(self.family()?.events)
    }

    fn family(&self) -> io::Result<Family> {
        let family = self.hearing.family;
        family.ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Asks which queue pairs there are.
    ///
    /// # Errors
    /// The module is not there.
    pub(crate) fn dump(&self) -> io::Result<()> {
        let flags = NLM_F_REQUEST | NLM_F_DUMP;
        self.send(flags, Request::Dump.sequence(), Message::Dump)
    }

    /// Asks whether the module sees what happens.
    ///
    /// # Errors
    /// The module is not there.
    pub(crate) fn ask_state(&self) -> io::Result<()> {
        self.send(NLM_F_REQUEST, Request::State.sequence(), Message::AskState)
    }

    /// Says which queue pairs are to be cared for.
    ///
    /// # Errors
    /// The module is not there.
    pub(crate) fn configure(&self, protect: Protect, rules: Vec<Rule>) -> io::Result<()> {
        let message = Message::Configure { protect, rules };
        self.send(NLM_F_REQUEST, Request::Settings.sequence(), message)
    }

    /// Sends an order. If it is refused, this token is named.
    ///
    /// # Errors
    /// The module is not there.
    pub(crate) fn order(&self, token: u32, message: Message) -> io::Result<()> {
        self.send(NLM_F_REQUEST, token, message)
    }

    fn send(&self, flags: u16, token: u32, message: Message) -> io::Result<()> {
        let family = self.family()?;
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
                    let heard = messages(&datagram);
                    let heard = heard.filter_map(|message| self.hearing.read(message));
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
}
