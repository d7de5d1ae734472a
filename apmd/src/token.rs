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

/// What a token carries beside its kind.
pub(crate) trait Key {
    fn bits(self) -> u64;
    fn from_bits(bits: u64) -> Self;
}

impl Key for u32 {
    fn bits(self) -> u64 {
        self.into()
    }

    fn from_bits(bits: u64) -> Self {
        bits as Self
    }
}

const PORT_SHIFT: u32 = 32;

impl Key for PortKey {
    fn bits(self) -> u64 {
        u64::from(self.device) | u64::from(self.port) << PORT_SHIFT
    }

    fn from_bits(bits: u64) -> Self {
        Self {
            device: bits as u32,
            port: (bits >> PORT_SHIFT) as u8,
        }
    }
}

pub(crate) const KIND_SHIFT: u32 = 56;

/// `kind => Variant(key: what it is),`: an enumeration and what mio knows it by.
macro_rules! tokens {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$doc:meta])* $kind:literal => $variant:ident $(($key:ident: $type:ty))?,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $vis enum $name {
            $($(#[$doc])* $variant $(($type))?,)+
        }

        impl From<$name> for mio::Token {
            fn from(token: $name) -> Self {
                let (kind, key): (u64, u64) = match token {
                    $($name::$variant $(($key))? => ($kind, 0 $(| $crate::token::Key::bits($key))?),)+
                };
                Self((kind << $crate::token::KIND_SHIFT | key) as usize)
            }
        }

        impl $name {
            /// The token that mio gives back; `None` for one that was never given.
            $vis fn from_mio(token: mio::Token) -> Option<Self> {
                let bits = token.0 as u64;
                Some(match bits >> $crate::token::KIND_SHIFT {
                    $($kind => Self::$variant $((<$type as $crate::token::Key>::from_bits(bits)))?,)+
                    _ => return None,
                })
            }
        }
    };
}

pub(crate) use tokens;

tokens! {
    /// Who wakes the loop.
    pub(crate) enum Token {
        /// A signal.
        0 => Signals,
        /// A library calls.
        1 => Control,
        /// An operator calls.
        2 => Observe,
        /// Links changed.
        3 => Rtnl,
        /// A library's socket.
        4 => Library(key: u32),
        /// An operator's socket.
        5 => Operator(key: u32),
        /// A device's asynchronous events.
        6 => Verbs(device: u32),
        /// A port's MADs.
        7 => Umad(key: PortKey),
        /// A connection to the ACM service that is asked for paths.
        8 => AcmClient(number: u32),
        /// The kernel module says something.
        9 => Kernel,
        /// The threads that read the fabric and serve ACM.
        20 => Threads,
        /// Neighbours, or what they hang on, changed.
        30 => Neigh,
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
            Token::Kernel,
            Token::Threads,
            Token::Neigh,
        ];
        for token in tokens {
            assert_eq!(Token::from_mio(token.into()), Some(token));
        }
        assert_eq!(Token::from_mio(mio::Token(usize::MAX)), None);
    }
}
