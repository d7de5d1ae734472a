// SPDX-License-Identifier: MIT OR Apache-2.0
//! What apmd lays into the private data of REQ, REP, LAP, APR, SAP and SPR: the sender's state, and
//! in REQ and REP what else they need.
//!
//! The first 92 bytes are the same in all of them. Integers are big-endian; bytes after the listed
//! ones are zero and ignored.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | magic number 0x61706d64 ("apmd") |
//! | 4 | version, 2 |
//! | 5 | bit 7: the sender has more ports; bits 6-5: migration state of its QP (`enum ibv_mig_state`); bits 4-3: [`Movement`]; bits 2-0: ports that follow, 0 to 4 |
//! | 6..8 | for each of the four ports: 3 bits LMC, 1 bit in service |
//! | 8 | the local port of its primary path |
//! | 9..12 | REQ: the recipient's queue pair |
//! | 12..16 | sequence number |
//! | 16..18 | local LID of its primary path |
//! | 18..20 | remote LID of its primary path |
//! | 20..92 | four times GID (16), LID (2) |
//! | 92 | REP: why failover is refused, 0 not |
//! | 93 | all but REQ, which ends before it: bits 7-5: place of the primary path's local port among the ports, from 1, 0 not told; bit 4: the sender's end can be moved while it is idle; bits 3-0: the fourth to the first port are drained |
//!
//! DREQ has data of its own, of which an apmd that does not know it makes nothing:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | magic number |
//! | 4 | version, 2 |
//! | 5 | bit 7: the sender's application has disconnected |

use core::fmt;

use crate::codes::codes;
use crate::control::MigrationState;
use crate::layout::{attribute, resized};
use crate::{Gid, Lid, PrivateData, Qpn};

/// First bytes of apmd's private data.
pub const MAGIC: u32 = 0x6170_6d64;

/// The version spoken here.
pub const VERSION: u8 = 2;

/// Ports that an announcement has room for.
pub const MAX_PORTS: usize = 4;

/// Private data is not what an apmd of this version sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssociationError {
    /// Not from an apmd.
    #[error("private data begins with {0:#010x}, not with apmd's {MAGIC:#010x}")]
    Magic(u32),
    /// From an apmd of another time.
    #[error(
        "private data of version {0} where {VERSION} is spoken: use the same apmd on both hosts"
    )]
    Version(u8),
    /// More ports than there is room for.
    #[error("private data announces {0} ports where {MAX_PORTS} have room")]
    PortCount(u8),
    /// No migration state has this code.
    #[error("private data says that the queue pair is in migration state {0}, which there is not")]
    MigrationState(u8),
}

/// A port of the sender's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PeerPort {
    /// Its GID.
    pub gid: Gid,
    /// Its base LID; 0 if it has none.
    pub lid: Lid,
    /// LID mask control, 0..=7.
    pub lmc: u8,
    /// Whether it is in service.
    pub up: bool,
    /// Its operator wants paths off it, though it works. A REQ does not tell.
    pub drained: bool,
}

/// The ports of a host, as far as they have room.
#[derive(Clone, Copy, Default)]
pub struct Ports {
    slots: [PeerPort; MAX_PORTS],
    len: u8,
    more: bool,
}

impl Ports {
    /// The first of `ports`; of the others it only says that they are.
    pub fn new(ports: impl IntoIterator<Item = PeerPort>) -> Self {
        let mut announced = Self::default();
        for port in ports {
            match announced.slots.get_mut(usize::from(announced.len)) {
                Some(slot) => *slot = port,
                None => {
                    announced.more = true;
                    break;
                }
            }
            announced.len += 1;
        }
        announced
    }

    /// The ports.
    pub fn as_slice(&self) -> &[PeerPort] {
        self.slots
            .get(..usize::from(self.len))
            .unwrap_or(&self.slots)
    }

    /// Whether the host has more ports than these.
    pub fn more(&self) -> bool {
        self.more
    }
}

impl PartialEq for Ports {
    fn eq(&self, other: &Self) -> bool {
        // What lies in places beyond the count is nobody's.
        self.as_slice() == other.as_slice() && self.more == other.more
    }
}

impl Eq for Ports {}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ports")
            .field("ports", &self.as_slice())
            .field("more", &self.more)
            .finish()
    }
}

/// The ends of a primary path, as its host sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PrimaryPath {
    /// The sender's port.
    pub port: u8,
    /// The sender's LID.
    pub local: Lid,
    /// The recipient's LID.
    pub remote: Lid,
}

/// Whether the sender leaves a path though nothing is wrong with it, so that the recipient does not
/// suspect that path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Movement {
    /// It does not.
    #[default]
    None,
    /// It is about to leave its primary.
    Leaves,
    /// It has left the path before its primary.
    Left,
}

impl Movement {
    const fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Leaves => 1,
            Self::Left => 2,
        }
    }

    /// A code that means nothing here explains nothing.
    const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Leaves,
            2 => Self::Left,
            _ => Self::None,
        }
    }
}

/// How the sender's end of a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// Counts up with every change; wraps.
    pub sequence: u32,
    /// The path that its QP is on.
    pub primary: PrimaryPath,
    /// Place of that path's local port among `ports`, from 1; 0: not told. Two rails with subnet managers
    /// of their own can give both ports one LID, and then the LIDs of `primary` fit either port. A REQ has no
    /// room for it, and names the port's GID instead; an apmd that does not know the field sends 0.
    pub place: u8,
    /// Path migration state of its QP.
    pub migration: MigrationState,
    /// Whether it leaves a path that works.
    pub movement: Movement,
    /// Whether its QP can be given another primary path while it waits for traffic in ReArm, because its device has the
    /// transitions and whoever has the QP makes them. A REQ does not tell; an apmd that does not know the field sends 0.
    pub moves_idle: bool,
    /// The ports of its device.
    pub ports: Ports,
}

impl Default for State {
    fn default() -> Self {
        Self {
            sequence: 0,
            primary: PrimaryPath::default(),
            place: 0,
            migration: MigrationState::Migrated,
            movement: Movement::None,
            moves_idle: false,
            ports: Ports::default(),
        }
    }
}

codes! {
    /// Why a host will not have a connection migrated.
    pub enum Refusal: u8 {
        TurnedOff = 1, "the application has path migration turned off";
        NoSecondPath = 2, "the device has one port and one lid";
        DeviceCannot = 3, "the device has no automatic path migration";
        Policy = 4, "the configuration forbids it";
        ReceivesOnly = 5, "its queue pair only receives (RTR), and no alternate path can be loaded before RTS";
    }
}

/// Private data of a REQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReqData {
    /// The recipient's queue pair of the application's connection.
    pub peer_qpn: Qpn,
    /// The sender's state.
    pub state: State,
}

/// Private data of a REP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RepData {
    /// The sender's state.
    pub state: State,
    /// Why failover is refused, if it is.
    pub refusal: Option<Refusal>,
}

/// Private data of a LAP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LapData {
    /// The sender's state.
    pub state: State,
    /// The sender has loaded the alternate that the LAP names already, and asks whether the recipient has it.
    pub loaded: bool,
}

/// Private data of a DREQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DreqData {
    /// The sender's application has disconnected, and the recipient's is to hear of it.
    pub disconnected: bool,
}

attribute! {
    /// As it lies in a DREQ.
    struct Ending: 6 {
        magic: u32 = [0, 0, 32],
        version: u8 = [4, 0, 8],
        disconnected: bool = [5, 0, 1],
    }
}

impl DreqData {
    /// Lays it into a DREQ.
    pub fn encode(&self) -> PrivateData<220> {
        let ending = Ending {
            magic: MAGIC,
            version: VERSION,
            disconnected: self.disconnected,
        };
        PrivateData(resized(&ending.encode()))
    }

    /// Reads it from a DREQ.
    ///
    /// # Errors
    /// The DREQ is from no apmd, from one of another version, or from one that says nothing there.
    pub fn decode(data: &PrivateData<220>) -> Result<Self, AssociationError> {
        let Ending {
            magic,
            version,
            disconnected,
        } = Ending::decode(&resized(&data.0));
        known(magic, version)?;
        Ok(Self { disconnected })
    }
}

/// Whether it is of this protocol.
fn known(magic: u32, version: u8) -> Result<(), AssociationError> {
    if magic != MAGIC {
        return Err(AssociationError::Magic(magic));
    }
    if version != VERSION {
        return Err(AssociationError::Version(version));
    }
    Ok(())
}

attribute! {
    /// What all of them have in common, and what REP and LAP have besides: one says why failover is refused, the other
    /// whether its alternate is loaded.
    struct Block: 94 {
        magic: u32 = [0, 0, 32],
        version: u8 = [4, 0, 8],
        more: bool = [5, 0, 1],
        migration: u8 = [5, 1, 2],
        movement: u8 = [5, 3, 2],
        port_count: u8 = [5, 5, 3],
        primary: PrimaryPath = { port: [8, 0, 8], local: [16, 0, 16], remote: [18, 0, 16] },
        place: u8 = [93, 0, 3],
        moves_idle: bool = [93, 3, 1],
        peer_qpn: Qpn = [9, 0, 24],
        sequence: u32 = [12, 0, 32],
        first: PeerPort = {
            gid: [20, 0, 128], lid: [36, 0, 16], lmc: [6, 0, 3], up: [6, 3, 1],
            drained: [93, 7, 1],
        },
        second: PeerPort = {
            gid: [38, 0, 128], lid: [54, 0, 16], lmc: [6, 4, 3], up: [6, 7, 1],
            drained: [93, 6, 1],
        },
        third: PeerPort = {
            gid: [56, 0, 128], lid: [72, 0, 16], lmc: [7, 0, 3], up: [7, 3, 1],
            drained: [93, 5, 1],
        },
        fourth: PeerPort = {
            gid: [74, 0, 128], lid: [90, 0, 16], lmc: [7, 4, 3], up: [7, 7, 1],
            drained: [93, 4, 1],
        },
        detail: u8 = [92, 0, 8],
    }
}

impl Block {
    fn new(state: &State) -> Self {
        let State {
            sequence,
            primary,
            place,
            migration,
            movement,
            moves_idle,
            ports,
        } = *state;
        let [first, second, third, fourth] = ports.slots;
        Self {
            magic: MAGIC,
            version: VERSION,
            more: ports.more,
            migration: migration.code(),
            movement: movement.code(),
            port_count: ports.len,
            primary,
            place,
            moves_idle,
            sequence,
            first,
            second,
            third,
            fourth,
            ..Self::default()
        }
    }

    fn read<const N: usize>(data: &PrivateData<N>) -> Result<(Self, State), AssociationError> {
        let block = Self::decode(&resized(&data.0));
        let state = block.state()?;
        Ok((block, state))
    }

    fn state(&self) -> Result<State, AssociationError> {
        known(self.magic, self.version)?;
        if usize::from(self.port_count) > MAX_PORTS {
            return Err(AssociationError::PortCount(self.port_count));
        }
        let migration = MigrationState::from_code(self.migration);
        let slots = [self.first, self.second, self.third, self.fourth];
        Ok(State {
            sequence: self.sequence,
            primary: self.primary,
            // A place that no port of the list has names none.
            place: if self.place <= self.port_count {
                self.place
            } else {
                0
            },
            migration: migration.ok_or(AssociationError::MigrationState(self.migration))?,
            movement: Movement::from_code(self.movement),
            moves_idle: self.moves_idle,
            ports: Ports {
                slots,
                len: self.port_count,
                more: self.more,
            },
        })
    }
}

impl State {
    /// The port that `primary` leaves from, if `place` names one.
    pub fn primary_port(&self) -> Option<&PeerPort> {
        let index = usize::from(self.place).checked_sub(1)?;
        self.ports.as_slice().get(index)
    }

    /// With the place of the port that has this GID. For a REQ, which names its primary's port by GID.
    pub fn with_primary_at(self, gid: Gid) -> Self {
        let mut ports = self.ports.as_slice().iter();
        let index = ports.position(|port| port.gid == gid && !gid.is_unspecified());
        let place = index.and_then(|index| u8::try_from(index + 1).ok());
        Self {
            place: place.unwrap_or(0),
            ..self
        }
    }

    /// Lays it into an APR, SAP or SPR, or a LAP without an alternate.
    pub fn encode<const N: usize>(&self) -> PrivateData<N> {
        PrivateData(resized(&Block::new(self).encode()))
    }

    /// Reads it from one of them.
    ///
    /// # Errors
    /// The message is from no apmd, from one of another version, or damaged.
    pub fn decode<const N: usize>(data: &PrivateData<N>) -> Result<Self, AssociationError> {
        Block::read(data).map(|(_, state)| state)
    }
}

impl ReqData {
    /// Lays it into a REQ.
    pub fn encode(&self) -> PrivateData<92> {
        let block = Block {
            peer_qpn: self.peer_qpn,
            ..Block::new(&self.state)
        };
        PrivateData(resized(&block.encode()))
    }

    /// Reads it from a REQ.
    ///
    /// # Errors
    /// The REQ is from no apmd, from one of another version, or damaged.
    pub fn decode(data: &PrivateData<92>) -> Result<Self, AssociationError> {
        let (block, state) = Block::read(data)?;
        let peer_qpn = block.peer_qpn;
        Ok(Self { peer_qpn, state })
    }
}

impl RepData {
    /// Lays it into a REP.
    pub fn encode(&self) -> PrivateData<196> {
        let block = Block {
            detail: self.refusal.map_or(0, u8::from),
            ..Block::new(&self.state)
        };
        PrivateData(resized(&block.encode()))
    }

    /// Reads it from a REP.
    ///
    /// # Errors
    /// The REP is from no apmd, from one of another version, or damaged.
    pub fn decode(data: &PrivateData<196>) -> Result<Self, AssociationError> {
        let (block, state) = Block::read(data)?;
        let refusal = (block.detail != 0).then(|| block.detail.into());
        Ok(Self { state, refusal })
    }
}

impl LapData {
    /// Lays it into a LAP.
    pub fn encode(&self) -> PrivateData<168> {
        let block = Block {
            detail: self.loaded.into(),
            ..Block::new(&self.state)
        };
        PrivateData(resized(&block.encode()))
    }

    /// Reads it from a LAP.
    ///
    /// # Errors
    /// The LAP is from no apmd, from one of another version, or damaged.
    pub fn decode(data: &PrivateData<168>) -> Result<Self, AssociationError> {
        let (block, state) = Block::read(data)?;
        let loaded = block.detail == 1;
        Ok(Self { state, loaded })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Guid;

    fn port(number: u16) -> PeerPort {
        PeerPort {
            gid: Gid::new(0xfe80 << 48, Guid(number.into())),
            lid: Lid(number << 4),
            lmc: number as u8 & 7,
            up: number % 2 == 1,
            drained: false,
        }
    }

    fn state(ports: u16) -> State {
        State {
            sequence: 0xfedc_ba98,
            primary: PrimaryPath {
                port: 2,
                local: Lid(0x1234),
                remote: Lid(0xbff0),
            },
            place: 0,
            migration: MigrationState::Armed,
            movement: Movement::Left,
            moves_idle: false,
            ports: Ports::new((1..=ports).map(port)),
        }
    }

    #[test]
    fn ports_beyond_the_fourth_are_only_mentioned() {
        let all = Ports::new((1..=5).map(port));
        assert_eq!(all.as_slice(), [port(1), port(2), port(3), port(4)]);
        assert!(all.more());
        let four = Ports::new((1..=4).map(port));
        assert_eq!(four.as_slice().len(), 4);
        assert!(!four.more());
        assert!(Ports::new([]).as_slice().is_empty());
    }

    #[test]
    fn what_is_said_is_heard() {
        for count in 0..=5 {
            let state = state(count);
            let req = ReqData {
                peer_qpn: Qpn(0x12_3456),
                state,
            };
            assert_eq!(ReqData::decode(&req.encode()), Ok(req));
            for refusal in [None, Some(Refusal::NoSecondPath), Some(Refusal::Other(200))] {
                let rep = RepData { state, refusal };
                assert_eq!(RepData::decode(&rep.encode()), Ok(rep));
            }
            for loaded in [false, true] {
                let lap = LapData { state, loaded };
                assert_eq!(LapData::decode(&lap.encode()), Ok(lap));
            }
            assert_eq!(State::decode(&state.encode::<168>()), Ok(state));
            assert_eq!(State::decode(&state.encode::<148>()), Ok(state));
        }
    }

    /// By the table above, not by our own decoder.
    #[test]
    fn bytes_are_where_the_table_says() {
        let req = ReqData {
            peer_qpn: Qpn(0x12_3456),
            state: state(2),
        };
        let bytes = req.encode();
        let start = [
            b'a', b'p', b'm', b'd', 2, 0x52, 0x34, 0, 2, 0x12, 0x34, 0x56, 0xfe, 0xdc, 0xba, 0x98,
            0x12, 0x34, 0xbf, 0xf0, 0xfe, 0x80,
        ];
        assert_eq!(bytes[..22], start);
        assert_eq!(bytes[35..38], [1, 0, 0x10]);
        assert_eq!(bytes[53..56], [2, 0, 0x20]);
        assert!(bytes[56..].iter().all(|&byte| byte == 0));
        let rep = RepData {
            refusal: Some(Refusal::Policy),
            ..RepData::default()
        };
        assert_eq!(rep.encode()[92], 4);
        let lap = LapData {
            loaded: true,
            ..LapData::default()
        };
        assert_eq!(lap.encode()[92], 1);
    }

    #[test]
    fn how_it_ended_is_said_and_heard() {
        for disconnected in [false, true] {
            let data = DreqData { disconnected };
            let bytes = data.encode();
            assert_eq!(bytes[..5], *b"apmd\x02");
            assert_eq!(bytes[5], u8::from(disconnected) << 7);
            assert_eq!(DreqData::decode(&bytes), Ok(data));
        }
        let silent = PrivateData::default();
        assert_eq!(DreqData::decode(&silent), Err(AssociationError::Magic(0)));
    }

    #[test]
    fn drained_ports_are_told_in_all_but_a_req() {
        let ports = (1..=4).map(|number| PeerPort {
            drained: number % 3 == 1,
            ..port(number)
        });
        let drained = State {
            ports: Ports::new(ports),
            ..state(4)
        };
        assert_eq!(drained.encode::<148>()[93], 0b1001);
        assert_eq!(State::decode(&drained.encode::<148>()), Ok(drained));
        let rep = RepData {
            state: drained,
            refusal: None,
        };
        assert_eq!(RepData::decode(&rep.encode()), Ok(rep));
        let req = ReqData {
            state: drained,
            ..ReqData::default()
        };
        let heard = ReqData::decode(&req.encode()).map(|req| req.state);
        assert_eq!(heard, Ok(state(4)));
    }

    #[test]
    fn the_primarys_port_is_told_by_its_place_and_in_a_req_by_its_gid() {
        let second = State {
            place: 2,
            ..state(2)
        };
        assert_eq!(second.encode::<148>()[93], 2 << 5);
        assert_eq!(State::decode(&second.encode::<148>()), Ok(second));
        assert_eq!(second.primary_port(), Some(&port(2)));
        let req = ReqData {
            state: second,
            ..ReqData::default()
        };
        let heard = ReqData::decode(&req.encode()).map(|req| req.state);
        assert_eq!(heard, Ok(state(2)), "a REQ ends before it");
        assert_eq!(state(2).with_primary_at(port(2).gid), second);
        assert_eq!(second.with_primary_at(port(3).gid), state(2));
        assert_eq!(second.with_primary_at(Gid::default()), state(2));
        assert_eq!(state(2).primary_port(), None);
    }

    #[test]
    fn that_an_idle_end_can_be_moved_is_told_in_all_but_a_req() {
        let movable = State {
            moves_idle: true,
            ..state(2)
        };
        assert_eq!(movable.encode::<148>()[93], 1 << 4);
        assert_eq!(State::decode(&movable.encode::<148>()), Ok(movable));
        let req = ReqData {
            state: movable,
            ..ReqData::default()
        };
        let heard = ReqData::decode(&req.encode()).map(|req| req.state);
        assert_eq!(heard, Ok(state(2)));
    }

    #[test]
    fn a_place_beyond_the_ports_names_none() {
        let beyond = State {
            place: 3,
            ..state(2)
        };
        assert_eq!(State::decode(&beyond.encode::<148>()), Ok(state(2)));
    }

    #[test]
    fn data_of_others_is_told_apart() {
        let zero = PrivateData::default();
        assert_eq!(ReqData::decode(&zero), Err(AssociationError::Magic(0)));

        let mut other = State::default().encode::<168>();
        other[4] = 1;
        assert_eq!(State::decode(&other), Err(AssociationError::Version(1)));

        let mut damaged = RepData::default().encode();
        damaged[5] = 5;
        assert_eq!(
            RepData::decode(&damaged),
            Err(AssociationError::PortCount(5))
        );
        damaged[5] = 0x60;
        assert_eq!(
            RepData::decode(&damaged),
            Err(AssociationError::MigrationState(3))
        );
    }
}
