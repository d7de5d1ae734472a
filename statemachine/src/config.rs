// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timers and limits.

use core::time::Duration;

use cm_msgs::control::Policy;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};

/// Service ID of the association service: what a REQ of one daemon to another asks for. In the
/// range that IBA leaves to local administration (first byte 0x02), the rest is "APMD".
pub const SERVICE_ID: u64 = 0x0200_0000_4150_4d44;

/// What is done for armed connections whose local port goes down, or whose path carries nothing.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, Display, EnumString, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum PortDown {
    /// They are migrated at once: by order, or by their library, which has a standing order for that.
    #[default]
    Migrate,
    /// They are migrated by order; libraries have no standing ones.
    Order,
    /// They wait until the hardware's retries are used up and it migrates them.
    Wait,
}

/// Timers and limits of an engine. The default is what `protocol.md` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Wait for an answer to the first copy of a MAD to a peer whose round trip is not known; doubles with
    /// every further copy.
    pub retry_first: Duration,
    /// Every wait is spread by up to this many percent both ways.
    pub jitter_percent: u8,
    /// Copies of a MAD before it is given up.
    pub tries: u8,
    /// First pause after giving up; doubles with every failure in a row.
    pub backoff_first: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// REQs kept for applications that have not registered yet.
    pub parked_limit: usize,
    /// How long such a REQ is kept.
    pub parked_for: Duration,
    /// A passive side whose peer has not asked for the connection for so long asks for it itself, if its
    /// end is the lower one.
    pub unasked_for: Duration,
    /// How often the ends of an open association make sure that the other still has it.
    pub verify_after: Duration,
    /// How long a port must stay up before paths over it are loaded.
    pub port_hold_off: Duration,
    /// How long a path that hardware left without a visible cause is chosen last.
    pub suspect_hold_off: Duration,
    /// Paths in use are probed this often; 0: never.
    pub verify: Duration,
    /// How long path sources may take over a query, all their repetitions included.
    pub query_timeout: Duration,
    /// How long the fabric's data may be looked at for what paths share; after that it is unknown.
    pub assess_timeout: Duration,
    /// How long a library may take over an order.
    pub order_timeout: Duration,
    /// A QP that stays in ReArm longer than this is shown as idle.
    pub rearm_idle: Duration,
    /// A QP that stays in ReArm longer than this has its alternate confirmed with the peer.
    pub rearm_confirm: Duration,
    /// An operator is told of a connection that has been unprotected for this long.
    pub unprotected_after: Duration,
    /// Connections managed at the same time.
    pub connection_limit: usize,
    /// Candidates that one evaluation asks paths for.
    pub candidate_limit: usize,
    /// Who has armed connections migrate when their port goes down.
    pub port_down: PortDown,
    /// How connections are protected of which nothing else is said.
    pub policy: Policy,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            retry_first: Duration::from_millis(50),
            jitter_percent: 20,
            tries: 6,
            backoff_first: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            parked_limit: 256,
            parked_for: Duration::from_secs(30),
            unasked_for: Duration::from_secs(10),
            verify_after: Duration::from_secs(495),
            port_hold_off: Duration::from_millis(500),
            suspect_hold_off: Duration::from_secs(30),
            verify: Duration::from_secs(1),
            query_timeout: Duration::from_secs(30),
            assess_timeout: Duration::from_secs(1),
            order_timeout: Duration::from_secs(10),
            rearm_idle: Duration::from_secs(1),
            rearm_confirm: Duration::from_secs(10),
            unprotected_after: Duration::from_secs(5),
            connection_limit: 10_000,
            candidate_limit: 16,
            port_down: PortDown::Migrate,
            policy: Policy::DEFAULT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_association_is_verified_every_ten_minutes_at_least() {
        let config = Config::default();
        let longest = config.verify_after * (100 + u32::from(config.jitter_percent)) / 100;
        assert!(longest <= Duration::from_secs(600), "{longest:?}");
    }
}
