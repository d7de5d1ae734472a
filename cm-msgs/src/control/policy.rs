// SPDX-License-Identifier: MIT OR Apache-2.0
//! What alternates a connection may have, and which port it belongs on.

use core::fmt;
use core::num::{NonZeroU8, NonZeroU32};
use core::str::FromStr;
use core::time::Duration;

use crate::codes::closed_codes;

closed_codes! {
    /// Which paths may be alternates.
    Mode {
        /// Another port where there is one, else another LID of the same ports.
        Any = 1, "any";
        /// A path that leaves at least one of the primary's two ports.
        Port = 2, "port";
        /// A path between the primary's ports, by another LID.
        Lid = 3, "lid";
    }
}

impl Mode {
    /// Whether a path may be an alternate that has, or has not, both ports of the primary.
    pub const fn allows(self, same_ports: bool) -> bool {
        match self {
            Self::Any => true,
            Self::Port => !same_ports,
            Self::Lid => same_ports,
        }
    }
}

/// Which local port a connection's primary path belongs on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Placement {
    /// The one that it is on.
    Stay,
    /// This one, whenever it is good.
    Prefer(NonZeroU8),
    /// One of the good ports of its device, so that these share a host's connections.
    Spread,
}

/// How a connection is protected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Policy {
    /// Which paths may be alternates.
    pub mode: Mode,
    /// Which port its primary path belongs on.
    pub placement: Placement,
    /// How long, in milliseconds, a port must have been good, and the connection have stayed where it
    /// is, before it goes back there.
    pub hold_down: NonZeroU32,
}

/// The longest hold-down: a day.
const HOLD_DOWN_MAX: u32 = 86_400_000;

impl Policy {
    /// What holds where nobody says anything else.
    pub const DEFAULT: Self = Self {
        mode: Mode::Any,
        placement: Placement::Stay,
        hold_down: NonZeroU32::new(5_000).unwrap(),
    };

    /// `hold_down` as a span of time.
    pub const fn hold_down(&self) -> Duration {
        Duration::from_millis(self.hold_down.get() as u64)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// In the words that [`PolicyWords`] reads.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mode {} ", self.mode)?;
        match self.placement {
            Placement::Stay => write!(f, "failback stay spread off")?,
            Placement::Prefer(port) => write!(f, "failback prefer {port} spread off")?,
            Placement::Spread => write!(f, "failback stay spread on")?,
        }
        let millis = self.hold_down.get();
        match (millis / 1000, millis % 1000) {
            (seconds, 0) => write!(f, " hold-down {seconds}"),
            (seconds, millis) => write!(f, " hold-down {seconds}.{millis:03}"),
        }
    }
}

/// What is said of a connection in particular; the rest is as by default.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PolicyOverride {
    /// See [`Policy::mode`].
    pub mode: Option<Mode>,
    /// See [`Policy::placement`].
    pub placement: Option<Placement>,
    /// See [`Policy::hold_down`].
    pub hold_down: Option<NonZeroU32>,
}

impl PolicyOverride {
    /// The whole of it.
    pub fn over(self, default: Policy) -> Policy {
        Policy {
            mode: self.mode.unwrap_or(default.mode),
            placement: self.placement.unwrap_or(default.placement),
            hold_down: self.hold_down.unwrap_or(default.hold_down),
        }
    }

    /// What both say, and where both say something, this.
    #[must_use]
    pub fn and(self, earlier: Self) -> Self {
        Self {
            mode: self.mode.or(earlier.mode),
            placement: self.placement.or(earlier.placement),
            hold_down: self.hold_down.or(earlier.hold_down),
        }
    }
}

/// Why words are no policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PolicyError {
    /// A word that begins nothing.
    #[error("want mode, failback, spread or hold-down, each with its value")]
    Word,
    /// Said twice.
    #[error("{0}: said twice")]
    Twice(&'static str),
    /// No mode.
    #[error("mode: want any, port or lid")]
    Mode,
    /// Neither way to fail back.
    #[error("failback: want stay, or prefer and a port from 1 to 254")]
    Failback,
    /// Neither on nor off.
    #[error("spread: want on or off")]
    Spread,
    /// No span of time.
    #[error("hold-down: want seconds, 0.001 to 86400")]
    HoldDown,
    /// A connection can belong on one port only.
    #[error("failback prefer and spread on contradict each other: say one of them")]
    Contradiction,
}

/// What words say: `mode any|port|lid`, `failback stay|prefer PORT`, `spread on|off`,
/// `hold-down SECONDS`, each at most once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PolicyWords {
    mode: Option<Mode>,
    failback: Option<Option<NonZeroU8>>,
    spread: Option<bool>,
    hold_down: Option<NonZeroU32>,
}

impl PolicyWords {
    /// Reads words.
    ///
    /// # Errors
    /// The first thing that is wrong with them.
    pub fn read<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, PolicyError> {
        let mut words = words.into_iter();
        let mut read = Self::default();
        while let Some(word) = words.next() {
            match word {
                "mode" => {
                    let mode = Mode::ALL.iter().copied();
                    let named = words.next().unwrap_or_default();
                    let mode = mode.into_iter().find(|mode| mode.text() == named);
                    once(&mut read.mode, "mode", mode.ok_or(PolicyError::Mode)?)?;
                }
                "failback" => {
                    let port = match words.next() {
                        Some("stay") => None,
                        Some("prefer") => Some(port(words.next())?),
                        _ => return Err(PolicyError::Failback),
                    };
                    once(&mut read.failback, "failback", port)?;
                }
                "spread" => {
                    let on = match words.next() {
                        Some("on") => true,
                        Some("off") => false,
                        _ => return Err(PolicyError::Spread),
                    };
                    once(&mut read.spread, "spread", on)?;
                }
                "hold-down" => {
                    let span = words.next().and_then(millis);
                    let span = span.ok_or(PolicyError::HoldDown)?;
                    once(&mut read.hold_down, "hold-down", span)?;
                }
                _ => return Err(PolicyError::Word),
            }
        }
        match (read.failback, read.spread) {
            (Some(Some(_)), Some(true)) => Err(PolicyError::Contradiction),
            _ => Ok(read),
        }
    }

    /// What they say of a connection that has this policy.
    pub fn applied_to(self, policy: Policy) -> PolicyOverride {
        let placement = match (self.failback, self.spread) {
            (Some(Some(port)), _) => Some(Placement::Prefer(port)),
            (_, Some(true)) => Some(Placement::Spread),
            (Some(None), _) => Some(Placement::Stay),
            // Only what it is can be turned off.
            (None, Some(false)) if policy.placement == Placement::Spread => Some(Placement::Stay),
            (None, Some(false)) => Some(policy.placement),
            (None, None) => None,
        };
        PolicyOverride {
            mode: self.mode,
            placement,
            hold_down: self.hold_down,
        }
    }
}

fn once<T>(place: &mut Option<T>, key: &'static str, value: T) -> Result<(), PolicyError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(PolicyError::Twice(key)),
    }
}

fn port(word: Option<&str>) -> Result<NonZeroU8, PolicyError> {
    let port = word.and_then(|word| word.parse().ok());
    port.filter(|port: &NonZeroU8| port.get() < 255)
        .ok_or(PolicyError::Failback)
}

/// Milliseconds of a number of seconds with at most three decimals.
fn millis(text: &str) -> Option<NonZeroU32> {
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(seconds) || !is_number(decimals) || decimals.len() > 3 {
        return None;
    }
    let scale = [100, 10, 1][decimals.len() - 1];
    let millis = seconds.parse::<u32>().ok()?.checked_mul(1000)?;
    let millis = millis.checked_add(decimals.parse::<u32>().ok()? * scale)?;
    NonZeroU32::new(millis).filter(|millis| millis.get() <= HOLD_DOWN_MAX)
}

/// The words over the default.
impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let words = PolicyWords::read(text.split_ascii_whitespace())?;
        Ok(words.applied_to(Self::DEFAULT).over(Self::DEFAULT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Result<PolicyWords, PolicyError> {
        PolicyWords::read(text.split_ascii_whitespace())
    }

    #[test]
    fn a_policy_survives_its_words() {
        for text in [
            "mode any failback stay spread off hold-down 5",
            "mode port failback prefer 2 spread off hold-down 0.050",
            "mode lid failback stay spread on hold-down 86400",
        ] {
            let policy: Policy = text.parse().expect("a policy");
            assert_eq!(policy.to_string(), text);
        }
        assert_eq!("".parse(), Ok(Policy::DEFAULT));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, error) in [
            ("port", PolicyError::Word),
            ("mode", PolicyError::Mode),
            ("mode best", PolicyError::Mode),
            ("failback", PolicyError::Failback),
            ("failback prefer", PolicyError::Failback),
            ("failback prefer 0", PolicyError::Failback),
            ("failback prefer 255", PolicyError::Failback),
            ("spread yes", PolicyError::Spread),
            ("hold-down 0", PolicyError::HoldDown),
            ("hold-down 1.2345", PolicyError::HoldDown),
            ("hold-down 86401", PolicyError::HoldDown),
            ("hold-down -1", PolicyError::HoldDown),
            ("mode any mode any", PolicyError::Twice("mode")),
            ("failback prefer 1 spread on", PolicyError::Contradiction),
        ] {
            assert_eq!(words(text), Err(error), "{text}");
        }
    }

    #[test]
    fn words_change_what_they_name() {
        let after = |policy: &str, text: &str| {
            let policy: Policy = policy.parse().expect("a policy");
            let words = words(text).expect("words");
            words.applied_to(policy).over(policy).placement
        };
        let two = Placement::Prefer(NonZeroU8::new(2).expect("not 0"));
        assert_eq!(after("failback prefer 2", "mode lid"), two);
        assert_eq!(after("failback prefer 2", "spread off"), two);
        assert_eq!(after("failback prefer 2", "spread on"), Placement::Spread);
        assert_eq!(after("spread on", "spread off"), Placement::Stay);
        assert_eq!(after("spread on", "failback prefer 2"), two);
        assert_eq!(after("spread on", "failback stay"), Placement::Stay);
    }
}
