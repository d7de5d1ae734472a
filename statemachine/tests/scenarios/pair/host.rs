// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host: an engine, and a library with one queue pair a connection.

use std::collections::{BTreeMap, BTreeSet};

use cm_msgs::PKey;
use cm_msgs::Qpn;
use cm_msgs::control::{AppEvent, MigrationState, QpState, Refusal, Snapshot};
use cm_msgs::path::Path;
use statemachine::{Engine, Order, PortId, PortStatus};

use super::network::{base_lid, gid, guid};
use super::qp::Qp;

/// What a library does wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LibraryFault {
    /// Every order fails with this errno.
    Fails(u8),
    /// So many more loads and migrations are stale.
    Stale(u32),
    /// Its process is stopped: orders wait until it goes on.
    Stopped,
}

pub(crate) struct Host {
    pub(crate) number: usize,
    /// `None`: the daemon is not running.
    pub(crate) engine: Option<Engine>,
    pub(crate) ports: [PortStatus; 2],
    pub(crate) qps: Vec<Qp>,
    /// Number of the library's present socket.
    pub(crate) client: u32,
    /// Connections that are registered on it.
    pub(crate) registered: Vec<bool>,
    pub(crate) refused: Vec<Option<Refusal>>,
    pub(crate) events: Vec<AppEvent>,
    /// How often a library was told that a connection is disconnected.
    pub(crate) disconnected: usize,
    /// What the engine was told of each QP, and whether it waits for an answer.
    pub(crate) told: BTreeMap<usize, Snapshot>,
    pub(crate) waiting: BTreeMap<usize, bool>,
    /// MADs sent, by name; copies included.
    pub(crate) sent: BTreeMap<&'static str, usize>,
    /// The partitions that they were sent in.
    pub(crate) sent_in: BTreeSet<PKey>,
    /// Probes sent.
    pub(crate) probes: usize,
    /// When the last report will arrive: the library's socket keeps its order.
    pub(crate) last_report: u64,
    pub(crate) fault: Option<LibraryFault>,
    /// Of which connections the order that waits is one to migrate.
    pub(crate) migrating: Vec<bool>,
    /// The primaries that the libraries may leave by themselves.
    pub(crate) standing: Vec<Option<Path>>,
    /// Each time that one was told whether it may.
    pub(crate) stands_told: Vec<bool>,
    /// Orders that its stopped process has not read.
    pub(crate) unread: Vec<(usize, Order)>,
    /// Its daemon is stopped: what is sent to it is not answered.
    pub(crate) stopped: bool,
    /// Ports whose send queue is full.
    pub(crate) full: [bool; 2],
    /// Its device and its library can move a queue pair that waits for traffic.
    pub(crate) moves_idle: bool,
}

fn port_status(host: usize, port: u8, lmc: u8) -> PortStatus {
    PortStatus {
        active: true,
        lid: base_lid((host, port)),
        lmc,
        sm_lid: cm_msgs::Lid(1),
        sm_guid: cm_msgs::Guid(1),
        gid: gid((host, port)),
        pkeys: vec![PKey(0x7fff), PKey::DEFAULT_FULL],
        mtu: 4,
        rate: 7,
        apm: true,
        moves_idle: false,
        infiniband: true,
        device_ports: 2,
    }
}

impl Host {
    pub(crate) fn new(number: usize, lmc: u8, qps: Vec<Qp>) -> Self {
        let connections = qps.len();
        Self {
            number,
            engine: None,
            ports: [port_status(number, 1, lmc), port_status(number, 2, lmc)],
            qps,
            client: 1,
            registered: vec![false; connections],
            refused: vec![None; connections],
            events: Vec::new(),
            disconnected: 0,
            told: BTreeMap::new(),
            waiting: BTreeMap::new(),
            sent: BTreeMap::new(),
            sent_in: BTreeSet::new(),
            probes: 0,
            last_report: 0,
            fault: None,
            migrating: vec![false; connections],
            standing: vec![None; connections],
            stands_told: Vec::new(),
            unread: Vec::new(),
            stopped: false,
            full: [false; 2],
            moves_idle: false,
        }
    }

    /// Its device and its library can move a queue pair that waits for traffic. Before its daemon starts.
    pub(crate) fn set_moves_idle(&mut self) {
        self.moves_idle = true;
        for port in &mut self.ports {
            port.moves_idle = true;
        }
    }

    pub(crate) fn port_id(&self, port: u8) -> PortId {
        PortId {
            node_guid: guid(self.number),
            port,
        }
    }

    pub(crate) fn qpn(&self, conn: usize) -> Qpn {
        qpn(self.number, conn)
    }

    pub(crate) fn sent(&self, name: &str) -> usize {
        self.sent.get(name).copied().unwrap_or(0)
    }

    /// Checks what the daemon wants of a QP against what it knows.
    pub(crate) fn check_order(&mut self, conn: usize) {
        let waiting = self.waiting.insert(conn, true);
        assert_ne!(waiting, Some(true), "host {}: a second order", self.number);
    }

    /// The names of the orders that its stopped process has not read.
    pub(crate) fn unread(&self) -> Vec<&'static str> {
        let name = |(_, order): &(usize, Order)| match order {
            Order::Load(_) => "load",
            Order::Migrate(_) => "migrate",
            Order::MoveIdle(_) => "move",
            Order::Stand(_) => "stand",
            Order::Query(_) => "query",
            Order::Refuse(_) => "refuse",
            Order::Event(..) => "event",
            Order::Disconnected => "disconnected",
        };
        self.unread.iter().map(name).collect()
    }

    /// Checks that MIGRATED is ordered only where IBA allows it, as far as the engine can know.
    pub(crate) fn check_migrate(&self, conn: usize) {
        let told = &self.told[&conn];
        assert_eq!(
            (told.qp_state, told.migration),
            (QpState::Rts, MigrationState::Armed),
            "host {}: migrate ordered outside Armed and RTS",
            self.number
        );
    }

    /// Checks that a QP is ordered to be moved in SQD only where it waits for traffic, as far as the engine can know,
    /// and has been found to be able to.
    pub(crate) fn check_move_idle(&self, conn: usize) {
        let told = &self.told[&conn];
        assert_eq!(
            (told.qp_state, told.migration),
            (QpState::Rts, MigrationState::Rearm),
            "host {}: move ordered outside ReArm and RTS",
            self.number
        );
        assert!(
            self.moves_idle,
            "host {}: a library that does not know it is ordered to move",
            self.number
        );
    }
}

pub(crate) fn qpn(host: usize, conn: usize) -> Qpn {
    Qpn(0x100 + (host as u32) * 0x10000 + conn as u32)
}
