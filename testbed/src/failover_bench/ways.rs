// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who moves a connection off a dead port.

use clap::ValueEnum;
use statemachine::PortDown;

use super::ack_timeout::AckTimeout;
use super::{kernel, pulls, reconnect};
use crate::clock::Millis;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::kernel_ulp;
use crate::stream::Options;
use crate::world::{Kind, World};

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Way {
    /// The library in the application, by its standing order.
    #[value(name = "standing-order")]
    Standing,
    /// apmd: the library has no standing order.
    #[value(name = "daemons-order")]
    Order,
    /// The HCA, when its retries are used up: an alternate was loaded once, by hand.
    #[value(name = "armed-by-hand")]
    ByHand,
    /// The application: it connects again over its other port.
    Reconnect,
    /// The kernel module, by its standing order: nothing is preloaded.
    Module,
    /// The same, of a kernel ULP's connection: a SCSI disk.
    Srp,
    /// An NVMe disk.
    Nvme,
    /// Messages over RDS.
    Rds,
    /// A file over NFS.
    Nfs,
}

impl Way {
    /// Of programs.
    pub(super) const PROGRAMS: [Self; 5] = [
        Self::Standing,
        Self::Module,
        Self::Order,
        Self::ByHand,
        Self::Reconnect,
    ];
    /// Of the kernel's own connections. The last ones are in another world.
    pub(super) const ULPS: [Self; 4] = [Self::Srp, Self::Nvme, Self::Rds, Self::Nfs];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Standing => "standing-order",
            Self::Order => "daemons-order",
            Self::ByHand => "armed-by-hand",
            Self::Reconnect => "reconnect",
            Self::Module => "module",
            Self::Srp => "module: srp",
            Self::Nvme => "module: nvme",
            Self::Rds => "module: rds",
            Self::Nfs => "module: nfs",
        }
    }

    pub(super) fn waits_for_hardware(self) -> bool {
        matches!(self, Self::ByHand | Self::Reconnect)
    }

    /// Where its connection is.
    pub(super) fn world(self) -> Kind {
        match self {
            Self::Nfs => kernel_ulp::NFS.world,
            _ => Kind::Flat,
        }
    }

    /// Pulls the connection's local cable so many times: the ACK timeout that it had, which a kernel ULP chooses
    /// itself, and how long it stood still each time.
    pub(super) fn measure(
        self,
        world: &mut World,
        timeout: AckTimeout,
        repetitions: u32,
    ) -> Result<(AckTimeout, Vec<Millis>), Failure> {
        let given = |stalls: Result<Vec<Millis>, Failure>| Ok((timeout, stalls?));
        match self {
            Self::Standing => given(by_library(world, timeout, repetitions, PortDown::Migrate)),
            Self::Order => given(by_library(world, timeout, repetitions, PortDown::Order)),
            Self::ByHand => given(pulls::by_hand(world, timeout, repetitions)),
            Self::Reconnect => given(reconnect::stalls(world, timeout, repetitions)),
            Self::Module => given(kernel::program(world, timeout, repetitions)),
            Self::Srp => kernel::ulp(world, &kernel_ulp::SRP, repetitions),
            Self::Nvme => kernel::ulp(world, &kernel_ulp::NVME, repetitions),
            Self::Rds => kernel::ulp(world, &kernel_ulp::RDS, repetitions),
            Self::Nfs => kernel::ulp(world, &kernel_ulp::NFS, repetitions),
        }
    }
}

/// One connection under apmd with the library, armed again after each pull.
fn by_library(
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
    let stalls = pulls::protected(world, options, repetitions, |connection| {
        let stands = connection.standing_order;
        ensure(stands == (port_down == PortDown::Migrate), || {
            format!("the library's standing order: {stands}")
        })
    })?;
    world.stop_daemons()?;
    Ok(stalls)
}
