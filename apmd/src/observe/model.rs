// SPDX-License-Identifier: MIT OR Apache-2.0
//! What operators are shown, as JSON. Described in `docs/apmctl.md`; keys are added, never changed.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::destinations::Wanted;
use crate::counters::DaemonCounters;

/// A request: what to show.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What to show.
    pub show: Show,
    /// [`Show::Acm`]: which destinations.
    #[serde(default, skip_serializing_if = "Wanted::is_any")]
    pub destinations: Wanted,
}

impl From<Show> for Request {
    fn from(show: Show) -> Self {
        Self {
            show,
            destinations: Wanted::default(),
        }
    }
}

/// What can be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Show {
    /// A list of [`Conn`].
    Conn,
    /// A list of [`Port`].
    Port,
    /// [`Status`].
    Status,
    /// [`Counters`].
    Counters,
    /// A list of [`Source`].
    Source,
    /// [`Acm`](super::acm::Acm), or null if it is not served.
    Acm,
}

/// A request was not understood.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refused {
    /// Why.
    pub error: String,
}

/// A path source.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Source {
    /// `sa`, `acm`, `ssa` or `static`.
    pub source: String,
    /// How it is doing.
    pub state: SourceState,
    /// How long it has been failing.
    pub failing_seconds: Option<f64>,
    /// Local ports through which it cannot be asked.
    pub failing_ports: Vec<String>,
    /// The last error, whether it is over or not.
    pub last_error: Option<String>,
    /// How long the last answer took.
    pub last_latency_ms: Option<f64>,
    /// Questions under way.
    pub in_flight: usize,
    /// The most questions under way at the same time.
    pub in_flight_limit: usize,
    /// Questions that wait for their turn.
    pub waiting: usize,
    /// The longest time for one question.
    pub timeout_ms: u64,
    /// Questions put, trials after failures included.
    pub asked: u64,
    /// Answers with a path.
    pub answered: u64,
    /// Paths in these answers.
    #[serde(default)]
    pub paths: u64,
    /// Answers that there is none.
    pub no_path: u64,
    /// Questions without an answer in time.
    pub timed_out: u64,
    /// Questions that failed otherwise.
    pub failed: u64,
    /// What it is made of, in words.
    pub detail: Option<String>,
    /// Of `ssa`: the fabric, once it is known.
    pub fabric: Option<Fabric>,
}

/// The fabric as data.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Fabric {
    /// Where it came from: `snapshot` or `live`.
    pub from: String,
    /// Which state of the fabric it is; greater than that of every earlier one.
    pub epoch: u64,
    /// Switches and channel adapters.
    pub nodes: usize,
    /// Switches.
    pub switches: usize,
    /// Links.
    pub links: usize,
    /// Of these, links that are down.
    pub links_down: usize,
    /// The service level of all paths; null if they have no common one.
    pub service_level: Option<u8>,
    /// Bytes of memory.
    pub bytes: usize,
    /// Seconds since it was last seen to be so.
    pub confirmed_seconds: f64,
    /// Seconds since it became another.
    pub changed_seconds: f64,
}

/// How a path source is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceState {
    /// It answers.
    Healthy,
    /// It does not answer: others are asked first, and it is tried now and then.
    Failing,
    /// It has not been asked yet.
    Unproven,
}

impl fmt::Display for SourceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => "healthy",
            Self::Failing => "failing",
            Self::Unproven => "unproven",
        })
    }
}

/// The daemon at a glance.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since its start.
    pub uptime_seconds: u64,
    /// Management class of the association.
    pub class: u8,
    /// Devices looked after.
    pub devices: Vec<String>,
    /// Ports by state.
    pub ports: PortSums,
    /// Libraries connected.
    pub libraries: usize,
    /// Connections by protection.
    pub connections: ConnSums,
    /// What an operator should look at, in words.
    pub problems: Vec<String>,
}

/// Ports by state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct PortSums {
    /// All.
    pub total: usize,
    /// Good for everything.
    pub up: usize,
    /// Up for a short time only.
    pub settling: usize,
    /// Good for nothing.
    pub down: usize,
}

/// Connections by protection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ConnSums {
    /// All.
    pub total: usize,
    /// Would survive the loss of their primary path.
    pub armed: usize,
    /// An alternate is loaded and waits for traffic.
    pub rearming: usize,
    /// An alternate is looked for, agreed on or loaded.
    pub working: usize,
    /// Nothing is under way.
    pub unprotected: usize,
    /// Refused by this daemon.
    pub refused: usize,
    /// The queue pair has left RTS.
    pub broken: usize,
}

/// A connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Conn {
    /// Name of the connection in this daemon.
    pub id: String,
    /// RDMA device.
    pub device: String,
    /// Node GUID of the device.
    pub node_guid: String,
    /// Queue pair number.
    pub qpn: u32,
    /// The peer's queue pair number.
    pub peer_qpn: u32,
    /// `active` or `passive`.
    pub role: String,
    /// The application asked for APM itself.
    pub opted_in: bool,
    /// The application's process.
    pub pid: i32,
    /// The application's command name.
    pub command: String,
    /// State of the queue pair.
    pub qp_state: String,
    /// Path migration state of the queue pair: `migrated`, `rearm`, `armed`.
    pub migration: String,
    /// Whether it would survive the loss of its primary path: `armed` if so.
    pub protection: String,
    /// Why it is not armed; null when it is.
    pub reason: Option<String>,
    /// The path in use.
    pub primary: Path,
    /// The loaded alternate.
    pub alternate: Option<Alternate>,
    /// The candidate that is loaded or being negotiated.
    pub chosen: Option<Candidate>,
    /// The candidate ranked after it.
    pub runner_up: Option<Candidate>,
    /// The daemons' shared state.
    pub association: Association,
    /// What happened so far.
    pub counters: ConnCounters,
    /// Seconds since `protection` last changed.
    pub changed_seconds: f64,
}

/// A path from this end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Path {
    /// Local port.
    pub port: u8,
    /// Local LID.
    pub slid: u16,
    /// Remote LID.
    pub dlid: u16,
    /// Local GID.
    pub sgid: String,
    /// Remote GID.
    pub dgid: String,
    /// Service level.
    pub sl: u8,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// Static rate, IBA code.
    pub rate: u8,
    /// Partition.
    pub pkey: u16,
    /// Local ACK timeout, exponent.
    pub ack_timeout: u8,
    /// Packets carry a GRH.
    pub global: bool,
    /// GRH traffic class.
    pub traffic_class: u8,
    /// GRH hop limit.
    pub hop_limit: u8,
    /// GRH flow label.
    pub flow_label: u32,
}

/// A loaded alternate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Alternate {
    /// The path.
    #[serde(flatten)]
    pub path: Path,
    /// The source of its path record: `sa`, `acm`, `ssa` or `static`; null on the passive side, and
    /// where another daemon had it loaded.
    pub origin: Option<String>,
    /// What it shares with the primary; null where that is not known.
    pub overlap: Option<Overlap>,
    /// That by name; null where this daemon does not know the fabric.
    pub shared: Option<Vec<SharedElement>>,
}

/// A switch or link that two paths share.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SharedElement {
    /// Such as `switch leaf3`.
    pub name: String,
    /// Whether another way between the two hosts could do without it.
    pub avoidable: bool,
}

/// What two paths share though they need not, both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Overlap {
    /// Switches.
    pub switches: u16,
    /// Links.
    pub links: u16,
}

/// A thinkable alternate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Candidate {
    /// Local port.
    pub port: u8,
    /// Local GID.
    pub sgid: String,
    /// Remote GID.
    pub dgid: String,
    /// Local LID, where the port has several.
    pub slid: Option<u16>,
    /// Remote LID, where the port has several.
    pub dlid: Option<u16>,
    /// How good it is, in words.
    pub score: String,
    /// The source of its path record, once there is one.
    pub origin: Option<String>,
    /// What it shares with the primary; null where that is not known.
    pub overlap: Option<Overlap>,
}

/// The daemons' shared state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Association {
    /// `none`, `opening`, `parked`, `established`, `pausing` or `refused`.
    pub state: String,
    /// This side's communication ID.
    pub local_comm_id: Option<u32>,
    /// The peer's communication ID.
    pub remote_comm_id: Option<u32>,
    /// The peer's ports, as far as known.
    pub peer_ports: Vec<PeerPort>,
}

/// A port of the peer's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerPort {
    /// Its GID.
    pub gid: String,
    /// Its LID; 0 while it is not in service.
    pub lid: u16,
}

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident from $source:path { $($(#[$field_doc:meta])* $field:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
        pub struct $name { $($(#[$field_doc])* pub $field: u64,)+ }

        impl From<$source> for $name {
            fn from(source: $source) -> Self {
                Self { $($field: source.$field,)+ }
            }
        }
    };
}

counters! {
    /// What happened to a connection so far.
    ConnCounters from statemachine::view::ConnectionCounters {
        /// Migrations, by hardware or ordered.
        migrations,
        /// Of these, ordered by this daemon.
        ordered_migrations,
        /// Times it became armed.
        rearms,
        /// LAPs sent.
        laps_sent,
        /// LAPs received.
        laps_received,
        /// Path queries made.
        queries,
        /// Alternates loaded.
        loads,
        /// Orders that came too late.
        stale_loads,
        /// Orders that failed.
        failed_orders,
    }
}

counters! {
    /// What happened to the engine so far.
    EngineCounters from statemachine::Counters {
        /// MADs sent, copies included.
        mads_sent,
        /// Of these, copies.
        mads_resent,
        /// MADs received.
        mads_received,
        /// Received, but not from a port that the association knows.
        mads_from_strangers,
        /// Received, but for no association or not in its state.
        mads_out_of_place,
        /// Received, with private data that is not apmd's.
        mads_malformed,
        /// REQs turned away, because as many as are allowed are parked.
        parked_overflow,
        /// Path queries made.
        queries,
        /// Of these, without a path in answer.
        queries_failed,
        /// Orders to libraries.
        orders,
        /// Reports for connections or orders that do not exist.
        reports_out_of_place,
        /// Migrations.
        migrations,
        /// Local ports lost.
        ports_lost,
        /// Associations opened.
        associations,
    }
}

/// All counters.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Counters {
    /// The engine's.
    pub engine: EngineCounters,
    /// The daemon's.
    pub daemon: DaemonCounters,
}

/// A local port.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Port {
    /// RDMA device.
    pub device: String,
    /// Port number.
    pub port: u8,
    /// Node GUID of the device.
    pub node_guid: String,
    /// `up`, `settling`, `down`, or `unknown` before it was first read.
    pub state: String,
    /// `infiniband` or `other`.
    pub link_layer: String,
    /// The device claims automatic path migration.
    pub apm: bool,
    /// Association MADs can be sent and received.
    pub mads: bool,
    /// Base LID; 0 before the SM gave one.
    pub lid: u16,
    /// LID mask control.
    pub lmc: u8,
    /// LID of the SM; 0 before there is one.
    pub sm_lid: u16,
    /// GID index 0.
    pub gid: String,
    /// Active MTU in bytes.
    pub mtu: u32,
    /// Partitions.
    pub pkeys: Vec<u16>,
    /// IPoIB interface.
    pub interface: Option<String>,
    /// Connections whose primary path uses it.
    pub primaries: usize,
    /// Connections whose alternate path uses it.
    pub alternates: usize,
}
