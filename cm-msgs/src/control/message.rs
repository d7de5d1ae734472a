// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages, as values.

use super::policy::PolicyOverride;
use crate::codes::closed_codes;
use crate::path::Path;
use crate::{Guid, Lid, PKey, Qpn};

/// What the library says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FromLibrary {
    /// First message on a new socket: who is here. The command name is NUL-padded.
    Hello {
        /// `comm` of the process, NUL-padded.
        command: [u8; 16],
    },
    /// A connection is established (or known from before, after a reconnect).
    Register {
        /// The library's number for the connection.
        conn: u64,
        /// What it is.
        register: Register,
    },
    /// The state of a QP: the answer to an order, or news.
    Report {
        /// The library's number for the connection.
        conn: u64,
        /// What happened and how the QP is now.
        report: Report,
    },
    /// The connection is gone.
    Close {
        /// The library's number for the connection.
        conn: u64,
        /// How it ended.
        ending: Ending,
    },
    /// What the application says of how the connection is protected, from now on.
    Policy {
        /// The library's number for the connection.
        conn: u64,
        /// All that it says.
        policy: PolicyOverride,
    },
    /// Does a daemon answer at this peer's port? Only to a daemon that has said
    /// [`FromDaemon::AsksPeers`].
    AskPeer {
        /// The library's number for the question.
        question: u64,
        /// The peer's port.
        peer: PeerPort,
    },
    /// The same, asked in another partition than the default one. Only to a daemon that has said
    /// [`FromDaemon::AsksPartitions`].
    AskPeerIn {
        /// The library's number for the question.
        question: u64,
        /// The peer's port.
        peer: PeerPort,
        /// The partition's P_Key, of either membership.
        pkey: PKey,
    },
    /// The connection was made before the daemon had said whether one answers at the peer's port, and so with
    /// rdma_cm's ACK timeout. Only to a daemon that has said [`FromDaemon::CountsLateAnswers`].
    AnswerCameLate {
        /// The library's number for the connection, which it has registered.
        conn: u64,
    },
    /// [`FromDaemon::MoveIdle`] is understood here. Only to a daemon that has said [`FromDaemon::MovesIdle`].
    MovesIdle,
}

/// What the daemon says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FromDaemon {
    /// [`FromLibrary::AskPeer`] is understood here. Said before `Welcome`, so that a library that
    /// was welcomed knows; one of an earlier release passes over it.
    AsksPeers,
    /// [`FromLibrary::AskPeerIn`] is, too. Said before [`Self::AsksPeers`].
    AsksPartitions,
    /// [`FromLibrary::AnswerCameLate`] is understood here. Said before `Welcome`; a library of an earlier release
    /// passes over it.
    CountsLateAnswers,
    /// [`FromLibrary::MovesIdle`] is understood here. Said before `Welcome`; a library of an earlier release passes
    /// over it.
    MovesIdle,
    /// Answer to `Hello`.
    Welcome,
    /// Load an alternate path.
    Load {
        /// The library's number for the connection.
        conn: u64,
        /// The order.
        load: Load,
    },
    /// Migrate to the loaded alternate now.
    Migrate {
        /// The library's number for the connection.
        conn: u64,
        /// The order.
        migrate: Migrate,
    },
    /// Leave the primary for the loaded alternate, whether the QP is Armed or waits for traffic in ReArm. Only to a
    /// library that has said [`FromLibrary::MovesIdle`].
    MoveIdle {
        /// The library's number for the connection.
        conn: u64,
        /// The order.
        migrate: Migrate,
    },
    /// The library may, or may no longer, migrate by itself when the primary's local port fails.
    Stand {
        /// The library's number for the connection.
        conn: u64,
        /// What holds from now on.
        stand: Stand,
    },
    /// Query the QP and report.
    Query {
        /// The library's number for the connection.
        conn: u64,
        /// Names the order in its report.
        token: u32,
    },
    /// The daemon will not manage this connection.
    Refuse {
        /// The library's number for the connection.
        conn: u64,
        /// Why.
        refusal: Refusal,
    },
    /// Tell the application, if it opted in.
    Event {
        /// The library's number for the connection.
        conn: u64,
        /// What to tell it.
        event: AppEvent,
        /// 0, or a positive errno.
        status: u8,
    },
    /// The peer's application has disconnected, or its daemon has heard that ours did.
    Disconnected {
        /// The library's number for the connection.
        conn: u64,
    },
    /// Answer to [`FromLibrary::AskPeer`] and [`FromLibrary::AskPeerIn`].
    Peer {
        /// The library's number for the question.
        question: u64,
        /// A daemon answers there, and the connection could have a second path from here.
        answers: bool,
    },
}

/// A peer's port, as seen from a local one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerPort {
    /// Node GUID of the local device.
    pub node_guid: Guid,
    /// The local port.
    pub port: u8,
    /// The peer port's LID.
    pub lid: Lid,
}

/// A connection as its library registers it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Register {
    /// Which side opened the connection.
    pub role: Role,
    /// The application asked for APM itself and wants events.
    pub opted_in: bool,
    /// Node GUID of the device.
    pub node_guid: Guid,
    /// The QP.
    pub qpn: Qpn,
    /// The peer's QP.
    pub peer_qpn: Qpn,
    /// What the application says of how it is protected.
    pub policy: PolicyOverride,
    /// The QP as it is now.
    pub snapshot: Snapshot,
}

/// What happened to a QP, and how it is afterwards.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Report {
    /// What happened.
    pub cause: Cause,
    /// The QP as it is now.
    pub snapshot: Snapshot,
}

/// Why a report is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The daemon asked, by the order with this token.
    Query {
        /// The order's token.
        token: u32,
    },
    /// It is another than before, in a way that has no name of its own.
    Changed,
    /// The QP was seen to have migrated (IBV_EVENT_PATH_MIG, or its attributes say so).
    PathMigrated,
    /// IBV_EVENT_PATH_MIG_ERR.
    PathMigrationError,
    /// A ReArm QP was seen Armed.
    Armed,
    /// The order with this token was carried out.
    Done {
        /// The order's token.
        token: u32,
    },
    /// The QP is not as the order with this token expected; nothing was modified.
    Stale {
        /// The order's token.
        token: u32,
    },
    /// The order with this token failed in `ibv_modify_qp` (or before it).
    Failed {
        /// The order's token.
        token: u32,
        /// A positive errno.
        errno: u8,
    },
    /// The QP left RTS.
    Broken,
    /// The primary's local port failed, and the library migrated the QP by its standing order.
    StandingOrder,
}

/// A QP's path state.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Snapshot {
    /// The QP's state.
    pub qp_state: QpState,
    /// The path migration state.
    pub migration: MigrationState,
    /// The primary path.
    pub primary: Path,
    /// The alternate path, if one is loaded. In state Migrated a QP has none that counts.
    pub alternate: Option<Path>,
}

/// Order: load `alternate` and re-arm, if `primary` still is the primary.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// Names the order in its report.
    pub token: u32,
    /// The primary that the alternate was computed for.
    pub primary: Path,
    /// The path to load.
    pub alternate: Path,
    /// Once it is loaded, the QP has a standing order, as [`Stand`] gives one; or has none.
    pub standing: bool,
}

/// Order: leave `primary` for the loaded alternate, if `primary` still is the primary and the QP is Armed: migrate by
/// modify. As [`FromDaemon::MoveIdle`] a QP in ReArm leaves it, too: it goes to SQD, gets the alternate as primary there,
/// and goes back to RTS. Until another is loaded its alternate is its primary, and protects nothing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Migrate {
    /// Names the order in its report.
    pub token: u32,
    /// The path to leave.
    pub primary: Path,
}

/// A standing order is given or withdrawn: while `primary` is the primary and its local port fails,
/// the library migrates the QP at once if it is Armed, and asks nobody. Nothing answers this; what
/// counts is the last that was said, by this or by a [`Load`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stand {
    /// The primary that it was decided for.
    pub primary: Path,
    /// Given, not withdrawn.
    pub allowed: bool,
}

closed_codes! {
    /// Which side of the connection an application is.
    Role {
        /// It called connect.
        Active = 1, "active";
        /// It called accept.
        Passive = 2, "passive";
    }
}

closed_codes! {
    /// QP states, as `enum ibv_qp_state` codes them.
    QpState {
        /// Reset.
        Reset = 0, "reset";
        /// Initialised.
        Init = 1, "init";
        /// Ready to receive.
        Rtr = 2, "rtr";
        /// Ready to send.
        Rts = 3, "rts";
        /// Send queue drained.
        Sqd = 4, "sqd";
        /// Send queue error.
        Sqe = 5, "sqe";
        /// Error.
        Error = 6, "error";
    }
}

closed_codes! {
    /// Path migration states, as `enum ibv_mig_state` codes them.
    MigrationState {
        /// On its one path; no alternate is armed.
        Migrated = 0, "migrated";
        /// An alternate is loaded; not yet usable (IBA 17.2.8.1).
        Rearm = 1, "rearm";
        /// The alternate takes over when the primary fails.
        Armed = 2, "armed";
    }
}

closed_codes! {
    /// Why the daemon does not manage a connection.
    Refusal {
        /// No such device, or it has gone.
        NoDevice = 1, "apmd knows no device with that node GUID";
        /// The port is not InfiniBand (RoCE, iWARP).
        NotInfiniBand = 2, "the link layer is not infiniband";
        /// The device does not claim automatic path migration.
        NoApm = 3, "the device has no automatic path migration";
        /// One port and LMC 0: there is nowhere to migrate to.
        OnePath = 4, "one port and LMC 0: no second path can exist";
        /// The QP is not the registering process's.
        NotOwner = 5, "the QP does not belong to the registering process";
        /// The daemon has as many connections as it is configured for.
        Full = 6, "the daemon's connection limit is reached";
        /// What is registered contradicts what the kernel says.
        Contradicted = 7, "the registration contradicts what the kernel says of the QP or its port";
        /// Only an alternate with a GRH would do, and who owns the QP loads none.
        GlobalRoute = 8, "its alternate path would have a GRH, and the kernel module loads none with one";
        /// Nothing leaves the port without a GRH, which apmd's MADs do not have.
        GrhRequired = 9, "its port requires a GRH in every packet, and apmd sends MADs without one";
        /// The QP stays in RTR. IBA loads alternate paths in RTS and SQD only.
        ReceivesOnly = 10, "its queue pair only receives (RTR): no alternate path can be loaded before RTS";
    }
}

closed_codes! {
    /// How a connection ended.
    Ending {
        /// Its QP is gone or not managed any more; nobody else need hear of it.
        Gone = 0, "gone";
        /// The application disconnected, and the peer's is to hear of it.
        Disconnected = 1, "disconnected by the application";
    }
}

closed_codes! {
    /// Events for applications that opted in.
    AppEvent {
        /// An alternate path was found.
        AltRouteResolved = 1, "alternate route resolved";
        /// No alternate path could be found or agreed on.
        AltRouteError = 2, "alternate route error";
        /// An alternate path is about to be loaded.
        LoadAltPath = 3, "load alternate path";
        /// It is loaded.
        AltPathLoaded = 4, "alternate path loaded";
        /// The connection migrated.
        PathMigrated = 5, "path migrated";
    }
}
