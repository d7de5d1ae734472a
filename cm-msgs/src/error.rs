// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why bytes are not the MAD that was looked for.

/// Why bytes are not the MAD that was looked for. Offsets count from the start of the MAD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A MAD has 256 bytes.
    #[error("mad is {0} bytes long, want 256")]
    Length(usize),
    /// Too short for the headers of its class.
    #[error("message is {len} bytes long, want at least {want}")]
    Short {
        /// The bytes found.
        len: usize,
        /// The bytes of the headers.
        want: usize,
    },
    /// Another base version than 1.
    #[error("base version at byte 0 is {0}, want 1")]
    BaseVersion(u8),
    /// Another management class.
    #[error("management class at byte 1 is {found:#04x}, want {want:#04x}")]
    MgmtClass {
        /// The class found.
        found: u8,
        /// The class of the decoder.
        want: u8,
    },
    /// Another version of the class.
    #[error("class version at byte 2 is {found}, want {want}")]
    ClassVersion {
        /// The version found.
        found: u8,
        /// The version of the decoder.
        want: u8,
    },
    /// Another method.
    #[error("method at byte 3 is {found:#04x}, want {want:#04x}")]
    Method {
        /// The method found.
        found: u8,
        /// The method looked for.
        want: u8,
    },
    /// An attribute that is none of those looked for.
    #[error("attribute id at byte 16 is {0:#06x}, which names no attribute known here")]
    Attribute(u16),
}
