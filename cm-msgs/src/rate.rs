// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a port and its link can carry: MTU, width and speed, and the rate that they make.

use crate::codes::closed_codes;

closed_codes! {
    /// Largest payload of a packet in bytes, as coded in PortInfo and PathRecord (IBA 14.2.5.6).
    #[derive(PartialOrd, Ord)]
    Mtu {
        B256 = 1, "256";
        B512 = 2, "512";
        B1024 = 3, "1024";
        B2048 = 4, "2048";
        B4096 = 5, "4096";
    }
}

impl Mtu {
    /// In bytes.
    pub const fn bytes(self) -> u16 {
        128 << self.code()
    }

    /// From a number of bytes.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|mtu| u32::from(mtu.bytes()) == bytes)
    }
}

closed_codes! {
    /// Lanes of a link. In PortInfo:LinkWidthActive, the width in use is a single bit.
    Width {
        X1 = 1, "1x";
        X2 = 16, "2x";
        X4 = 2, "4x";
        X8 = 4, "8x";
        X12 = 8, "12x";
    }
}

/// Signalling speed of a lane (PortInfo:LinkSpeedActive and its extensions).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Speed {
    /// 2.5 Gb/s.
    Sdr,
    /// 5 Gb/s.
    Ddr,
    /// 10 Gb/s.
    Qdr,
    /// 10.3 Gb/s with 64b/66b coding; a vendor's extension, counted as QDR in rates.
    Fdr10,
    /// 14 Gb/s.
    Fdr,
    /// 25 Gb/s.
    Edr,
    /// 50 Gb/s.
    Hdr,
    /// 100 Gb/s.
    Ndr,
    /// 200 Gb/s.
    Xdr,
}

impl Speed {
    /// From PortInfo:LinkSpeedActive, which counts where no extended speed is in use.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Sdr,
            2 => Self::Ddr,
            4 => Self::Qdr,
            _ => return None,
        })
    }

    /// From PortInfo:LinkSpeedExtActive2 and LinkSpeedExtActive.
    pub const fn from_extended_code(second: u8, first: u8) -> Option<Self> {
        Some(match (second, first) {
            (0, 1) => Self::Fdr,
            (0, 2) => Self::Edr,
            (0, 4) => Self::Hdr,
            (0, 8) => Self::Ndr,
            (1, _) => Self::Xdr,
            _ => return None,
        })
    }
}

closed_codes! {
    /// Rate of a link or path (PathRecord:Rate, IBA 15.2.5.16). Ordered by what it carries, which is
    /// not the order of the codes.
    ranked Rate, " Gb/s" {
        G2_5 = 2, "2.5";
        G5 = 5, "5";
        G10 = 3, "10";
        G14 = 11, "14";
        G20 = 6, "20";
        G25 = 15, "25";
        G28 = 19, "28";
        G30 = 4, "30";
        G40 = 7, "40";
        G50 = 20, "50";
        G56 = 12, "56";
        G60 = 8, "60";
        G80 = 9, "80";
        G100 = 16, "100";
        G112 = 13, "112";
        G120 = 10, "120";
        G168 = 14, "168";
        G200 = 17, "200";
        G300 = 18, "300";
        G400 = 21, "400";
        G600 = 22, "600";
        G800 = 23, "800";
        G1200 = 24, "1200";
        G1600 = 25, "1600";
    }
}

impl Rate {
    /// In Mb/s.
    pub fn megabits(self) -> u32 {
        // All others are whole gigabits.
        let gigabits = self.text().parse::<u32>();
        gigabits.map_or(2_500, |gigabits| gigabits * 1_000)
    }

    /// The rate of a link: the highest that has a code and that the link carries.
    pub const fn of(width: Width, speed: Speed) -> Self {
        use Speed::{Ddr, Edr, Fdr, Fdr10, Hdr, Ndr, Qdr, Sdr, Xdr};
        use Width::{X1, X2, X4, X8, X12};
        match (width, speed) {
            (X1, Sdr) => Self::G2_5,
            (X1, Ddr) | (X2, Sdr) => Self::G5,
            (X1, Qdr | Fdr10) | (X2, Ddr) | (X4, Sdr) => Self::G10,
            (X1, Fdr) => Self::G14,
            (X2, Qdr | Fdr10) | (X4, Ddr) | (X8, Sdr) => Self::G20,
            (X1, Edr) => Self::G25,
            (X2, Fdr) => Self::G28,
            (X12, Sdr) => Self::G30,
            (X4, Qdr | Fdr10) | (X8, Ddr) => Self::G40,
            (X1, Hdr) | (X2, Edr) => Self::G50,
            (X4, Fdr) => Self::G56,
            (X12, Ddr) => Self::G60,
            (X8, Qdr | Fdr10) => Self::G80,
            (X1, Ndr) | (X2, Hdr) | (X4, Edr) => Self::G100,
            (X8, Fdr) => Self::G112,
            (X12, Qdr | Fdr10) => Self::G120,
            (X12, Fdr) => Self::G168,
            (X1, Xdr) | (X2, Ndr) | (X4, Hdr) | (X8, Edr) => Self::G200,
            (X12, Edr) => Self::G300,
            (X2, Xdr) | (X4, Ndr) | (X8, Hdr) => Self::G400,
            (X12, Hdr) => Self::G600,
            (X4, Xdr) | (X8, Ndr) => Self::G800,
            (X12, Ndr) => Self::G1200,
            // 12x XDR would be 2400 Gb/s, for which neither Linux nor OpenSM has a code.
            (X8 | X12, Xdr) => Self::G1600,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_go_both_ways() {
        for &rate in Rate::ALL {
            assert_eq!(Rate::from_code(rate.code()), Some(rate));
        }
        assert!(
            [0, 1, 26, 255]
                .iter()
                .all(|&c| Rate::from_code(c).is_none())
        );
        for code in 1..=5 {
            assert_eq!(Mtu::from_code(code).map(Mtu::code), Some(code));
        }
        assert!([0, 6].iter().all(|&c| Mtu::from_code(c).is_none()));
        assert_eq!(Mtu::B256.bytes(), 256);
        assert_eq!(Mtu::B4096.bytes(), 4096);
        assert_eq!(Mtu::from_bytes(2048), Some(Mtu::B2048));
        assert!(
            [0, 128, 1, 2000, 8192]
                .iter()
                .all(|&b| Mtu::from_bytes(b).is_none())
        );
    }

    #[test]
    fn megabits_are_a_thousand_times_the_text() {
        for rate in Rate::ALL {
            let gigabits: f64 = rate.text().parse().expect("a number");
            assert_eq!(f64::from(rate.megabits()), gigabits * 1e3);
        }
    }

    #[test]
    fn rates_are_ordered_by_what_they_carry() {
        let gigabits: Vec<f32> = Rate::ALL
            .iter()
            .map(|rate| rate.text().parse().expect("a number"))
            .collect();
        assert!(gigabits.is_sorted_by(|a, b| a < b), "{gigabits:?}");
        assert!(Rate::ALL.is_sorted());
    }

    #[test]
    fn a_links_rate_is_lanes_times_speed() {
        let widths = [
            (Width::X1, 1.0),
            (Width::X2, 2.0),
            (Width::X4, 4.0),
            (Width::X8, 8.0),
            (Width::X12, 12.0),
        ];
        let speeds = [
            (Speed::Sdr, 2.5),
            (Speed::Ddr, 5.0),
            (Speed::Qdr, 10.0),
            (Speed::Fdr10, 10.0),
            (Speed::Fdr, 14.0),
            (Speed::Edr, 25.0),
            (Speed::Hdr, 50.0),
            (Speed::Ndr, 100.0),
            (Speed::Xdr, 200.0),
        ];
        for (width, lanes) in widths {
            for (speed, lane) in speeds {
                let rate: f32 = Rate::of(width, speed).text().parse().expect("a number");
                assert_eq!(rate, f32::min(lanes * lane, 1600.0), "{width:?} {speed:?}");
            }
        }
    }
}
