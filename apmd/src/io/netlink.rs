// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's netlink sockets, and their datagrams, which hold one message after the other.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Once;

use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{
    self, AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, sockopt,
};

/// Bytes of `struct nlmsghdr`.
pub(super) const HEADER_LEN: usize = 16;

/// The bytes of each message, its header with it. What is left after a message that cannot have the
/// length that it says is not looked at.
pub(super) fn messages(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
        let message = rest.get(..len).filter(|_| len >= HEADER_LEN)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(message)
    })
}

/// Each message that can be read. The kernel may say what this version of its protocol's crate does
/// not know; what comes with it counts all the same.
pub(super) fn readable<T: NetlinkDeserializable>(
    datagram: &[u8],
) -> impl Iterator<Item = NetlinkMessage<T>> {
    messages(datagram).filter_map(|message| {
        let read = NetlinkMessage::deserialize(message);
        read.inspect_err(|error| tracing::debug!(%error, "netlink message skipped"))
            .ok()
    })
}

/// Makes room for so many bytes that are not read yet. Without the privilege to go beyond it, the
/// system's limit has to do, which is said once.
pub(super) fn set_receive_buffer(socket: &Socket, bytes: usize) {
    static TOLD: Once = Once::new();
    if socket::setsockopt(socket, sockopt::RcvBufForce, &bytes).is_err() {
        let _ = socket.set_rx_buf_sz(bytes);
    }
    let room = socket.get_rx_buf_sz().unwrap_or(0);
    if is_short(room, bytes) {
        TOLD.call_once(|| {
            let room = room / 2;
            tracing::warn!(
                "the kernel keeps {room} bytes of news for apmd, not {bytes}: a burst of them is lost, and all \
                 is read again. Give apmd CAP_NET_ADMIN, or set net.core.rmem_max to {bytes}"
            );
        });
    }
}

/// Whether a socket has less room than it was to have. Of what it says that it has, the kernel reckons
/// half for its own (`socket(7)`).
const fn is_short(room: usize, wanted: usize) -> bool {
    room / 2 < wanted
}

/// What a socket has received.
pub(super) enum Received {
    /// A datagram.
    Datagram(Vec<u8>),
    /// The kernel had more to say than the socket has room for: what is known is out of date. All else
    /// has been read, so what is asked now is answered.
    Overrun,
}

/// A socket of rtnetlink, subscribed to multicast groups. It does not block.
#[derive(Debug)]
pub(super) struct RouteSocket {
    socket: Socket,
    /// The kernel says so ahead of what waits, and keeps silent until that has been read.
    overrun: bool,
}

impl RouteSocket {
    /// With room for `buffer` bytes that are not read yet, where the default does not do.
    pub(super) fn open(groups: &[u32], buffer: Option<usize>) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.set_non_blocking(true)?;
        if let Some(bytes) = buffer {
            set_receive_buffer(&socket, bytes);
        }
        socket.bind_auto()?;
        for group in groups {
            socket.add_membership(*group)?;
        }
        Ok(Self {
            socket,
            overrun: false,
        })
    }

    pub(super) fn send(
        &self,
        sequence: u32,
        flags: u16,
        message: RouteNetlinkMessage,
    ) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        Ok(())
    }

    /// What came in next; `None` when there is nothing more for now.
    pub(super) fn receive(&mut self) -> io::Result<Option<Received>> {
        loop {
            return match self.socket.recv_from_full() {
                Ok((datagram, _)) => Ok(Some(Received::Datagram(datagram))),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    Ok(std::mem::take(&mut self.overrun).then_some(Received::Overrun))
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.overrun = true;
                    continue;
                }
                Err(error) => Err(error),
            };
        }
    }
}

as_raw_fd!(RouteSocket, socket);

/// A socket of RDMA's netlink, in no group. It does not block.
pub(super) fn rdma_socket() -> io::Result<OwnedFd> {
    let fd = socket::socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        SockProtocol::NetlinkRDMA,
    )?;
    socket::bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NLM_F_REQUEST;
    use netlink_packet_route::link::LinkMessage;

    use super::*;

    #[test]
    fn a_loss_is_told_when_all_else_has_been_read() {
        let mut socket = RouteSocket::open(&[], Some(1)).expect("a socket");
        let mut loopback = LinkMessage::default();
        loopback.header.index = 1;
        for sequence in 1..=50 {
            let question = RouteNetlinkMessage::GetLink(loopback.clone());
            socket
                .send(sequence, NLM_F_REQUEST, question)
                .expect("sent");
        }
        let received = std::iter::from_fn(|| socket.receive().expect("a datagram or nothing"));
        let are_datagrams: Vec<_> = received
            .map(|received| matches!(received, Received::Datagram(_)))
            .collect();
        let (last, before) = are_datagrams.split_last().expect("there are answers");
        assert!(!last && before.iter().all(|is_datagram| *is_datagram));
        assert!((1..50).contains(&before.len()), "{}", before.len());
        // Others are answered again.
        let question = RouteNetlinkMessage::GetLink(loopback);
        socket.send(51, NLM_F_REQUEST, question).expect("sent");
        let answer = socket.receive().expect("no error");
        assert!(matches!(answer, Some(Received::Datagram(_))));
    }

    #[test]
    fn a_system_that_clamps_is_noticed() {
        // What it answers with net.core.rmem_max as Debian has it.
        assert!(is_short(2 * 212_992, 4 << 20));
        assert!(!is_short(2 * (4 << 20), 4 << 20));
        assert!(!is_short(2304, 1), "the kernel's least");
    }

    #[test]
    fn wrong_lengths_end_the_reading() {
        let mut two = [0; 40];
        (two[0], two[20]) = (18, 20);
        let lengths = |datagram: &[u8]| messages(datagram).map(<[u8]>::len).collect::<Vec<_>>();
        assert_eq!(lengths(&two), [18, 20]);
        assert_eq!(lengths(&two[..39]), [18]);
        assert_eq!(lengths(&two[..17]), [0; 0]);
        for len in [0, 15, 21] {
            two[20] = len;
            assert_eq!(lengths(&two), [18], "{len}");
        }
    }
}
