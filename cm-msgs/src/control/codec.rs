// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes <-> messages.

use super::VERSION;
use super::message::{
    AppEvent, Cause, FromDaemon, FromLibrary, Load, Migrate, MigrationState, PeerPort, QpState,
    Refusal, Register, Report, Role, Snapshot,
};
use crate::path::Path;
use crate::{Gid, Guid, Lid, PKey, Qpn};

const MAGIC: u16 = 0x4150;

/// No message is longer.
pub const MAX_LEN: usize = 256;

mod kind {
    pub(super) const HELLO: u8 = 0x01;
    pub(super) const REGISTER: u8 = 0x02;
    pub(super) const REPORT: u8 = 0x03;
    pub(super) const CLOSE: u8 = 0x04;
    pub(super) const ASK_PEER: u8 = 0x05;
    pub(super) const WELCOME: u8 = 0x81;
    pub(super) const LOAD: u8 = 0x82;
    pub(super) const MIGRATE: u8 = 0x83;
    pub(super) const QUERY: u8 = 0x84;
    pub(super) const REFUSE: u8 = 0x85;
    pub(super) const EVENT: u8 = 0x86;
    pub(super) const ASKS_PEERS: u8 = 0x87;
    pub(super) const PEER: u8 = 0x88;
}

/// Why bytes are not a control message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// It ends early, or its length field is not its length.
    #[error("control message: {got} bytes where {want} were announced or needed")]
    Length {
        /// Bytes there are.
        got: usize,
        /// Bytes there should be.
        want: usize,
    },
    /// It is not of this protocol.
    #[error("control message: magic {0:#06x} is not 0x4150")]
    Magic(u16),
    /// The other side is of another release.
    #[error(
        "control message: version {0} where {VERSION} is spoken: upgrade library and daemon together"
    )]
    Version(u8),
    /// The kind is unknown, or is the other direction's.
    #[error("control message: kind {0:#04x} is unknown in this direction")]
    Kind(u8),
    /// A coded field holds no code.
    #[error("control message: {value} is no {field}")]
    Value {
        /// The field.
        field: &'static str,
        /// What it holds.
        value: u8,
    },
}

/// An encoded message.
#[derive(Clone, Copy)]
pub struct Encoded {
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

struct Writer(Encoded);

impl Writer {
    fn new(kind: u8, conn: u64) -> Self {
        let mut writer = Self(Encoded {
            bytes: [0; MAX_LEN],
            len: 0,
        });
        writer.put(&MAGIC.to_be_bytes());
        writer.put(&[VERSION, kind, 0, 0, 0, 0]);
        writer.put(&conn.to_be_bytes());
        writer
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.0.len + bytes.len();
        self.0.bytes[self.0.len..end].copy_from_slice(bytes);
        self.0.len = end;
    }

    fn finish(mut self) -> Encoded {
        let len = self.0.len as u32;
        self.0.bytes[4..8].copy_from_slice(&len.to_be_bytes());
        self.0
    }

    fn path(&mut self, path: &Path) {
        self.put(&[
            path.port,
            path.sl,
            path.mtu,
            path.rate,
            path.ack_timeout,
            u8::from(path.global),
            path.traffic_class,
            path.hop_limit,
        ]);
        self.put(&path.flow_label.to_be_bytes());
        self.put(&path.slid.0.to_be_bytes());
        self.put(&path.dlid.0.to_be_bytes());
        self.put(&path.pkey.0.to_be_bytes());
        self.put(&path.sgid.0);
        self.put(&path.dgid.0);
    }

    fn peer_port(&mut self, peer: PeerPort) {
        self.put(&peer.node_guid.0.to_be_bytes());
        self.put(&[peer.port]);
        self.put(&peer.lid.0.to_be_bytes());
    }

    fn snapshot(&mut self, snapshot: &Snapshot) {
        self.put(&[
            snapshot.qp_state.code(),
            snapshot.migration.code(),
            u8::from(snapshot.alternate.is_some()),
        ]);
        self.path(&snapshot.primary);
        self.path(&snapshot.alternate.unwrap_or_default());
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let Some((head, rest)) = self.0.split_first_chunk::<N>() else {
            return Err(DecodeError::Length {
                got: self.0.len(),
                want: N,
            });
        };
        self.0 = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_be_bytes)
    }

    fn coded<T>(&mut self, field: &'static str, f: fn(u8) -> Option<T>) -> Result<T, DecodeError> {
        let value = self.u8()?;
        f(value).ok_or(DecodeError::Value { field, value })
    }

    fn flag(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        self.coded(field, |v| (v < 2).then_some(v == 1))
    }

    /// The header, checked; leaves the body. `(kind, connection)`.
    fn header(bytes: &'a [u8]) -> Result<(u8, u64, Self), DecodeError> {
        let mut reader = Self(bytes);
        let magic = reader.u16()?;
        if magic != MAGIC {
            return Err(DecodeError::Magic(magic));
        }
        let version = reader.u8()?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let kind = reader.u8()?;
        let want = reader.u32()? as usize;
        // A packet that a short buffer cut off is no message, though sockets keep packets whole.
        if want != bytes.len() {
            return Err(DecodeError::Length {
                got: bytes.len(),
                want,
            });
        }
        let conn = reader.u64()?;
        Ok((kind, conn, reader))
    }

    fn end(&self) -> Result<(), DecodeError> {
        // Another release's message of the same version number: better refused than half
        // understood.
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Length {
                got: self.0.len(),
                want: 0,
            })
        }
    }

    fn path(&mut self) -> Result<Path, DecodeError> {
        Ok(Path {
            port: self.u8()?,
            sl: self.u8()?,
            mtu: self.u8()?,
            rate: self.u8()?,
            ack_timeout: self.u8()?,
            global: self.flag("global flag")?,
            traffic_class: self.u8()?,
            hop_limit: self.u8()?,
            flow_label: self.u32()?,
            slid: Lid(self.u16()?),
            dlid: Lid(self.u16()?),
            pkey: PKey(self.u16()?),
            sgid: Gid(self.take()?),
            dgid: Gid(self.take()?),
        })
    }

    fn peer_port(&mut self) -> Result<PeerPort, DecodeError> {
        Ok(PeerPort {
            node_guid: Guid(self.u64()?),
            port: self.u8()?,
            lid: Lid(self.u16()?),
        })
    }

    fn snapshot(&mut self) -> Result<Snapshot, DecodeError> {
        let qp_state = self.coded("QP state", QpState::from_code)?;
        let migration = self.coded("migration state", MigrationState::from_code)?;
        let has_alternate = self.flag("alternate flag")?;
        let primary = self.path()?;
        let alternate = self.path()?;
        Ok(Snapshot {
            qp_state,
            migration,
            primary,
            alternate: has_alternate.then_some(alternate),
        })
    }

    fn cause(&mut self) -> Result<Cause, DecodeError> {
        let code = self.u8()?;
        let errno = self.u8()?;
        let token = self.u32()?;
        Ok(match code {
            0 => Cause::Query,
            1 => Cause::PathMigrated,
            2 => Cause::PathMigrationError,
            3 => Cause::Armed,
            4 => Cause::Done { token },
            5 => Cause::Stale { token },
            6 => Cause::Failed { token, errno },
            7 => Cause::Broken,
            value => {
                return Err(DecodeError::Value {
                    field: "report cause",
                    value,
                });
            }
        })
    }
}

fn cause_bytes(cause: Cause) -> [u8; 6] {
    let (code, errno, token) = match cause {
        Cause::Query => (0, 0, 0),
        Cause::PathMigrated => (1, 0, 0),
        Cause::PathMigrationError => (2, 0, 0),
        Cause::Armed => (3, 0, 0),
        Cause::Done { token } => (4, 0, token),
        Cause::Stale { token } => (5, 0, token),
        Cause::Failed { token, errno } => (6, errno, token),
        Cause::Broken => (7, 0, 0),
    };
    let [a, b, c, d] = u32::to_be_bytes(token);
    [code, errno, a, b, c, d]
}

impl FromLibrary {
    /// The bytes of one packet.
    pub fn encode(&self) -> Encoded {
        let writer = match self {
            Self::Hello { command } => {
                let mut w = Writer::new(kind::HELLO, 0);
                w.put(command);
                w
            }
            Self::Register { conn, register } => {
                let mut w = Writer::new(kind::REGISTER, *conn);
                w.put(&[register.role.code(), u8::from(register.opted_in)]);
                w.put(&register.node_guid.0.to_be_bytes());
                w.put(&register.qpn.0.to_be_bytes());
                w.put(&register.peer_qpn.0.to_be_bytes());
                w.snapshot(&register.snapshot);
                w
            }
            Self::Report { conn, report } => {
                let mut w = Writer::new(kind::REPORT, *conn);
                w.put(&cause_bytes(report.cause));
                w.snapshot(&report.snapshot);
                w
            }
            Self::Close { conn } => Writer::new(kind::CLOSE, *conn),
            Self::AskPeer { question, peer } => {
                let mut w = Writer::new(kind::ASK_PEER, *question);
                w.peer_port(*peer);
                w
            }
        };
        writer.finish()
    }

    /// The message in one packet.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (kind, conn, mut r) = Reader::header(bytes)?;
        let message = match kind {
            kind::HELLO => Self::Hello { command: r.take()? },
            kind::REGISTER => Self::Register {
                conn,
                register: Register {
                    role: r.coded("role", Role::from_code)?,
                    opted_in: r.flag("opt-in flag")?,
                    node_guid: Guid(r.u64()?),
                    qpn: Qpn(r.u32()?),
                    peer_qpn: Qpn(r.u32()?),
                    snapshot: r.snapshot()?,
                },
            },
            kind::REPORT => {
                let cause = r.cause()?;
                let snapshot = r.snapshot()?;
                Self::Report {
                    conn,
                    report: Report { cause, snapshot },
                }
            }
            kind::CLOSE => Self::Close { conn },
            kind::ASK_PEER => Self::AskPeer {
                question: conn,
                peer: r.peer_port()?,
            },
            kind => return Err(DecodeError::Kind(kind)),
        };
        r.end()?;
        Ok(message)
    }
}

impl FromDaemon {
    /// The bytes of one packet.
    pub fn encode(&self) -> Encoded {
        let writer = match self {
            Self::Welcome => Writer::new(kind::WELCOME, 0),
            Self::AsksPeers => Writer::new(kind::ASKS_PEERS, 0),
            Self::Peer { question, answers } => {
                let mut w = Writer::new(kind::PEER, *question);
                w.put(&[u8::from(*answers)]);
                w
            }
            Self::Load { conn, load } => {
                let mut w = Writer::new(kind::LOAD, *conn);
                w.put(&load.token.to_be_bytes());
                w.path(&load.primary);
                w.path(&load.alternate);
                w
            }
            Self::Migrate { conn, migrate } => {
                let mut w = Writer::new(kind::MIGRATE, *conn);
                w.put(&migrate.token.to_be_bytes());
                w.path(&migrate.primary);
                w
            }
            Self::Query { conn } => Writer::new(kind::QUERY, *conn),
            Self::Refuse { conn, refusal } => {
                let mut w = Writer::new(kind::REFUSE, *conn);
                w.put(&[refusal.code()]);
                w
            }
            Self::Event {
                conn,
                event,
                status,
            } => {
                let mut w = Writer::new(kind::EVENT, *conn);
                w.put(&[event.code(), *status]);
                w
            }
        };
        writer.finish()
    }

    /// The message in one packet.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (kind, conn, mut r) = Reader::header(bytes)?;
        let message = match kind {
            kind::WELCOME => Self::Welcome,
            kind::ASKS_PEERS => Self::AsksPeers,
            kind::PEER => Self::Peer {
                question: conn,
                answers: r.flag("answers flag")?,
            },
            kind::LOAD => Self::Load {
                conn,
                load: Load {
                    token: r.u32()?,
                    primary: r.path()?,
                    alternate: r.path()?,
                },
            },
            kind::MIGRATE => Self::Migrate {
                conn,
                migrate: Migrate {
                    token: r.u32()?,
                    primary: r.path()?,
                },
            },
            kind::QUERY => Self::Query { conn },
            kind::REFUSE => Self::Refuse {
                conn,
                refusal: r.coded("refusal", Refusal::from_code)?,
            },
            kind::EVENT => Self::Event {
                conn,
                event: r.coded("event", AppEvent::from_code)?,
                status: r.u8()?,
            },
            kind => return Err(DecodeError::Kind(kind)),
        };
        r.end()?;
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(seed: u8) -> Path {
        Path {
            port: seed,
            sl: 3,
            mtu: 4,
            rate: 7,
            ack_timeout: 14,
            global: true,
            traffic_class: 9,
            hop_limit: 64,
            flow_label: 0xabcde,
            slid: Lid(0x1234),
            dlid: Lid(0x5678),
            pkey: PKey(0xffff),
            sgid: Gid([seed; 16]),
            dgid: Gid([seed.wrapping_add(1); 16]),
        }
    }

    fn snapshot() -> Snapshot {
        Snapshot {
            qp_state: QpState::Rts,
            migration: MigrationState::Rearm,
            primary: path(1),
            alternate: Some(path(2)),
        }
    }

    fn library_messages() -> Vec<FromLibrary> {
        let register = Register {
            role: Role::Passive,
            opted_in: true,
            node_guid: Guid(0x0011_2233_4455_6677),
            qpn: Qpn(0x123456),
            peer_qpn: Qpn(0x654321),
            snapshot: snapshot(),
        };
        let causes = [
            Cause::Query,
            Cause::PathMigrated,
            Cause::PathMigrationError,
            Cause::Armed,
            Cause::Done { token: 7 },
            Cause::Stale { token: 8 },
            Cause::Failed {
                token: 9,
                errno: 22,
            },
            Cause::Broken,
        ];
        let mut all = vec![
            FromLibrary::Hello {
                command: *b"rping\0\0\0\0\0\0\0\0\0\0\0",
            },
            FromLibrary::Register { conn: 5, register },
            FromLibrary::Close { conn: u64::MAX },
            FromLibrary::AskPeer {
                question: 7,
                peer: PeerPort {
                    node_guid: Guid(0x0011_2233_4455_6677),
                    port: 2,
                    lid: Lid(0x1234),
                },
            },
        ];
        all.extend(causes.map(|cause| FromLibrary::Report {
            conn: 6,
            report: Report {
                cause,
                snapshot: Snapshot {
                    alternate: None,
                    ..snapshot()
                },
            },
        }));
        all
    }

    fn daemon_messages() -> Vec<FromDaemon> {
        vec![
            FromDaemon::AsksPeers,
            FromDaemon::Welcome,
            FromDaemon::Peer {
                question: 7,
                answers: true,
            },
            FromDaemon::Load {
                conn: 1,
                load: Load {
                    token: 2,
                    primary: path(3),
                    alternate: path(4),
                },
            },
            FromDaemon::Migrate {
                conn: 1,
                migrate: Migrate {
                    token: 3,
                    primary: path(5),
                },
            },
            FromDaemon::Query { conn: 4 },
            FromDaemon::Refuse {
                conn: 4,
                refusal: Refusal::OnePath,
            },
            FromDaemon::Event {
                conn: 4,
                event: AppEvent::PathMigrated,
                status: 0,
            },
        ]
    }

    #[test]
    fn every_message_survives_a_round_trip() {
        for message in library_messages() {
            assert_eq!(FromLibrary::decode(message.encode().as_ref()), Ok(message));
        }
        for message in daemon_messages() {
            assert_eq!(FromDaemon::decode(message.encode().as_ref()), Ok(message));
        }
    }

    #[test]
    fn no_cut_and_no_extra_byte_is_taken() {
        for message in library_messages() {
            let encoded = message.encode();
            let bytes = encoded.as_ref();
            for len in 0..bytes.len() {
                assert!(
                    FromLibrary::decode(&bytes[..len]).is_err(),
                    "{message:?} cut to {len}"
                );
            }
            let mut longer = bytes.to_vec();
            longer.push(0);
            longer[7] += 1;
            assert!(
                FromLibrary::decode(&longer).is_err(),
                "{message:?} with a byte too many"
            );
        }
    }

    #[test]
    fn the_other_direction_is_refused() {
        assert_eq!(
            FromDaemon::decode(FromLibrary::Close { conn: 1 }.encode().as_ref()),
            Err(DecodeError::Kind(kind::CLOSE))
        );
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = FromDaemon::Welcome.encode().as_ref().to_vec();
        bytes[2] = 9;
        assert_eq!(FromDaemon::decode(&bytes), Err(DecodeError::Version(9)));
    }
}
