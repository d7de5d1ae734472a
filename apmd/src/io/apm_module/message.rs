// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel module and its client say to each other, as values: the attributes of its netlink
//! family (`kernel/apm.yaml`), all integers in the host's byte order.

use std::fmt;

use cm_msgs::control::{MigrationState, QpState, Role, Snapshot};
use cm_msgs::path::Path;
use cm_msgs::{Gid, Guid, Lid, PKey, Qpn, is_unprintable};
use netlink_packet_core::{DecodeError, DefaultNla, Emitable, ParseableParametrized};
use netlink_packet_generic::{GenlFamily, GenlHeader};

use super::attributes::{Attributes, nest, u32_of};
use super::care::{self, Protect, Rule};
use super::constants::{FAMILY, VERSION, a_path, a_qp, cause, cmd, probes, refusal, role};
use crate::io::person::Person;

/// A queue pair's name; never used again for another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Cookie(pub(crate) u64);

/// Why the module leaves a queue pair alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LeftAlone {
    /// By the settings.
    Owner,
    /// Its owner loads alternates, or librdmacm-apm in it.
    OwnApm,
    /// It stays in RTR.
    ResponderOnly,
    /// It leads back to this host.
    Loopback,
    /// The device cannot, or the port is not InfiniBand.
    NoApm,
    /// A later module's reason.
    Other(u32),
}

impl LeftAlone {
    fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            refusal::NONE => return None,
            refusal::OWNER => Self::Owner,
            refusal::OWN_APM => Self::OwnApm,
            refusal::RESPONDER_ONLY => Self::ResponderOnly,
            refusal::LOOPBACK => Self::Loopback,
            refusal::NO_APM => Self::NoApm,
            other => Self::Other(other),
        })
    }
}

impl fmt::Display for LeftAlone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner => f.write_str("[kernel] in apmd.toml leaves its owner alone"),
            Self::OwnApm => {
                f.write_str("its program, or librdmacm-apm in it, loads alternate paths")
            }
            Self::ResponderOnly => f.write_str(
                "responder only: it stays in RTR, where no alternate path can be loaded",
            ),
            Self::Loopback => f.write_str("it leads back to its own device"),
            Self::NoApm => f.write_str(
                "the device has no automatic path migration, or the port is not infiniband",
            ),
            Self::Other(code) => write!(f, "the kernel module's reason {code}"),
        }
    }
}

/// Who made a queue pair.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Owner {
    /// A kernel module's name, or a command.
    pub(crate) name: String,
    /// `None`: the kernel.
    pub(crate) pid: Option<i32>,
    pub(crate) uid: u32,
    /// The user that the queue pair is charged to. The module knows the owner of the outermost user namespace that
    /// `uid` is in, or `uid` itself in the first namespace. Either may be a subordinate ID.
    pub(crate) payer: Person,
    /// When its process started, in nanoseconds since the host did. `None`: that is not known.
    pub(crate) started: Option<u64>,
}

/// A queue pair as the module tells of it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct KernelQp {
    pub(crate) cookie: Cookie,
    pub(crate) node_guid: Guid,
    pub(crate) qpn: Qpn,
    pub(crate) peer_qpn: Qpn,
    /// `None`: no connection manager said.
    pub(crate) role: Option<Role>,
    pub(crate) left_alone: Option<LeftAlone>,
    pub(crate) owner: Owner,
    /// How often what is not acknowledged is sent again; `None`: not told.
    pub(crate) retries: Option<u8>,
    /// `None`: it has no primary path yet.
    pub(crate) snapshot: Option<Snapshot>,
}

/// Why there is a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    Done,
    Stale,
    Failed,
    Armed,
    PathMigrated,
    PathMigrationError,
    /// Also what a later module may call otherwise.
    Changed,
    Broken,
}

impl Cause {
    fn from_code(code: u32) -> Self {
        match code {
            cause::DONE => Self::Done,
            cause::STALE => Self::Stale,
            cause::FAILED => Self::Failed,
            cause::ARMED => Self::Armed,
            cause::PATH_MIGRATED => Self::PathMigrated,
            cause::PATH_MIG_ERR => Self::PathMigrationError,
            cause::BROKEN => Self::Broken,
            _ => Self::Changed,
        }
    }
}

/// The answer to an order, or what has happened.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct KernelReport {
    pub(crate) cookie: Cookie,
    pub(crate) cause: Cause,
    /// Of the order that is answered.
    pub(crate) token: Option<u32>,
    /// A positive errno, of a failure.
    pub(crate) errno: u32,
    pub(crate) snapshot: Option<Snapshot>,
}

/// What is asked of a queue pair.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Ask {
    Load {
        primary: Path,
        alternate: Path,
        standing: bool,
    },
    Migrate {
        primary: Path,
    },
    MoveIdle {
        primary: Path,
    },
    Stand {
        primary: Path,
        allowed: bool,
    },
    Query,
}

/// What the module reports of itself: whether its probes work, what it has lost, and what it supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ModuleState {
    /// `false`: its probes are switched off.
    pub(crate) working: bool,
    /// Calls that the probes have missed since the module was loaded.
    pub(crate) missed: u64,
    /// Messages of the module since then that did not reach every subscriber.
    pub(crate) lost_messages: u64,
    /// It takes [`Ask::MoveIdle`].
    pub(crate) moves_idle: bool,
}

/// A message of the family.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Message {
    /// Asks what the module says of itself.
    AskState,
    /// The answer to that.
    State(ModuleState),
    /// Names all queue pairs that are known.
    Dump,
    Order {
        cookie: Cookie,
        token: u32,
        ask: Ask,
    },
    /// Takes up a queue pair that is older than the module.
    Adopt {
        /// The device's, as in nldev.
        index: u32,
        qpn: Qpn,
    },
    Configure {
        protect: Protect,
        rules: Vec<Rule>,
    },
    /// Bounds the ACK timeout of connections that begin towards a peer's port.
    Peer {
        /// The device's, as in nldev.
        index: u32,
        port: u8,
        dlid: Lid,
        /// An exponent; 0: no more.
        ack_timeout: u8,
    },
    /// A queue pair asks for a connection, over this path: port, dlid and pkey are known of it.
    Connecting {
        node_guid: Guid,
        /// The user that it is charged to.
        payer: Person,
        primary: Path,
    },
    /// One is connected, or is now (not) left alone; or, in answer to `Dump`, is there.
    New(Box<KernelQp>),
    Gone(Cookie),
    Report(Box<KernelReport>),
    /// What a later module says.
    Other,
}

impl GenlFamily for Message {
    fn family_name() -> &'static str {
        FAMILY
    }

    fn command(&self) -> u8 {
        match self {
            Self::Dump | Self::AskState | Self::State(_) => cmd::GET,
            Self::Adopt { .. } => cmd::QUERY,
            Self::Order { ask, .. } => match ask {
                Ask::Load { .. } => cmd::LOAD,
                Ask::Migrate { .. } => cmd::MIGRATE,
                Ask::MoveIdle { .. } => cmd::MOVE_IDLE,
                Ask::Stand { .. } => cmd::STANDING,
                Ask::Query => cmd::QUERY,
            },
            Self::Configure { .. } | Self::Other => cmd::CONFIG,
            Self::Peer { .. } => cmd::PEER,
            Self::Connecting { .. } => cmd::CONNECTING,
            Self::New(_) => cmd::NEW,
            Self::Gone(_) => cmd::DEL,
            Self::Report(_) => cmd::REPORT,
        }
    }

    fn version(&self) -> u8 {
        VERSION
    }
}

impl Message {
    /// Of what is sent.
    fn attributes(&self) -> Vec<DefaultNla> {
        match self {
            Self::Adopt { index, qpn } => {
                vec![u32_of(a_qp::DEV_INDEX, *index), u32_of(a_qp::QPN, qpn.0)]
            }
            Self::Order { cookie, token, ask } => order(*cookie, *token, ask),
            Self::Configure { protect, rules } => care::attributes(*protect, rules),
            Self::Peer {
                index,
                port,
                dlid,
                ack_timeout,
            } => {
                // Of a peer's path the module takes no more: zeros would be out of range.
                let path = [
                    DefaultNla::new(a_path::PORT, vec![*port]),
                    DefaultNla::new(a_path::DLID, dlid.0.to_ne_bytes().to_vec()),
                    DefaultNla::new(a_path::ACK_TIMEOUT, vec![*ack_timeout]),
                ];
                let path = nest(a_qp::PRIMARY, &path);
                vec![u32_of(a_qp::DEV_INDEX, *index), path]
            }
            _ => Vec::new(),
        }
    }
}

fn order(cookie: Cookie, token: u32, ask: &Ask) -> Vec<DefaultNla> {
    let mut attributes = vec![
        DefaultNla::new(a_qp::COOKIE, cookie.0.to_ne_bytes().to_vec()),
        u32_of(a_qp::TOKEN, token),
    ];
    let primary = |path| nest(a_qp::PRIMARY, &of_path(path));
    let standing = |allowed: bool| DefaultNla::new(a_qp::STANDING, vec![allowed.into()]);
    match ask {
        Ask::Load {
            primary: from,
            alternate,
            standing: allowed,
        } => attributes.extend([
            primary(from),
            nest(a_qp::ALTERNATE, &of_path(alternate)),
            standing(*allowed),
        ]),
        Ask::Migrate { primary: from } | Ask::MoveIdle { primary: from } => {
            attributes.push(primary(from));
        }
        Ask::Stand {
            primary: from,
            allowed,
        } => attributes.extend([primary(from), standing(*allowed)]),
        Ask::Query => {}
    }
    attributes
}

/// What an order says of a path.
fn of_path(path: &Path) -> Vec<DefaultNla> {
    let byte = |kind, value: u8| DefaultNla::new(kind, vec![value]);
    let lid = |kind, lid: Lid| DefaultNla::new(kind, lid.0.to_ne_bytes().to_vec());
    let mut attributes = vec![
        byte(a_path::PORT, path.port),
        byte(a_path::SL, path.sl),
        byte(a_path::RATE, path.rate),
        byte(a_path::ACK_TIMEOUT, path.ack_timeout),
        lid(a_path::SLID, path.slid),
        lid(a_path::DLID, path.dlid),
    ];
    if path.global {
        attributes.push(DefaultNla::new(a_path::GLOBAL, Vec::new()));
    }
    attributes
}

impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        self.attributes().as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes().as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Message {
    fn parse_with_param(bytes: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        let read = Attributes::read(bytes)?;
        let without = |what: &str| DecodeError::from(format!("netlink family apm: no {what}"));
        let cookie = || read.u64(a_qp::COOKIE).map(Cookie);
        let cookie = || cookie().ok_or_else(|| without("cookie"));
        let device = || read.u64(a_qp::NODE_GUID).map(Guid);
        let device = || device().ok_or_else(|| without("device"));
        Ok(match header.cmd {
            cmd::NEW => Self::New(Box::new(KernelQp {
                cookie: cookie()?,
                node_guid: device()?,
                qpn: read.qpn(a_qp::QPN).ok_or_else(|| without("queue pair"))?,
                peer_qpn: read.qpn(a_qp::PEER_QPN).unwrap_or_default(),
                role: match read.u32(a_qp::ROLE) {
                    Some(role::ACTIVE) => Some(Role::Active),
                    Some(role::PASSIVE) => Some(Role::Passive),
                    _ => None,
                },
                left_alone: read.u32(a_qp::REFUSAL).and_then(LeftAlone::from_code),
                owner: read.owner(),
                retries: read.u8(a_qp::RETRIES),
                snapshot: read.snapshot()?,
            })),
            cmd::DEL => Self::Gone(cookie()?),
            cmd::REPORT => Self::Report(Box::new(KernelReport {
                cookie: cookie()?,
                cause: Cause::from_code(read.u32(a_qp::CAUSE).ok_or_else(|| without("cause"))?),
                token: read.u32(a_qp::TOKEN),
                errno: read.u32(a_qp::ERRNO).unwrap_or(0),
                snapshot: read.snapshot()?,
            })),
            cmd::CONNECTING => Self::Connecting {
                node_guid: device()?,
                payer: read.owner().payer,
                primary: read.path(a_qp::PRIMARY)?.ok_or_else(|| without("path"))?,
            },
            cmd::GET => Self::State(ModuleState {
                working: read.u32(a_qp::PROBES) == Some(probes::WORKING),
                missed: read.u64(a_qp::MISSED_HITS).unwrap_or(0),
                lost_messages: read.u64(a_qp::LOST_MESSAGES).unwrap_or(0),
                moves_idle: read.0.contains_key(&a_qp::MOVES_IDLE),
            }),
            _ => Self::Other,
        })
    }
}

/// What a message's attributes say.
impl Attributes<'_> {
    fn qpn(&self, kind: u16) -> Option<Qpn> {
        self.u32(kind).map(Qpn)
    }

    fn owner(&self) -> Owner {
        let name = self.0.get(&a_qp::OWNER_NAME).copied().unwrap_or_default();
        let name = name.strip_suffix(b"\0").unwrap_or(name);
        let uid = self.u32(a_qp::OWNER_UID).unwrap_or(0);
        Owner {
            // Operators see it on their terminals, which obey control characters.
            name: String::from_utf8_lossy(name).replace(is_unprintable, "?"),
            pid: self
                .u32(a_qp::OWNER_PID)
                .and_then(|pid| i32::try_from(pid).ok()),
            uid,
            payer: Person::of(self.u32(a_qp::CHARGED_UID).unwrap_or(uid)),
            started: self.u64(a_qp::OWNER_START).filter(|at| *at != 0),
        }
    }

    fn snapshot(&self) -> Result<Option<Snapshot>, DecodeError> {
        let state = self
            .u32(a_qp::QP_STATE)
            .and_then(|code| u8::try_from(code).ok());
        let migration = self
            .u32(a_qp::MIGRATION)
            .and_then(|code| u8::try_from(code).ok());
        let (Some(qp_state), Some(migration), Some(primary)) = (
            state.and_then(QpState::from_code),
            migration.and_then(MigrationState::from_code),
            self.path(a_qp::PRIMARY)?,
        ) else {
            return Ok(None);
        };
        // As a library tells it: in state Migrated there is none that counts.
        let alternate = self.path(a_qp::ALTERNATE)?;
        Ok(Some(Snapshot {
            qp_state,
            migration,
            primary,
            alternate: alternate.filter(|_| migration != MigrationState::Migrated),
        }))
    }

    fn path(&self, kind: u16) -> Result<Option<Path>, DecodeError> {
        let Some(nested) = self.0.get(&kind) else {
            return Ok(None);
        };
        let path = Attributes::read(nested)?;
        let gid = |kind| path.chunk(kind).map(Gid).unwrap_or_default();
        Ok(Some(Path {
            port: path.u8(a_path::PORT).unwrap_or(0),
            sl: path.u8(a_path::SL).unwrap_or(0),
            mtu: path.u8(a_path::MTU).unwrap_or(0),
            rate: path.u8(a_path::RATE).unwrap_or(0),
            ack_timeout: path.u8(a_path::ACK_TIMEOUT).unwrap_or(0),
            global: path.0.contains_key(&a_path::GLOBAL),
            slid: Lid(path.u16(a_path::SLID).unwrap_or(0)),
            dlid: Lid(path.u16(a_path::DLID).unwrap_or(0)),
            pkey: PKey(path.u16(a_path::PKEY).unwrap_or(0)),
            sgid: gid(a_path::SGID),
            dgid: gid(a_path::DGID),
            ..Path::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NlasIterator;
    use netlink_packet_generic::GenlHeader;

    use super::super::constants::{a_rule, protect};
    use super::*;
    use crate::io::person::testing::with_subuid;

    fn primary() -> Path {
        Path {
            port: 1,
            sl: 3,
            rate: 2,
            ack_timeout: 14,
            slid: Lid(4),
            dlid: Lid(9),
            ..Path::default()
        }
    }

    fn bytes(message: &Message) -> Vec<u8> {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    }

    fn read(cmd: u8, attributes: &[DefaultNla]) -> Result<Message, DecodeError> {
        let mut bytes = vec![0; attributes.buffer_len()];
        attributes.emit(&mut bytes);
        Message::parse_with_param(&bytes, GenlHeader { cmd, version: 1 })
    }

    fn reported(migration: u32) -> Vec<DefaultNla> {
        vec![
            DefaultNla::new(a_qp::COOKIE, 7u64.to_ne_bytes().to_vec()),
            u32_of(a_qp::CAUSE, cause::FAILED),
            u32_of(a_qp::TOKEN, 5),
            u32_of(a_qp::ERRNO, 22),
            u32_of(a_qp::QP_STATE, 3),
            u32_of(a_qp::MIGRATION, migration),
            nest(a_qp::PRIMARY, &of_path(&primary())),
            nest(a_qp::ALTERNATE, &of_path(&primary())),
        ]
    }

    #[test]
    fn an_order_names_the_path_that_it_is_for() {
        let order = Message::Order {
            cookie: Cookie(0x0102_0304_0506_0708),
            token: 77,
            ask: Ask::Load {
                primary: primary(),
                alternate: Path {
                    port: 2,
                    ..primary()
                },
                standing: true,
            },
        };
        assert_eq!(order.command(), cmd::LOAD);
        let bytes = bytes(&order);
        let said = Attributes::read(&bytes).expect("well-formed");
        assert_eq!(said.u64(a_qp::COOKIE), Some(0x0102_0304_0506_0708));
        assert_eq!(said.u32(a_qp::TOKEN), Some(77));
        assert_eq!(said.u8(a_qp::STANDING), Some(1));
        assert_eq!(said.path(a_qp::PRIMARY).ok(), Some(Some(primary())));
        let alternate = said.path(a_qp::ALTERNATE).expect("well-formed");
        assert_eq!(alternate.map(|path| path.port), Some(2));
    }

    #[test]
    fn what_is_older_is_named_by_device_and_number() {
        let adopt = Message::Adopt {
            index: 3,
            qpn: Qpn(0x22),
        };
        assert_eq!(adopt.command(), cmd::QUERY);
        let bytes = bytes(&adopt);
        let said = Attributes::read(&bytes).expect("well-formed");
        assert_eq!(said.u32(a_qp::DEV_INDEX), Some(3));
        assert_eq!(said.u32(a_qp::QPN), Some(0x22));
        assert_eq!(said.u64(a_qp::COOKIE), None);
    }

    /// What is 0 is out of the module's range, and what it does not take is refused as a whole.
    #[test]
    fn a_peer_is_named_by_port_lid_and_bound_only() {
        let peer = Message::Peer {
            index: 3,
            port: 1,
            dlid: Lid(9),
            ack_timeout: 0,
        };
        let bytes = bytes(&peer);
        let read = Attributes::read(&bytes).unwrap();
        assert_eq!(read.u32(a_qp::DEV_INDEX), Some(3));
        let nest = read.0.get(&a_qp::PRIMARY).expect("a path");
        let path = Attributes::read(nest).unwrap();
        let mut wanted = [a_path::PORT, a_path::DLID, a_path::ACK_TIMEOUT];
        wanted.sort_unstable();
        assert!(path.0.keys().eq(&wanted), "{:?}", path.0);
    }

    #[test]
    fn rules_are_nests_in_a_nest() {
        let cgroup = Rule::Cgroup("/a.slice".to_owned());
        let rules = vec![Rule::Name("ib_ipoib".to_owned()), Rule::Uid(7), cgroup];
        let bytes = bytes(&Message::Configure {
            protect: Protect::Ulps,
            rules,
        });
        let said = Attributes::read(&bytes).expect("well-formed");
        assert_eq!(said.u32(a_qp::PROTECT), Some(protect::ULPS));
        let rules: Vec<_> = NlasIterator::new(said.0[&a_qp::RULES])
            .map(|rule| rule.expect("a rule").value().to_vec())
            .collect();
        let rules: Vec<_> = rules
            .iter()
            .map(|rule| Attributes::read(rule).expect("attributes"))
            .collect();
        assert_eq!(rules[0].0[&a_rule::NAME], b"ib_ipoib\0");
        assert_eq!(rules[1].u32(a_rule::UID), Some(7));
        assert_eq!(rules[2].0[&a_rule::CGROUP], b"/a.slice\0");
    }

    #[test]
    fn a_report_has_its_orders_token_and_what_is_loaded() {
        for (code, loaded) in [(2, true), (1, true), (0, false)] {
            let Ok(Message::Report(report)) = read(cmd::REPORT, &reported(code)) else {
                panic!("not a report");
            };
            assert_eq!((report.cookie, report.cause), (Cookie(7), Cause::Failed));
            assert_eq!((report.token, report.errno), (Some(5), 22));
            let snapshot = report.snapshot.expect("it has a primary");
            assert_eq!(snapshot.primary, primary());
            assert_eq!(snapshot.alternate.is_some(), loaded);
        }
    }

    #[test]
    fn the_modules_state_is_the_answer_to_a_get_without_a_dump() {
        assert_eq!(Message::AskState.command(), cmd::GET);
        let u64_of = |kind, value: u64| DefaultNla::new(kind, value.to_ne_bytes().to_vec());
        let missed = u64_of(a_qp::MISSED_HITS, 3);
        let lost = u64_of(a_qp::LOST_MESSAGES, 1 << 40);
        for (code, working) in [(probes::WORKING, true), (probes::BLIND, false)] {
            // A module of an earlier version reports no lost messages, and moves nothing that is idle.
            let later = [lost.clone(), DefaultNla::new(a_qp::MOVES_IDLE, Vec::new())];
            for (later, lost_messages) in [(&later[..], 1 << 40), (&[], 0)] {
                let attributes = [u32_of(a_qp::PROBES, code), missed.clone()];
                let attributes: Vec<_> = attributes.iter().chain(later).cloned().collect();
                let said = read(cmd::GET, &attributes);
                let want = ModuleState {
                    working,
                    missed: 3,
                    lost_messages,
                    moves_idle: !later.is_empty(),
                };
                assert_eq!(said.ok(), Some(Message::State(want)));
            }
        }
    }

    /// A module of an earlier version does not report the charged user.
    #[test]
    fn a_queue_pair_is_charged_to_whom_the_module_names() {
        let uid = u32_of(a_qp::OWNER_UID, 100_005);
        for (more, charged) in [
            (vec![], 100_005),
            (vec![u32_of(a_qp::CHARGED_UID, 1234)], 1234),
        ] {
            let attributes = [vec![uid.clone()], more].concat();
            let mut bytes = vec![0; attributes.as_slice().buffer_len()];
            attributes.as_slice().emit(&mut bytes);
            let owner = Attributes::read(&bytes).expect("well-formed").owner();
            assert_eq!((owner.uid, owner.payer), (100_005, Person::of(charged)));
        }
    }

    /// The module names the process's own user ID if the process is in the first user namespace, and a subordinate ID can
    /// be there: in a namespace made by newuidmap(1) a user gives a program to 100001 and makes it set-user-ID.
    #[test]
    fn a_queue_pair_of_a_subordinate_user_is_charged_to_its_person() {
        const NAME: &str = "io::apm_module::message::tests::a_queue_pair_of_a_subordinate_user_is_charged_to_its_person";
        with_subuid("1234:100000:65536\n", NAME, || {
            let uid = u32_of(a_qp::OWNER_UID, 100_001);
            for more in [vec![], vec![u32_of(a_qp::CHARGED_UID, 100_001)]] {
                let attributes = [vec![uid.clone()], more].concat();
                let mut bytes = vec![0; attributes.as_slice().buffer_len()];
                attributes.as_slice().emit(&mut bytes);
                let owner = Attributes::read(&bytes).expect("well-formed").owner();
                assert_eq!((owner.uid, owner.payer.uid()), (100_001, 1234));
            }
        });
    }

    #[test]
    fn what_names_nothing_is_refused_and_what_is_new_is_passed_over() {
        assert!(read(cmd::REPORT, &reported(2)[1..]).is_err(), "no cookie");
        assert!(read(cmd::NEW, &reported(2)).is_err(), "no device");
        assert_eq!(read(200, &[]).ok(), Some(Message::Other));
        let Ok(Message::Report(report)) = read(cmd::REPORT, &reported(9)) else {
            panic!("not a report");
        };
        assert_eq!(report.snapshot, None, "no such migration state");
    }
}
