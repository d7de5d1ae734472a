// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a QP waits for an acknowledgement.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AckTimeout {
    /// rdma_cm's: 2.1 s a try.
    Default,
    /// 67 ms a try.
    Fourteen,
    /// This exponent, which a kernel ULP's connection was found with.
    Found(u8),
}

impl AckTimeout {
    /// Those that programs are given.
    pub(super) const GIVEN: [Self; 2] = [Self::Fourteen, Self::Default];

    /// As programs are told it: 0 leaves rdma_cm's.
    pub(super) fn option(self) -> u8 {
        match self {
            Self::Default => 0,
            Self::Fourteen => 14,
            Self::Found(exponent) => exponent,
        }
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::Fourteen => "14".to_owned(),
            Self::Found(exponent) => exponent.to_string(),
        }
    }
}
