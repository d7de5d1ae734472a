// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all attributes have in common that the SA keeps in tables.

use super::DATA_LEN;

/// An attribute of which the SA keeps a table (IBA 15.2.5).
pub trait Record: Sized {
    /// Attribute ID.
    const ATTRIBUTE: u16;
    /// Bytes of its components. In a table, records lie at the next multiple of 8.
    const RECORD_LEN: usize;
    /// Sets of its components.
    type Mask: Into<u64>;

    /// Reads the components from the front of `bytes`; `None` if there are too few.
    fn from_record(bytes: &[u8]) -> Option<Self>;

    /// The components as the data of a query, followed by zeros.
    fn to_data(&self) -> [u8; DATA_LEN];
}

/// `record!(Type, Mask, id)`: an `attribute!` is a [`Record`].
macro_rules! record {
    ($type:ident, $mask:ident, $attribute:literal) => {
        impl $crate::sa::Record for $type {
            const ATTRIBUTE: u16 = $attribute;
            const RECORD_LEN: usize = Self::LEN;
            type Mask = $mask;

            fn from_record(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(Self::decode)
            }

            fn to_data(&self) -> [u8; $crate::sa::DATA_LEN] {
                $crate::layout::resized(&self.encode())
            }
        }
    };
}

/// `component_mask! { pub Name { COMPONENT = bits; ... } }`: sets of components, as the SA MAD
/// carries them.
macro_rules! component_mask {
    ($(#[$doc:meta])* pub $name:ident { $($(#[$component:meta])* $variant:ident = $bits:expr;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name(u64);

        impl $name {
            /// No component: every record fits.
            pub const NONE: Self = Self(0);
            $($(#[$component])* pub const $variant: Self = Self($bits);)+

            /// The mask as the SA MAD carries it.
            pub const fn bits(self) -> u64 {
                self.0
            }
        }

        impl core::ops::BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl From<$name> for u64 {
            fn from(mask: $name) -> Self {
                mask.0
            }
        }
    };
}

pub(crate) use {component_mask, record};
