// SPDX-License-Identifier: MIT OR Apache-2.0
//! The local ports.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use core::num::NonZeroU32;
use core::time::Duration;

use cm_msgs::association::{MAX_PORTS, PeerPort, Ports as AnnouncedPorts};
use cm_msgs::{Gid, Guid, Lid, PKey};
use strum::Display;

use crate::id::PortId;
use crate::input::{MadSource, PortStatus};
use crate::time::{OptionalTime, Time};

/// What a local port is good for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display)]
#[strum(serialize_all = "lowercase")]
pub enum PortState {
    /// Nothing.
    Down,
    /// MADs; paths over it once it has stayed up for the hold-off.
    Settling,
    /// Everything.
    Up,
}

/// A local port.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) id: PortId,
    /// Its number in the order in which ports appeared.
    pub(crate) serial: NonZeroU32,
    pub(crate) status: PortStatus,
    settled: bool,
    good_since: Time,
    lost_at: OptionalTime,
}

impl Port {
    /// Whether MADs get through it.
    pub(crate) fn is_up(&self) -> bool {
        self.status.is_up()
    }

    pub(crate) fn state(&self) -> PortState {
        if !self.is_up() {
            PortState::Down
        } else if self.settled {
            PortState::Up
        } else {
            PortState::Settling
        }
    }

    /// Whether new paths may be loaded over it.
    pub(crate) fn is_settled(&self) -> bool {
        self.state() == PortState::Up
    }

    /// Since when that is so.
    pub(crate) fn good_since(&self) -> Time {
        self.good_since
    }

    /// When paths over it were last lost, if this daemon saw that.
    pub(crate) fn lost_at(&self) -> Option<Time> {
        self.lost_at.get()
    }

    /// Whether `lid` is one of its LIDs.
    pub(crate) fn has_lid(&self, lid: Lid) -> bool {
        self.status.has_lid(lid)
    }

    /// Whether it is a member of the partition.
    pub(crate) fn has_pkey(&self, pkey: PKey) -> bool {
        self.status.pkeys.contains(&pkey)
    }

    /// Whether it is in the partition, with whichever membership.
    pub(crate) fn is_in_partition(&self, pkey: PKey) -> bool {
        let mut pkeys = self.status.pkeys.iter();
        pkeys.any(|held| held.partition() == pkey.partition())
    }

    fn announced(&self, drained: bool) -> PeerPort {
        PeerPort {
            gid: self.status.gid,
            lid: self.status.lid,
            lmc: self.status.lmc,
            // One that flaps is not worth a path.
            up: self.is_settled(),
            drained,
        }
    }
}

impl PortStatus {
    fn is_up(&self) -> bool {
        self.active && self.lid != Lid(0)
    }

    /// Whether both may be in one subnet: one prefix, and one subnet manager as far as that is known.
    pub fn may_share_subnet_with(&self, other: &Self) -> bool {
        let managers = [
            (self.sm_guid.0, other.sm_guid.0),
            (self.sm_lid.0.into(), other.sm_lid.0.into()),
        ];
        let differ = |&(a, b): &(u64, u64)| a != 0 && b != 0 && a != b;
        self.gid.subnet_prefix() == other.gid.subnet_prefix() && !managers.iter().any(differ)
    }

    /// Whether it is in the same subnet by the same LIDs and GID, as far as is known.
    pub(crate) fn is_labelled_as(&self, other: &Self) -> bool {
        let labels = |port: &Self| (port.lid, port.lmc, port.sm_lid, port.gid);
        let managers = [self.sm_guid, other.sm_guid];
        // Which port the subnet manager's is, is found out later than its LID.
        let one_manager = managers[0] == managers[1] || managers.contains(&Guid(0));
        labels(self) == labels(other) && one_manager
    }

    /// Whether `lid` is one of its LIDs, of which LMC gives it 2^`lmc`.
    pub fn has_lid(&self, lid: Lid) -> bool {
        self.lid.is_one_port_with(lid, self.lmc)
    }

    /// Whether paths over the port as it was `before` are still its paths: it has all LIDs and P_Keys that it had.
    pub(crate) fn carries_paths_of(&self, before: &Self) -> bool {
        let keeps_lids = self.lid == before.lid && self.lmc >= before.lmc;
        keeps_lids && before.pkeys.iter().all(|pkey| self.pkeys.contains(pkey))
    }
}

/// What became of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    pub(crate) from: PortState,
    pub(crate) to: PortState,
    /// Its timer has to run for this long before it is settled.
    pub(crate) settle: Option<Duration>,
}

/// All local ports.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Ports {
    table: BTreeMap<PortId, Port>,
    /// Ports that have appeared so far.
    appeared: u32,
    /// Also such as are gone: they may come back.
    drained: BTreeSet<PortId>,
    /// Changes so far, and which was each port's last: connections take them in when it is their turn.
    changes: u32,
    changed: BTreeMap<PortId, u32>,
    /// What peers are told of each device, once for all of its connections; another one is news.
    announced: BTreeMap<Guid, Arc<AnnouncedPorts>>,
    /// Of a device that is not known.
    nothing: Arc<AnnouncedPorts>,
}

impl Ports {
    /// Takes a port's new status. `None` if nothing about it changed.
    ///
    /// A port seen for the first time needs no hold-off: nothing says that it flaps.
    pub(crate) fn update(
        &mut self,
        id: PortId,
        status: Option<PortStatus>,
        hold_off: Duration,
    ) -> Option<Change> {
        let keys = self.get(id).map(|port| &port.status.pkeys);
        let other_keys =
            keys.is_some_and(|keys| status.as_ref().is_some_and(|new| new.pkeys != *keys));
        let change = self.take(id, status, hold_off);
        self.announce_anew(id.node_guid, other_keys);
        change
    }

    fn take(
        &mut self,
        id: PortId,
        status: Option<PortStatus>,
        hold_off: Duration,
    ) -> Option<Change> {
        let Some(status) = status else {
            let old = self.table.remove(&id)?;
            return Some(Change {
                from: old.state(),
                to: PortState::Down,
                settle: None,
            });
        };
        // Without a subnet manager nobody can be asked for a path from it.
        let complete = status.sm_lid != Lid(0);
        let Some(port) = self.table.get_mut(&id) else {
            self.appeared = self.appeared.saturating_add(1);
            let port = Port {
                id,
                serial: NonZeroU32::new(self.appeared).unwrap_or(NonZeroU32::MAX),
                settled: complete,
                status,
                good_since: Time::default(),
                lost_at: OptionalTime::default(),
            };
            let to = port.state();
            self.table.insert(id, port);
            return Some(Change {
                from: PortState::Down,
                to,
                settle: None,
            });
        };
        if port.status == status {
            return None;
        }
        let from = port.state();
        port.status = status;
        port.settled &= port.is_up() && complete;
        let settle = (port.is_up() && complete && !port.settled).then_some(hold_off);
        Some(Change {
            from,
            to: port.state(),
            settle,
        })
    }

    /// The hold-off of a port is over.
    pub(crate) fn settle(&mut self, id: PortId) -> Option<Change> {
        let port = self.table.get_mut(&id)?;
        let from = port.state();
        port.settled = port.is_up();
        let to = port.state();
        self.announce_anew(id.node_guid, false);
        Some(Change {
            from,
            to,
            settle: None,
        })
    }

    /// New paths may be loaded over it from now on.
    pub(crate) fn became_good(&mut self, id: PortId, now: Time) {
        if let Some(port) = self.table.get_mut(&id) {
            port.good_since = now;
        }
    }

    /// Marks a port as drained, or not any more. Whether that is another than before: a port that is
    /// not known is not drained.
    pub(crate) fn drain(&mut self, id: PortId, drained: bool) -> bool {
        let changed = match drained {
            true => self.table.contains_key(&id) && self.drained.insert(id),
            false => self.drained.remove(&id),
        };
        self.announce_anew(id.node_guid, false);
        changed
    }

    /// Whether an operator wants connections off it.
    pub(crate) fn is_drained(&self, id: PortId) -> bool {
        self.drained.contains(&id)
    }

    /// Notes when the paths over a port are lost by what has become of it: it was as `before`.
    pub(crate) fn note_loss(&mut self, id: PortId, before: &PortStatus, now: Time) {
        let Some(port) = self.table.get_mut(&id) else {
            return;
        };
        if before.is_up() && (!port.is_up() || !port.status.carries_paths_of(before)) {
            port.lost_at = now.into();
        }
    }

    /// A port is another than before.
    pub(crate) fn note_change(&mut self, id: PortId) {
        self.changes = self.changes.wrapping_add(1);
        self.changed.insert(id, self.changes);
    }

    /// How many changes there were; wraps.
    pub(crate) fn changes(&self) -> u32 {
        self.changes
    }

    /// The first port of a device that changed after so many changes, and the number of its last.
    pub(crate) fn changed_after(&self, node_guid: Guid, seen: u32) -> Option<(PortId, u32)> {
        if seen == self.changes {
            return None;
        }
        let changed = self.changed.range(PortId::of_device(node_guid));
        // Numbers wrap (RFC 1982). A port that is still for 2^31 changes of others is looked at again, which does no harm.
        let later = |number: u32| number.wrapping_sub(seen);
        let changed = changed.map(|(&id, &number)| (id, number));
        changed
            .filter(|&(_, number)| later(number) as i32 > 0)
            .min_by_key(|&(_, number)| later(number))
    }

    pub(crate) fn get(&self, id: PortId) -> Option<&Port> {
        self.table.get(&id)
    }

    /// The port that an end of a connection's path is on.
    pub(crate) fn of_path(&self, node_guid: Guid, port: u8) -> Option<&Port> {
        self.get(PortId { node_guid, port })
    }

    /// The ports of a device.
    pub(crate) fn of_device(&self, node_guid: Guid) -> impl Iterator<Item = &Port> + Clone {
        let ports = self.table.range(PortId::of_device(node_guid));
        ports.map(|(_, port)| port)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Port> {
        self.table.values()
    }

    /// The device at an end of a path that a MAD is about: by the GID, and where that is not known by the LID in
    /// the subnet that the MAD came from.
    pub(crate) fn device_at(&self, source: &MadSource, gid: Gid, lid: Lid) -> Option<Guid> {
        let by_gid = |port: &&Port| !gid.is_unspecified() && port.status.gid == gid;
        if let Some(port) = self.iter().find(by_gid) {
            return Some(port.id.node_guid);
        }
        let prefix = self.get(source.port)?.status.gid.subnet_prefix();
        let is_there =
            |port: &&Port| port.status.gid.subnet_prefix() == prefix && port.has_lid(lid);
        // Another port may have that LID in another subnet of the same prefix.
        let own = self.get(source.port).filter(is_there);
        let port = own.or_else(|| self.iter().find(is_there))?;
        Some(port.id.node_guid)
    }

    /// The place of a port in what [`Self::announce`] tells of its device, from 1; 0 if it is not told.
    pub(crate) fn place(&self, id: PortId) -> u8 {
        let announced = self.of_device(id.node_guid).take(MAX_PORTS);
        let place = (1..).zip(announced).find(|(_, port)| port.id == id);
        place.map_or(0, |(place, _)| place)
    }

    /// What a peer is told of a device's ports.
    pub(crate) fn announce(&self, node_guid: Guid) -> Arc<AnnouncedPorts> {
        let announced = self.announced.get(&node_guid);
        Arc::clone(announced.unwrap_or(&self.nothing))
    }

    /// With `other_keys` also if nothing is another that peers are told: which of the ports they may use has changed.
    fn announce_anew(&mut self, node_guid: Guid, other_keys: bool) {
        let announced = |port: &Port| port.announced(self.is_drained(port.id));
        let ports = AnnouncedPorts::new(self.of_device(node_guid).map(announced));
        let old = self.announced.get(&node_guid);
        if other_keys || old.is_none_or(|old| **old != ports) {
            self.announced.insert(node_guid, Arc::new(ports));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const ID: PortId = PortId {
        node_guid: Guid(1),
        port: 1,
    };
    const HOLD_OFF: Duration = Duration::from_millis(500);

    fn status(active: bool) -> PortStatus {
        PortStatus {
            active,
            lid: Lid(8),
            lmc: 2,
            sm_lid: Lid(1),
            sm_guid: Guid(1),
            gid: Gid([1; 16]),
            pkeys: vec![PKey::DEFAULT_FULL],
            mtu: 4,
            rate: 7,
            apm: true,
            moves_idle: false,
            infiniband: true,
            device_ports: 2,
        }
    }

    #[test]
    fn a_port_that_comes_back_waits_for_its_hold_off() {
        let mut ports = Ports::default();
        let change = ports.update(ID, Some(status(true)), HOLD_OFF);
        let up = Change {
            from: PortState::Down,
            to: PortState::Up,
            settle: None,
        };
        assert_eq!(change, Some(up));
        assert_eq!(ports.update(ID, Some(status(true)), HOLD_OFF), None);
        ports.update(ID, Some(status(false)), HOLD_OFF);
        let change = ports
            .update(ID, Some(status(true)), HOLD_OFF)
            .map(|c| (c.to, c.settle));
        assert_eq!(change, Some((PortState::Settling, Some(HOLD_OFF))));
        assert_eq!(ports.settle(ID).map(|c| c.to), Some(PortState::Up));
    }

    #[test]
    fn paths_are_lost_with_the_link_a_lid_or_a_partition_and_by_nothing_else() {
        let up = status(true);
        let other_lid = PortStatus {
            lid: Lid(12),
            ..up.clone()
        };
        let no_partition = PortStatus {
            pkeys: vec![],
            ..up.clone()
        };
        let other_mtu = PortStatus {
            mtu: 5,
            ..up.clone()
        };
        let cases = [
            (status(false), true),
            (other_lid, true),
            (no_partition, true),
            (other_mtu, false),
        ];
        for (after, is_lost) in cases {
            let mut ports = Ports::default();
            ports.update(ID, Some(up.clone()), HOLD_OFF);
            ports.update(ID, Some(after.clone()), HOLD_OFF);
            ports.note_loss(ID, &up, Time(7));
            let lost_at = ports.get(ID).and_then(Port::lost_at);
            assert_eq!(lost_at.is_some(), is_lost, "{after:?}");
        }
    }

    #[test]
    fn a_port_without_a_subnet_manager_is_not_settled() {
        let mut ports = Ports::default();
        let waiting = PortStatus {
            sm_lid: Lid(0),
            ..status(true)
        };
        let change = ports
            .update(ID, Some(waiting), HOLD_OFF)
            .map(|c| (c.to, c.settle));
        assert_eq!(change, Some((PortState::Settling, None)));
        let change = ports
            .update(ID, Some(status(true)), HOLD_OFF)
            .map(|c| (c.to, c.settle));
        assert_eq!(change, Some((PortState::Settling, Some(HOLD_OFF))));
    }

    #[test]
    fn ports_of_two_prefixes_or_two_subnet_managers_are_in_two_subnets() {
        let here = status(true);
        let with = |sm_guid, sm_lid| PortStatus {
            sm_guid: Guid(sm_guid),
            sm_lid: Lid(sm_lid),
            ..status(true)
        };
        let share = |other: &PortStatus| {
            let both = [
                here.may_share_subnet_with(other),
                other.may_share_subnet_with(&here),
            ];
            assert_eq!(both[0], both[1]);
            both[0]
        };
        assert!(share(&here));
        assert!(!share(&with(2, 1)));
        assert!(!share(&with(1, 2)));
        assert!(share(&with(0, 1)), "its GUID is not known yet");
        assert!(share(&with(1, 0)), "it has none yet");
        assert!(share(&with(0, 0)));
        assert!(!share(&with(0, 2)));
        assert!(!share(&with(2, 0)));
        let gid = Gid([2; 16]);
        assert!(!share(&PortStatus {
            gid,
            ..status(true)
        }));
    }

    #[test]
    fn a_port_is_labelled_as_before_while_its_lids_gid_and_subnet_manager_stay() {
        let before = status(true);
        let (down, key) = (status(false), vec![PKey(0x8001)]);
        assert!(before.is_labelled_as(&down), "its state is no label");
        assert!(before.is_labelled_as(&PortStatus {
            pkeys: key,
            ..status(true)
        }));
        let others = [
            PortStatus {
                lid: Lid(16),
                ..status(true)
            },
            PortStatus {
                lmc: 1,
                ..status(true)
            },
            PortStatus {
                sm_lid: Lid(2),
                ..status(true)
            },
            PortStatus {
                sm_guid: Guid(2),
                ..status(true)
            },
            PortStatus {
                gid: Gid([2; 16]),
                ..status(true)
            },
        ];
        for other in others {
            assert!(!before.is_labelled_as(&other), "{other:?}");
        }
        let unknown = PortStatus {
            sm_guid: Guid(0),
            ..status(true)
        };
        assert!(before.is_labelled_as(&unknown) && unknown.is_labelled_as(&before));
        let unknown = PortStatus {
            lid: Lid(16),
            ..unknown
        };
        assert!(!before.is_labelled_as(&unknown));
    }

    #[test]
    fn a_port_carries_its_paths_while_it_has_all_lids_and_keys_that_it_had() {
        let before = status(true);
        let key = PKey(0x8001);
        let with = |lid, lmc, pkeys| PortStatus {
            lid: Lid(lid),
            lmc,
            pkeys,
            ..status(true)
        };
        let carries = |lid, lmc, pkeys| with(lid, lmc, pkeys).carries_paths_of(&before);
        let default = || vec![PKey::DEFAULT_FULL];
        assert!(carries(8, 2, default()));
        assert!(carries(8, 3, vec![key, PKey::DEFAULT_FULL]), "it has more");
        assert!(!carries(8, 1, default()), "half of its LIDs");
        assert!(!carries(16, 2, default()), "other LIDs");
        assert!(!carries(8, 2, vec![key]), "another partition");
    }

    #[test]
    fn changes_of_a_device_are_reported_one_port_after_the_other() {
        let of = |guid, port| PortId::new(Guid(guid), port);
        let mut ports = Ports::default();
        for id in [of(1, 2), of(2, 1), of(1, 1), of(1, 2)] {
            ports.note_change(id);
        }
        assert_eq!(ports.changes(), 4);
        assert_eq!(ports.changed_after(Guid(1), 0), Some((of(1, 1), 3)));
        assert_eq!(ports.changed_after(Guid(1), 2), Some((of(1, 1), 3)));
        assert_eq!(ports.changed_after(Guid(1), 3), Some((of(1, 2), 4)));
        assert_eq!(ports.changed_after(Guid(1), 4), None);
        assert_eq!(ports.changed_after(Guid(2), 1), Some((of(2, 1), 2)));
        assert_eq!(ports.changed_after(Guid(2), 2), None);
        assert_eq!(ports.changed_after(Guid(3), 0), None);
        // They wrap.
        ports.changes = u32::MAX;
        ports.note_change(of(2, 2));
        assert_eq!(ports.changes(), 0);
        let last = ports.changed_after(Guid(2), u32::MAX);
        assert_eq!(last, Some((of(2, 2), 0)));
        assert_eq!(ports.changed_after(Guid(2), 0), None);
    }

    #[test]
    fn the_place_of_a_port_is_its_position_in_the_announcement() {
        let mut ports = Ports::default();
        let ids: [PortId; MAX_PORTS + 1] =
            core::array::from_fn(|at| PortId::new(Guid(1), at as u8 + 1));
        for id in ids {
            ports.update(id, Some(status(true)), HOLD_OFF);
        }
        let places = ids.map(|id| usize::from(ports.place(id)));
        let announced = core::array::from_fn(|at| (at + 1) % (MAX_PORTS + 1));
        assert_eq!(places, announced, "there is no room for the last one");
        assert_eq!(ports.place(PortId::new(Guid(2), 1)), 0);
    }

    #[test]
    fn a_known_port_is_drained_once_and_until_that_is_over() {
        let mut ports = Ports::default();
        assert!(!ports.drain(ID, true), "nobody knows it");
        assert!(!ports.is_drained(ID));
        ports.update(ID, Some(status(true)), HOLD_OFF);
        assert!(ports.drain(ID, true));
        assert!(!ports.drain(ID, true));
        ports.update(ID, None, HOLD_OFF);
        assert!(ports.is_drained(ID), "it may come back");
        assert!(ports.drain(ID, false));
        assert!(!ports.drain(ID, false));
    }

    #[test]
    fn a_port_that_loses_its_subnet_manager_settles_again_once_it_has_one() {
        let mut ports = Ports::default();
        let mut update = |status| {
            let change = ports.update(ID, Some(status), HOLD_OFF);
            change.map(|change| (change.to, change.settle))
        };
        let without = || PortStatus {
            sm_lid: Lid(0),
            ..status(true)
        };
        update(status(true));
        assert_eq!(update(without()), Some((PortState::Settling, None)));
        let settling = Some((PortState::Settling, Some(HOLD_OFF)));
        assert_eq!(update(status(true)), settling);
        let other = PortStatus {
            mtu: 5,
            ..status(true)
        };
        assert_eq!(update(other), settling, "each change is a reason to wait");
        let down = Some((PortState::Down, None));
        assert_eq!(update(status(false)), down);
        let no_lid = PortStatus {
            lid: Lid(0),
            ..status(true)
        };
        assert_eq!(update(no_lid), down, "it cannot be reached");
    }

    /// Connections ask for paths again: the port may be in their partition now.
    #[test]
    fn other_pkeys_of_a_port_make_its_announcement_news() {
        let mut ports = Ports::default();
        ports.update(ID, Some(status(true)), HOLD_OFF);
        let before = ports.announce(ID.node_guid);
        let other = PortStatus {
            mtu: 5,
            ..status(true)
        };
        ports.update(ID, Some(other.clone()), HOLD_OFF);
        assert!(Arc::ptr_eq(&before, &ports.announce(ID.node_guid)));
        let keys = vec![PKey::DEFAULT_FULL, PKey(0x8001)];
        let other = PortStatus {
            pkeys: keys,
            ..other
        };
        ports.update(ID, Some(other), HOLD_OFF);
        let after = ports.announce(ID.node_guid);
        assert!(!Arc::ptr_eq(&before, &after) && before == after);
    }

    #[test]
    fn a_device_is_found_by_the_gid_and_without_one_by_the_lid_in_the_senders_subnet() {
        let gid = |prefix, port| Gid::new(prefix, Guid(port));
        let at = |gid, lid| PortStatus {
            gid,
            lid: Lid(lid),
            ..status(true)
        };
        let of = |guid, port| PortId::new(Guid(guid), port);
        let mut ports = Ports::default();
        for (id, gid, lid) in [
            (of(1, 1), gid(7, 1), 8),
            (of(2, 1), gid(7, 2), 16),
            (of(3, 1), gid(9, 3), 24),
            (of(4, 1), Gid::default(), 32),
        ] {
            ports.update(id, Some(at(gid, lid)), HOLD_OFF);
        }
        let device = |port, gid, lid| {
            let source = MadSource {
                port,
                lid: Lid(0x99),
                qpn: 1,
                sl: 0,
                path_bits: 0,
                pkey: PKey::DEFAULT_FULL,
                transaction_id: 1,
            };
            ports.device_at(&source, gid, Lid(lid)).map(|guid| guid.0)
        };
        let none = Gid::default();
        assert_eq!(device(of(1, 1), gid(7, 2), 8), Some(2), "the GID counts");
        assert_eq!(device(of(1, 1), none, 8), Some(1));
        assert_eq!(device(of(1, 1), none, 18), Some(2), "one of its LIDs");
        assert_eq!(
            device(of(1, 1), gid(7, 5), 16),
            Some(2),
            "not its first GID"
        );
        assert_eq!(device(of(1, 1), none, 24), None, "of another subnet");
        assert_eq!(device(of(3, 1), none, 24), Some(3));
        assert_eq!(device(of(1, 1), none, 40), None);
    }
}
