// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who wakes the loop: a kind in the upper byte of mio's token, a key in the rest.

/// A port of an opened device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct PortKey {
    /// The device, by its key; never used twice.
    pub(crate) device: u32,
    /// The port, counted from 1.
    pub(crate) port: u8,
}

/// Who wakes the loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token {
    /// A signal.
    Signals,
    /// A library calls.
    Control,
    /// An operator calls.
    Observe,
    /// Links changed.
    Rtnl,
    /// A library's socket.
    Library(u32),
    /// An operator's socket.
    Operator(u32),
    /// A device's asynchronous events.
    Verbs(u32),
    /// A port's MADs.
    Umad(PortKey),
    /// Neighbours, or what they hang on, changed.
    Neigh,
    /// A connection to the ACM service that is asked for paths.
    AcmClient(u32),
    /// The threads that read the fabric and serve ACM.
    Threads,
}

const KIND_SHIFT: u32 = 56;
const PORT_SHIFT: u32 = 32;

impl From<Token> for mio::Token {
    fn from(token: Token) -> Self {
        let (kind, key) = match token {
            Token::Signals => (0u64, 0u64),
            Token::Control => (1, 0),
            Token::Observe => (2, 0),
            Token::Rtnl => (3, 0),
            Token::Library(key) => (4, key.into()),
            Token::Operator(key) => (5, key.into()),
            Token::Verbs(key) => (6, key.into()),
            Token::Umad(PortKey { device, port }) => {
                (7, u64::from(device) | u64::from(port) << PORT_SHIFT)
            }
            Token::Neigh => (30, 0),
            Token::AcmClient(key) => (8, key.into()),
            Token::Threads => (20, 0),
        };
        Self((kind << KIND_SHIFT | key) as usize)
    }
}

impl Token {
    /// The token that mio gives back; `None` for one that was never given.
    pub(crate) fn from_mio(token: mio::Token) -> Option<Self> {
        let bits = token.0 as u64;
        let key = bits as u32;
        Some(match bits >> KIND_SHIFT {
            0 => Self::Signals,
            1 => Self::Control,
            2 => Self::Observe,
            3 => Self::Rtnl,
            4 => Self::Library(key),
            5 => Self::Operator(key),
            6 => Self::Verbs(key),
            7 => Self::Umad(PortKey {
                device: key,
                port: (bits >> PORT_SHIFT) as u8,
            }),
            8 => Self::AcmClient(key),
            20 => Self::Threads,
            30 => Self::Neigh,
            _ => return None,
        })
    }
}

const _: () = assert!(usize::BITS == 64, "tokens need 64 bits");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        let tokens = [
            Token::Signals,
            Token::Control,
            Token::Observe,
            Token::Rtnl,
            Token::Library(u32::MAX),
            Token::Operator(3),
            Token::Verbs(u32::MAX),
            Token::Umad(PortKey {
                device: u32::MAX,
                port: 255,
            }),
            Token::AcmClient(63),
            Token::Threads,
            Token::Neigh,
        ];
        for token in tokens {
            assert_eq!(Token::from_mio(token.into()), Some(token));
        }
        assert_eq!(Token::from_mio(mio::Token(usize::MAX)), None);
    }
}
