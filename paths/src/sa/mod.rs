// SPDX-License-Identifier: MIT OR Apache-2.0
//! All talk with subnet administration: who asks what of the SA of which port's subnet. No I/O
//! here; timeouts of single copies are umad's, which gives an unanswered request back.

mod client;
mod exits;
mod managers;
mod node_names;
mod reports;
mod response;
mod services;
mod stage;
mod window;

pub use client::{Limits, SaClient};
pub use exits::Subnet;
pub use managers::{ManagerPath, Managers};
pub use node_names::NodeNames;
pub use reports::{Report, Reports};
pub use response::{Failure, Malformed, Response};
pub use services::{Service, Services};
pub use window::WindowView;

use std::time::Duration;

use cm_msgs::mad::MAD_LEN;
use cm_msgs::sa::SaMad;
use statemachine::PortId;

/// Who asked; the number is the user's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum User {
    /// The path sources.
    Paths(u32),
    /// The reader of the whole fabric.
    Fabric(u32),
    /// Multicast groups.
    Join(u32),
    /// Subscriptions to reports.
    Inform(u32),
    /// Records of services.
    Service(u32),
    /// Which port is the subnet manager's.
    Manager(u32),
    /// Names of the nodes that connections lead to.
    Node(u32),
}

/// A request to the SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Who asks.
    pub user: User,
    /// The port to ask from: the SA of its subnet answers. A path query may leave by another port of
    /// that subnet.
    pub port: PortId,
    /// The request; its transaction ID is the client's to choose.
    pub mad: SaMad,
    /// Wait for the answer to the first copy, doubled with every further copy. Of a table, the
    /// whole transfer has to come within it: the kernel drops the rest of a late one.
    pub timeout_ms: u32,
    /// Copies before the request is given up; at least one is sent.
    pub tries: u8,
}

impl Ask {
    /// Wait for the answer to the first copy.
    const TIMEOUT_MS: u32 = 200;
    /// Copies: 22.6 s, in which another subnet manager may take over.
    const TRIES: u8 = 7;

    /// A question with a short answer.
    pub fn new(user: User, port: PortId, mad: SaMad) -> Self {
        Self {
            user,
            port,
            mad,
            timeout_ms: Self::TIMEOUT_MS,
            tries: Self::TRIES,
        }
    }

    /// How long a new one may take with all its copies, and a pause before each that a busy SA asks
    /// for.
    pub(crate) fn longest() -> Duration {
        let first = Duration::from_millis(Self::TIMEOUT_MS.into());
        let waits = (0..Self::TRIES).map(|copy| (first * (1 << copy)).min(client::TIMEOUT_MAX));
        waits.sum::<Duration>() * 2
    }
}

/// A request to send to the SA of a port's subnet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaRequest {
    /// The port to send from.
    pub port: PortId,
    /// The MAD.
    pub mad: [u8; MAD_LEN],
    /// How long umad is to wait for the answer.
    pub timeout_ms: u32,
    /// Lower half of the MAD's transaction ID.
    pub transaction_id: u32,
}
