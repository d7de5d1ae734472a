// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rdma_set_option` as far as it concerns path migration.

mod options;

use cm_msgs::control::PolicyOverride;

pub(crate) use self::options::of_type;

/// `RDMA_OPTION_ID`.
pub(crate) const LEVEL_ID: i32 = 0;
/// `RDMA_OPTION_IB`.
pub(crate) const LEVEL_IB: i32 = 1;
/// `RDMA_OPTION_ID_ACK_TIMEOUT`, a `u8` at level `RDMA_OPTION_ID`.
pub(crate) const ID_ACK_TIMEOUT: i32 = 3;
/// `RDMA_OPTION_IB_APM` at level `RDMA_OPTION_IB`: a `u8`, 1 on, 0 off, or a
/// `struct rdma_apm_options`. 1 is the only number that
/// rdma-core uses at this level.
pub(crate) const IB_APM: i32 = 2;

/// What an application says of APM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Off,
    /// Like this; `None`: it says nothing of that, and what it said before stands.
    On(Option<PolicyOverride>),
}

/// What a call of `rdma_set_option` means to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// APM is to be off for the id, or on, and like this.
    Apm(Wish),
    /// It is our option, badly called.
    Invalid,
    /// librdmacm's, but good to know: the application sets an ACK timeout of its own.
    AckTimeout,
    /// librdmacm's.
    Foreign,
}

impl Request {
    /// Reads a call. `value` is the option value, if there is a pointer to one.
    pub(crate) fn read(level: i32, name: i32, value: Option<&[u8]>) -> Self {
        match (level, name) {
            (LEVEL_IB, IB_APM) => match value {
                Some([0]) => Self::Apm(Wish::Off),
                Some([1]) => Self::Apm(Wish::On(None)),
                Some(options) => options::read(options).map_or(Self::Invalid, Self::Apm),
                None => Self::Invalid,
            },
            (LEVEL_ID, ID_ACK_TIMEOUT) => Self::AckTimeout,
            _ => Self::Foreign,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_byte_of_zero_or_one_is_valid() {
        assert_eq!(
            Request::read(1, 2, Some(&[1])),
            Request::Apm(Wish::On(None))
        );
        assert_eq!(Request::read(1, 2, Some(&[0])), Request::Apm(Wish::Off));
        assert_eq!(Request::read(1, 2, Some(&[2])), Request::Invalid);
        assert_eq!(Request::read(1, 2, Some(&[1, 0, 0, 0])), Request::Invalid);
        assert_eq!(Request::read(1, 2, Some(&[])), Request::Invalid);
        assert_eq!(Request::read(1, 2, None), Request::Invalid);
    }

    #[test]
    fn other_options_are_librdmacms() {
        assert_eq!(Request::read(1, 1, Some(&[0; 128])), Request::Foreign);
        assert_eq!(Request::read(0, 2, Some(&[1])), Request::Foreign);
        assert_eq!(Request::read(2, 2, Some(&[1])), Request::Foreign);
        assert_eq!(Request::read(0, 3, Some(&[14])), Request::AckTimeout);
    }
}
