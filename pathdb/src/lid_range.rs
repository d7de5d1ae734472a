// SPDX-License-Identifier: MIT OR Apache-2.0
//! The LIDs of one port.

use std::fmt;

use cm_msgs::Lid;

/// The LIDs of one port: 2 to the power of `lmc` from `base` on (IBA 3.5.10). Only
/// [`LidRange::new`] makes one, so the range is aligned and unicast to its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LidRange {
    base: Lid,
    lmc: u8,
}

impl LidRange {
    /// `None` if `lmc` exceeds 7, if `base` is not a multiple of the number of LIDs, or if a LID is
    /// not unicast.
    pub fn new(base: Lid, lmc: u8) -> Option<Self> {
        let count = 1u16.checked_shl(u32::from(lmc)).filter(|_| lmc <= 7)?;
        let aligned = base.0.is_multiple_of(count);
        let last = Lid(base.0.checked_add(count - 1)?);
        (aligned && base.is_unicast() && last.is_unicast()).then_some(Self { base, lmc })
    }

    /// The first LID.
    pub const fn base(self) -> Lid {
        self.base
    }

    /// The LID mask count.
    pub const fn lmc(self) -> u8 {
        self.lmc
    }

    /// How many LIDs.
    pub const fn count(self) -> u16 {
        1 << self.lmc
    }

    pub(crate) const fn last(self) -> Lid {
        Lid(self.base.0 + (self.count() - 1))
    }

    /// Whether `lid` is among them.
    pub const fn contains(self, lid: Lid) -> bool {
        self.base.0 <= lid.0 && lid.0 <= self.last().0
    }

    /// All of them, ascending.
    pub fn iter(self) -> impl Iterator<Item = Lid> + Clone {
        (self.base.0..=self.last().0).map(Lid)
    }
}

impl fmt::Display for LidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lmc {
            0 => self.base.fmt(f),
            _ => write!(f, "{}-{}", self.base, self.last()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_aligned_and_unicast() {
        for (base, lmc) in [(0, 0), (0, 1), (5, 1), (8, 8), (0xc000, 0), (0xffff, 0)] {
            assert!(LidRange::new(Lid(base), lmc).is_none(), "{base}/{lmc}");
        }
        assert!(LidRange::new(Lid(0xbf80), 7).is_some());
        let range = LidRange::new(Lid(8), 2).expect("aligned");
        assert!(range.iter().eq([8, 9, 10, 11].map(Lid)));
        assert!(range.contains(Lid(11)) && !range.contains(Lid(12)));
        assert_eq!(range.to_string(), "8-11");
    }
}
