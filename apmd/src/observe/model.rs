// SPDX-License-Identifier: MIT OR Apache-2.0
//! What operators are shown, as JSON. Described in `docs/apmctl.md`; keys are added, never changed.

use paths::source::Counts;
use serde::{Deserialize, Serialize};
use statemachine::view::ConnectionCounters;
use statemachine::{Overlap, PathHealth};
use strum::Display;

use crate::counters::DaemonCounters;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Source {
    /// `sa`, `acm`, `ssa` or `static`.
    pub(crate) source: String,
    pub(crate) state: SourceState,
    #[serde(flatten)]
    pub(crate) health: SourceHealth,
    #[serde(flatten)]
    pub(crate) load: SourceLoad,
    #[serde(flatten)]
    pub(crate) counts: Counts,
    /// What it is made of, in words.
    pub(crate) detail: Option<String>,
    /// Of `ssa`: the fabric, once it is known.
    pub(crate) fabric: Option<Fabric>,
}

/// What fails, and since when.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct SourceHealth {
    /// How long it has been failing.
    pub(crate) failing_seconds: Option<f64>,
    /// Local ports through which it cannot be asked.
    pub(crate) failing_ports: Vec<String>,
    /// The last error, whether it is over or not.
    pub(crate) last_error: Option<String>,
    /// How long the last answer took.
    pub(crate) last_latency_ms: Option<f64>,
    /// Seconds since the last answer.
    #[serde(default)]
    pub(crate) last_answer_seconds: Option<f64>,
}

/// What a source is asked at a time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct SourceLoad {
    /// Questions under way.
    pub(crate) in_flight: usize,
    /// The most questions under way at the same time.
    pub(crate) in_flight_limit: usize,
    /// Questions that wait for their turn.
    pub(crate) waiting: usize,
    /// The longest time for one question.
    pub(crate) timeout_ms: u64,
    /// Of `sa`: how many requests may be on their way by each port, of all parts of apmd.
    #[serde(default)]
    pub(crate) windows: Vec<Window>,
}

/// How many requests may be on their way to the SA by a port: more as long as they are answered, fewer when they are
/// lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Window {
    /// DEVICE/PORT
    pub(crate) port: String,
    pub(crate) size: usize,
    /// Those on their way.
    pub(crate) in_flight: usize,
    /// How often it was made smaller.
    pub(crate) reductions: u64,
}

/// The fabric as data.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Fabric {
    /// Where it came from: `snapshot` or `live`.
    pub(crate) from: String,
    /// Which state of the fabric it is; greater than that of every earlier one.
    pub(crate) epoch: u64,
    /// Switches and channel adapters.
    pub(crate) nodes: usize,
    pub(crate) switches: usize,
    pub(crate) links: usize,
    /// Of these, links that are down.
    pub(crate) links_down: usize,
    /// The service level of all paths; null if they have no common one.
    pub(crate) service_level: Option<u8>,
    pub(crate) bytes: usize,
    /// Seconds since it was last seen to be so.
    pub(crate) confirmed_seconds: f64,
    /// Seconds since it became another.
    pub(crate) changed_seconds: f64,
}

/// How a path source is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum SourceState {
    Healthy,
    /// It does not answer: others are asked first, and it is tried now and then.
    Failing,
    /// It has not been asked yet.
    Unproven,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    #[serde(flatten)]
    pub(crate) daemon: DaemonProcess,
    /// Devices managed.
    pub(crate) devices: Vec<String>,
    /// Devices at which no connection can end.
    #[serde(default)]
    pub(crate) ignored: Vec<IgnoredDevice>,
    pub(crate) ports: PortSums,
    /// Libraries connected.
    pub(crate) libraries: usize,
    #[serde(default)]
    pub(crate) unregistered: Unregistered,
    #[serde(default)]
    pub(crate) kernel: KernelModule,
    pub(crate) connections: ConnSums,
    /// What an operator should look at, in words, and what to do.
    pub(crate) problems: Vec<String>,
    /// Those of the problems that make `apmctl status` fail.
    #[serde(default)]
    pub(crate) degraded: Vec<String>,
}

/// The daemon's process.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct DaemonProcess {
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) uptime_seconds: u64,
    /// Management class of the association.
    pub(crate) class: u8,
}

/// Connected RC queue pairs of programs with the library that the library has not registered.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Unregistered {
    pub(crate) queue_pairs: usize,
    /// Their programs.
    pub(crate) programs: usize,
    /// The programs with most.
    pub(crate) largest: Vec<UnregisteredProgram>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct UnregisteredProgram {
    pub(crate) pid: i32,
    pub(crate) command: String,
    pub(crate) queue_pairs: usize,
}

/// A device that no connection can end at.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct IgnoredDevice {
    pub(crate) device: String,
    pub(crate) reason: String,
}

/// The kernel module apm.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct KernelModule {
    pub(crate) state: ModuleState,
    /// Why it cannot be used.
    pub(crate) reason: Option<String>,
    /// `all`, `ulps` or `none`, as `[kernel]` says.
    pub(crate) protect: String,
    /// Owners that it leaves alone, as `[kernel]` says.
    #[serde(default)]
    pub(crate) except: Vec<String>,
    /// Connections that are managed by it; all others are by a library.
    #[serde(default)]
    pub(crate) connections: usize,
    /// RC queue pairs that it knows.
    pub(crate) queue_pairs: usize,
    /// Of these, those that it leaves alone.
    pub(crate) left_alone: usize,
    /// Peers' ports that were named to it, as seen from a local one each: ACK timeouts towards them are bounded.
    #[serde(default)]
    pub(crate) peers: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum ModuleState {
    Loaded,
    #[default]
    Absent,
    /// It is loaded, but apmd cannot speak to it.
    Unusable,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct PortSums {
    pub(crate) total: usize,
    /// Usable.
    pub(crate) up: usize,
    /// Up, but for too short a time to be trusted.
    pub(crate) settling: usize,
    /// Not usable.
    pub(crate) down: usize,
    /// Of all these, those that an operator wants connections off.
    #[serde(default)]
    pub(crate) drained: usize,
    /// From a local port to a LID of a peer each: apmd answered there once, and has not for ten seconds.
    #[serde(default)]
    pub(crate) paths_to_silent_apmd: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct ConnSums {
    pub(crate) total: usize,
    /// Would survive the loss of their primary path.
    pub(crate) armed: usize,
    /// Of these, those whose paths take the same switch or link, as far as this daemon chose them.
    #[serde(default)]
    pub(crate) armed_same_switch: usize,
    /// Of these, those whose paths take the same port.
    #[serde(default)]
    pub(crate) armed_same_port: usize,
    /// Of these, those that have been so for a minute.
    #[serde(default)]
    pub(crate) armed_same_port_60_seconds: usize,
    /// Of these, those of whose alternate no probe has come back.
    #[serde(default)]
    pub(crate) armed_unverified: usize,
    #[serde(flatten)]
    pub(crate) waiting: WaitingSums,
    /// Migrating, negotiating an alternate, or loading it.
    pub(crate) working: usize,
    /// Nothing is under way.
    pub(crate) unprotected: usize,
    /// Refused by this daemon.
    pub(crate) refused: usize,
    /// The queue pair has left RTS.
    pub(crate) broken: usize,
}

/// Connections that wait for traffic.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct WaitingSums {
    /// An alternate is loaded and waits for traffic.
    pub(crate) rearming: usize,
    /// Of these, those that have waited for so long that they are idle.
    #[serde(default)]
    pub(crate) rearming_idle: usize,
    /// Of these, those that are moved if their path is lost: `idle (movable)`.
    #[serde(default)]
    pub(crate) idle_movable: usize,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Conn {
    /// Name of the connection in this daemon.
    pub(crate) id: String,
    #[serde(flatten)]
    pub(crate) qp: QueuePair,
    #[serde(flatten)]
    pub(crate) program: Program,
    #[serde(flatten)]
    pub(crate) standing: Standing,
    /// The path in use.
    pub(crate) primary: Path,
    /// The loaded alternate.
    pub(crate) alternate: Option<Alternate>,
    #[serde(flatten, default)]
    pub(crate) probing: Probing,
    /// The candidate that is loaded or being negotiated.
    pub(crate) chosen: Option<Candidate>,
    /// The candidate ranked after it.
    pub(crate) runner_up: Option<Candidate>,
    /// The daemons' shared state.
    pub(crate) association: Association,
    pub(crate) counters: ConnectionCounters,
    /// What happened to it, the latest first; null where that was not asked for.
    #[serde(default)]
    pub(crate) history: Option<Vec<Past>>,
}

/// Something that happened to a connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Past {
    pub(crate) seconds_ago: f64,
    /// `protection`, `association`, `migrated` or `primary_lost`.
    pub(crate) event: String,
    /// Of `migrated`: for how long it had stalled, if that is known.
    #[serde(default)]
    pub(crate) stall_ms: Option<u16>,
    pub(crate) text: String,
}

/// How a connection is to be protected.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Policy {
    /// `any`, `port` or `lid`.
    pub(crate) mode: String,
    /// `stay`, or `prefer` and a port.
    pub(crate) failback: String,
    pub(crate) spread: bool,
    pub(crate) hold_down_seconds: f64,
    /// Nothing was said of this connection in particular.
    pub(crate) by_default: bool,
}

/// The queue pair of a connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct QueuePair {
    pub(crate) device: String,
    pub(crate) node_guid: String,
    pub(crate) qpn: u32,
    pub(crate) peer_qpn: u32,
    /// Name of the peer's node; null where this daemon does not know the fabric.
    #[serde(default)]
    pub(crate) peer_node: Option<String>,
    /// `active` or `passive`.
    pub(crate) role: String,
    pub(crate) qp_state: String,
    /// Path migration state of the queue pair: `migrated`, `rearm`, `armed`.
    pub(crate) migration: String,
}

/// The application of a connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    /// The application asked for APM itself.
    pub(crate) opted_in: bool,
    /// The application's process; 0 where the kernel owns the queue pair.
    pub(crate) pid: i32,
    /// The application's command name, or the kernel module's.
    pub(crate) command: String,
    /// How it is protected: `library`, in the application, or `kernel`, by the module apm.
    #[serde(default)]
    pub(crate) by: String,
}

/// How well a connection is protected.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// Whether it would survive the loss of its primary path: `armed` if so.
    pub(crate) protection: String,
    /// Of an armed one, what that covers: `full`; `same_switch` or `same_port`, where both paths take the
    /// same; `unverified`, while no probe of the alternate has come back. Null when it is not armed.
    #[serde(default)]
    pub(crate) grade: Option<String>,
    /// Of `same_switch`: which, or how many where no name is known.
    #[serde(default)]
    pub(crate) grade_detail: Option<String>,
    /// Why it is not armed; null when it is.
    pub(crate) reason: Option<String>,
    /// What undoes that though it is armed, and what of its policy cannot be met, in words, and what to do.
    #[serde(default)]
    pub(crate) warnings: Vec<String>,
    /// Seconds since `protection` last changed.
    pub(crate) changed_seconds: f64,
    /// Why it has not left its primary yet; null unless an operator wants that.
    #[serde(default)]
    pub(crate) held: Option<String>,
    /// What would keep it from leaving its primary now, before the peer is asked, if an operator wanted that; null:
    /// nothing.
    #[serde(default)]
    pub(crate) obstacle: Option<String>,
    /// How it is to be protected.
    #[serde(default)]
    pub(crate) policy: Policy,
    /// Its library may migrate it by itself when the primary's local port fails.
    #[serde(default)]
    pub(crate) standing_order: bool,
}

/// What probes say of a connection's paths.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Probing {
    /// `verified`, `suspect`, or `unknown` where it is not probed.
    pub(crate) primary_health: PathHealth,
    /// Milliseconds since a probe came back; null if none has.
    pub(crate) primary_probe_age_ms: Option<f64>,
    pub(crate) alternate_health: PathHealth,
    pub(crate) alternate_probe_age_ms: Option<f64>,
}

/// A path from this end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Path {
    pub(crate) port: u8,
    pub(crate) slid: u16,
    pub(crate) dlid: u16,
    pub(crate) sgid: String,
    pub(crate) dgid: String,
    pub(crate) sl: u8,
    /// Path MTU in bytes.
    pub(crate) mtu: u32,
    /// Static rate, IBA code.
    pub(crate) rate: u8,
    pub(crate) pkey: u16,
    /// Local ACK timeout, exponent.
    pub(crate) ack_timeout: u8,
    #[serde(flatten)]
    pub(crate) route: GlobalRoute,
    #[serde(flatten, default)]
    pub(crate) plain: PlainUnits,
}

/// What a path has as codes, in units.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PlainUnits {
    /// `rate` in Mb/s; null for a code that is none.
    pub(crate) rate_mbps: Option<u32>,
    /// `ack_timeout` in nanoseconds; null: infinite.
    pub(crate) ack_timeout_ns: Option<u64>,
}

/// What packets carry beyond the subnet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct GlobalRoute {
    /// Packets carry a GRH.
    pub(crate) global: bool,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) flow_label: u32,
}

/// A loaded alternate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Alternate {
    #[serde(flatten)]
    pub(crate) path: Path,
    /// The source of its path record: `sa`, `acm`, `ssa` or `static`; null on the passive side, and
    /// where another daemon had it loaded.
    pub(crate) origin: Option<String>,
    /// What it shares with the primary; null where that is not known.
    pub(crate) overlap: Option<Overlap>,
    /// That by name; null where this daemon does not know the fabric.
    pub(crate) shared: Option<Vec<SharedElement>>,
}

/// A switch or link that two paths share.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SharedElement {
    /// Such as `switch leaf3`.
    pub(crate) name: String,
    /// Whether another way between the two hosts could do without it.
    pub(crate) avoidable: bool,
}

/// A possible alternate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Candidate {
    pub(crate) port: u8,
    pub(crate) sgid: String,
    pub(crate) dgid: String,
    /// Local LID, where the port has several.
    pub(crate) slid: Option<u16>,
    /// Remote LID, where the port has several.
    pub(crate) dlid: Option<u16>,
    /// How good it is, in words.
    pub(crate) score: String,
    /// The source of its path record, once there is one.
    pub(crate) origin: Option<String>,
    /// What it shares with the primary; null where that is not known.
    pub(crate) overlap: Option<Overlap>,
}

/// The daemons' shared state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Association {
    /// `none`, `opening`, `parked`, `established`, `pausing` or `refused`.
    pub(crate) state: String,
    pub(crate) local_comm_id: Option<u32>,
    pub(crate) remote_comm_id: Option<u32>,
    /// They are another user's: only that user and root see them.
    #[serde(default)]
    pub(crate) comm_ids_hidden: bool,
    /// The peer's ports, as far as known.
    pub(crate) peer_ports: Vec<PeerPort>,
    /// Whether the peer's daemon is there.
    #[serde(default)]
    pub(crate) peer_daemon: PeerDaemon,
}

/// What is known of the peer's daemon without asking it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PeerDaemon {
    /// `answers`, `silent` (its kernel answers in its place), or `unknown`.
    pub(crate) state: String,
    /// Seconds since it was last heard; null if it has not been.
    pub(crate) heard_seconds: Option<f64>,
    /// Of `silent`: for how many seconds at least.
    pub(crate) silent_seconds: Option<f64>,
    /// The version of the association that it speaks; null before it has said anything.
    pub(crate) protocol_version: Option<u8>,
}

/// A port of the peer's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PeerPort {
    pub(crate) gid: String,
    /// Its LID; 0 while it is not in service.
    pub(crate) lid: u16,
    /// The peer's operator wants connections off it.
    #[serde(default)]
    pub(crate) drained: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Counters {
    pub(crate) engine: statemachine::Counters,
    pub(crate) daemon: DaemonCounters,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Port {
    pub(crate) device: String,
    pub(crate) port: u8,
    pub(crate) node_guid: String,
    /// `up`, `settling`, `down`, or `unknown` before it was first read.
    pub(crate) state: String,
    /// The device claims automatic path migration.
    pub(crate) apm: bool,
    /// A queue pair of the device was given another primary path in state SQD when that was tried: connections without
    /// traffic can be moved.
    #[serde(default)]
    pub(crate) moves_idle: bool,
    /// Association MADs can be sent and received.
    pub(crate) mads: bool,
    #[serde(flatten)]
    pub(crate) link: PortLink,
    pub(crate) interface: Option<String>,
    /// An operator wants connections off it.
    #[serde(default)]
    pub(crate) drained: bool,
    /// Connections whose primary path uses it.
    pub(crate) primaries: usize,
    /// Connections whose alternate path uses it.
    pub(crate) alternates: usize,
}

impl Port {
    /// `mlx5_0/1`.
    pub(crate) fn label(&self) -> String {
        format!("{}/{}", self.device, self.port)
    }
}

/// What PortInfo and the tables of a port say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PortLink {
    /// `infiniband` or `other`.
    pub(crate) link_layer: String,
    /// It sends nothing without a GRH, so apmd does not use it.
    #[serde(default)]
    pub(crate) grh_required: bool,
    /// Base LID; 0 before the SM gave one.
    pub(crate) lid: u16,
    pub(crate) lmc: u8,
    /// LID of the SM; 0 before there is one.
    pub(crate) sm_lid: u16,
    /// GID index 0.
    pub(crate) gid: String,
    /// Active MTU in bytes.
    pub(crate) mtu: u32,
    /// What its link carries, in Mb/s; null while that is not known.
    #[serde(default)]
    pub(crate) rate_mbps: Option<u32>,
    pub(crate) pkeys: Vec<u16>,
}
