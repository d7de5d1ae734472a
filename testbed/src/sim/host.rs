// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host: its daemon's engine, and what its libraries were told and have told.

use std::collections::BTreeMap;

use cm_msgs::PKey;
use cm_msgs::control::Snapshot;
use statemachine::{ConnId, Engine, Order, PortId, PortStatus};

use super::addresses::Addresses;
use super::fabric::{Fabric, PortOf, guid};

/// An order on its way to a library.
#[derive(Clone, Copy, Debug)]
pub struct SentOrder {
    /// When the daemon sent it, in microseconds.
    pub at: u64,
    /// The connection.
    pub id: ConnId,
    /// The order.
    pub order: Order,
}

/// Whether LAPs were declined, by their association (the sender's communication ID). A LAP is a copy of another if either
/// its transaction or its state's number is the same (docs/protocol.md).
#[derive(Default)]
pub struct Declines {
    by_transaction: BTreeMap<(u32, u32), bool>,
    by_state: BTreeMap<(u32, u32), bool>,
}

impl Declines {
    /// Whether a LAP is declined: as the first copy of it was, or, of one that is new, if `declines`.
    pub fn of_lap(
        &mut self,
        association: u32,
        transaction: u32,
        state: Option<u32>,
        declines: bool,
    ) -> bool {
        let by_state = state.and_then(|state| self.by_state.get(&(association, state)));
        let first = self
            .of_answer(association, transaction)
            .or(by_state.copied());
        let is_declined = first.unwrap_or(declines);
        self.by_transaction
            .insert((association, transaction), is_declined);
        if let Some(state) = state {
            self.by_state.insert((association, state), is_declined);
        }
        is_declined
    }

    /// Whether the LAP of this transaction was declined.
    pub fn of_answer(&self, association: u32, transaction: u32) -> Option<bool> {
        self.by_transaction
            .get(&(association, transaction))
            .copied()
    }
}

/// A host.
#[derive(Default)]
pub struct Host {
    /// `None`: the daemon is not running.
    pub engine: Option<Engine>,
    /// Number of the libraries' present socket.
    pub client: u32,
    /// The QP of each connection as the engine was told last.
    pub told: BTreeMap<usize, Snapshot>,
    /// Since when each connection's library has had an order that is not answered, and whether that
    /// is to migrate.
    pub waiting: BTreeMap<usize, (u64, bool)>,
    /// How many faults hold the daemon down.
    pub killed: u32,
    /// How many faults have it redirect its peers.
    pub redirects: u32,
    /// Whether it declined the LAPs that it has seen so.
    pub declines: Declines,
    /// How much later the states are that it shows, since it began to.
    pub sequence_ahead: u32,
    /// How many faults have stopped the libraries' processes.
    pub mute: u32,
    /// Orders that wait in a stopped process's socket.
    pub unread: Vec<SentOrder>,
    /// Ports that failed under a stopped process.
    pub unseen: Vec<u8>,
    /// Until then the libraries do nothing.
    pub still_until: u64,
    /// When the last order or report of a library gets to where it goes: sockets keep their order.
    pub last_local: u64,
    /// When the engine is to be woken, as far as that is planned.
    pub wake: Option<u64>,
    /// MADs that the daemon has sent, besides probes.
    pub mads: InSecond,
    /// Probes that it has sent.
    pub probes: InSecond,
}

/// What was counted in the present second.
#[derive(Default)]
pub struct InSecond {
    second: u64,
    count: u32,
}

impl InSecond {
    /// Counts one more in this second, and says how many there are in it.
    pub fn add(&mut self, second: u64) -> u32 {
        if self.second != second {
            *self = Self { second, count: 0 };
        }
        self.count += 1;
        self.count
    }

    /// How many there have been in a second that has not passed.
    pub fn seen(&self, second: u64) -> u32 {
        match self.second == second {
            true => self.count,
            false => 0,
        }
    }
}

/// A port, as the daemon sees it.
pub fn port_status(
    fabric: &Fabric,
    addresses: &Addresses,
    port: PortOf,
    moves_idle: bool,
) -> PortStatus {
    PortStatus {
        active: fabric.link_is_up(port),
        lid: addresses.lid(port),
        lmc: fabric.lmc,
        sm_lid: addresses.sm_lid(port),
        sm_guid: addresses.sm_guid(port),
        gid: addresses.gid(port),
        pkeys: vec![PKey::DEFAULT_FULL],
        mtu: 4,
        rate: 7,
        apm: true,
        moves_idle,
        infiniband: true,
        device_ports: 2,
    }
}

/// A port's name for the engine.
pub fn port_id((host, port): PortOf) -> PortId {
    PortId::new(guid(host), port)
}
