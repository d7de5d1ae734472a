// SPDX-License-Identifier: MIT OR Apache-2.0
//! What wakes ACM's thread: a kind in the upper byte of mio's token, a key in the rest.

use crate::token::tokens;

tokens! {
    pub(super) enum Token {
        /// The failover loop.
        0 => Loop,
        /// A client calls; the listener's place in the list.
        1 => Listener(place: u32),
        2 => Client(key: u32),
        /// The kernel wants paths.
        3 => Kernel,
        /// What the choice of a local address hangs on has changed.
        4 => Routes,
        5 => QueuePair(key: u32),
        /// A device's asynchronous events.
        6 => Device(key: u32),
        /// A deadline has come.
        7 => Alarm,
        /// The kernel's neighbour tables have changed.
        8 => Neighbours,
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
            Token::Neighbours,
        ];
        for token in tokens {
            assert_eq!(Token::from_mio(token.into()), Some(token));
        }
        assert_eq!(Token::from_mio(mio::Token(usize::MAX)), None);
    }
}
