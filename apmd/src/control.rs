// SPDX-License-Identifier: MIT OR Apache-2.0
//! The libraries' socket: packets to messages and back, and whose they are.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use cm_msgs::control::{DecodeError, FromDaemon, FromLibrary, MAX_LEN};
use mio::Registry;
use statemachine::{ConnId, Order};

use crate::io::seqpacket::{Peer, Receive};
use crate::server::{Alive, Server};

/// Name of the socket in the runtime directory.
pub const SOCKET: &str = "apmd.sock";

/// A library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Client {
    /// Its process.
    pub peer: Peer,
    /// Its command name, once it has said hello.
    pub command: Option<String>,
}

/// What reading a library's socket gave.
#[derive(Clone, PartialEq, Debug)]
pub enum FromClient {
    /// A message.
    Message(FromLibrary),
    /// Nothing more for now.
    Nothing,
    /// It is gone.
    Gone,
    /// It breaks the protocol.
    Broken(Breach),
}

/// How a library breaks the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Breach {
    /// A packet that is no message.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// A packet longer than any message.
    #[error("control message: {0} bytes, longer than any")]
    TooLong(usize),
    /// Something else before hello.
    #[error("control message: did not begin with hello")]
    NoHello,
}

/// The libraries' socket.
#[derive(Debug)]
pub struct Control {
    server: Server,
    clients: BTreeMap<u32, Client>,
}

impl Control {
    /// Serves libraries on `server`.
    pub fn new(server: Server) -> Self {
        Self {
            server,
            clients: BTreeMap::new(),
        }
    }

    /// Takes in the next library; `None` when nobody waits.
    ///
    /// # Errors
    /// No resources: try again later.
    pub fn accept(&mut self, registry: &Registry) -> io::Result<Option<u32>> {
        let accepted = self.server.accept(registry)?;
        Ok(accepted.map(|(key, peer)| {
            self.clients.insert(
                key,
                Client {
                    peer,
                    command: None,
                },
            );
            key
        }))
    }

    /// Libraries connected.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether no library is connected.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// A library.
    pub fn client(&self, key: u32) -> Option<&Client> {
        self.clients.get(&key)
    }

    /// The next message of a library. Its hello is answered here.
    pub fn read(&mut self, key: u32) -> FromClient {
        let mut buffer = [0; MAX_LEN];
        let len = match self.server.receive(key, &mut buffer) {
            Receive::Packet(len) => len,
            Receive::Nothing => return FromClient::Nothing,
            Receive::End => return FromClient::Gone,
        };
        let Some(packet) = buffer.get(..len) else {
            return FromClient::Broken(Breach::TooLong(len));
        };
        let message = match FromLibrary::decode(packet) {
            Ok(message) => message,
            Err(error) => return FromClient::Broken(error.into()),
        };
        let Some(client) = self.clients.get_mut(&key) else {
            return FromClient::Gone;
        };
        if let FromLibrary::Hello { command } = message {
            client.command = Some(command_of(&command));
            return match self.server.send(key, FromDaemon::Welcome.encode().as_ref()) {
                Alive::Yes => FromClient::Message(message),
                Alive::No => FromClient::Gone,
            };
        }
        match client.command {
            Some(_) => FromClient::Message(message),
            None => FromClient::Broken(Breach::NoHello),
        }
    }

    /// Gives a library an order.
    pub fn send(&mut self, conn: ConnId, order: Order) -> Alive {
        let Ok(key) = u32::try_from(conn.client) else {
            return Alive::No;
        };
        self.server
            .send(key, message(conn.conn, order).encode().as_ref())
    }

    /// Sends what there was no room for.
    pub fn flush(&mut self, key: u32) -> Alive {
        self.server.flush(key)
    }

    /// Closes a library's socket. Whether there was one.
    pub fn close(&mut self, key: u32) -> bool {
        self.clients.remove(&key);
        self.server.close(key)
    }
}

fn message(conn: u64, order: Order) -> FromDaemon {
    match order {
        Order::Load(load) => FromDaemon::Load { conn, load },
        Order::Migrate(migrate) => FromDaemon::Migrate { conn, migrate },
        Order::Query => FromDaemon::Query { conn },
        Order::Refuse(refusal) => FromDaemon::Refuse { conn, refusal },
        Order::Event(event, status) => FromDaemon::Event {
            conn,
            event,
            status,
        },
    }
}

/// A NUL-padded command name as text without control characters.
fn command_of(bytes: &[u8; 16]) -> String {
    let len = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).replace(char::is_control, "?")
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}[{}]",
            self.command.as_deref().unwrap_or("?"),
            self.peer.pid
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_names_are_printable() {
        assert_eq!(command_of(b"rping\0\0\0\0\0\0\0\0\0\0\0"), "rping");
        assert_eq!(
            command_of(b"a\x1b[2J\xff4567890123"),
            "a?[2J\u{fffd}4567890123"
        );
    }
}
