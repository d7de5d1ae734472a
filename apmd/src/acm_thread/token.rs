// SPDX-License-Identifier: MIT OR Apache-2.0
//! What wakes ACM's thread: a kind in the upper half of mio's token, a key in the lower.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token {
    /// The failover loop.
    Loop,
    /// A client calls; the listener's place in the list.
    Listener(u32),
    Client(u32),
    /// The kernel wants paths.
    Kernel,
    /// What the choice of a local address hangs on has changed.
    Routes,
    QueuePair(u32),
    /// A device's asynchronous events.
    Device(u32),
    /// A deadline has come.
    Alarm,
}

const KIND_SHIFT: u32 = 32;

impl From<Token> for mio::Token {
    fn from(token: Token) -> Self {
        let (kind, key) = match token {
            Token::Loop => (0, 0),
            Token::Listener(place) => (1, place),
            Token::Client(key) => (2, key),
            Token::Kernel => (3, 0),
            Token::Routes => (4, 0),
            Token::QueuePair(key) => (5, key),
            Token::Device(key) => (6, key),
            Token::Alarm => (7, 0),
        };
        Self((kind << KIND_SHIFT) | key as usize)
    }
}

impl Token {
    /// The token that mio gives back; `None` for one that was never given.
    pub(super) fn from_mio(token: mio::Token) -> Option<Self> {
        let key = token.0 as u32;
        Some(match token.0 >> KIND_SHIFT {
            0 => Self::Loop,
            1 => Self::Listener(key),
            2 => Self::Client(key),
            3 => Self::Kernel,
            4 => Self::Routes,
            5 => Self::QueuePair(key),
            6 => Self::Device(key),
            7 => Self::Alarm,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        let tokens = [
            Token::Loop,
            Token::Listener(1),
            Token::Client(u32::MAX),
            Token::Kernel,
            Token::Routes,
            Token::QueuePair(u32::MAX),
            Token::Device(7),
            Token::Alarm,
        ];
        for token in tokens {
            assert_eq!(Token::from_mio(token.into()), Some(token));
        }
        assert_eq!(Token::from_mio(mio::Token(usize::MAX)), None);
    }
}
