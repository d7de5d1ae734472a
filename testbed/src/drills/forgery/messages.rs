// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the forger sends: as the peer's daemon would, if the forger's port were the peer's.

use std::fs::{self, File};
use std::io::Read;

use cm_msgs::association::{PeerPort, Ports, PrimaryPath, RepData, ReqData, State};
use cm_msgs::cm::{self, Dreq, Lap, PathFields, Rep, Req, Sap};
use cm_msgs::control::MigrationState;
use cm_msgs::mad::CLASS_APM;
use cm_msgs::{Gid, Guid, Lid, Qpn};

use crate::failure::Failure;
use crate::host::Host;
use crate::observe::{Connection, Pair};

/// Bytes of a record of `send_mads`: where the MAD goes, and the MAD.
pub(super) const RECORD: usize = 2 + 256;

/// The service ID of associations (docs/architecture.md).
const SERVICE_ID: u64 = 0x0200_0000_4150_4d44;

/// One end of the connection that is attacked.
#[derive(Clone, Copy)]
pub(super) struct Victim<'a> {
    pub(super) pair: &'a Pair,
    pub(super) host: Host,
}

/// What is seen from outside of a victim and its peer.
struct Seen {
    victim: Connection,
    peer: Connection,
    peer_node: Guid,
    /// Of the ports of the connection: the victim's and the peer's.
    gids: [Gid; 2],
    forger: PeerPort,
}

/// `each` of every message to every victim, as records of `send_mads`.
pub(super) fn forged(forger: Host, victims: &[Victim<'_>], each: u32) -> Result<Vec<u8>, Failure> {
    let seen: Vec<Seen> = victims
        .iter()
        .map(|victim| Seen::of(forger, victim))
        .collect::<Result<_, _>>()?;
    let mut guesses = Guesses::open()?;
    let mut records = Vec::new();
    for _ in 0..each {
        for seen in &seen {
            for message in seen.messages(&mut guesses)? {
                let transaction = u64::from(guesses.next()?);
                records.extend(seen.victim.primary.slid.to_be_bytes());
                records.extend(message.encode(CLASS_APM, transaction));
            }
        }
    }
    Ok(records)
}

impl Seen {
    fn of(forger: Host, victim: &Victim<'_>) -> Result<Self, Failure> {
        let (here, there) = (victim.host, victim.host.other());
        let [victim, peer] = [here, there].map(|host| victim.pair.end(host).clone());
        let forger_port = forger.port(1);
        Ok(Self {
            gids: [
                parsed(&here.port(victim.primary.port).gid()?)?,
                parsed(&there.port(peer.primary.port).gid()?)?,
            ],
            peer_node: node_guid(there)?,
            victim,
            peer,
            forger: PeerPort {
                gid: parsed(&forger_port.gid()?)?,
                lid: Lid(forger_port.lid()?),
                lmc: forger_port.lmc()?,
                up: true,
                drained: false,
            },
        })
    }

    /// One of each, with names that are guessed.
    fn messages(&self, guesses: &mut Guesses) -> Result<[cm::Message; 5], Failure> {
        let (local_comm_id, remote_comm_id) = (guesses.next()?, guesses.next()?);
        let state = self.state();
        let private_data = state.encode();
        let alternate = PathFields {
            local_port_lid: self.forger.lid,
            local_port_gid: self.forger.gid,
            ..self.primary()
        };
        let req = Req {
            local_comm_id,
            service_id: SERVICE_ID,
            local_ca_guid: self.peer_node,
            local_qpn: Qpn(self.peer.qpn),
            primary: self.primary(),
            alternate,
            sap_supported: true,
            private_data: ReqData {
                peer_qpn: Qpn(self.victim.qpn),
                state,
            }
            .encode(),
            ..Req::default()
        };
        let rep = Rep {
            local_comm_id,
            remote_comm_id,
            local_qpn: Qpn(self.peer.qpn),
            local_ca_guid: self.peer_node,
            private_data: RepData {
                state,
                refusal: None,
            }
            .encode(),
            ..Rep::default()
        };
        let lap = Lap {
            local_comm_id,
            remote_comm_id,
            remote_qpn_eecn: Qpn(self.victim.qpn),
            alternate,
            private_data,
            ..Lap::default()
        };
        let sap = Sap {
            local_comm_id,
            remote_comm_id,
            remote_qpn_eecn: Qpn(self.victim.qpn),
            alternate_local_port_lid: self.forger.lid,
            alternate_local_port_gid: self.forger.gid,
            private_data,
        };
        let dreq = Dreq {
            local_comm_id,
            remote_comm_id,
            remote_qpn_eecn: Qpn(self.victim.qpn),
            ..Dreq::default()
        };
        Ok([req.into(), rep.into(), lap.into(), sap.into(), dreq.into()])
    }

    /// The primary as the peer sees it.
    fn primary(&self) -> PathFields {
        let [local, remote] = self.gids;
        PathFields {
            local_port_lid: Lid(self.peer.primary.slid),
            remote_port_lid: Lid(self.peer.primary.dlid),
            local_port_gid: remote,
            remote_port_gid: local,
            subnet_local: true,
            ..PathFields::default()
        }
    }

    /// The peer has moved to the alternate, has lost its port, and has one more: the forger's.
    fn state(&self) -> State {
        let path = self.peer.alternate.as_ref().unwrap_or(&self.peer.primary);
        let lost = PeerPort {
            gid: self.gids[1],
            lid: Lid(self.peer.primary.slid),
            lmc: self.forger.lmc,
            up: false,
            drained: false,
        };
        State {
            sequence: 0x4000_0000,
            primary: PrimaryPath {
                port: path.port,
                local: Lid(path.slid),
                remote: Lid(path.dlid),
            },
            migration: MigrationState::Migrated,
            ports: Ports::new([self.forger, lost]),
            ..State::default()
        }
    }
}

fn parsed(gid: &str) -> Result<Gid, Failure> {
    gid.parse()
        .map_err(|_| Failure::not_shown(format!("{gid} is no GID")))
}

fn node_guid(host: Host) -> Result<Guid, Failure> {
    let path = format!("/sys/class/infiniband/{}/node_guid", host.device());
    let text = fs::read_to_string(&path).map_err(|source| Failure::File {
        path: path.clone(),
        source,
    })?;
    let digits = text.trim().replace(':', "");
    let guid = u64::from_str_radix(&digits, 16);
    guid.map(Guid)
        .map_err(|_| Failure::not_shown(format!("{path} has no GUID: {text}")))
}

/// Random numbers of the kernel's.
struct Guesses(File);

impl Guesses {
    const PATH: &str = "/dev/urandom";

    fn failure(source: std::io::Error) -> Failure {
        let path = Self::PATH.to_owned();
        Failure::File { path, source }
    }

    fn open() -> Result<Self, Failure> {
        File::open(Self::PATH).map(Self).map_err(Self::failure)
    }

    fn next(&mut self) -> Result<u32, Failure> {
        let mut bytes = [0; 4];
        self.0.read_exact(&mut bytes).map_err(Self::failure)?;
        Ok(u32::from_be_bytes(bytes))
    }
}
