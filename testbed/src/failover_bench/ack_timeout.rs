// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a QP waits for an acknowledgement.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AckTimeout {
    /// rdma_cm's: 2.1 s a try.
    Default,
    /// 67 ms a try.
    Fourteen,
}

impl AckTimeout {
    pub(super) const ALL: [Self; 2] = [Self::Fourteen, Self::Default];

    /// As programs are told it: 0 leaves rdma_cm's.
    pub(super) fn option(self) -> u8 {
        match self {
            Self::Default => 0,
            Self::Fourteen => 14,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Fourteen => "14",
        }
    }
}
