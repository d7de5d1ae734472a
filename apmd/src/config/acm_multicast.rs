// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[acm_multicast]`: addresses resolved between the ACM services of hosts.

use std::time::Duration;

use pathdb::{Mtu, Rate};
use serde::{Deserialize, Serialize};

use super::{Check, want_number, want_within};
use crate::acm::net::{Demand, RouteProt, Settings};

/// `[acm_multicast]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AcmMulticast {
    /// Ask and answer other hosts, where ACM is served.
    pub enabled: bool,
    /// Where the path comes from once the address is known.
    pub route_prot: Prot,
    /// MTU of the group in which is asked, in bytes; the same on all hosts.
    pub min_mtu: u16,
    /// Rate of that group in Gb/s, 2 for 2.5; the same on all hosts.
    pub min_rate: u16,
    /// Wait for the answer to the first copy of a question, to which the port's SubnetTimeOut is
    /// added; doubles from copy to copy, and is the first again after the last.
    pub timeout_ms: u64,
    /// Copies of a question after the first.
    pub retries: u8,
    /// Questions under way at the same time, for each port and partition.
    pub depth: usize,
    /// How long an address that nobody has is not asked for again.
    pub unanswered_ms: u64,
    /// How long it is believed what other hosts' questions tell of them, in seconds.
    pub heard_s: u64,
}

/// Where paths come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Prot {
    /// The path sources.
    Sa,
    /// The best group that both hosts are in.
    Acm,
}

impl Default for AcmMulticast {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            enabled: true,
            route_prot: Prot::Sa,
            min_mtu: 2048,
            min_rate: 10,
            timeout_ms: super::millis(settings.timeout),
            retries: settings.retries,
            depth: settings.depth,
            unanswered_ms: super::millis(settings.unanswered_for),
            heard_s: settings.heard_for.as_secs(),
        }
    }
}

impl AcmMulticast {
    pub(crate) fn check(&self) -> Check {
        let is_mtu = Mtu::from_bytes(self.min_mtu.into()).is_some();
        want_number(is_mtu, self.min_mtu, "min_mtu", || {
            "want 256, 512, 1024, 2048 or 4096".into()
        })?;
        let is_rate = rate_code(self.min_rate).is_some();
        want_number(is_rate, self.min_rate, "min_rate", || {
            "want a rate of links, 2 (for 2.5) to 1600".into()
        })?;
        want_within(self.timeout_ms, 1..=600_000, "timeout_ms")?;
        want_within(self.retries, 0..=15, "retries")?;
        want_within(self.depth, 1..=1024, "depth")?;
        want_within(self.unanswered_ms, 0..=3_600_000, "unanswered_ms")?;
        want_within(self.heard_s, 0..=86_400, "heard_s")
    }

    /// What the resolver goes by.
    pub fn settings(&self) -> Settings {
        let least = Settings::default().least;
        Settings {
            route_prot: match self.route_prot {
                Prot::Sa => RouteProt::Sa,
                Prot::Acm => RouteProt::Acm,
            },
            least: Demand {
                mtu: Mtu::from_bytes(self.min_mtu.into()).map_or(least.mtu, Mtu::code),
                rate: rate_code(self.min_rate).unwrap_or(least.rate),
            },
            timeout: Duration::from_millis(self.timeout_ms),
            retries: self.retries,
            depth: self.depth,
            unanswered_for: Duration::from_millis(self.unanswered_ms),
            heard_for: Duration::from_secs(self.heard_s),
        }
    }
}

fn rate_code(gigabits: u16) -> Option<u8> {
    let whole = |rate: &Rate| rate.text().split('.').next() == Some(&*gigabits.to_string());
    Rate::ALL.iter().copied().find(whole).map(Rate::code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_ibacms() {
        assert_eq!(AcmMulticast::default().settings(), Settings::default());
    }

    #[test]
    fn rates_are_coded() {
        let rates = [2, 5, 10, 40, 56, 100, 1600].map(rate_code);
        assert_eq!(rates, [2, 5, 3, 7, 12, 16, 25].map(Some));
        assert_eq!([0, 1, 3, 41].map(rate_code), [None; 4]);
    }
}
