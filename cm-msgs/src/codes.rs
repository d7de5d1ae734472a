// SPDX-License-Identifier: MIT OR Apache-2.0
//! Enumerations of codes that leave room for codes not listed.

/// `codes! { pub enum Name: u8 { Variant = 0, "text"; ... } }`: conversions from and to the raw
/// number, which never fail, and the text for people. Converting from a raw number never gives
/// `Other` of a listed code.
macro_rules! codes {
    ($(#[$doc:meta])* pub enum $name:ident: $raw:ty {
        $($variant:ident = $code:literal, $text:literal;)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $(
                #[doc = concat!($code, ": ", $text, ".")]
                $variant,
            )+
            /// A code without a name here.
            Other($raw),
        }

        impl From<$raw> for $name {
            fn from(raw: $raw) -> Self {
                match raw {
                    $($code => Self::$variant,)+
                    other => Self::Other(other),
                }
            }
        }

        impl From<$name> for $raw {
            fn from(code: $name) -> Self {
                match code {
                    $($name::$variant => $code,)+
                    $name::Other(other) => other,
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($text),)+
                    Self::Other(other) => write!(f, "code {other}"),
                }
            }
        }
    };
}

pub(crate) use codes;
