// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections to an ACM service of this host.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

/// Unix sockets at which ibacm listens.
const SOCKETS: [&str; 2] = ["/run/ibacm-unix.sock", "/run/ibacm.sock"];

/// Files in which ibacm leaves its TCP port.
const PORT_FILES: [&str; 2] = ["/run/ibacm-tcp.port", "/run/ibacm.port"];

/// Where a service listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP port of this host's.
    Tcp(u16),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Tcp(port) => write!(f, "{}:{port}", Ipv4Addr::LOCALHOST),
        }
    }
}

impl Place {
    /// Where ibacm may listen, by what it leaves behind.
    pub(crate) fn usual() -> Vec<Self> {
        let sockets = SOCKETS.iter().map(|path| Self::Unix(path.into()));
        let ports = PORT_FILES.iter().filter_map(|path| port(Path::new(path)));
        sockets.chain(ports.map(Self::Tcp)).collect()
    }
}

fn port(file: &Path) -> Option<u16> {
    let text = std::fs::read_to_string(file).ok()?;
    text.trim().parse().ok().filter(|port| *port != 0)
}

/// What is known of a new connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opening {
    /// It is open.
    Open,
    /// It will be writable when it is open.
    UnderWay,
}

/// A connection.
#[derive(Debug)]
pub(crate) enum AcmStream {
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Over TCP.
    Tcp(TcpStream),
}

impl AcmStream {
    /// Begins to connect.
    ///
    /// # Errors
    /// Nobody listens there, or nobody but this process.
    pub(crate) fn connect(
        place: &Place,
        registry: &Registry,
        token: Token,
    ) -> io::Result<(Self, Opening)> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match place {
            Place::Unix(path) => {
                let mut stream = UnixStream::connect(path)?;
                let peer = getsockopt(&stream, PeerCredentials)?;
                if u32::try_from(peer.pid()) == Ok(std::process::id()) {
                    let what = "it is apmd itself that listens there";
                    return Err(io::Error::new(ErrorKind::AddrInUse, what));
                }
                registry.register(&mut stream, token, interest)?;
                Ok((Self::Unix(stream), Opening::Open))
            }
            Place::Tcp(port) => {
                let mut stream =
                    TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, *port)))?;
                registry.register(&mut stream, token, interest)?;
                Ok((Self::Tcp(stream), Opening::UnderWay))
            }
        }
    }

    /// Whether it is open by now.
    ///
    /// # Errors
    /// It never will be.
    pub(crate) fn is_open(&self) -> io::Result<bool> {
        let Self::Tcp(stream) = self else {
            return Ok(true);
        };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        match stream.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends a message, which is small: without room for the whole of it, something is wrong.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let sent = match self {
            Self::Unix(stream) => stream.write(bytes)?,
            Self::Tcp(stream) => stream.write(bytes)?,
        };
        match sent == bytes.len() {
            true => Ok(()),
            false => Err(ErrorKind::WriteZero.into()),
        }
    }

    /// What came, if anything; nothing at all (`Some(0)`) when the service has closed it.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let read = match self {
                Self::Unix(stream) => stream.read(buffer),
                Self::Tcp(stream) => stream.read(buffer),
            };
            match read {
                Ok(len) => return Ok(Some(len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll};
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    #[test]
    fn tcp_opens_and_a_dead_port_does_not() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let place = Place::Tcp(listener.local_addr().unwrap().port());
        let mut poll = Poll::new().unwrap();
        let mut events = Events::with_capacity(4);
        let mut connect = |place: &Place| -> io::Result<AcmStream> {
            let (stream, opening) = AcmStream::connect(place, poll.registry(), Token(1))?;
            assert_eq!(opening, Opening::UnderWay);
            while !stream.is_open()? {
                poll.poll(&mut events, Some(Duration::from_secs(30)))?;
            }
            Ok(stream)
        };
        let mut stream = connect(&place).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        stream.send(b"question").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(server.read(&mut buffer).unwrap(), 8);
        assert_eq!(stream.receive(&mut buffer).unwrap(), None);
        drop((server, listener));
        assert!(connect(&place).is_err());
    }

    #[test]
    fn apmd_does_not_ask_itself() {
        let path = std::env::temp_dir().join(format!("apmd-acm-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let poll = Poll::new().unwrap();
        let place = Place::Unix(path.clone());
        let error = AcmStream::connect(&place, poll.registry(), Token(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        drop(listener);
        let error = AcmStream::connect(&place, poll.registry(), Token(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        std::fs::remove_file(path).unwrap();
    }
}
