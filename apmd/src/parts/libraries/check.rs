// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a registration is true: facts in, verdict out. Nothing that a library says is believed
//! where the kernel can be asked.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;

use cm_msgs::control::{MigrationState, QpState, Refusal, Register, Snapshot};
use cm_msgs::path::Path;
use cm_msgs::{Gid, Lid, PKey};
use statemachine::{PortId, PortStatus, Time};

use super::gids::Found;
use crate::io::apm_module::KernelQp;
use crate::io::nldev::QueuePair;
use crate::kernel::kernels;

/// Whose a queue pair is, as far as the kernel knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ownership {
    /// The registering process's.
    Own,
    /// Another process's, or the kernel's.
    Foreign,
    /// All threads that made the queue pair, its protection domain and its context have ended.
    Unknown,
    /// The registering process's or another's: `/proc` does not show this process to the daemon.
    Hidden { pid: i32, why: ErrorKind },
}

/// Who has registered the queue pair before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holder {
    /// Nobody, or a process that has ended.
    Nobody,
    /// The same process.
    Same,
    /// Another process that lives.
    Other,
}

/// What a registration contradicts.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Objection {
    #[error("there is no such queue pair")]
    NoQueuePair,
    #[error("the queue pair is another process's")]
    Foreign,
    #[error(
        "the queue pair is registered by another process, and the kernel cannot say whose it is"
    )]
    Held,
    #[error(
        "whose the queue pair is cannot be told: /proc/{pid} of the process that registers it cannot be read \
         ({why}): a /proc that is mounted with hidepid wants gid= of a group that apmd is in, by \
         SupplementaryGroups= of its unit (see install.md)"
    )]
    Hidden { pid: i32, why: ErrorKind },
    #[error("the queue pair is no reliable connection")]
    NotReliable,
    #[error("the queue pair is neither in RTS nor in RTR")]
    NotConnected,
    #[error("the snapshot of the queue pair is not as the kernel has it")]
    OldSnapshot,
    #[error("its primary path is said to be {said}, and is {is}")]
    Primary { said: Way, is: Way },
    #[error("the device has no port {0}")]
    Port(u8),
    #[error("port {0} requires a GRH in every packet, and apmd sends MADs without one")]
    GrhRequired(u8),
    #[error("source LID {lid} is not port {port}'s")]
    SourceLid { port: u8, lid: Lid },
    #[error("source GID {gid} is not port {port}'s")]
    SourceGid { port: u8, gid: Gid },
    #[error("a source GID is looked for again a moment later")]
    Unsettled(Time),
    #[error("destination LID {0} is not unicast")]
    DestinationLid(Lid),
    #[error("the kernel does not say whose the queue pair is: {0}")]
    NoAnswer(String),
}

/// Where a path leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Way {
    port: u8,
    slid: Lid,
    dlid: Lid,
}

impl From<&Path> for Way {
    fn from(path: &Path) -> Self {
        let Path {
            port, slid, dlid, ..
        } = *path;
        Self { port, slid, dlid }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { port, slid, dlid } = self;
        write!(f, "from port {port}, LID {slid}, to LID {dlid}")
    }
}

impl Objection {
    /// What the library is told.
    pub(super) fn refusal(&self) -> Refusal {
        match self {
            Self::NoQueuePair
            | Self::Foreign
            | Self::Held
            | Self::Hidden { .. }
            | Self::NoAnswer(_) => Refusal::NotOwner,
            Self::GrhRequired(_) => Refusal::GrhRequired,
            _ => Refusal::Contradicted,
        }
    }

    /// Whether the queue pair or the port may have changed since the library looked, so that it is
    /// worth another look.
    pub(super) fn may_be_outdated(&self) -> bool {
        matches!(
            self,
            Self::OldSnapshot
                | Self::Primary { .. }
                | Self::SourceLid { .. }
                | Self::SourceGid { .. }
        )
    }
}

/// Whether this process may register the queue pair. Who is known to own it may take it from
/// another, whose registration is then a leftover; where nobody can know, the first stays. Who could be
/// known is not let in unseen.
pub(super) fn owner(ownership: Ownership, holder: Holder) -> Result<(), Objection> {
    match (ownership, holder) {
        (Ownership::Foreign, _) => Err(Objection::Foreign),
        (Ownership::Hidden { pid, why }, _) => Err(Objection::Hidden { pid, why }),
        (Ownership::Unknown, Holder::Other) => Err(Objection::Held),
        (Ownership::Own, _) | (Ownership::Unknown, Holder::Nobody | Holder::Same) => Ok(()),
    }
}

/// Whether a path from this port to this LID can lead to a peer: the port is an InfiniBand one that is
/// up, the LID is unicast, and no port of the same device in the same subnet owns it.
pub(super) fn leads_away(from: PortId, to: Lid, ports: &BTreeMap<PortId, PortStatus>) -> bool {
    let Some(status) = ports.get(&from) else {
        return false;
    };
    let mut device = ports.range(PortId::of_device(from.node_guid));
    let own = device.any(|(_, own)| own.may_share_subnet_with(status) && own.has_lid(to));
    status.infiniband && status.active && to.is_unicast() && !own
}

/// Whether a port takes the MADs with which ends agree on an alternate: they have no GRH.
pub(super) fn carries_mads(port: u8, requires_grh: bool) -> Result<(), Objection> {
    match requires_grh {
        true => Err(Objection::GrhRequired(port)),
        false => Ok(()),
    }
}

/// Whether the port is in the partition of this P_Key, whichever the memberships: elsewhere it reaches nobody.
pub(super) fn is_in_partition(
    port: PortId,
    pkey: PKey,
    ports: &BTreeMap<PortId, PortStatus>,
) -> bool {
    let same = |held: &PKey| held.partition() == pkey.partition();
    let held = ports.get(&port).map(|status| &status.pkeys);
    pkey.partition() != 0 && held.is_some_and(|held| held.iter().any(same))
}

/// Whether a queue pair in this state has a peer: in RTR it receives, and in RTS it sends as well.
fn is_connected(state: QpState) -> bool {
    matches!(state, QpState::Rtr | QpState::Rts)
}

/// Whether the snapshot agrees with the kernel's view of the queue pair.
pub(super) fn queue_pair(snapshot: &Snapshot, kernel: &QueuePair) -> Result<(), Objection> {
    if !kernel.reliable {
        return Err(Objection::NotReliable);
    }
    let state = kernel.state.filter(|state| is_connected(*state));
    let state = state.ok_or(Objection::NotConnected)?;
    let outdated = snapshot.qp_state != state
        || kernel
            .migration
            .is_some_and(|state| state != snapshot.migration);
    if outdated {
        return Err(Objection::OldSnapshot);
    }
    Ok(())
}

/// The registration with what the kernel says in place of what it claims.
pub(super) fn corrected(register: &Register, kernel: &QueuePair) -> Register {
    let mut register = *register;
    register.peer_qpn = kernel.peer_qpn.unwrap_or(register.peer_qpn);
    if let Some(state) = kernel.state {
        register.snapshot.qp_state = state;
    }
    if let Some(migration) = kernel.migration {
        register.snapshot.migration = migration;
    }
    if register.snapshot.migration == MigrationState::Migrated {
        register.snapshot.alternate = None;
    }
    register
}

/// The registration with the kernel module's word in place of what it claims, unless its primary path is
/// another. Roles are known to the connection manager, of which the module may have heard.
pub(super) fn told(register: &Register, kernel: &KernelQp) -> Result<Register, Objection> {
    let snapshot = kernel.snapshot.ok_or(Objection::NotConnected)?;
    if !is_connected(snapshot.qp_state) {
        return Err(Objection::NotConnected);
    }
    let said = &register.snapshot;
    if !said.primary.same_way(&snapshot.primary) {
        return Err(Objection::Primary {
            said: Way::from(&said.primary),
            is: Way::from(&snapshot.primary),
        });
    }
    Ok(Register {
        role: kernel.role.unwrap_or(register.role),
        peer_qpn: kernel.peer_qpn,
        snapshot: kernels(said, &snapshot),
        ..*register
    })
}

/// Whether a path begins at a port as it is and can end anywhere; see [`source_gid`] as well.
pub(super) fn path(path: &Path, status: &PortStatus) -> Result<(), Objection> {
    // Other link layers have no LIDs; the engine refuses them as such.
    if !status.infiniband {
        return Ok(());
    }
    let (port, lid) = (path.port, path.slid);
    // A port that is down may have lost its LID.
    if status.lid != Lid(0) && !status.has_lid(lid) {
        return Err(Objection::SourceLid { port, lid });
    }
    if !path.dlid.is_unicast() {
        return Err(Objection::DestinationLid(path.dlid));
    }
    Ok(())
}

/// Whether the GID that a path is said to come from is its port's. `has_gid`: whether the port has a GID
/// besides its first, as far as is known.
pub(super) fn source_gid(
    path: &Path,
    status: &PortStatus,
    has_gid: impl FnOnce(Gid) -> Found,
) -> Result<(), Objection> {
    let (port, gid) = (path.port, path.sgid);
    let is_known = status.infiniband && !status.gid.is_unspecified();
    if !is_known || gid == status.gid {
        return Ok(());
    }
    match has_gid(gid) {
        Found::Yes => Ok(()),
        Found::No => Err(Objection::SourceGid { port, gid }),
        Found::NotBefore(at) => Err(Objection::Unsettled(at)),
    }
}

/// Whether a report can be true at all: what an order rests on is compared with the queue pair
/// itself by the process that owns it, so a port's changes need not be waited for here. `device` is any
/// port of the device, if that is managed.
pub(super) fn report(snapshot: &Snapshot, device: Option<&PortStatus>) -> Result<(), Objection> {
    let ports = device.map_or(0, |port| port.device_ports);
    // As above: other link layers have no LIDs.
    let has_lids = device.is_some_and(|port| port.infiniband);
    let paths = std::iter::once(&snapshot.primary).chain(&snapshot.alternate);
    for path in paths {
        if path.port == 0 || path.port > ports {
            return Err(Objection::Port(path.port));
        }
        if has_lids && !path.dlid.is_unicast() {
            return Err(Objection::DestinationLid(path.dlid));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cm_msgs::Qpn;
    use cm_msgs::control::Role;

    use super::*;
    use crate::io::apm_module::{Cookie, Owner};

    const GID: Gid = Gid([1; 16]);

    fn kernel() -> QueuePair {
        QueuePair {
            maker: crate::io::nldev::Maker::Ended,
            reliable: true,
            state: Some(QpState::Rts),
            migration: Some(MigrationState::Armed),
            peer_qpn: Some(Qpn(0x22)),
        }
    }

    fn status() -> PortStatus {
        PortStatus {
            active: true,
            lid: Lid(8),
            lmc: 2,
            sm_lid: Lid(1),
            sm_guid: cm_msgs::Guid(1),
            gid: GID,
            pkeys: Vec::new(),
            mtu: 5,
            rate: 7,
            apm: true,
            moves_idle: false,
            infiniband: true,
            device_ports: 2,
        }
    }

    fn primary() -> Path {
        Path {
            port: 1,
            slid: Lid(10),
            dlid: Lid(20),
            sgid: GID,
            ..Path::default()
        }
    }

    #[test]
    fn a_peer_is_behind_a_unicast_lid_that_is_not_ones_own() {
        let port = |number| PortId::new(cm_msgs::Guid(1), number);
        let second = PortStatus {
            lid: Lid(0x40),
            lmc: 0,
            ..status()
        };
        let other_subnet = PortStatus {
            lid: Lid(20),
            lmc: 0,
            gid: Gid([2; 16]),
            ..status()
        };
        let mut ports = BTreeMap::from([
            (port(1), status()),
            (port(2), second),
            (port(3), other_subnet),
        ]);
        let leads = |ports: &_, lid| leads_away(port(1), Lid(lid), ports);
        assert!(
            leads(&ports, 20),
            "LID 20 of another subnet is another port"
        );
        for own in [8, 11, 0x40] {
            assert!(!leads(&ports, own), "{own}");
        }
        for none in [0, 0xc000, 0xffff] {
            assert!(!leads(&ports, none), "{none}");
        }
        // Two subnets of one prefix: its subnet manager tells that LID 0x40 is another's here.
        let other_manager = PortStatus {
            lid: Lid(0x40),
            lmc: 0,
            sm_guid: cm_msgs::Guid(2),
            ..status()
        };
        let own = ports.insert(port(2), other_manager);
        assert!(leads(&ports, 0x40), "crossed LIDs");
        ports.extend(own.map(|own| (port(2), own)));
        assert!(!leads_away(port(4), Lid(20), &ports), "no such port");
        let down = PortStatus {
            active: false,
            ..status()
        };
        ports.insert(port(1), down);
        assert!(!leads(&ports, 20), "a port that is down leads nowhere");
    }

    fn snapshot() -> Snapshot {
        Snapshot {
            qp_state: QpState::Rts,
            migration: MigrationState::Armed,
            primary: primary(),
            alternate: Some(primary()),
        }
    }

    fn registered() -> Register {
        Register {
            role: Role::Active,
            opted_in: false,
            node_guid: cm_msgs::Guid(1),
            qpn: Qpn(0x11),
            peer_qpn: Qpn(0x99),
            policy: cm_msgs::control::PolicyOverride::default(),
            snapshot: snapshot(),
        }
    }

    #[test]
    fn a_live_registration_is_never_displaced_by_a_stranger() {
        use Holder::{Nobody, Other, Same};
        use Ownership::{Foreign, Own, Unknown};
        let (pid, why) = (7, ErrorKind::PermissionDenied);
        let unseen = Ownership::Hidden { pid, why };
        let hidden = || Err(Objection::Hidden { pid, why });
        let cases = [
            (Own, Nobody, Ok(())),
            (Own, Same, Ok(())),
            (Own, Other, Ok(())),
            (Unknown, Nobody, Ok(())),
            (Unknown, Same, Ok(())),
            (Unknown, Other, Err(Objection::Held)),
            (Foreign, Nobody, Err(Objection::Foreign)),
            (Foreign, Same, Err(Objection::Foreign)),
            (Foreign, Other, Err(Objection::Foreign)),
            (unseen, Nobody, hidden()),
            (unseen, Same, hidden()),
            (unseen, Other, hidden()),
        ];
        for (ownership, holder, verdict) in cases {
            assert_eq!(
                owner(ownership, holder),
                verdict,
                "{ownership:?} {holder:?}"
            );
        }
    }

    #[test]
    fn who_cannot_be_seen_is_not_called_another_and_it_is_said_what_to_do() {
        let (pid, why) = (812, ErrorKind::PermissionDenied);
        let objection = Objection::Hidden { pid, why };
        assert_eq!(objection.refusal(), Refusal::NotOwner);
        assert!(!objection.may_be_outdated());
        let said = objection.to_string();
        let want = "whose the queue pair is cannot be told: /proc/812 of the process that registers it cannot \
                    be read (permission denied): a /proc that is mounted with hidepid wants gid= of ";
        assert!(said.starts_with(want), "{said}");
        assert!(said.contains("SupplementaryGroups="), "{said}");
    }

    #[test]
    fn the_kernel_is_believed() {
        assert_eq!(queue_pair(&snapshot(), &kernel()), Ok(()));
        let migrated = QueuePair {
            migration: Some(MigrationState::Migrated),
            ..kernel()
        };
        assert_eq!(
            queue_pair(&snapshot(), &migrated),
            Err(Objection::OldSnapshot)
        );
        // One that only receives is in RTR on both sides.
        let in_rtr = QueuePair {
            state: Some(QpState::Rtr),
            ..kernel()
        };
        let receives = Snapshot {
            qp_state: QpState::Rtr,
            ..snapshot()
        };
        assert_eq!(queue_pair(&receives, &in_rtr), Ok(()));
        for (said, is) in [(&receives, &kernel()), (&snapshot(), &in_rtr)] {
            assert_eq!(queue_pair(said, is), Err(Objection::OldSnapshot));
        }
        let cases = [
            (
                QueuePair {
                    reliable: false,
                    ..kernel()
                },
                Objection::NotReliable,
            ),
            (
                QueuePair {
                    state: Some(QpState::Error),
                    ..kernel()
                },
                Objection::NotConnected,
            ),
            (
                QueuePair {
                    state: None,
                    ..kernel()
                },
                Objection::NotConnected,
            ),
        ];
        for (kernel, objection) in cases {
            assert_eq!(queue_pair(&snapshot(), &kernel), Err(objection));
        }
        let corrected = corrected(&registered(), &migrated);
        assert_eq!(corrected.peer_qpn, Qpn(0x22));
        assert_eq!(corrected.snapshot.migration, MigrationState::Migrated);
        assert_eq!(corrected.snapshot.alternate, None);
    }

    #[test]
    fn the_kernel_module_is_believed_and_a_made_up_path_is_not() {
        let kernel = KernelQp {
            cookie: Cookie(1),
            node_guid: cm_msgs::Guid(1),
            qpn: Qpn(0x11),
            peer_qpn: Qpn(0x22),
            role: None,
            left_alone: None,
            owner: Owner::default(),
            retries: Some(7),
            snapshot: Some(Snapshot {
                migration: MigrationState::Migrated,
                primary: Path {
                    mtu: 4,
                    ..primary()
                },
                alternate: None,
                ..snapshot()
            }),
        };
        let true_one = registered();
        let register = told(&true_one, &kernel).expect("true");
        assert_eq!(register.peer_qpn, Qpn(0x22), "not as is claimed");
        assert_eq!(register.role, Role::Active, "the library's word");
        assert_eq!(register.snapshot.migration, MigrationState::Migrated);
        assert_eq!(register.snapshot.primary.mtu, 4);
        assert_eq!(register.snapshot.alternate, None);
        let passive = KernelQp {
            role: Some(Role::Passive),
            ..kernel.clone()
        };
        let register = told(&true_one, &passive).expect("true");
        assert_eq!(register.role, Role::Passive);
        for lie in [
            Path {
                port: 2,
                ..primary()
            },
            Path {
                slid: Lid(11),
                ..primary()
            },
            Path {
                dlid: Lid(21),
                ..primary()
            },
        ] {
            let mut register = true_one;
            register.snapshot.primary = lie;
            let objection = told(&register, &kernel).expect_err("a lie");
            assert!(objection.may_be_outdated());
            assert_eq!(objection.refusal(), Refusal::Contradicted);
        }
        let mut register = true_one;
        register.snapshot.primary.dlid = Lid(21);
        let objection = told(&register, &kernel).expect_err("a lie").to_string();
        assert_eq!(
            objection,
            "its primary path is said to be from port 1, LID 10, to LID 21, and is from port 1, \
             LID 10, to LID 20"
        );
        let broken = KernelQp {
            snapshot: kernel.snapshot.map(|snapshot| Snapshot {
                qp_state: QpState::Error,
                ..snapshot
            }),
            ..kernel
        };
        assert_eq!(told(&true_one, &broken), Err(Objection::NotConnected));
    }

    #[test]
    fn a_path_begins_at_its_port() {
        let judge = |path: Path| {
            super::path(&path, &status())?;
            let has_gid = |gid| match gid == Gid([2; 16]) {
                true => Found::Yes,
                false => Found::No,
            };
            source_gid(&path, &status(), has_gid)
        };
        assert_eq!(judge(primary()), Ok(()));
        assert_eq!(
            judge(Path {
                sgid: Gid([2; 16]),
                ..primary()
            }),
            Ok(())
        );
        for lid in [0, 7, 12] {
            let lid = Lid(lid);
            let objection = Objection::SourceLid { port: 1, lid };
            assert_eq!(
                judge(Path {
                    slid: lid,
                    ..primary()
                }),
                Err(objection)
            );
        }
        let gid = Gid([3; 16]);
        let objection = Objection::SourceGid { port: 1, gid };
        assert_eq!(
            judge(Path {
                sgid: gid,
                ..primary()
            }),
            Err(objection)
        );
        for lid in [0, 0xc000, 0xffff] {
            let dlid = Lid(lid);
            let objection = Objection::DestinationLid(dlid);
            assert_eq!(judge(Path { dlid, ..primary() }), Err(objection));
        }
        let without_lid = PortStatus {
            lid: Lid(0),
            active: false,
            ..status()
        };
        assert_eq!(path(&primary(), &without_lid), Ok(()));
    }

    #[test]
    fn a_report_names_ports_that_exist() {
        assert_eq!(report(&snapshot(), Some(&status())), Ok(()));
        assert_eq!(report(&snapshot(), None), Err(Objection::Port(1)));
        let mut alternate = snapshot();
        alternate.alternate = Some(Path {
            dlid: Lid(0xffff),
            ..primary()
        });
        assert_eq!(
            report(&alternate, Some(&status())),
            Err(Objection::DestinationLid(Lid(0xffff)))
        );
    }

    #[test]
    fn a_peer_is_asked_for_in_partitions_of_the_port_only() {
        let port = |number| PortId::new(cm_msgs::Guid(1), number);
        let limited = PortStatus {
            pkeys: vec![PKey(0), PKey(0x7fff), PKey(0x8005)],
            ..status()
        };
        let ports = BTreeMap::from([(port(1), limited)]);
        for (number, pkey, wanted) in [
            (1, PKey::DEFAULT_FULL, true),
            (1, PKey(0x0005), true),
            (1, PKey(0x8006), false),
            (1, PKey(0x8000), false),
            (2, PKey(0x8005), false),
        ] {
            assert_eq!(is_in_partition(port(number), pkey, &ports), wanted);
        }
    }

    #[test]
    fn another_link_layer_has_no_lids() {
        let ethernet = PortStatus {
            infiniband: false,
            ..status()
        };
        let mut roce = snapshot();
        (roce.primary.slid, roce.primary.dlid) = (Lid(0), Lid(0));
        assert_eq!(report(&roce, Some(&ethernet)), Ok(()));
        assert_eq!(path(&roce.primary, &ethernet), Ok(()));
        assert_eq!(source_gid(&roce.primary, &ethernet, |_| Found::No), Ok(()));
        let objection = Objection::DestinationLid(Lid(0));
        assert_eq!(report(&roce, Some(&status())), Err(objection));
    }

    #[test]
    fn what_may_have_changed_meanwhile_is_looked_at_again() {
        assert!(Objection::OldSnapshot.may_be_outdated());
        assert!(!Objection::Foreign.may_be_outdated());
        assert_eq!(Objection::Foreign.refusal(), Refusal::NotOwner);
        assert_eq!(Objection::NotConnected.refusal(), Refusal::Contradicted);
        let objection = carries_mads(1, true).expect_err("none without a GRH");
        assert_eq!(objection.refusal(), Refusal::GrhRequired);
        assert_eq!(carries_mads(1, false), Ok(()));
    }
}
