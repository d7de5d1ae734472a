// SPDX-License-Identifier: MIT OR Apache-2.0
//! One local port, watched: what its sources say becomes what the engine is told. No I/O here.

use std::time::Duration;

use cm_msgs::smp::{PortInfo, PortState};
use cm_msgs::{Guid, PKey};
use pathdb::{Rate, Speed, Width};
use statemachine::{Backoff, PortStatus, Time};

use crate::io::verbs::PortFacts;

/// Slow check of a port that is not settled, or that nothing but PortInfo watches.
const CHECK_FAST: Duration = Duration::from_secs(1);
/// Slow check of a port whose loss other sources tell, while anything rests on it; also the longest pause
/// between checks of a port that stays down.
const CHECK_SLOW: Duration = Duration::from_secs(10);

const NEVER: Time = Time(u64::MAX);

/// Reads of PortInfo in a row that may go unanswered, on a machine that is too busy, before the port
/// counts as lost.
const READ_TRIES: u8 = 3;

/// What the device says of the port besides PortInfo, and never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DeviceFacts {
    /// The device claims automatic path migration.
    pub(crate) apm: bool,
    /// A queue pair of it was given another primary path in SQD when that was tried.
    pub(crate) moves_idle: bool,
    /// Ports of the device.
    pub(crate) ports: u8,
}

/// What PortInfo says that is no business of the engine's.
#[derive(Clone, Copy, Default, Debug)]
struct Link {
    sm_guid: Guid,
    sm_sl: u8,
    rate: u8,
    subnet_timeout: u8,
}

/// A watched port.
#[derive(Debug)]
pub(crate) struct PortWatch {
    device: DeviceFacts,
    facts: Option<PortFacts>,
    /// The facts may have changed.
    facts_stale: bool,
    /// The read whose answer counts.
    reading: Option<u32>,
    wanted: bool,
    unanswered: u8,
    /// A source says that the port is lost, which PortInfo is to confirm.
    suspected: bool,
    told: Option<PortStatus>,
    link: Link,
    backoff: Backoff,
    check_at: Time,
    relied_on: bool,
}

impl PortWatch {
    /// A port of which nothing is known: its first read is wanted.
    pub(crate) fn new(device: DeviceFacts) -> Self {
        Self {
            device,
            facts: None,
            facts_stale: true,
            reading: None,
            wanted: true,
            unanswered: 0,
            suspected: false,
            told: None,
            link: Link::default(),
            backoff: Backoff::new(CHECK_FAST, CHECK_SLOW),
            check_at: Time(0),
            relied_on: false,
        }
    }

    /// What the engine was last told.
    pub(crate) fn status(&self) -> Option<&PortStatus> {
        self.told.as_ref()
    }

    /// The device was tried, and can. Whether the engine is to be told.
    pub(crate) fn set_moves_idle(&mut self) -> bool {
        self.device.moves_idle = true;
        let status = self.told.clone().map(|told| self.with_facts(told));
        status.and_then(|status| self.tell(status)).is_some()
    }

    /// Service level to the SM.
    pub(crate) fn sm_sl(&self) -> u8 {
        self.link.sm_sl
    }

    /// Rate of its link (`enum ibv_rate`); 0 before it is known.
    pub(crate) fn rate(&self) -> u8 {
        self.link.rate
    }

    /// SubnetTimeOut: 4.096 us * 2^n, 5 bits.
    pub(crate) fn subnet_timeout(&self) -> u8 {
        self.link.subnet_timeout
    }

    /// The P_Key table by index; 0 for an empty entry.
    pub(crate) fn pkey_table(&self) -> &[PKey] {
        self.facts.as_ref().map_or(&[], |facts| &facts.pkeys)
    }

    /// Index of the default partition in the P_Key table.
    pub(crate) fn default_pkey_index(&self) -> u16 {
        let keys = self.facts.iter().flat_map(|facts| &facts.pkeys);
        let index = keys
            .into_iter()
            .position(|key| key.partition() == PKey::DEFAULT_FULL.partition());
        index
            .and_then(|index| u16::try_from(index).ok())
            .unwrap_or(0)
    }

    /// Where a key is in the P_Key table.
    pub(crate) fn pkey_index(&self, pkey: PKey) -> Option<u16> {
        let facts = self.facts.as_ref()?;
        let index = facts.pkeys.iter().position(|key| *key == pkey)?;
        u16::try_from(index).ok()
    }

    /// Where a key is in the P_Key table, or else one of the same partition with the other membership.
    pub(crate) fn partition_index(&self, pkey: PKey) -> Option<u16> {
        if pkey.partition() == 0 {
            return None;
        }
        self.pkey_index(pkey).or_else(|| {
            let mut keys = self.facts.as_ref()?.pkeys.iter();
            let index = keys.position(|key| key.partition() == pkey.partition())?;
            u16::try_from(index).ok()
        })
    }

    /// The key at a place of the P_Key table.
    pub(crate) fn pkey_at(&self, index: u16) -> Option<PKey> {
        let facts = self.facts.as_ref()?;
        facts.pkeys.get(usize::from(index)).copied()
    }

    /// A source says that the port is lost. What to tell the engine, if it thought otherwise.
    pub(crate) fn lost(&mut self) -> Option<PortStatus> {
        self.look();
        // Believed at once, before PortInfo is read: to wait costs every connection on the port, a
        // false alarm only a migration.
        let status = self.told.as_mut().filter(|status| status.active)?;
        status.active = false;
        Some(status.clone())
    }

    /// A source says that the port may be lost: PortInfo decides.
    pub(crate) fn suspect(&mut self) {
        self.suspected = true;
        self.look();
    }

    /// Whether the loss that was just found had been suspected; ends the suspicion.
    pub(crate) fn end_suspicion(&mut self) -> bool {
        std::mem::take(&mut self.suspected)
    }

    /// A source says that something is different: a read is wanted, and one under way is too old.
    pub(crate) fn look(&mut self) {
        self.reading = None;
        self.wanted = true;
        self.facts_stale = true;
        self.backoff.reset();
    }

    /// Whether PortInfo is to be read now. `transaction_id` is the read's; only its answer counts.
    pub(crate) fn start_read(&mut self, transaction_id: u32) -> bool {
        let start = std::mem::take(&mut self.wanted);
        if start {
            self.reading = Some(transaction_id);
        }
        start
    }

    /// Whether `transaction_id` is that of the read under way.
    pub(crate) fn is_reading(&self, transaction_id: u32) -> bool {
        self.reading == Some(transaction_id)
    }

    /// Whether `transaction_id` is the read whose answer counts; the answer ends it.
    pub(crate) fn end_read(&mut self, transaction_id: u32) -> bool {
        let counts = self.is_reading(transaction_id);
        if counts {
            self.reading = None;
        }
        counts
    }

    /// The read went unanswered: whether another one is wanted before the port counts as lost.
    pub(crate) fn try_again(&mut self) -> bool {
        self.unanswered += 1;
        self.wanted = self.unanswered < READ_TRIES;
        self.wanted
    }

    /// Whether the port's facts are to be read again before `answered`.
    pub(crate) fn needs_facts(&self, info: &PortInfo) -> bool {
        let active = info.state() == PortState::Active;
        self.facts_stale
            || self
                .told
                .as_ref()
                .is_none_or(|told| told.active != active || told.lid != info.lid)
    }

    /// New facts.
    pub(crate) fn set_facts(&mut self, facts: PortFacts) {
        self.facts = Some(facts);
        self.facts_stale = false;
    }

    /// Whether nothing leaves the port without a GRH. It carries none of our MADs.
    pub(crate) fn requires_grh(&self) -> bool {
        let facts = self.facts.as_ref();
        facts.is_some_and(|facts| facts.infiniband && facts.grh_required)
    }

    /// Whether it is no InfiniBand port.
    pub(crate) fn is_foreign(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| !facts.infiniband)
    }

    /// PortInfo was read. What to tell the engine, if it is news.
    pub(crate) fn answered(&mut self, now: Time, info: &PortInfo) -> Option<PortStatus> {
        self.unanswered = 0;
        if self
            .told
            .as_ref()
            .is_none_or(|told| told.sm_lid != info.master_sm_lid)
        {
            self.link.sm_guid = Guid::default();
        }
        self.link.sm_sl = info.master_sm_sl;
        self.link.rate = rate_of(info);
        self.link.subnet_timeout = info.subnet_timeout;
        let active = info.state() == PortState::Active && info.lid.is_unicast();
        let status = self.with_facts(PortStatus {
            active,
            lid: info.lid,
            lmc: info.lmc,
            sm_lid: info.master_sm_lid,
            sm_guid: self.link.sm_guid,
            mtu: info.neighbor_mtu,
            rate: self.link.rate,
            ..PortStatus::default()
        });
        let settled = active && info.master_sm_lid.is_unicast();
        self.schedule(now, settled);
        self.tell(status)
    }

    /// Subnet administration says which port its subnet manager is at. What to tell the engine, if it is news.
    pub(crate) fn set_manager(&mut self, guid: Guid) -> Option<PortStatus> {
        self.link.sm_guid = guid;
        let status = PortStatus {
            sm_guid: guid,
            ..self.told.clone()?
        };
        self.tell(status)
    }

    /// PortInfo cannot be read: the port carries no MAD. What to tell the engine, if it is news.
    pub(crate) fn unreadable(&mut self, now: Time) -> Option<PortStatus> {
        self.reading = None;
        self.unanswered = 0;
        self.schedule(now, false);
        let status = PortStatus {
            active: false,
            ..self.with_facts(self.told.clone().unwrap_or_default())
        };
        self.tell(status)
    }

    /// What the device says in place of what PortInfo does not.
    fn with_facts(&self, status: PortStatus) -> PortStatus {
        let facts = self.facts.as_ref();
        PortStatus {
            active: status.active && !self.requires_grh(),
            gid: facts.map(|facts| facts.gid).unwrap_or_default(),
            pkeys: facts.map(|facts| used(&facts.pkeys)).unwrap_or_default(),
            infiniband: facts.is_none_or(|facts| facts.infiniband),
            apm: self.device.apm,
            moves_idle: self.device.moves_idle,
            device_ports: self.device.ports,
            ..status
        }
    }

    /// When the port is to be checked although nothing happened.
    pub(crate) fn poll_timeout(&self) -> Time {
        self.check_at
    }

    /// The check is due: a read is wanted.
    pub(crate) fn handle_time(&mut self, now: Time) {
        if self.check_at <= now {
            self.check_at = NEVER;
            self.wanted |= self.reading.is_none();
        }
    }

    /// Whether anything rests on the port. If not, a settled one is not checked: an idle daemon sleeps.
    pub(crate) fn set_relied_on(&mut self, now: Time, relied_on: bool) {
        let was = std::mem::replace(&mut self.relied_on, relied_on);
        if relied_on && !was && self.reading.is_none() {
            self.check_at = self.check_at.min(now);
        }
    }

    fn schedule(&mut self, now: Time, settled: bool) {
        if settled {
            self.backoff.reset();
        }
        self.check_at = match (settled, self.relied_on) {
            (true, true) => on_the_second(now + CHECK_SLOW),
            (true, false) => NEVER,
            (false, _) => on_the_second(now + self.backoff.next_delay()),
        };
    }

    fn tell(&mut self, status: PortStatus) -> Option<PortStatus> {
        if self.told.as_ref() == Some(&status) {
            return None;
        }
        self.told = Some(status.clone());
        Some(status)
    }
}

/// Checks of all ports fall on the same whole seconds, so that they wake the daemon together.
fn on_the_second(time: Time) -> Time {
    if time == NEVER {
        return time;
    }
    Time(time.0 - time.0 % 1_000_000)
}

/// The rate of a link; 0 for one that is not known here.
fn rate_of(info: &PortInfo) -> u8 {
    let width = Width::from_code(info.link_width_active);
    let speed = match (info.link_speed_ext_active2, info.link_speed_ext_active) {
        (0, 0) => Speed::from_code(info.link_speed_active),
        (xdr, extended) => Speed::from_extended_code(xdr, extended),
    };
    width
        .zip(speed)
        .map_or(0, |(width, speed)| Rate::of(width, speed).code())
}

fn used(table: &[PKey]) -> Vec<PKey> {
    table
        .iter()
        .copied()
        .filter(|key| key.partition() != 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::{Gid, Guid, Lid};

    fn info(state: PortState, lid: u16) -> PortInfo {
        let port_state = match state {
            PortState::Active => 4,
            PortState::Init => 2,
            _ => 1,
        };
        let (lid, master_sm_lid) = (Lid(lid), Lid(1));
        PortInfo {
            port_state,
            lid,
            master_sm_lid,
            neighbor_mtu: 5,
            ..PortInfo::default()
        }
    }

    fn watch() -> PortWatch {
        let mut watch = PortWatch::new(DeviceFacts {
            apm: true,
            moves_idle: false,
            ports: 2,
        });
        watch.set_facts(PortFacts {
            infiniband: true,
            grh_required: false,
            gid: Gid([3; 16]),
            pkeys: [0x8001, 0, 0xffff].map(PKey).to_vec(),
        });
        watch
    }

    fn second(number: u64) -> Time {
        Time(number * 1_000_000)
    }

    #[test]
    fn up_is_what_port_info_says() {
        let mut watch = watch();
        assert!(watch.start_read(1) && !watch.start_read(2));
        assert!(!watch.end_read(9) && watch.end_read(1));
        let told = watch
            .answered(second(1), &info(PortState::Active, 7))
            .unwrap();
        assert!(told.active);
        assert_eq!((told.lid, told.gid), (Lid(7), Gid([3; 16])));
        assert_eq!(told.pkeys, [0x8001, 0xffff].map(PKey));
        assert_eq!(watch.default_pkey_index(), 2);
        let indices = [0xffff, 0x7fff, 0x8001, 1, 0x8002, 0x8000, 0].map(PKey);
        let indices = indices.map(|pkey| watch.partition_index(pkey));
        assert_eq!(indices[..4], [Some(2), Some(2), Some(0), Some(0)]);
        assert_eq!(indices[4..], [None; 3], "0 fills an empty place");
        let again = watch.answered(second(2), &info(PortState::Active, 7));
        assert_eq!(again, None, "no news");
    }

    #[test]
    fn a_loss_is_told_at_once_and_an_older_read_does_not_undo_it() {
        let mut watch = watch();
        watch.answered(second(1), &info(PortState::Active, 7));
        watch.handle_time(second(11));
        assert_eq!(watch.poll_timeout(), NEVER, "until the answer is there");
        assert!(watch.start_read(5));
        let told = watch.lost().unwrap();
        assert!(!told.active);
        assert_eq!(watch.lost(), None, "known already");
        assert!(!watch.end_read(5), "asked before the loss");
        assert!(watch.start_read(6), "asked again");
    }

    #[test]
    fn checks_are_slow_and_slower_while_a_port_stays_down() {
        let mut watch = watch();
        let down = info(PortState::Down, 0);
        let pauses: Vec<_> = (0..6)
            .map(|_| {
                watch.answered(second(0), &down);
                watch.poll_timeout().0 / 1_000_000
            })
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 10, 10]);
        let up = info(PortState::Active, 7);
        watch.set_relied_on(second(0), true);
        watch.answered(second(0), &up);
        assert_eq!(watch.poll_timeout(), second(10));
        watch.answered(Time(5_300_000), &up);
        assert_eq!(watch.poll_timeout(), second(15), "all ports at once");
    }

    #[test]
    fn a_settled_port_on_which_nothing_rests_is_left_alone_until_something_does() {
        let mut watch = watch();
        let up = info(PortState::Active, 7);
        watch.answered(second(1), &up);
        assert_eq!(watch.poll_timeout(), NEVER);
        watch.set_relied_on(second(60), true);
        assert_eq!(watch.poll_timeout(), second(60));
        watch.answered(second(60), &up);
        watch.set_relied_on(second(61), true);
        assert_eq!(watch.poll_timeout(), second(70));
        watch.set_relied_on(second(62), false);
        watch.answered(second(70), &up);
        assert_eq!(watch.poll_timeout(), NEVER);
        watch.answered(second(71), &info(PortState::Down, 0));
        assert_eq!(watch.poll_timeout(), second(72), "it may come up untold");
    }

    #[test]
    fn the_subnet_managers_port_is_kept_until_it_is_at_another_lid() {
        let mut watch = watch();
        let up = info(PortState::Active, 7);
        assert_eq!(watch.set_manager(Guid(5)), None, "of no port yet");
        assert_eq!(watch.answered(second(1), &up).unwrap().sm_guid, Guid(0));
        assert_eq!(watch.set_manager(Guid(5)).unwrap().sm_guid, Guid(5));
        assert_eq!(watch.set_manager(Guid(5)), None, "no news");
        assert_eq!(watch.answered(second(2), &up), None);
        let other = PortInfo {
            master_sm_lid: Lid(2),
            ..up
        };
        assert_eq!(watch.answered(second(3), &other).unwrap().sm_guid, Guid(0));
    }

    #[test]
    fn rates_are_coded_as_in_path_records() {
        let rate = |width, speed, extended| {
            rate_of(&PortInfo {
                link_width_active: width,
                link_speed_active: speed,
                link_speed_ext_active: extended,
                ..PortInfo::default()
            })
        };
        assert_eq!(rate(2, 1, 0), 3, "4x SDR is 10 Gb/s");
        assert_eq!(rate(2, 4, 0), 7, "4x QDR is 40 Gb/s");
        assert_eq!(rate(2, 4, 2), 16, "4x EDR is 100 Gb/s");
        assert_eq!(rate(0, 4, 2), 0);
        assert_eq!(rate(2, 4, 3), 0, "an unknown extended speed is not QDR");
    }

    #[test]
    fn a_port_that_requires_a_grh_is_not_used() {
        let mut watch = watch();
        assert!(!watch.requires_grh());
        watch.set_facts(PortFacts {
            infiniband: true,
            grh_required: true,
            gid: Gid([3; 16]),
            pkeys: vec![PKey::DEFAULT_FULL],
        });
        assert!(watch.requires_grh());
        let up = info(PortState::Active, 7);
        assert!(!watch.answered(second(1), &up).unwrap().active);
    }

    #[test]
    fn a_busy_machine_is_no_loss() {
        let mut watch = watch();
        watch.answered(second(1), &info(PortState::Active, 7));
        assert!(watch.try_again() && watch.start_read(1), "once more");
        assert!(watch.try_again() && watch.start_read(2), "and once more");
        watch.answered(second(2), &info(PortState::Active, 7));
        assert!(watch.try_again() && watch.try_again() && !watch.try_again());
    }

    #[test]
    fn what_cannot_be_read_is_down() {
        let mut watch = watch();
        watch.answered(second(1), &info(PortState::Active, 7));
        assert!(!watch.unreadable(second(2)).unwrap().active);
        assert_eq!(watch.unreadable(second(3)), None);
    }
}
