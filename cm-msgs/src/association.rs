// SPDX-License-Identifier: MIT OR Apache-2.0
//! What apmd lays into the private data of REQ, REP and LAP.
//!
//! Each begins with the magic number 0x61706d64 ("apmd") and the version, 1; bytes after the
//! listed ones are zero and ignored. Integers are big-endian.
//!
//! | bytes | REQ (92) | REP (196) | LAP (168) |
//! |---|---|---|---|
//! | 0..4 | magic | magic | magic |
//! | 4 | version | version | version |
//! | 5 | bit 7: the sender has more ports | bit 7: the same | reserved |
//! | 6 | ports that follow, 0 to 4 | ports that follow, 0 to 4 | reserved |
//! | 7 | reserved | why failover is refused, 0 not | reserved |
//! | 8..12 | recipient's queue pair in the low 24 bits | reserved | reserved |
//! | 12..84 | four times GID (16), LID (2) | the same | local GID, local LID, remote GID, remote LID |

use core::fmt;

use crate::codes::codes;
use crate::layout::{attribute, resized};
use crate::{Gid, Lid, PrivateData, Qpn};

/// First bytes of apmd's private data.
pub const MAGIC: u32 = 0x6170_6d64;

/// The version spoken here.
pub const VERSION: u8 = 1;

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
}

/// How a port is reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PortAddress {
    /// Its GID.
    pub gid: Gid,
    /// Its base LID.
    pub lid: Lid,
}

impl fmt::Display for PortAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lid {}", self.gid, self.lid)
    }
}

/// The ports of a host, as far as they have room.
#[derive(Clone, Copy, Default)]
pub struct Ports {
    slots: [PortAddress; MAX_PORTS],
    len: u8,
    more: bool,
}

impl Ports {
    /// The first of `ports`; of the others it only says that they are.
    pub fn new(ports: impl IntoIterator<Item = PortAddress>) -> Self {
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
    pub fn as_slice(&self) -> &[PortAddress] {
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

codes! {
    /// Why a host will not have a connection migrated.
    pub enum Refusal: u8 {
        TurnedOff = 1, "the application has path migration turned off";
        NoSecondPath = 2, "the device has one port and one lid";
        DeviceCannot = 3, "the device has no automatic path migration";
        Policy = 4, "the configuration forbids it";
    }
}

/// Private data of a REQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReqData {
    /// The recipient's queue pair of the application's connection.
    pub peer_qpn: Qpn,
    /// The sender's ports.
    pub ports: Ports,
}

/// Private data of a REP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RepData {
    /// The sender's ports.
    pub ports: Ports,
    /// Why failover is refused, if it is.
    pub refusal: Option<Refusal>,
}

/// Private data of a LAP: the primary path that the alternate is to stand in for, as the sender
/// sees it. Lets the recipient tell a late LAP and one that crossed a migration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LapData {
    /// The sender's end.
    pub local: PortAddress,
    /// The recipient's end.
    pub remote: PortAddress,
}

attribute! {
    /// What REQ and REP have in common.
    struct Announcement: 84 {
        magic: u32 = [0, 0, 32],
        version: u8 = [4, 0, 8],
        more: bool = [5, 0, 1],
        port_count: u8 = [6, 0, 8],
        refusal: u8 = [7, 0, 8],
        peer_qpn: Qpn = [9, 0, 24],
        first: PortAddress = { gid: [12, 0, 128], lid: [28, 0, 16] },
        second: PortAddress = { gid: [30, 0, 128], lid: [46, 0, 16] },
        third: PortAddress = { gid: [48, 0, 128], lid: [64, 0, 16] },
        fourth: PortAddress = { gid: [66, 0, 128], lid: [82, 0, 16] },
    }
}

impl Announcement {
    fn new(ports: Ports) -> Self {
        let [first, second, third, fourth] = ports.slots;
        Self {
            magic: MAGIC,
            version: VERSION,
            more: ports.more,
            port_count: ports.len,
            first,
            second,
            third,
            fourth,
            ..Self::default()
        }
    }

    fn read<const N: usize>(data: &PrivateData<N>) -> Result<Self, AssociationError> {
        let announcement = Self::decode(&resized(&data.0));
        check(announcement.magic, announcement.version)?;
        if usize::from(announcement.port_count) > MAX_PORTS {
            return Err(AssociationError::PortCount(announcement.port_count));
        }
        Ok(announcement)
    }

    fn ports(&self) -> Ports {
        let slots = [self.first, self.second, self.third, self.fourth];
        Ports {
            slots,
            len: self.port_count,
            more: self.more,
        }
    }
}

fn check(magic: u32, version: u8) -> Result<(), AssociationError> {
    if magic != MAGIC {
        return Err(AssociationError::Magic(magic));
    }
    if version != VERSION {
        return Err(AssociationError::Version(version));
    }
    Ok(())
}

impl ReqData {
    /// Lays it into a REQ.
    pub fn encode(&self) -> PrivateData<92> {
        let announcement = Announcement {
            peer_qpn: self.peer_qpn,
            ..Announcement::new(self.ports)
        };
        PrivateData(resized(&announcement.encode()))
    }

    /// Reads it from a REQ.
    ///
    /// # Errors
    /// The REQ is from no apmd, from one of another version, or damaged.
    pub fn decode(data: &PrivateData<92>) -> Result<Self, AssociationError> {
        let announcement = Announcement::read(data)?;
        Ok(Self {
            peer_qpn: announcement.peer_qpn,
            ports: announcement.ports(),
        })
    }
}

impl RepData {
    /// Lays it into a REP.
    pub fn encode(&self) -> PrivateData<196> {
        let refusal = self.refusal.map_or(0, u8::from);
        let announcement = Announcement {
            refusal,
            ..Announcement::new(self.ports)
        };
        PrivateData(resized(&announcement.encode()))
    }

    /// Reads it from a REP.
    ///
    /// # Errors
    /// The REP is from no apmd, from one of another version, or damaged.
    pub fn decode(data: &PrivateData<196>) -> Result<Self, AssociationError> {
        let announcement = Announcement::read(data)?;
        let refusal = (announcement.refusal != 0).then(|| announcement.refusal.into());
        Ok(Self {
            ports: announcement.ports(),
            refusal,
        })
    }
}

attribute! {
    /// The wire form of [`LapData`].
    struct CurrentPath: 48 {
        magic: u32 = [0, 0, 32],
        version: u8 = [4, 0, 8],
        local: PortAddress = { gid: [12, 0, 128], lid: [28, 0, 16] },
        remote: PortAddress = { gid: [30, 0, 128], lid: [46, 0, 16] },
    }
}

impl LapData {
    /// Lays it into a LAP.
    pub fn encode(&self) -> PrivateData<168> {
        let Self { local, remote } = *self;
        let path = CurrentPath {
            magic: MAGIC,
            version: VERSION,
            local,
            remote,
        };
        PrivateData(resized(&path.encode()))
    }

    /// Reads it from a LAP.
    ///
    /// # Errors
    /// The LAP is from no apmd or from one of another version.
    pub fn decode(data: &PrivateData<168>) -> Result<Self, AssociationError> {
        let CurrentPath {
            magic,
            version,
            local,
            remote,
        } = CurrentPath::decode(&resized(&data.0));
        check(magic, version)?;
        Ok(Self { local, remote })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Guid;

    fn port(number: u16) -> PortAddress {
        PortAddress {
            gid: Gid::new(0xfe80 << 48, Guid(number.into())),
            lid: Lid(number),
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
            let ports = Ports::new((1..=count).map(port));
            let req = ReqData {
                peer_qpn: Qpn(0x12_3456),
                ports,
            };
            assert_eq!(ReqData::decode(&req.encode()), Ok(req));
            for refusal in [None, Some(Refusal::NoSecondPath), Some(Refusal::Other(200))] {
                let rep = RepData { ports, refusal };
                assert_eq!(RepData::decode(&rep.encode()), Ok(rep));
            }
        }
        let lap = LapData {
            local: port(1),
            remote: port(2),
        };
        assert_eq!(LapData::decode(&lap.encode()), Ok(lap));
    }

    #[test]
    fn data_of_others_is_told_apart() {
        let zero = PrivateData::default();
        assert_eq!(ReqData::decode(&zero), Err(AssociationError::Magic(0)));

        let mut newer = LapData::default().encode();
        newer[4] = 2;
        assert_eq!(LapData::decode(&newer), Err(AssociationError::Version(2)));

        let mut damaged = RepData::default().encode();
        damaged[6] = 5;
        assert_eq!(
            RepData::decode(&damaged),
            Err(AssociationError::PortCount(5))
        );
    }
}
