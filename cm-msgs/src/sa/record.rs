// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all attributes have in common that the SA keeps in tables.

use super::DATA_LEN;

/// An attribute of which the SA keeps a table (IBA 15.2.5).
pub trait Record: Default {
    /// Attribute ID.
    const ATTRIBUTE: u16;
    /// Bytes of its components. In a table, records lie at the next multiple of 8.
    const RECORD_LEN: usize;

    /// Reads the components from the front of `bytes`; `None` if there are too few.
    fn from_record(bytes: &[u8]) -> Option<Self>;

    /// The components as the data of a query, followed by zeros.
    fn to_data(&self) -> [u8; DATA_LEN];

    /// What every record fits.
    fn any() -> Template<Self> {
        Template::default()
    }
}

/// What a query says of the records it is for: of some components, what they have to be.
/// Begins as [`Record::any`], and a method for each component narrows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Template<R> {
    /// The components, zero where it does not matter.
    pub record: R,
    /// Which of them count, as the SA MAD carries it.
    pub component_mask: u64,
}

/// `record! { pub struct Type: length, attribute { rows } }`: an `attribute!` that is a [`Record`].
/// `@ n` after a row makes its component, bit n of the component mask, a method of [`Template`].
macro_rules! record {
    ($(#[$meta:meta])* pub struct $type:ident: $len:literal, $attribute:literal {
        $($(#[$doc:meta])* $field:ident: $kind:ty = $at:tt $(@ $bit:literal)?,)+
    }) => {
        $crate::layout::attribute! {
            $(#[$meta])*
            pub struct $type: $len {
                $($(#[$doc])* $field: $kind = $at,)+
            }
        }

        $crate::sa::record::record!(@impl $type, $attribute);

        impl $crate::sa::Template<$type> {
            $($(
                #[doc = concat!("Only records of this `", stringify!($field), "`.")]
                pub fn $field(mut self, $field: $kind) -> Self {
                    self.record.$field = $field;
                    self.component_mask |= 1 << $bit;
                    self
                }
            )?)+
        }
    };
    (@impl $type:ident, $attribute:literal) => {
        impl $crate::sa::Record for $type {
            const ATTRIBUTE: u16 = $attribute;
            const RECORD_LEN: usize = Self::LEN;

            fn from_record(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(Self::decode)
            }

            fn to_data(&self) -> [u8; $crate::sa::DATA_LEN] {
                $crate::layout::resized(&self.encode())
            }
        }
    };
}

pub(crate) use record;
