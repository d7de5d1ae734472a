// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client of ibsim at the first port of one of its nodes: sends MADs and receives the answers.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cm_msgs::Lid;
use cm_msgs::mad::MAD_LEN;
use cm_msgs::smp::{Routing, Smp};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::datagram::{self, CONTROL_LEN, PACKET_LEN};
use crate::failure::Failure;

/// How long an answer may take; a subnet manager in a sweep answers late.
const LIMIT: Duration = Duration::from_secs(60);

/// How long ibsim may take to answer itself.
const CONTROL_LIMIT: Duration = Duration::from_secs(10);

/// Where a MAD's transaction ID lies. ibsim overwrites the upper 16 bits and OpenSM's side of it the
/// next 16; the lower 32 are the client's.
const TRANSACTION_ID: std::ops::Range<usize> = 12..16;

/// A queue pair that takes MADs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The subnet management agent of a port.
    Sma,
    /// The general services of a port, the SA among them.
    Gsi,
}

/// A MAD and where it goes; its transaction ID is set by the client.
#[derive(Clone, Debug)]
pub struct Request {
    /// The LID of the port.
    pub dlid: u16,
    /// The queue pair.
    pub target: Target,
    /// The MAD.
    pub mad: [u8; MAD_LEN],
}

/// A request came back, with this errno: no such port, or nobody there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not delivered (errno {0})")]
pub struct Undeliverable(pub u32);

/// What came of a request: the answer, with every byte as it was sent, if there is one.
pub type Reply = Result<[u8; MAD_LEN], Undeliverable>;

/// A client. Detached when dropped.
#[derive(Debug)]
pub struct Client {
    control: UnixDatagram,
    data: UnixDatagram,
    id: u32,
}

impl Client {
    /// Attaches to a node of the simulator with that socket name.
    ///
    /// # Errors
    /// [`Failure::File`] if the simulator does not answer, [`Failure::Output`] if it refuses: there
    /// is no such node, or it has its ten clients.
    pub fn attach(socket_name: &str, node: &str) -> Result<Self, Failure> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let at = |source| Failure::File {
            path: format!("ibsim's socket {socket_name}"),
            source,
        };
        let input = format!("{socket_name}:in{number}");
        let data = bind(&input).map_err(at)?;
        let control = bind(&format!("{socket_name}:ctl{number}")).map_err(at)?;
        connect(&control, &format!("{socket_name}:ctl")).map_err(at)?;
        control.set_read_timeout(Some(CONTROL_LIMIT)).map_err(at)?;
        let answer = ask(&control, &datagram::connect(number, node)).map_err(at)?;
        let id = datagram::connected(&answer).ok_or_else(|| Failure::Output {
            source_name: "ibsim".to_owned(),
            problem: format!("refuses a client at {node}"),
        })?;
        connect(&data, &format!("{socket_name}:out{id}")).map_err(at)?;
        data.set_nonblocking(true).map_err(at)?;
        Ok(Self { control, data, id })
    }

    /// The LID of the subnet manager, as the client's own port knows it.
    ///
    /// # Errors
    /// As [`Client::exchange`]; [`Failure::Output`] if the port does not answer.
    pub fn manager_lid(&mut self) -> Result<u16, Failure> {
        let question = Smp::get_port_info(Routing::Directed, 0, 0);
        let reply = self.ask(Request {
            dlid: Lid::PERMISSIVE.0,
            target: Target::Sma,
            mad: question.encode(),
        })?;
        let info = match reply {
            Ok(mad) => Smp::decode(&mad).ok().and_then(|smp| smp.port_info().ok()),
            Err(Undeliverable(_)) => None,
        };
        let lid = info
            .map(|info| info.master_sm_lid.0)
            .filter(|lid| *lid != 0);
        lid.ok_or_else(|| Failure::Output {
            source_name: "the client's port".to_owned(),
            problem: "knows no subnet manager".to_owned(),
        })
    }

    /// Sends one request and waits for what comes of it.
    ///
    /// # Errors
    /// As [`Client::exchange`].
    pub fn ask(&mut self, request: Request) -> Result<Reply, Failure> {
        let mut got = None;
        self.exchange(1, [request], |_, reply| {
            got = Some(reply);
            Ok(())
        })?;
        got.ok_or_else(|| Failure::not_shown("a request has neither answer nor failure"))
    }

    /// Sends all requests, up to `window` of them under way at a time, and hands each one's reply
    /// to `take` with its position, in the order of arrival.
    ///
    /// # Errors
    /// [`Failure::Timeout`] if an answer does not come, [`Failure::File`] if the simulator is gone,
    /// and what `take` fails with.
    pub fn exchange(
        &mut self,
        window: usize,
        requests: impl IntoIterator<Item = Request>,
        mut take: impl FnMut(usize, Reply) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let at = |source| Failure::File {
            path: "ibsim's socket".to_owned(),
            source,
        };
        let mut requests = (0u32..).zip(requests).map(|(number, request)| {
            let mut mad = request.mad;
            mad[TRANSACTION_ID].copy_from_slice(&number.to_be_bytes());
            let qp = match request.target {
                Target::Sma => 0,
                Target::Gsi => 1,
            };
            datagram::packet(request.dlid, qp, &mad)
        });
        let mut unsent = requests.next();
        let mut under_way = 0;
        while unsent.is_some() || under_way > 0 {
            while let Some(packet) = unsent.filter(|_| under_way < window) {
                if !try_send(&self.data, &packet).map_err(at)? {
                    break;
                }
                under_way += 1;
                unsent = requests.next();
            }
            // Reading comes first whenever sending would wait: ibsim does not send on while nobody
            // reads.
            let blocked = unsent.is_some() && under_way < window;
            match try_receive(&self.data).map_err(at)? {
                Some(packet) => {
                    under_way -= 1;
                    let (position, reply) = understand(&packet);
                    take(position, reply)?;
                }
                None => self.wait(blocked).map_err(at)?,
            }
        }
        Ok(())
    }

    /// Waits until there is something to receive or, if `sending`, room to send.
    fn wait(&self, sending: bool) -> io::Result<()> {
        let mut events = PollFlags::POLLIN;
        events.set(PollFlags::POLLOUT, sending);
        let mut fds = [PollFd::new(self.data.as_fd(), events)];
        let limit = PollTimeout::try_from(LIMIT).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, limit)? {
            0 => Err(ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Without waiting for an answer: the simulator may have ended, or stand with a reply that
        // only the closing of our socket takes from it.
        let _ = self.control.send(&datagram::disconnect(self.id));
    }
}

/// Names of sockets are abstract, and the zero at their end belongs to them.
fn name(text: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{text}\0"))
}

fn bind(text: &str) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&name(text)?)
}

fn connect(socket: &UnixDatagram, text: &str) -> io::Result<()> {
    socket.connect_addr(&name(text)?)
}

fn ask(socket: &UnixDatagram, question: &[u8; CONTROL_LEN]) -> io::Result<[u8; CONTROL_LEN]> {
    socket.send(question)?;
    let mut answer = [0; CONTROL_LEN];
    match socket.recv(&mut answer)? {
        CONTROL_LEN => Ok(answer),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

fn try_send(socket: &UnixDatagram, packet: &[u8; PACKET_LEN]) -> io::Result<bool> {
    match socket.send(packet) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

fn try_receive(socket: &UnixDatagram) -> io::Result<Option<[u8; PACKET_LEN]>> {
    let mut packet = [0; PACKET_LEN];
    match socket.recv(&mut packet) {
        Ok(PACKET_LEN) => Ok(Some(packet)),
        Ok(_) => Err(ErrorKind::InvalidData.into()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Which request a packet belongs to, and what came of it.
fn understand(packet: &[u8; PACKET_LEN]) -> (usize, Reply) {
    let (status, mad) = datagram::unpack(packet);
    let mut number = [0; 4];
    number.copy_from_slice(&mad[TRANSACTION_ID]);
    let reply = match status {
        0 => Ok(mad),
        errno => Err(Undeliverable(errno)),
    };
    (u32::from_be_bytes(number) as usize, reply)
}
