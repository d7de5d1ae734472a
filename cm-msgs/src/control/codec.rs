// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes <-> messages.

use core::num::{NonZeroU8, NonZeroU32};

use super::VERSION;
use super::message::{
    AppEvent, Cause, Ending, FromDaemon, FromLibrary, Load, Migrate, MigrationState, PeerPort,
    QpState, Refusal, Register, Report, Role, Snapshot, Stand,
};
use super::policy::{Mode, Placement, PolicyOverride};
use crate::path::Path;
use crate::{Gid, Guid, Lid, PKey, Qpn};

const MAGIC: u16 = 0x4150;

/// No message is longer.
pub const MAX_LEN: usize = 256;

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
    fn new() -> Self {
        Self(Encoded {
            bytes: [0; MAX_LEN],
            len: 0,
        })
    }

    /// All but the length, which is not known yet.
    fn header(&mut self, kind: u8, id: u64) {
        self.put(&MAGIC.to_be_bytes());
        self.put(&[VERSION, kind, 0, 0, 0, 0]);
        self.put(&id.to_be_bytes());
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

    /// A byte of which `read` knows what it means.
    fn coded<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(u8) -> Option<T>,
    ) -> Result<T, DecodeError> {
        let [value] = self.take()?;
        read(value).ok_or(DecodeError::Value { field, value })
    }

    /// The header, checked; leaves the body. `(kind, connection or question)`.
    fn header(bytes: &'a [u8]) -> Result<(u8, u64, Self), DecodeError> {
        let mut reader = Self(bytes);
        let magic = u16::from_be_bytes(reader.take()?);
        if magic != MAGIC {
            return Err(DecodeError::Magic(magic));
        }
        let [version] = reader.take()?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let [kind] = reader.take()?;
        let want = u32::from_be_bytes(reader.take()?) as usize;
        // A packet that a short buffer cut off is no message, though sockets keep packets whole.
        if want != bytes.len() {
            return Err(DecodeError::Length {
                got: bytes.len(),
                want,
            });
        }
        let id = u64::from_be_bytes(reader.take()?);
        Ok((kind, id, reader))
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
}

/// What lies in messages.
trait Field: Sized {
    fn put(&self, to: &mut Writer);

    /// `name` is what an error calls the field.
    fn take(from: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError>;
}

impl<const N: usize> Field for [u8; N] {
    fn put(&self, to: &mut Writer) {
        to.put(self);
    }

    fn take(from: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        from.take()
    }
}

impl Field for bool {
    fn put(&self, to: &mut Writer) {
        to.put(&[u8::from(*self)]);
    }

    fn take(from: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        from.coded(name, |value| (value < 2).then_some(value == 1))
    }
}

macro_rules! integers {
    ($($type:ident)+) => {$(
        impl Field for $type {
            fn put(&self, to: &mut Writer) {
                to.put(&self.to_be_bytes());
            }

            fn take(from: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
                from.take().map(Self::from_be_bytes)
            }
        }
    )+};
}

integers! { u8 u16 u32 u64 }

macro_rules! coded {
    ($($type:ident)+) => {$(
        impl Field for $type {
            fn put(&self, to: &mut Writer) {
                to.put(&[self.code()]);
            }

            fn take(from: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
                from.coded(name, Self::from_code)
            }
        }
    )+};
}

coded! { Role QpState MigrationState Refusal AppEvent Ending }

/// What an error calls a field: as said, or as the field is called.
macro_rules! name {
    ($field:tt) => {
        stringify!($field)
    };
    ($field:tt $name:literal) => {
        $name
    };
}

/// `Type { field, field: "what an error calls it", ... }`: the fields one behind the other.
macro_rules! structs {
    ($($type:ident { $($field:tt $(: $name:literal)?),+ })+) => {$(
        impl Field for $type {
            fn put(&self, to: &mut Writer) {
                $(self.$field.put(to);)+
            }

            fn take(from: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
                Ok(Self { $($field: Field::take(from, name!($field $($name)?))?),+ })
            }
        }
    )+};
}

structs! {
    Gid { 0 }
    Guid { 0 }
    Lid { 0 }
    PKey { 0 }
    Qpn { 0 }
    Path {
        port, sl, mtu, rate, ack_timeout, global: "global flag", traffic_class, hop_limit,
        flow_label, slid, dlid, pkey, sgid, dgid
    }
    PeerPort { node_guid, port, lid }
    Register { role, opted_in: "opt-in flag", node_guid, qpn, peer_qpn, policy, snapshot }
    Report { cause, snapshot }
    Load { token, primary, alternate, standing: "standing order flag" }
    Migrate { token, primary }
    Stand { primary, allowed: "standing order flag" }
}

/// An alternate that there is not takes its place all the same.
impl Field for Snapshot {
    fn put(&self, to: &mut Writer) {
        self.qp_state.put(to);
        self.migration.put(to);
        self.alternate.is_some().put(to);
        self.primary.put(to);
        self.alternate.unwrap_or_default().put(to);
    }

    fn take(from: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        let qp_state = Field::take(from, "QP state")?;
        let migration = Field::take(from, "migration state")?;
        let has_alternate = bool::take(from, "alternate flag")?;
        let primary = Field::take(from, name)?;
        let alternate = Field::take(from, name)?;
        Ok(Self {
            qp_state,
            migration,
            primary,
            alternate: has_alternate.then_some(alternate),
        })
    }
}

/// What it does not say is zero.
impl Field for PolicyOverride {
    fn put(&self, to: &mut Writer) {
        let (placement, port) = match self.placement {
            None => (0, 0),
            Some(Placement::Stay) => (1, 0),
            Some(Placement::Prefer(port)) => (2, port.get()),
            Some(Placement::Spread) => (3, 0),
        };
        to.put(&[self.mode.map_or(0, Mode::code), placement, port]);
        self.hold_down.map_or(0, NonZeroU32::get).put(to);
    }

    fn take(from: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        let mode = from.coded("policy mode", |code| match code {
            0 => Some(None),
            code => Mode::from_code(code).map(Some),
        })?;
        let [placement, port] = from.take()?;
        let placement = match (placement, NonZeroU8::new(port)) {
            (0, None) => None,
            (1, None) => Some(Placement::Stay),
            (2, Some(port)) => Some(Placement::Prefer(port)),
            (3, None) => Some(Placement::Spread),
            (value, _) => {
                let field = "policy placement";
                return Err(DecodeError::Value { field, value });
            }
        };
        Ok(Self {
            mode,
            placement,
            hold_down: NonZeroU32::new(Field::take(from, name)?),
        })
    }
}

/// Its code, the errno and the token: zero where it has none.
impl Field for Cause {
    fn put(&self, to: &mut Writer) {
        let (code, errno, token) = match *self {
            Self::Query { token } => (0, 0, token),
            Self::PathMigrated => (1, 0, 0),
            Self::PathMigrationError => (2, 0, 0),
            Self::Armed => (3, 0, 0),
            Self::Done { token } => (4, 0, token),
            Self::Stale { token } => (5, 0, token),
            Self::Failed { token, errno } => (6, errno, token),
            Self::Broken => (7, 0, 0),
            Self::Changed => (8, 0, 0),
            Self::StandingOrder => (9, 0, 0),
        };
        to.put(&[code, errno]);
        token.put(to);
    }

    fn take(from: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        let [value] = from.take()?;
        let [errno] = from.take()?;
        let token = Field::take(from, name)?;
        Ok(match value {
            0 => Self::Query { token },
            1 => Self::PathMigrated,
            2 => Self::PathMigrationError,
            3 => Self::Armed,
            4 => Self::Done { token },
            5 => Self::Stale { token },
            6 => Self::Failed { token, errno },
            7 => Self::Broken,
            8 => Self::Changed,
            9 => Self::StandingOrder,
            value => {
                let field = "report cause";
                return Err(DecodeError::Value { field, value });
            }
        })
    }
}

/// `kind Variant [what the header's number is] { field, ... }`: all messages of a direction.
macro_rules! messages {
    ($type:ident {
        $($kind:literal $variant:ident $([$id:ident])? $({
            $($field:ident $(: $name:literal)?),+
        })?)+
    }) => {
        impl $type {
            /// The bytes of one packet.
            pub fn encode(&self) -> Encoded {
                let mut writer = Writer::new();
                match self {
                    $(Self::$variant { $($id,)? $($($field),+)? } => {
                        writer.header($kind, messages!(@id $($id)?));
                        $($($field.put(&mut writer);)+)?
                    })+
                }
                writer.finish()
            }

            /// The message in one packet.
            pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
                let (kind, id, mut reader) = Reader::header(bytes)?;
                let message = match kind {
                    $($kind => Self::$variant {
                        $($id: id,)?
                        $($($field: Field::take(&mut reader, name!($field $($name)?))?),+)?
                    },)+
                    kind => return Err(DecodeError::Kind(kind)),
                };
                reader.end()?;
                Ok(message)
            }
        }
    };
    (@id) => { 0 };
    (@id $id:ident) => { *$id };
}

messages! {
    FromLibrary {
        0x01 Hello { command }
        0x02 Register [conn] { register }
        0x03 Report [conn] { report }
        0x04 Close [conn] { ending }
        0x05 AskPeer [question] { peer }
        0x06 Policy [conn] { policy }
        0x07 AskPeerIn [question] { peer, pkey }
        0x08 AnswerCameLate [conn]
        0x09 MovesIdle
    }
}

messages! {
    FromDaemon {
        0x81 Welcome
        0x82 Load [conn] { load }
        0x83 Migrate [conn] { migrate }
        0x84 Query [conn] { token }
        0x85 Refuse [conn] { refusal }
        0x86 Event [conn] { event, status }
        0x87 AsksPeers
        0x88 Peer [question] { answers: "answers flag" }
        0x89 Stand [conn] { stand }
        0x8a AsksPartitions
        0x8b CountsLateAnswers
        0x8c MovesIdle
        0x8d MoveIdle [conn] { migrate }
        0x8e Disconnected [conn]
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
            policy: PolicyOverride {
                mode: Some(Mode::Lid),
                placement: NonZeroU8::new(2).map(Placement::Prefer),
                hold_down: NonZeroU32::new(7),
            },
            snapshot: snapshot(),
        };
        let causes = [
            Cause::Query { token: 6 },
            Cause::Changed,
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
            Cause::StandingOrder,
        ];
        let mut all = vec![
            FromLibrary::Hello {
                command: *b"rping\0\0\0\0\0\0\0\0\0\0\0",
            },
            FromLibrary::Register { conn: 5, register },
            FromLibrary::Close {
                conn: u64::MAX,
                ending: Ending::Gone,
            },
            FromLibrary::Close {
                conn: 1,
                ending: Ending::Disconnected,
            },
            FromLibrary::Policy {
                conn: 8,
                policy: PolicyOverride {
                    mode: None,
                    placement: Some(Placement::Spread),
                    hold_down: None,
                },
            },
            FromLibrary::AskPeer {
                question: 7,
                peer: PeerPort {
                    node_guid: Guid(0x0011_2233_4455_6677),
                    port: 2,
                    lid: Lid(0x1234),
                },
            },
            FromLibrary::AskPeerIn {
                question: 8,
                peer: PeerPort {
                    node_guid: Guid(0x0011_2233_4455_6677),
                    port: 1,
                    lid: Lid(0x1235),
                },
                pkey: PKey(0x8005),
            },
            FromLibrary::AnswerCameLate { conn: 9 },
            FromLibrary::MovesIdle,
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
            FromDaemon::AsksPartitions,
            FromDaemon::CountsLateAnswers,
            FromDaemon::MovesIdle,
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
                    standing: true,
                },
            },
            FromDaemon::Stand {
                conn: 1,
                stand: Stand {
                    primary: path(3),
                    allowed: false,
                },
            },
            FromDaemon::Migrate {
                conn: 1,
                migrate: Migrate {
                    token: 3,
                    primary: path(5),
                },
            },
            FromDaemon::MoveIdle {
                conn: 2,
                migrate: Migrate {
                    token: 4,
                    primary: path(6),
                },
            },
            FromDaemon::Query { conn: 4, token: 6 },
            FromDaemon::Disconnected { conn: 4 },
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
    fn a_placement_without_its_port_or_with_one_too_many_is_refused() {
        let message = FromLibrary::Policy {
            conn: 8,
            policy: PolicyOverride::default(),
        };
        for (placement, port) in [(0, 1), (1, 1), (2, 0), (3, 1), (4, 0)] {
            let mut bytes = message.encode().as_ref().to_vec();
            bytes[17..19].copy_from_slice(&[placement, port]);
            let field = "policy placement";
            let value = placement;
            let error = DecodeError::Value { field, value };
            assert_eq!(FromLibrary::decode(&bytes), Err(error));
        }
    }

    #[test]
    fn the_other_direction_is_refused() {
        assert_eq!(
            FromDaemon::decode(library_messages()[0].encode().as_ref()),
            Err(DecodeError::Kind(0x01))
        );
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = FromDaemon::Welcome.encode().as_ref().to_vec();
        bytes[2] = 9;
        assert_eq!(FromDaemon::decode(&bytes), Err(DecodeError::Version(9)));
    }
}
