// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a port, a link or a path can carry.

use cm_msgs::rate::{Mtu, Rate};

/// What a port, a link or a path can carry. `None` is not known, which is less than any value: a
/// path of which one link is not known is not known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Capability {
    /// The MTU.
    pub mtu: Option<Mtu>,
    /// The rate.
    pub rate: Option<Rate>,
}

impl Capability {
    /// More than any link: what does not limit.
    pub(crate) const UNLIMITED: Self = Self {
        mtu: Some(Mtu::B4096),
        rate: Some(Rate::G1600),
    };

    /// What both can carry.
    pub fn min(self, other: Self) -> Self {
        Self {
            mtu: self.mtu.min(other.mtu),
            rate: self.rate.min(other.rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_limits() {
        let known = Capability::UNLIMITED;
        assert_eq!(known.min(Capability::default()), Capability::default());
    }
}
