// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why connections leave paths, how long they had stalled, and how many did.

use core::fmt;
use core::num::NonZeroU16;
use core::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};

/// Why a connection left a path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum MoveCause {
    /// Its local port was lost: it is down, or has another LID or partition.
    PortLost,
    /// Its library saw that before this daemon did, and had a standing order.
    StandingOrder,
    /// Probes of it did not come back.
    PathSuspect,
    /// Its policy wants it on another port.
    Policy,
    /// The peer said that its port was down.
    PeerPortLost,
    /// `conn migrate`.
    Operator,
    /// `port drain`.
    Drained,
    /// One of these at the peer.
    PeerOperator,
    /// The daemon ordered it, and what for is not so any more.
    Ordered,
    /// The peer had gone there first, and did not say why.
    PeerMoved,
    /// The HCA's retries were used up, or the peer's were and packets came by the alternate; no port tells why.
    Hardware,
}

impl MoveCause {
    /// The cause in words, as the end of a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            Self::PortLost | Self::StandingOrder => "the local port was lost",
            Self::PathSuspect => "probes of the path did not come back",
            Self::Policy => "its policy wants it on another port",
            Self::PeerPortLost => "the peer's port was lost",
            Self::Operator => "an operator ordered it",
            Self::Drained => "the local port is drained",
            Self::PeerOperator => "the peer's operator wanted it",
            Self::Ordered => "apmd ordered it",
            Self::PeerMoved => "the peer had migrated",
            Self::Hardware => "no port loss seen, the path left is suspect",
        }
    }
}

/// For how long a connection may have stalled before it was seen on another path. In milliseconds, rounded up.
///
/// For [`MoveCause::PortLost`] and [`MoveCause::StandingOrder`]: since the daemon saw that the local port was lost. For others: since
/// a probe of the path was sent that came back, and none since has. The path carried packets then, and perhaps for
/// some time more, so the stall was no longer than that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Stall(NonZeroU16);

impl Stall {
    pub(crate) fn new(span: Duration) -> Self {
        let millis = span.as_micros().div_ceil(1000);
        let millis = u16::try_from(millis).unwrap_or(u16::MAX);
        Self(NonZeroU16::new(millis).unwrap_or(NonZeroU16::MIN))
    }

    /// In milliseconds; 65,535 is as long or longer.
    pub const fn millis(self) -> u16 {
        self.0.get()
    }
}

/// Why a connection left a path, and for how long it had stalled, as the end of a sentence.
pub(crate) struct Why(pub(crate) MoveCause, pub(crate) Option<Stall>);

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(cause, stall) = self;
        f.write_str(cause.words())?;
        let Some(stall) = stall else {
            return Ok(());
        };
        let of_port = matches!(cause, MoveCause::PortLost | MoveCause::StandingOrder);
        match (stall.millis(), of_port) {
            (u16::MAX, true) => f.write_str(" over a minute earlier"),
            (millis, true) => write!(f, " {millis} ms earlier"),
            (u16::MAX, false) => f.write_str("; may have stalled for over a minute"),
            (millis, false) => write!(f, "; stalled for at most {millis} ms"),
        }
    }
}

/// How many connections left a path, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct MoveCounts {
    /// [`MoveCause::PortLost`].
    #[serde(rename = "migrations_port_lost")]
    pub port_lost: u64,
    /// [`MoveCause::StandingOrder`].
    #[serde(rename = "migrations_standing_order")]
    pub standing_order: u64,
    /// [`MoveCause::PathSuspect`].
    #[serde(rename = "migrations_path_suspect")]
    pub path_suspect: u64,
    /// [`MoveCause::Policy`].
    #[serde(rename = "migrations_policy")]
    pub policy: u64,
    /// [`MoveCause::PeerPortLost`].
    #[serde(rename = "migrations_peer_port_lost")]
    pub peer_port_lost: u64,
    /// [`MoveCause::Operator`].
    #[serde(rename = "migrations_operator")]
    pub operator: u64,
    /// [`MoveCause::Drained`].
    #[serde(rename = "migrations_drained")]
    pub drained: u64,
    /// [`MoveCause::PeerOperator`].
    #[serde(rename = "migrations_peer_operator")]
    pub peer_operator: u64,
    /// [`MoveCause::Ordered`].
    #[serde(rename = "migrations_ordered")]
    pub ordered: u64,
    /// [`MoveCause::PeerMoved`].
    #[serde(rename = "migrations_peer_moved")]
    pub peer_moved: u64,
    /// [`MoveCause::Hardware`].
    #[serde(rename = "migrations_hardware")]
    pub hardware: u64,
}

impl MoveCounts {
    /// One more.
    pub(crate) fn count(&mut self, cause: MoveCause) {
        *self.of(cause) += 1;
    }

    fn of(&mut self, cause: MoveCause) -> &mut u64 {
        match cause {
            MoveCause::PortLost => &mut self.port_lost,
            MoveCause::StandingOrder => &mut self.standing_order,
            MoveCause::PathSuspect => &mut self.path_suspect,
            MoveCause::Policy => &mut self.policy,
            MoveCause::PeerPortLost => &mut self.peer_port_lost,
            MoveCause::Operator => &mut self.operator,
            MoveCause::Drained => &mut self.drained,
            MoveCause::PeerOperator => &mut self.peer_operator,
            MoveCause::Ordered => &mut self.ordered,
            MoveCause::PeerMoved => &mut self.peer_moved,
            MoveCause::Hardware => &mut self.hardware,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::format;
    use alloc::string::String;

    use super::*;

    #[test]
    fn a_stall_is_rounded_up_and_may_be_longer_than_it_can_be_told() {
        let micros = [0, 1, 1_000, 1_001, 65_534_000, 65_534_001, u64::MAX];
        let stalls = micros.map(|micros| Stall::new(Duration::from_micros(micros)));
        let millis = stalls.map(Stall::millis);
        assert_eq!(millis, [1, 1, 1, 2, 65_534, 65_535, 65_535]);
        assert_eq!(size_of::<Option<Stall>>(), 2);
        let words = |cause, stall| format!("{}", Why(cause, stall));
        let lost = [3, 6].map(|at| words(MoveCause::PortLost, Some(stalls[at])));
        assert_eq!(lost[0], "the local port was lost 2 ms earlier");
        assert_eq!(lost[1], "the local port was lost over a minute earlier");
        let suspect = [3, 6].map(|at| words(MoveCause::PathSuspect, Some(stalls[at])));
        assert!(suspect[0].ends_with("; stalled for at most 2 ms"));
        assert!(suspect[1].ends_with("; may have stalled for over a minute"));
        let chosen = words(MoveCause::Operator, None);
        assert_eq!(chosen, "an operator ordered it");
    }

    #[test]
    fn each_cause_is_counted_under_its_own_name() {
        for (nth, &cause) in (1..).zip(MoveCause::VARIANTS) {
            let mut counts = MoveCounts::default();
            (0..nth).for_each(|_| counts.count(cause));
            let json = serde_json::to_value(counts).expect("JSON");
            let counted: BTreeMap<String, u64> = serde_json::from_value(json).expect("numbers");
            assert_eq!(counted.len(), MoveCause::VARIANTS.len());
            let counted = counted.into_iter().filter(|&(_, count)| count > 0);
            assert!(
                counted.eq([(format!("migrations_{cause}"), nth)]),
                "{cause}"
            );
        }
    }
}
