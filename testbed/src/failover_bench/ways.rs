// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who moves a connection off a dead port.

use clap::ValueEnum;
use statemachine::PortDown;

use super::ack_timeout::AckTimeout;
use super::reconnect;
use crate::clock::{Millis, Moment};
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::report::Report;
use crate::stream::{Armed, Options, Stall, Streams};
use crate::timeline::Timeline;
use crate::world::World;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Way {
    /// The library in the application, by its standing order.
    Standing,
    /// apmd: the library has no standing order.
    Order,
    /// The HCA, when its retries are used up: an alternate was loaded once, by hand.
    ByHand,
    /// The application: it connects again over its other port.
    Reconnect,
}

/// A stall that is shorter is not noted by the programs: it counts as this.
const SHORTEST: Millis = Millis(20.0);

impl Way {
    pub(super) const ALL: [Self; 4] = [Self::Standing, Self::Order, Self::ByHand, Self::Reconnect];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Standing => "standing-order",
            Self::Order => "daemons-order",
            Self::ByHand => "armed-by-hand",
            Self::Reconnect => "reconnect",
        }
    }

    pub(super) fn waits_for_hardware(self) -> bool {
        matches!(self, Self::ByHand | Self::Reconnect)
    }

    /// Pulls the connection's local cable so many times; how long it stood still each time.
    pub(super) fn measure(
        self,
        world: &mut World,
        timeout: AckTimeout,
        repetitions: u32,
    ) -> Result<Vec<Millis>, Failure> {
        match self {
            Self::Standing => protected(world, timeout, repetitions, PortDown::Migrate),
            Self::Order => protected(world, timeout, repetitions, PortDown::Order),
            Self::ByHand => (0..repetitions).map(|_| by_hand(world, timeout)).collect(),
            Self::Reconnect => reconnect::stalls(world, timeout, repetitions),
        }
    }
}

/// One connection under apmd, armed again after each pull.
fn protected(
    world: &mut World,
    timeout: AckTimeout,
    repetitions: u32,
    port_down: PortDown,
) -> Result<Vec<Millis>, Failure> {
    world.start_daemons(Policy {
        port_down,
        ..Policy::default()
    })?;
    let options = Options {
        ack_timeout: timeout.option(),
        ..Options::default()
    };
    let timeline = Timeline::new(false);
    let mut streams = Streams::start(&timeline, options)?;
    let mut stalls = Vec::new();
    for _ in 0..repetitions {
        let pairs = world.wait_disjoint(1)?;
        let connection = pairs[0].end(Host::A);
        let stands = connection.standing_order;
        ensure(stands == (port_down == PortDown::Migrate), || {
            format!("the library's standing order: {stands}")
        })?;
        let port = pairs[0].active_port(Host::A);
        let pulled = world.pull(port)?;
        world.wait_moved(1, port)?;
        streams.wait_flowing()?;
        stalls.push(length(streams.longest_stall(pulled, Moment::now())));
        world.plug(port)?;
    }
    streams.finish(&timeline, &mut Report::default())?;
    world.stop_daemons()?;
    Ok(stalls)
}

/// A new connection each time: nobody arms it again.
fn by_hand(world: &World, timeout: AckTimeout) -> Result<Millis, Failure> {
    let options = Options {
        ack_timeout: timeout.option(),
        armed: Armed::ByHand,
        ..Options::default()
    };
    let timeline = Timeline::new(false);
    let mut streams = Streams::start(&timeline, options)?;
    let port = Host::A.port(1);
    let pulled = world.pull(port)?;
    streams.wait_flowing()?;
    let stall = length(streams.longest_stall(pulled, Moment::now()));
    world.plug(port)?;
    streams.finish(&timeline, &mut Report::default())?;
    Ok(stall)
}

fn length(stall: Option<Stall>) -> Millis {
    stall.map_or(SHORTEST, |stall| stall.length)
}
