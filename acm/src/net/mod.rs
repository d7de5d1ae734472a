// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses resolved between hosts as ibacm's provider `ibacmp` does it (`acmp.c`): who looks for
//! an address asks a multicast group, and the one who has it answers. Both ways, with stock ibacm
//! or another apmd at the other end. Sans-IO: queue pairs, SA and clock are outside.
//!
//! Not as ibacm does it: waits grow from try to try, an address that nobody has is not asked for
//! again at once, the old group is listened to while a new SM is asked to let the port join, and an
//! answer does not wait for the SA.

mod announcements;
mod datagram;
mod group;
mod heard;
mod participant;
mod questions;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cm_msgs::acm::Address;
use cm_msgs::acm::resolve::ResolveError;
use cm_msgs::sa::{McMemberRecord, PathRecord, Template};
use cm_msgs::{Gid, Lid, PKey, Qpn};
use serde::{Deserialize, Serialize};
use statemachine::{PortId, Random, Time};

pub use datagram::{AddressVector, Datagram};
pub use group::Demand;
use participant::Participant;

/// Where paths come from once the address is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteProt {
    /// From the SA, or whoever takes its place.
    Sa,
    /// From the group that both are in: no SA is needed.
    Acm,
}

/// How it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Where paths come from.
    pub route_prot: RouteProt,
    /// What the group wants in which questions are asked; the same on all hosts.
    pub least: Demand,
    /// First wait for an answer, to which the port's SubnetTimeOut is added; doubles from copy to
    /// copy. After the last one it is the first again.
    pub timeout: Duration,
    /// Copies of a question after the first.
    pub retries: u8,
    /// Questions under way at the same time, for each endpoint.
    pub depth: usize,
    /// How long an address that nobody has is not asked for again.
    pub unanswered_for: Duration,
    /// How long it is believed what was heard without asking.
    pub heard_for: Duration,
}

impl Default for Settings {
    /// ibacm's, where it has any.
    fn default() -> Self {
        Self {
            route_prot: RouteProt::Sa,
            least: Demand { rate: 3, mtu: 4 },
            timeout: Duration::from_secs(2),
            retries: 2,
            depth: 16,
            unanswered_for: Duration::from_secs(10),
            heard_for: Duration::from_secs(60),
        }
    }
}

/// A port in a partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortPartition {
    /// The port.
    pub port: PortId,
    /// The partition, with the port's own membership bit.
    pub pkey: PKey,
}

/// A port that is up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UpPort {
    /// Its first GID.
    pub gid: Gid,
    /// Its first LID.
    pub lid: Lid,
    /// LID of the subnet manager.
    pub sm_lid: Lid,
    /// Its P_Key table by index; 0 for an empty entry.
    pub pkeys: Vec<PKey>,
    /// Rate of its link, `enum ibv_rate`.
    pub rate: u8,
    /// MTU of its link (1 = 256 bytes .. 5 = 4096).
    pub mtu: u8,
    /// SubnetTimeOut: 4.096 us * 2^n.
    pub subnet_timeout: u8,
}

/// Who has this address?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lookup {
    /// The number by which it is answered.
    pub number: u32,
    /// Where to ask.
    pub endpoint: PortPartition,
    /// Our own address, which the others learn.
    pub source: Address,
    /// The address in question.
    pub destination: Address,
    /// The port where it was, if another one has claimed it since. What is heard is not believed then,
    /// and if this port answers, it stays there.
    pub held_by: Option<Gid>,
}

/// Where an address is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// GID of its port.
    pub gid: Gid,
    /// LID of its port.
    pub lid: Lid,
    /// [`RouteProt::Acm`]: a path to it, with what the group promises that both are in.
    pub path: Option<PathRecord>,
    /// Until when it is to be believed, where it was only heard and not asked for.
    pub until: Option<Time>,
}

/// Why it is not known where an address is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LookupError {
    /// The endpoint cannot ask: port down, group not joined, no queue pair.
    #[error("the port is not (yet) in its multicast group")]
    NotReady,
    /// Too much is asked at once.
    #[error("too many questions are waiting")]
    Busy,
    /// Nobody answered, now or a moment ago.
    #[error("nobody answered")]
    Unanswered,
    /// It answered, and shares no group with us.
    #[error("no multicast group in common")]
    NoCommonGroup,
    /// It answered with this status of ACM.
    #[error("answered with status {0}")]
    Refused(u8),
}

/// A datagram that is no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// It does not decode.
    #[error(transparent)]
    Message(#[from] ResolveError),
    /// Nobody can be told from it.
    #[error("no global routing header, so no sender")]
    NoGrh,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Make the endpoint's queue pair; [`Net::handle_opened`] or [`Net::handle_broken`].
    Open {
        /// The endpoint.
        endpoint: PortPartition,
        /// Its partition in the port's table.
        pkey_index: u16,
    },
    /// Destroy the endpoint's queue pair.
    Close(PortPartition),
    /// Take in what is sent to the group.
    Attach {
        /// The endpoint.
        endpoint: PortPartition,
        /// The group's GID.
        group: Gid,
        /// The group's LID.
        lid: Lid,
    },
    /// Take it in no longer.
    Detach {
        /// The endpoint.
        endpoint: PortPartition,
        /// The group's GID.
        group: Gid,
        /// The group's LID.
        lid: Lid,
    },
    /// Ask the SA to let the port join; [`Net::handle_joined`] with the number.
    Join {
        /// The number.
        user: u32,
        /// The port.
        port: PortId,
        /// The request.
        membership: Template<McMemberRecord>,
    },
    /// Tell the SA that the port leaves.
    Leave {
        /// The port.
        port: PortId,
        /// The request.
        membership: Template<McMemberRecord>,
    },
    /// Send a datagram.
    Send {
        /// From here.
        endpoint: PortPartition,
        /// There.
        to: AddressVector,
        /// To this queue pair.
        qpn: Qpn,
        /// What it says.
        bytes: Box<[u8; cm_msgs::mad::MAD_LEN]>,
    },
    /// A lookup is answered.
    Resolved(u32, Result<Location, LookupError>),
    /// A host has said, by a question of its own, that it has this address. Nobody has proven it.
    Claimed {
        /// Where it was heard.
        endpoint: PortPartition,
        /// The address.
        address: Address,
        /// The port.
        gid: Gid,
    },
}

/// What happened, since the start. Operators are shown it under these names.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Questions asked.
    pub questions: u64,
    /// Further copies of them.
    pub questions_repeated: u64,
    /// Answers to them.
    pub answers: u64,
    /// Questions that nobody answered.
    pub unanswered: u64,
    /// Answers to questions that are not, or no longer, asked.
    pub late: u64,
    /// Questions of others, from which their addresses were learnt.
    pub heard: u64,
    /// Lookups answered by what was heard.
    pub heard_used: u64,
    /// Questions for our addresses, answered.
    pub answers_sent: u64,
    /// Questions for our addresses by members of other groups only.
    pub no_common_group: u64,
    /// Addresses of ours that were announced, each time.
    pub announced: u64,
    /// Datagrams that are no messages.
    pub malformed: u64,
}

/// Resolution between hosts.
#[derive(Debug)]
pub struct Net {
    settings: Settings,
    endpoints: BTreeMap<PortPartition, Participant>,
    ports: BTreeMap<PortId, UpPort>,
    /// What endpoints left behind.
    outputs: VecDeque<Output>,
    next_user: u32,
    random: Random,
    /// Of endpoints that ended.
    counters: Counters,
}

impl Net {
    /// No endpoints.
    pub fn new(settings: Settings, random: Random) -> Self {
        Self {
            settings,
            endpoints: BTreeMap::new(),
            ports: BTreeMap::new(),
            outputs: VecDeque::new(),
            next_user: 0,
            random,
            counters: Counters::default(),
        }
    }

    /// The settings are others now.
    pub fn set_settings(&mut self, now: Time, settings: Settings) {
        self.settings = settings;
        for endpoint in self.endpoints.values_mut() {
            endpoint.set_groups(now, &self.settings);
        }
        self.drive(now);
    }

    /// These are the endpoints that have addresses; all others end.
    pub fn set_endpoints(&mut self, now: Time, wanted: &[PortPartition]) {
        let gone: Vec<_> = self.endpoints.keys().copied().collect();
        for id in gone.iter().filter(|id| !wanted.contains(id)) {
            if let Some(endpoint) = self.endpoints.remove(id) {
                self.counters += endpoint.counters();
                self.outputs.extend(endpoint.end(now));
            }
        }
        for id in wanted {
            if self.endpoints.contains_key(id) {
                continue;
            }
            let mut endpoint = Participant::new(*id, self.random.split());
            endpoint.handle_port(now, &self.settings, self.ports.get(&id.port).cloned());
            self.endpoints.insert(*id, endpoint);
        }
        self.drive(now);
    }

    /// A port is as it is now; `None`: down or gone.
    pub fn handle_port(&mut self, now: Time, id: PortId, port: Option<UpPort>) {
        match port.clone() {
            Some(port) => self.ports.insert(id, port),
            None => self.ports.remove(&id),
        };
        for endpoint in self.on(id) {
            endpoint.1.handle_port(now, endpoint.0, port.clone());
        }
        self.drive(now);
    }

    /// The SM wants its clients to register again, or is another one.
    pub fn handle_reregister(&mut self, now: Time, port: PortId) {
        for (_, endpoint) in self.on(port) {
            endpoint.rejoin(now);
        }
        self.drive(now);
    }

    fn on(&mut self, port: PortId) -> impl Iterator<Item = (&Settings, &mut Participant)> {
        let settings = &self.settings;
        let endpoints = self.endpoints.iter_mut();
        endpoints
            .filter(move |(id, _)| id.port == port)
            .map(move |(_, endpoint)| (settings, endpoint))
    }

    /// An endpoint's queue pair was made.
    pub fn handle_opened(&mut self, now: Time, id: PortPartition, qpn: Qpn) {
        if let Some(endpoint) = self.endpoints.get_mut(&id) {
            endpoint.handle_opened(qpn);
        }
        self.drive(now);
    }

    /// An endpoint's queue pair could not be made, or broke and was destroyed.
    pub fn handle_broken(&mut self, now: Time, id: PortPartition) {
        if let Some(endpoint) = self.endpoints.get_mut(&id) {
            endpoint.handle_broken(now);
        }
        self.drive(now);
    }

    /// The SA answered the join with this number; `None`: it refused, or did not answer. The pause
    /// until the next try, if there has to be one.
    pub fn handle_joined(
        &mut self,
        now: Time,
        user: u32,
        record: Option<McMemberRecord>,
    ) -> Option<Duration> {
        let group = self
            .endpoints
            .values_mut()
            .find_map(|endpoint| endpoint.joining(user))?;
        let pause = match record {
            Some(record) => group.joined(now, record),
            None => Some(group.failed(now)),
        };
        self.drive(now);
        pause
    }

    /// Asks the fabric where an address is; the answer is an [`Output::Resolved`].
    pub fn lookup(&mut self, now: Time, lookup: &Lookup) {
        match self.endpoints.get_mut(&lookup.endpoint) {
            Some(endpoint) => endpoint.lookup(now, lookup),
            None => {
                let error = Err(LookupError::NotReady);
                self.outputs
                    .push_back(Output::Resolved(lookup.number, error));
            }
        }
        self.drive(now);
    }

    /// An address has come to an endpoint from another one of this host (`moved`), or from elsewhere:
    /// all members of the group are told, three times within two seconds. What has come from
    /// elsewhere is not announced while the endpoint is not in its group, since this host may just
    /// have started.
    pub fn announce(&mut self, now: Time, id: PortPartition, address: Address, moved: bool) {
        for (other, endpoint) in &mut self.endpoints {
            match *other == id {
                true => endpoint.announce(now, address, moved),
                false => endpoint.announce_no_longer(&address),
            }
        }
        self.drive(now);
    }

    /// An address is not this host's any more.
    pub fn announce_no_longer(&mut self, address: &Address) {
        for endpoint in self.endpoints.values_mut() {
            endpoint.announce_no_longer(address);
        }
    }

    /// An endpoint received something. `mine`: whether an address is this endpoint's.
    ///
    /// # Errors
    /// It is no message.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        id: PortPartition,
        datagram: &Datagram,
        mine: impl Fn(&Address) -> bool,
    ) -> Result<(), Malformed> {
        let Some(endpoint) = self.endpoints.get_mut(&id) else {
            return Ok(());
        };
        let result = endpoint.handle_datagram(now, &self.settings, datagram, mine);
        self.drive(now);
        result
    }

    /// Time has passed.
    pub fn handle_time(&mut self, now: Time) {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            self.drive(now);
        }
    }

    fn drive(&mut self, now: Time) {
        for endpoint in self.endpoints.values_mut() {
            endpoint.drive(now, &self.settings, &mut self.next_user);
        }
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<Output> {
        let of_endpoints = self
            .endpoints
            .values_mut()
            .find_map(Participant::poll_output);
        self.outputs.pop_front().or(of_endpoints)
    }

    /// When [`Net::handle_time`] has something to do.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.endpoints
            .values()
            .filter_map(Participant::poll_timeout)
            .min()
    }

    /// What happened.
    pub fn counters(&self) -> Counters {
        let each = self.endpoints.values().map(Participant::counters);
        each.fold(self.counters, |mut sum, counters| {
            sum += counters;
            sum
        })
    }

    /// The endpoints, and the groups that each is in.
    pub fn endpoints(&self) -> impl Iterator<Item = (PortPartition, Vec<McMemberRecord>)> {
        let endpoints = self.endpoints.iter();
        endpoints.map(|(id, endpoint)| (*id, endpoint.members().copied().collect()))
    }
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.questions += other.questions;
        self.questions_repeated += other.questions_repeated;
        self.answers += other.answers;
        self.unanswered += other.unanswered;
        self.late += other.late;
        self.heard += other.heard;
        self.heard_used += other.heard_used;
        self.answers_sent += other.answers_sent;
        self.no_common_group += other.no_common_group;
        self.announced += other.announced;
        self.malformed += other.malformed;
    }
}
