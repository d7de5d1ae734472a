// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is at the other end of the libraries' socket.

use cm_msgs::is_unprintable;

use crate::io::seqpacket::Peer;

/// A library's process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Client {
    pub(crate) peer: Peer,
    /// Its command name, once it has said hello.
    pub(crate) command: Option<String>,
}

impl Client {
    pub(crate) fn new(peer: Peer) -> Self {
        Self {
            peer,
            command: None,
        }
    }

    /// `command` is NUL-padded.
    pub(crate) fn said_hello(&mut self, command: &[u8; 16]) {
        let len = command.iter().position(|byte| *byte == 0);
        let name = &command[..len.unwrap_or(command.len())];
        // Operators see it on their terminals, which obey control characters.
        self.command = Some(String::from_utf8_lossy(name).replace(is_unprintable, "?"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_names_are_printable() {
        let mut client = Client::new(Peer { pid: 7, uid: 0 });
        assert_eq!(client.command, None);
        client.said_hello(b"rping\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(client.command.as_deref(), Some("rping"));
        client.said_hello(b"a\x1b[2J\xff4567890123");
        assert_eq!(client.command.as_deref(), Some("a?[2J\u{fffd}4567890123"));
        client.said_hello(b"ls\xe2\x80\xae\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(client.command.as_deref(), Some("ls?"));
    }
}
