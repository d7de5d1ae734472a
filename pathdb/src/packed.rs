// SPDX-License-Identifier: MIT OR Apache-2.0
//! The outcome of a walk in four bytes, such that two stretches are joined without a branch.

use crate::capability::Capability;
use crate::walk::{Fault, Leg};
use cm_msgs::rate::{Mtu, Rate};

const LOOP: u8 = 0;
const DEAD_END: u8 = 1;
const UNKNOWN: u8 = 2;
const FIRST_RATE: u8 = 3;

/// A [`Leg`] or a [`Fault`]. Faults are the least rates, so that the lesser of two rates is also
/// the worse of two outcomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packed {
    hops: u16,
    mtu: u8,
    rate: u8,
}

impl Packed {
    pub(crate) const DEAD_END: Self = Self {
        hops: 0,
        mtu: 0,
        rate: DEAD_END,
    };
    pub(crate) const LOOP: Self = Self {
        hops: 0,
        mtu: 0,
        rate: LOOP,
    };
    /// No link, no limit.
    pub(crate) const HERE: Self = Self::stretch(0, Capability::UNLIMITED);

    /// `hops` links that together carry this.
    pub(crate) const fn stretch(hops: u16, carries: Capability) -> Self {
        Self {
            hops,
            mtu: match carries.mtu {
                None => 0,
                Some(mtu) => mtu.code(),
            },
            rate: match carries.rate {
                None => UNKNOWN,
                Some(rate) => rate as u8 + FIRST_RATE,
            },
        }
    }

    /// One stretch after the other.
    #[inline]
    pub(crate) fn join(self, other: Self) -> Self {
        Self {
            // Only stretches that both arrive have a sum that is read, and that is small.
            hops: self.hops.wrapping_add(other.hops),
            mtu: self.mtu.min(other.mtu),
            rate: self.rate.min(other.rate),
        }
    }

    pub(crate) fn unpack(self) -> Result<Leg, Fault> {
        match self.rate {
            LOOP => Err(Fault::Loop),
            DEAD_END => Err(Fault::DeadEnd),
            rate => Ok(Leg {
                hops: self.hops,
                carries: Capability {
                    mtu: Mtu::from_code(self.mtu),
                    rate: rate
                        .checked_sub(FIRST_RATE)
                        .and_then(|rate| Rate::ALL.get(usize::from(rate)).copied()),
                },
            }),
        }
    }
}

impl From<Result<Leg, Fault>> for Packed {
    fn from(walk: Result<Leg, Fault>) -> Self {
        match walk {
            Ok(leg) => Self::stretch(leg.hops, leg.carries),
            Err(Fault::Loop) => Self::LOOP,
            Err(Fault::DeadEnd) => Self::DEAD_END,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_loses_nothing() {
        let rates = Rate::ALL.iter().copied().map(Some).chain([None]);
        for rate in rates {
            for code in 0..=5 {
                let mtu = Mtu::from_code(code);
                let leg = Leg {
                    hops: u16::from(code) * 13_000,
                    carries: Capability { mtu, rate },
                };
                assert_eq!(Packed::from(Ok(leg)).unpack(), Ok(leg));
            }
        }
        for fault in [Fault::Loop, Fault::DeadEnd] {
            assert_eq!(Packed::from(Err(fault)).unpack(), Err(fault));
        }
    }

    #[test]
    fn a_fault_stays_a_fault() {
        assert_eq!(Packed::HERE.join(Packed::LOOP).unpack(), Err(Fault::Loop));
        let unknown = Packed::stretch(1, Capability::default());
        assert_eq!(unknown.join(Packed::DEAD_END).unpack(), Err(Fault::DeadEnd));
        let two = unknown.join(Packed::HERE).join(unknown).unpack();
        assert_eq!(two.map(|leg| leg.hops), Ok(2));
    }
}
