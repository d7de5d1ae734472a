// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the daemon can do without if it cannot be opened.

use std::fmt::Display;

/// Something that is opened at the start; if that fails it is a problem to be shown, and is tried
/// again when the configuration is read again.
#[derive(Debug)]
pub(super) enum Opened<T> {
    /// It is not to be opened.
    Unwanted,
    /// It is open.
    Open(T),
    /// It is not, or no longer, and why.
    Failed(String),
}

impl<T> Opened<T> {
    /// It, if it is open.
    pub(super) fn get(&self) -> Option<&T> {
        match self {
            Self::Open(it) => Some(it),
            Self::Unwanted | Self::Failed(_) => None,
        }
    }

    /// Why it is not open, though it should be.
    pub(super) fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(why) => Some(why),
            Self::Unwanted | Self::Open(_) => None,
        }
    }
}

/// What came of opening it; `None`: it is not to be opened.
impl<T, E: Display> From<Option<Result<T, E>>> for Opened<T> {
    fn from(opened: Option<Result<T, E>>) -> Self {
        match opened {
            None => Self::Unwanted,
            Some(Ok(it)) => Self::Open(it),
            Some(Err(error)) => Self::Failed(error.to_string()),
        }
    }
}
