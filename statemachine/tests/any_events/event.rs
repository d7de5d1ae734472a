// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can happen.

use core::num::{NonZeroU8, NonZeroU32};

use cm_msgs::control::{Cause, MigrationState, Mode, Placement, PolicyOverride, QpState, Role};
use cm_msgs::path::{Path, PortAddress};
use cm_msgs::{Gid, Guid, Lid, PKey};
use proptest::collection::vec;
use proptest::prelude::*;
use statemachine::{Origin, PortId, PortStatus, QueryError};

/// Local ports are 1 and 2 of one device; there is a third that the device does not have.
pub(crate) const NODE: Guid = Guid(1);

/// Which of several, counted round.
pub(crate) type Pick = usize;

#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// So many milliseconds, with all that is due.
    Wait(u64),
    Port(PortId, Option<PortStatus>),
    Register(Conn, Role, Qp),
    Report(Conn, Cause, Qp),
    /// A library does what the engine said.
    Obey(Pick),
    Close(Conn),
    ClientGone(u32),
    /// A peer answers a message as it should.
    Answer(Pick),
    /// A peer asks for an association with a registered connection.
    Request(Conn, Pick),
    /// A peer proposes an alternate by an ID that the engine gave.
    Propose(Pick, (u8, u8)),
    /// Any CM message, by an ID that the engine gave if `known`.
    Mad {
        mad: Vec<u8>,
        known: Option<Pick>,
        from: (u8, u8),
    },
    /// Answers a question about paths with those between such ports, or says why not.
    Paths(Pick, Result<Vec<(u8, u8)>, QueryError>),
    /// A record of any bytes, in answer to any number.
    AnyPaths(u32, [u8; 64], Option<Origin>),
    Assessed(Pick, Vec<Option<(u8, u8)>>),
    FabricChanged,
    /// Subnet administration says something to a local port of a peer's.
    Notice(PortId, u8, u8),
    Policy(Conn, PolicyOverride),
    /// The configuration is read again.
    Default(PolicyOverride),
    /// An operator wants something of a connection: to migrate for so many milliseconds, or another look.
    Command(Conn, Option<u64>),
    /// An operator wants connections off a port, or minds them no more.
    Drain(PortId, bool),
}

/// A client's connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Conn {
    pub(crate) client: u32,
    pub(crate) conn: u32,
}

/// A QP as a library tells it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Qp {
    pub(crate) state: QpState,
    pub(crate) migration: MigrationState,
    pub(crate) primary: Path,
    pub(crate) alternate: Option<Path>,
}

pub(crate) fn port(port: u8) -> PortId {
    PortId::new(NODE, port)
}

/// The local port's address, and that of a peer's port.
pub(crate) fn near(port: u8) -> PortAddress {
    address(0x10, port)
}

pub(crate) fn far(port: u8) -> PortAddress {
    address(0x20, port)
}

fn address(host: u8, port: u8) -> PortAddress {
    let mut gid = Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host, port]);
    if port == 0 {
        gid = Gid::default();
    }
    PortAddress {
        gid,
        lid: Lid(u16::from(host) + u16::from(port)),
    }
}

/// From a local port to a peer's.
pub(crate) fn path(from: u8, to: u8) -> Path {
    let (local, remote) = (near(from), far(to));
    Path {
        port: from,
        mtu: 4,
        rate: 7,
        ack_timeout: 14,
        slid: local.lid,
        dlid: remote.lid,
        pkey: PKey::DEFAULT_FULL,
        sgid: local.gid,
        dgid: remote.gid,
        ..Path::default()
    }
}

pub(crate) fn status(number: u8, active: bool) -> PortStatus {
    PortStatus {
        active,
        lid: near(number).lid,
        lmc: 0,
        sm_lid: Lid(1),
        sm_guid: Guid(1),
        gid: near(number).gid,
        pkeys: vec![PKey::DEFAULT_FULL],
        mtu: 4,
        rate: 7,
        apm: true,
        moves_idle: true,
        infiniband: true,
        device_ports: 2,
    }
}

impl Qp {
    pub(crate) fn fresh(from: u8, to: u8) -> Self {
        Self {
            state: QpState::Rts,
            migration: MigrationState::Migrated,
            primary: path(from, to),
            alternate: None,
        }
    }
}

impl Event {
    /// Both ports, a connection of each role, and an association of each.
    pub(crate) fn two_associations() -> Vec<Self> {
        let [active, passive] = [1, 2].map(|conn| Conn { client: 1, conn });
        vec![
            Self::Port(port(1), Some(status(1, true))),
            Self::Port(port(2), Some(status(2, true))),
            Self::Wait(1_000),
            Self::Register(active, Role::Active, Qp::fresh(1, 1)),
            Self::Wait(20),
            // The last message is the engine's REQ, and then its RTU.
            Self::Answer(usize::MAX),
            Self::Register(passive, Role::Passive, Qp::fresh(1, 1)),
            Self::Request(passive, 0),
            Self::Answer(usize::MAX),
        ]
    }
}

fn ports() -> impl Strategy<Value = (u8, u8)> {
    // Mostly those that there are.
    let port = || prop_oneof![9 => 1..=2u8, 1 => 0..=3u8];
    (port(), port())
}

fn conn() -> impl Strategy<Value = Conn> {
    (1..=2u32, 1..=3u32).prop_map(|(client, conn)| Conn { client, conn })
}

fn a_path() -> impl Strategy<Value = Path> {
    let any_path = (any::<[u8; 9]>(), any::<[u16; 3]>(), any::<[[u8; 16]; 2]>()).prop_map(
        |(bytes, [slid, dlid, pkey], [sgid, dgid])| Path {
            port: bytes[0],
            sl: bytes[1],
            mtu: bytes[2],
            rate: bytes[3],
            ack_timeout: bytes[4],
            global: bytes[5] & 1 == 1,
            traffic_class: bytes[6],
            hop_limit: bytes[7],
            flow_label: u32::from(bytes[8]) << 14,
            slid: Lid(slid),
            dlid: Lid(dlid),
            pkey: PKey(pkey),
            sgid: Gid(sgid),
            dgid: Gid(dgid),
        },
    );
    prop_oneof![8 => ports().prop_map(|(from, to)| path(from, to)), 1 => any_path]
}

fn qp() -> impl Strategy<Value = Qp> {
    use {MigrationState as M, QpState as S};
    let state = prop_oneof![
        12 => Just(S::Rts),
        1 => prop::sample::select(vec![S::Reset, S::Init, S::Rtr, S::Sqd, S::Sqe, S::Error]),
    ];
    let migration = prop::sample::select(vec![M::Migrated, M::Rearm, M::Armed]);
    (state, migration, a_path(), prop::option::of(a_path())).prop_map(
        |(state, migration, primary, alternate)| Qp {
            state,
            migration,
            primary,
            alternate,
        },
    )
}

fn a_port() -> impl Strategy<Value = (PortId, Option<PortStatus>)> {
    let odd = (any::<[u16; 4]>(), any::<[u8; 3]>(), any::<[bool; 4]>()).prop_map(
        |([lid, sm_lid, pkey, sm], [lmc, mtu, ports], [active, apm, moves_idle, infiniband])| {
            PortStatus {
                active,
                lid: Lid(lid),
                lmc: lmc % 8,
                sm_lid: Lid(sm_lid),
                sm_guid: Guid(sm.into()),
                gid: near(1).gid,
                pkeys: vec![PKey(pkey)],
                mtu,
                rate: lmc,
                apm,
                moves_idle,
                infiniband,
                device_ports: ports,
            }
        },
    );
    let usual =
        (1..=2u8, any::<bool>()).prop_map(|(number, active)| (number, Some((number, active))));
    let usual =
        usual.prop_map(|(number, is)| (port(number), is.map(|(n, active)| status(n, active))));
    let odd = (0..=3u8, prop::option::of(odd)).prop_map(|(number, is)| (port(number), is));
    prop_oneof![12 => usual, 1 => odd]
}

fn cause() -> impl Strategy<Value = Cause> {
    let token = || any::<u32>().prop_map(|token| token % 64);
    prop_oneof![
        Just(Cause::Changed),
        token().prop_map(|token| Cause::Query { token }),
        Just(Cause::PathMigrated),
        Just(Cause::PathMigrationError),
        Just(Cause::Armed),
        Just(Cause::Broken),
        Just(Cause::StandingOrder),
        token().prop_map(|token| Cause::Done { token }),
        token().prop_map(|token| Cause::Stale { token }),
        (token(), any::<u8>()).prop_map(|(token, errno)| Cause::Failed { token, errno }),
    ]
}

/// A CM MAD: of any bytes, or of zeros here and there as messages are.
fn mad() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![2 => Just(0u8), 1 => any::<u8>()];
    (0x10..=0x1cu8, vec(byte, 256)).prop_map(|(id, mut mad)| {
        mad[..4].copy_from_slice(&[1, 0x2d, 2, 3]);
        mad[16..18].copy_from_slice(&[0, id]);
        mad
    })
}

fn refused() -> impl Strategy<Value = QueryError> {
    use QueryError as E;
    let all = vec![E::Timeout, E::NoPath, E::Busy, E::Unreachable, E::Refused];
    prop::sample::select(all)
}

fn origin() -> impl Strategy<Value = Option<Origin>> {
    let all = vec![Origin::Sa, Origin::Acm, Origin::Ssa, Origin::Static];
    prop::option::of(prop::sample::select(all))
}

fn policy() -> impl Strategy<Value = PolicyOverride> {
    let mode = prop::option::of(prop::sample::select(Mode::ALL));
    let prefer = (1..=3u8).prop_map(|port| NonZeroU8::new(port).map(Placement::Prefer));
    let placement = prop_oneof![
        1 => Just(None),
        1 => Just(Some(Placement::Stay)),
        2 => Just(Some(Placement::Spread)),
        3 => prefer,
    ];
    let hold_down = prop_oneof![Just(None), (1..10_000u32).prop_map(NonZeroU32::new)];
    (mode, placement, hold_down).prop_map(|(mode, placement, hold_down)| PolicyOverride {
        mode,
        placement,
        hold_down,
    })
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    // What was said last is most often what is answered.
    let pick = || prop_oneof![3 => Just(Pick::MAX), 2 => any::<Pick>()];
    let role = prop::sample::select(vec![Role::Active, Role::Passive]);
    let overlap = prop::option::of(any::<(u8, u8)>());
    let waits = prop_oneof![6 => 0..100u64, 3 => 0..5_000u64, 1 => 0..700_000u64];
    let known = prop::option::weighted(0.8, pick());
    prop_oneof![
        8 => waits.prop_map(Event::Wait),
        4 => a_port().prop_map(|(id, status)| Event::Port(id, status)),
        3 => (conn(), role, qp()).prop_map(|(conn, role, qp)| Event::Register(conn, role, qp)),
        3 => (conn(), cause(), qp()).prop_map(|(conn, cause, qp)| Event::Report(conn, cause, qp)),
        8 => pick().prop_map(Event::Obey),
        1 => conn().prop_map(Event::Close),
        1 => (1..=2u32).prop_map(Event::ClientGone),
        8 => pick().prop_map(Event::Answer),
        2 => (conn(), pick()).prop_map(|(conn, pick)| Event::Request(conn, pick)),
        3 => (pick(), ports()).prop_map(|(pick, ports)| Event::Propose(pick, ports)),
        6 => (mad(), known, ports())
            .prop_map(|(mad, known, from)| Event::Mad { mad, known, from }),
        6 => (pick(), prop::result::maybe_err(vec(ports(), 0..4), refused()))
            .prop_map(|(pick, result)| Event::Paths(pick, result)),
        1 => (0..64u32, any::<[[u8; 32]; 2]>(), origin()).prop_map(|(query, bytes, origin)| {
            let mut record = [0; 64];
            record.copy_from_slice(bytes.as_flattened());
            Event::AnyPaths(query, record, origin)
        }),
        2 => (pick(), vec(overlap, 0..5)).prop_map(|(pick, all)| Event::Assessed(pick, all)),
        1 => Just(Event::FabricChanged),
        3 => (0..=3u8, 0..5u8, 0..4u8)
            .prop_map(|(local, kind, of)| Event::Notice(port(local), kind, of)),
        3 => (conn(), policy()).prop_map(|(conn, policy)| Event::Policy(conn, policy)),
        1 => policy().prop_map(Event::Default),
        1 => (conn(), prop::option::weighted(0.8, 0..10_000u64))
            .prop_map(|(conn, within)| Event::Command(conn, within)),
        1 => (0..=3u8, any::<bool>()).prop_map(|(number, drained)| Event::Drain(port(number), drained)),
    ]
}
