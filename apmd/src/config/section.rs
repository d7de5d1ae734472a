// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every section of the configuration is made of.

/// `section! { Name { key: Type = default, ... } }`: a section, of which every key is optional and
/// unknown ones are refused.
macro_rules! section {
    ($(#[$meta:meta])* $name:ident {
        $($(#[$of_key:meta])* $key:ident: $type:ty = $default:expr,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$of_key])* pub(crate) $key: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)+ }
            }
        }
    };
}

pub(super) use section;
