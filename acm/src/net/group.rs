// SPDX-License-Identifier: MIT OR Apache-2.0
//! The multicast groups in which ACM services ask each other (`acmp_format_mgid`,
//! `acmp_init_join` in ibacm's `acmp.c`), and the membership of one port in one of them.

use std::time::Duration;

use cm_msgs::acm::resolve::QKEY;
use cm_msgs::sa::{McMemberRecord, PathRecord, Record, Template};
use cm_msgs::{Gid, Lid, PKey, Qpn};
use statemachine::{Backoff, Time};

use super::UpPort;
use super::datagram::AddressVector;

/// The queue pair number of all multicast (IBA 3.5.3).
pub(super) const MULTICAST_QPN: Qpn = Qpn(0x00ff_ffff);

/// Selector of MTU and rate in a join: exactly.
const EXACTLY: u8 = 2;
const SITE_LOCAL: u8 = 5;
const FULL_MEMBER: u8 = 1;
/// The group's partition is named by its full membership key, whatever the port's own.
const FULL_MEMBERSHIP: u16 = 0x8000;

/// First pause after a join that failed, and the longest.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// When an answer that has not come is lost: the client of the SA gives up long before.
const LOST: Duration = Duration::from_secs(300);

/// What a group wants of its members' links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    /// Rate, `enum ibv_rate`.
    pub rate: u8,
    /// MTU (1 = 256 bytes .. 5 = 4096).
    pub mtu: u8,
}

impl Demand {
    /// The group's GID in a partition: `ff15:4001:PKEY:00,RATE:MTU,0::`.
    pub(super) fn mgid(self, pkey: PKey) -> Gid {
        let [high, low] = (pkey.0 | FULL_MEMBERSHIP).to_be_bytes();
        let mut gid = [0; 16];
        gid[..4].copy_from_slice(&[0xff, 0x15, 0x40, 0x01]);
        gid[4..9].copy_from_slice(&[high, low, 0, self.rate, self.mtu]);
        Gid(gid)
    }
}

/// A port's membership in a group.
#[derive(Debug)]
pub(super) struct Group {
    mgid: Gid,
    demand: Demand,
    /// What the SA answered last. It holds until another answer comes, also while a new SM is
    /// asked to let the port join again.
    member: Option<McMemberRecord>,
    /// The join under way.
    joining: Option<u32>,
    /// When to join, or to join once more because the answer was lost.
    join_at: Option<Time>,
    backoff: Backoff,
}

impl Group {
    /// A group that is not joined.
    pub(super) fn new(pkey: PKey, demand: Demand) -> Self {
        Self {
            mgid: demand.mgid(pkey),
            demand,
            member: None,
            joining: None,
            join_at: None,
            backoff: Backoff::new(PAUSE_FIRST, PAUSE_MAX),
        }
    }

    /// Its GID.
    pub(super) fn mgid(&self) -> Gid {
        self.mgid
    }

    /// The membership, once the SA has granted it.
    pub(super) fn member(&self) -> Option<&McMemberRecord> {
        self.member.as_ref()
    }

    /// Joins at once, again if need be: the SM has forgotten, or is another.
    pub(super) fn join(&mut self, now: Time) {
        self.joining = None;
        self.join_at = Some(now);
        self.backoff.reset();
    }

    /// When [`Group::start`] has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.join_at
    }

    /// The request to send now, if it is time; it becomes number `user`.
    pub(super) fn start(
        &mut self,
        now: Time,
        user: u32,
        port: &UpPort,
        pkey: PKey,
    ) -> Option<Template<McMemberRecord>> {
        self.join_at.filter(|at| *at <= now)?;
        self.join_at = Some(now + LOST);
        self.joining = Some(user);
        Some(self.join_request(port, pkey))
    }

    fn join_request(&self, port: &UpPort, pkey: PKey) -> Template<McMemberRecord> {
        McMemberRecord::any()
            .mgid(self.mgid)
            .port_gid(port.gid)
            .q_key(QKEY)
            .mtu_selector(EXACTLY)
            .mtu(self.demand.mtu)
            .traffic_class(0)
            .pkey(pkey)
            .rate_selector(EXACTLY)
            .rate(self.demand.rate)
            .sl(0)
            .flow_label(0)
            .scope(SITE_LOCAL)
            .join_state(FULL_MEMBER)
    }

    /// The request by which the port leaves, if it is a member.
    pub(super) fn leave_request(&self) -> Option<Template<McMemberRecord>> {
        let own = McMemberRecord::any()
            .mgid(self.mgid)
            .port_gid(self.member?.port_gid);
        Some(own.join_state(FULL_MEMBER))
    }

    /// Whether the join number `user` is the one under way.
    pub(super) fn is_joining(&self, user: u32) -> bool {
        self.joining == Some(user)
    }

    /// The SA let the port join. The pause until the next try, if the answer is for another group
    /// or its LID is none of a group.
    pub(super) fn joined(&mut self, now: Time, record: McMemberRecord) -> Option<Duration> {
        if record.mgid != self.mgid || !is_multicast(record.mlid) {
            return Some(self.failed(now));
        }
        self.joining = None;
        self.join_at = None;
        self.backoff.reset();
        self.member = Some(record);
        None
    }

    /// The join failed: later again. The pause until then.
    pub(super) fn failed(&mut self, now: Time) -> Duration {
        let pause = self.backoff.next_delay();
        self.joining = None;
        self.join_at = Some(now + pause);
        pause
    }
}

fn is_multicast(mlid: u16) -> bool {
    (0xc000..0xffff).contains(&mlid)
}

/// Reaches all members of a group.
pub(super) fn address_of_all(member: &McMemberRecord) -> AddressVector {
    AddressVector {
        gid: member.mgid,
        lid: Lid(member.mlid),
        sl: member.sl,
        path_bits: 0,
        rate: member.rate,
        flow_label: member.flow_label,
        hop_limit: member.hop_limit,
        traffic_class: member.traffic_class,
    }
}

/// A path to another member, with what the group promises (`acmp_record_mc_av`,
/// `acmp_record_acm_route`): no SA is asked.
pub(super) fn path_to(member: &McMemberRecord, port: &UpPort, gid: Gid, lid: Lid) -> PathRecord {
    PathRecord {
        dgid: gid,
        sgid: member.port_gid,
        dlid: lid,
        slid: port.lid,
        flow_label: member.flow_label,
        hop_limit: member.hop_limit,
        traffic_class: member.traffic_class,
        reversible: true,
        numb_path: 1,
        pkey: member.pkey,
        sl: member.sl,
        mtu_selector: EXACTLY,
        mtu: member.mtu,
        rate_selector: EXACTLY,
        rate: member.rate,
        packet_life_time_selector: EXACTLY,
        packet_life_time: member.packet_life_time,
        ..PathRecord::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEMAND: Demand = Demand { rate: 3, mtu: 4 };

    fn port() -> UpPort {
        UpPort {
            gid: Gid([1; 16]),
            lid: Lid(7),
            ..UpPort::default()
        }
    }

    fn second(number: u64) -> Time {
        Time(number * 1_000_000)
    }

    #[test]
    fn groups_are_ibacms() {
        let text = |pkey, demand: Demand| demand.mgid(PKey(pkey)).to_string();
        assert_eq!(text(0xffff, DEMAND), "ff15:4001:ffff:3:400::");
        let fast = Demand { rate: 7, mtu: 5 };
        assert_eq!(text(0x0001, fast), "ff15:4001:8001:7:500::");
    }

    #[test]
    fn the_join_is_ibacms() {
        let mut group = Group::new(PKey(0x7fff), DEMAND);
        assert_eq!(group.start(second(0), 1, &port(), PKey(0x7fff)), None);
        group.join(second(0));
        let join = group.start(second(0), 1, &port(), PKey(0x7fff)).unwrap();
        // acmp.c: MGID, port GID, Q_Key, MTU and rate with selectors, traffic class, P_Key, SL,
        // flow label, scope, join state.
        assert_eq!(join.component_mask, 0b1_1011_0011_1111_0111);
        assert_eq!(join.record.mgid, group.mgid());
        assert_eq!(join.record.pkey, PKey(0x7fff), "the port's own");
        let bytes = join.record.encode();
        assert_eq!(bytes[32..36], [0x80, 0x01, 0, 0], "Q_Key");
        assert_eq!((bytes[38], bytes[42]), (0x84, 0x83), "exactly");
        assert_eq!(bytes[48], 0x51, "site local, full member");
    }

    #[test]
    fn failures_are_repeated_ever_more_slowly() {
        let mut group = Group::new(PKey(0xffff), DEMAND);
        group.join(second(0));
        let pauses: Vec<_> = (0..8)
            .map(|user| {
                let at = group.poll_timeout().unwrap();
                assert!(group.start(at, user, &port(), PKey(0xffff)).is_some());
                group.failed(at).as_secs()
            })
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn an_answer_that_is_lost_is_not_waited_for() {
        let mut group = Group::new(PKey(0xffff), DEMAND);
        group.join(second(0));
        assert!(group.start(second(0), 1, &port(), PKey(0xffff)).is_some());
        assert_eq!(group.start(second(1), 2, &port(), PKey(0xffff)), None);
        let lost = group.poll_timeout().unwrap();
        assert!(group.start(lost, 2, &port(), PKey(0xffff)).is_some());
        assert!(group.is_joining(2) && !group.is_joining(1));
    }

    #[test]
    fn an_answer_for_another_group_is_none() {
        let mut group = Group::new(PKey(0xffff), DEMAND);
        let mut record = McMemberRecord {
            mgid: group.mgid(),
            mlid: 0xc003,
            ..McMemberRecord::default()
        };
        assert_eq!(group.joined(second(0), record), None);
        let granted = record;
        record.mlid = 5;
        assert!(
            group.joined(second(0), record).is_some(),
            "no LID of a group"
        );
        record.mlid = 0xc004;
        record.mgid = Gid([0xff; 16]);
        assert!(group.joined(second(0), record).is_some(), "another group");
        assert_eq!(group.member(), Some(&granted), "what was granted stays");
    }
}
