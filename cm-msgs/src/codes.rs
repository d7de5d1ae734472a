// SPDX-License-Identifier: MIT OR Apache-2.0
//! Enumerations of codes: open ones, for fields in which others may put codes that we do not know,
//! and closed ones, for fields that are ours alone.

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

/// `closed_codes! { Name { Variant = 0, "text"; ... } }`: one byte; every other value is refused.
/// `ranked Name, " unit"`: of what is ordered otherwise than by its codes; the unit is what follows
/// the text where it stands for itself.
macro_rules! closed_codes {
    ($(#[$meta:meta])* ranked $name:ident, $unit:literal {
        $($variant:ident = $code:literal, $text:literal;)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name {
            $(#[doc = concat!("Code ", $code, ": ", $text, $unit, ".")] $variant,)+
        }

        $crate::codes::closed_codes!(@impl $name, $unit { $($variant = $code, $text;)+ });
    };
    ($(#[$meta:meta])* $name:ident {
        $($(#[$vmeta:meta])* $variant:ident = $code:literal, $text:literal;)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum $name {
            $(
                $(#[$vmeta])*
                #[doc = concat!("Code ", $code, ": ", $text, ".")]
                $variant = $code,
            )+
        }

        $crate::codes::closed_codes!(@impl $name, "" { $($variant = $code, $text;)+ });
    };
    (@impl $name:ident, $unit:literal { $($variant:ident = $code:literal, $text:literal;)+ }) => {
        impl $name {
            /// Every one, in this order.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Its code on the wire.
            pub const fn code(self) -> u8 {
                match self { $(Self::$variant => $code,)+ }
            }

            /// The value with this code.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }

            /// For people, without its unit.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self { $(Self::$variant => concat!($text, $unit),)+ })
            }
        }
    };
}

pub(crate) use {closed_codes, codes};
