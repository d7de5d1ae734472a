// SPDX-License-Identifier: MIT OR Apache-2.0
//! The status of an SA response (IBA 13.4.7 and 15.2.2).

use core::fmt;

use crate::codes::codes;

codes! {
    /// Bits 4..2 of any response's status (IBA 13.4.7).
    pub enum GenericStatus: u8 {
        Ok = 0, "no invalid fields";
        BadVersion = 1, "bad class or version";
        UnsupportedMethod = 2, "method not supported";
        UnsupportedAttribute = 3, "method and attribute not supported together";
        InvalidField = 7, "invalid value in attribute or modifier";
    }
}

/// The status of an SA response.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SaStatus {
    /// No error.
    Success,
    /// The SA has no room.
    NoResources,
    /// The request makes no sense.
    RequestInvalid,
    /// Nothing fits: for a path, there is none.
    NoRecords,
    /// More than one fits where one was asked for.
    TooManyRecords,
    /// A GID is not of this subnet's.
    InvalidGid,
    /// Components are missing.
    InsufficientComponents,
    /// The SA does not trust the asker.
    RequestDenied,
    /// A lower priority is suggested.
    PrioritySuggested,
    /// The SA is busy: ask again later.
    Busy,
    /// Ask the SA's substitute instead (ClassPortInfo says whom).
    Redirect,
    /// The MAD layer's complaint.
    Generic(GenericStatus),
    /// A status without a name here.
    Other(u16),
}

impl SaStatus {
    /// Whether the response holds what was asked for.
    pub fn is_success(self) -> bool {
        self == Self::Success
    }
}

const BUSY: u16 = 0x0001;
const REDIRECT: u16 = 0x0002;

impl From<u16> for SaStatus {
    /// The class's own code first, then busy, redirection and invalid fields.
    fn from(status: u16) -> Self {
        let invalid_field = (status >> 2 & 7) as u8;
        match status >> 8 {
            1 => Self::NoResources,
            2 => Self::RequestInvalid,
            3 => Self::NoRecords,
            4 => Self::TooManyRecords,
            5 => Self::InvalidGid,
            6 => Self::InsufficientComponents,
            7 => Self::RequestDenied,
            8 => Self::PrioritySuggested,
            0 if status & BUSY != 0 => Self::Busy,
            0 if status & REDIRECT != 0 => Self::Redirect,
            0 if invalid_field != 0 => Self::Generic(invalid_field.into()),
            0 if status == 0 => Self::Success,
            _ => Self::Other(status),
        }
    }
}

impl fmt::Display for SaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Success => "success",
            Self::NoResources => "no resources",
            Self::RequestInvalid => "request invalid",
            Self::NoRecords => "no records",
            Self::TooManyRecords => "too many records",
            Self::InvalidGid => "invalid gid",
            Self::InsufficientComponents => "insufficient components",
            Self::RequestDenied => "request denied",
            Self::PrioritySuggested => "priority suggested",
            Self::Busy => "busy",
            Self::Redirect => "redirect",
            Self::Generic(status) => return status.fmt(f),
            Self::Other(status) => return write!(f, "status {status:#06x}"),
        };
        f.write_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_names() {
        let cases = [
            (0x0000, SaStatus::Success, "success"),
            (0x0300, SaStatus::NoRecords, "no records"),
            (
                0x0600,
                SaStatus::InsufficientComponents,
                "insufficient components",
            ),
            (0x0001, SaStatus::Busy, "busy"),
            (0x0002, SaStatus::Redirect, "redirect"),
            (
                0x000c,
                SaStatus::Generic(GenericStatus::UnsupportedAttribute),
                "method and attribute not supported together",
            ),
            (0x0020, SaStatus::Other(0x20), "status 0x0020"),
            (0xff00, SaStatus::Other(0xff00), "status 0xff00"),
        ];
        for (raw, status, text) in cases {
            assert_eq!(SaStatus::from(raw), status);
            assert_eq!(status.to_string(), text);
            assert_eq!(status.is_success(), raw == 0);
        }
    }
}
