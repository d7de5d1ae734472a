// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which host's a far-end port is, by what was said from that very port.
//!
//! A peer names its ports itself, and may name another host's, or one of ours. What counts here is a MAD of an open
//! association that came from the port's LID: only the port's owner can send from there, and the list of ports in it
//! is its host's. Two ports are of one host if the owner of the one names the other. So a claim proves nothing of
//! the port that it is about, and keeps nobody from using a port of its own.
//!
//! A port that nothing was heard from is nobody's. What was said from a port stays known while the port is down,
//! and when the association is over; whoever speaks from that LID next has its place.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use cm_msgs::association::MAX_PORTS;
use cm_msgs::path::PortAddress;
use cm_msgs::{Gid, Guid, Lid};

use crate::subnet::SubnetLid;
use crate::time::Time;

/// Ports that are remembered. Each is a port of the fabric from which a peer of a connection has spoken.
const MAX_KNOWN: usize = 8_192;
/// If there are more, those that were silent for so long are forgotten: an end announces itself every ten minutes.
const SILENT: Duration = Duration::from_secs(1_200);

/// The end of a connection's primary: the port by its LID, and its GID, unspecified where that is not known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FarEnd {
    pub(crate) at: SubnetLid,
    pub(crate) gid: Gid,
}

/// What was said last from one port.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Host {
    /// The ports as they were listed.
    said: Arc<Vec<PortAddress>>,
    heard: Time,
}

impl Host {
    /// Whether a port may be one of its. A GUID tells, whatever LIDs its ports have got since, in which it may not have
    /// spoken from here; where it is not known, the LID does.
    fn has(&self, end: FarEnd) -> bool {
        let is_it = |port: &PortAddress| {
            let named = match end.gid.is_unspecified() {
                true => port.lid == Lid(0),
                false => is_one_port(port.gid, end.gid),
            };
            named || end.at.is_base_of(port)
        };
        // It may have more ports than it has room to list.
        self.said.len() >= MAX_PORTS || self.said.iter().any(is_it)
    }

    /// Whether what it said still counts. A list of one port may be that of a daemon that had not found all yet; a
    /// host that has only one speaks from it again and again.
    fn counts(&self, now: Time) -> bool {
        self.said.len() > 1 || now - self.heard < SILENT
    }

    /// The GID of its port with this LID.
    fn gid_at(&self, at: SubnetLid) -> Option<Gid> {
        let port = self.said.iter().find(|port| at.is_base_of(port))?;
        Some(port.gid)
    }
}

/// By their GUIDs: prefixes change.
fn is_one_port(a: Gid, b: Gid) -> bool {
    a.interface_id() == b.interface_id()
}

/// The ports that peers have spoken from, by local device.
#[derive(Default, Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct PortHosts {
    table: BTreeMap<(Guid, SubnetLid), Host>,
}

impl PortHosts {
    /// A MAD of an open association came from this port, of a host that lists these.
    pub(crate) fn spoke(
        &mut self,
        node_guid: Guid,
        from: SubnetLid,
        said: &Arc<Vec<PortAddress>>,
        now: Time,
    ) {
        if !said.iter().any(|port| from.is_base_of(port)) {
            return;
        }
        if self.table.len() >= MAX_KNOWN && !self.table.contains_key(&(node_guid, from)) {
            self.table.retain(|_, host| now - host.heard < SILENT);
            if self.table.len() >= MAX_KNOWN {
                return;
            }
        }
        let said = Arc::clone(said);
        let host = Host { said, heard: now };
        self.table.insert((node_guid, from), host);
    }

    /// When something was said last from this port.
    pub(crate) fn heard(&self, node_guid: Guid, at: SubnetLid) -> Option<Time> {
        Some(self.table.get(&(node_guid, at))?.heard)
    }

    /// Whether a port has been shown to be another host's than the one that has the port `peer`. `gid`: what a path
    /// source says of it; then a port that had that LID before is no other one's proof.
    pub(crate) fn is_anothers(
        &self,
        node_guid: Guid,
        at: SubnetLid,
        gid: Option<Gid>,
        peer: FarEnd,
        now: Time,
    ) -> bool {
        let host = self.table.get(&(node_guid, at));
        let Some(host) = host.filter(|host| host.counts(now)) else {
            return false;
        };
        let is_that_port = |gid| host.gid_at(at).is_some_and(|its| is_one_port(its, gid));
        at != peer.at && gid.is_none_or(is_that_port) && !host.has(peer)
    }

    /// The subnet may be another than before for this device: other ports may have these LIDs.
    pub(crate) fn forget(&mut self, node_guid: Guid) {
        self.table.retain(|&(device, _), _| device != node_guid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const HERE: Guid = Guid(1);
    const SUBNET: u64 = 0xfe80 << 48;

    fn gid(number: u16) -> Gid {
        Gid::new(SUBNET, Guid(number.into()))
    }

    fn far(lid: u16) -> SubnetLid {
        SubnetLid::in_subnet(SUBNET, Lid(lid))
    }

    fn port(number: u16, lid: u16) -> PortAddress {
        PortAddress {
            gid: gid(number),
            lid: Lid(lid),
        }
    }

    fn end(number: u16) -> FarEnd {
        FarEnd {
            at: far(number),
            gid: gid(number),
        }
    }

    fn say(hosts: &mut PortHosts, from: u16, ports: &[(u16, u16)]) {
        let ports = ports.iter().map(|&(number, lid)| port(number, lid));
        hosts.spoke(HERE, far(from), &Arc::new(ports.collect()), Time(0));
    }

    /// Whether port 5 is another host's than the peer's that has this one.
    fn is_anothers(hosts: &PortHosts, peer: FarEnd) -> bool {
        hosts.is_anothers(HERE, far(5), None, peer, Time(0))
    }

    /// A host with ports 4 and 5 has spoken from port 5.
    fn one_host() -> PortHosts {
        let mut hosts = PortHosts::default();
        say(&mut hosts, 5, &[(4, 4), (5, 5)]);
        hosts
    }

    #[test]
    fn a_port_is_of_the_host_that_spoke_from_it_and_of_no_other() {
        let hosts = one_host();
        assert!(!is_anothers(&hosts, end(4)));
        assert!(is_anothers(&hosts, end(9)));
        assert!(!is_anothers(&hosts, end(5)), "the peer's own");
        let at = |device, lid| hosts.is_anothers(device, far(lid), None, end(9), Time(0));
        assert!(!at(HERE, 6), "silent");
        assert!(!at(Guid(2), 5), "device");
    }

    #[test]
    fn a_claim_proves_nothing() {
        let mut hosts = PortHosts::default();
        say(&mut hosts, 9, &[(9, 9), (5, 5)]);
        assert!(!is_anothers(&hosts, end(4)), "the liar was first");
        say(&mut hosts, 5, &[(4, 4), (5, 5)]);
        say(&mut hosts, 9, &[(9, 9), (5, 5)]);
        assert!(!is_anothers(&hosts, end(4)));
        assert!(is_anothers(&hosts, end(9)));
        say(&mut hosts, 5, &[(4, 4)]);
        assert!(is_anothers(&hosts, end(9)), "who names not where it is");
    }

    #[test]
    fn ports_that_are_down_or_have_another_lid_are_the_hosts_still() {
        let mut hosts = one_host();
        let by_gid = FarEnd {
            at: far(9),
            gid: gid(4),
        };
        assert!(!is_anothers(&hosts, by_gid), "it has moved since");
        let by_lid = |lid| FarEnd {
            at: far(lid),
            gid: Gid::default(),
        };
        assert!(!is_anothers(&hosts, by_lid(4)));
        assert!(is_anothers(&hosts, by_lid(9)));
        say(&mut hosts, 5, &[(4, 0), (5, 5)]);
        assert!(!is_anothers(&hosts, end(4)));
        assert!(!is_anothers(&hosts, by_lid(9)), "it may be that one");
        assert!(is_anothers(&hosts, end(9)));
    }

    #[test]
    fn a_lid_that_another_port_has_now_is_told_by_the_gid() {
        let mut hosts = one_host();
        let at = |hosts: &PortHosts, number| {
            hosts.is_anothers(HERE, far(5), Some(gid(number)), end(9), Time(0))
        };
        assert!(at(&hosts, 5));
        assert!(!at(&hosts, 7), "the LID is another port's now");
        say(&mut hosts, 5, &[(9, 9), (7, 5)]);
        assert!(!is_anothers(&hosts, end(9)), "who spoke from it last");
        assert!(is_anothers(&hosts, end(4)));
    }

    #[test]
    fn a_host_with_more_ports_than_it_lists_may_have_any() {
        let mut hosts = PortHosts::default();
        say(&mut hosts, 5, &[(4, 4), (5, 5), (6, 6), (7, 7)]);
        assert!(!is_anothers(&hosts, end(9)));
    }

    #[test]
    fn a_list_of_one_port_counts_while_it_is_repeated() {
        let mut hosts = PortHosts::default();
        say(&mut hosts, 5, &[(5, 5)]);
        let late = Time(0) + SILENT;
        let is_anothers =
            |hosts: &PortHosts, now| hosts.is_anothers(HERE, far(5), None, end(9), now);
        assert!(is_anothers(&hosts, Time(0)));
        assert!(!is_anothers(&hosts, late));
        let mut hosts = one_host();
        assert!(is_anothers(&hosts, late), "all of its ports");
        hosts.spoke(HERE, far(9), &Arc::new(vec![port(9, 9)]), late);
        assert!(is_anothers(&hosts, late), "and there is room for others");
    }

    #[test]
    fn no_more_ports_are_known_than_there_is_room_for() {
        let mut hosts = PortHosts::default();
        let many = MAX_KNOWN as u16;
        for number in 1..=many + 1 {
            say(&mut hosts, number, &[(number, number)]);
        }
        assert_eq!(hosts.table.len(), MAX_KNOWN);
        let ports = Arc::new(vec![port(many + 1, many + 1)]);
        hosts.spoke(HERE, far(many + 1), &ports, Time(0) + SILENT);
        assert_eq!(hosts.table.len(), 1, "the others have been silent");
        hosts.forget(Guid(2));
        assert_eq!(hosts.table.len(), 1);
        hosts.forget(HERE);
        assert!(hosts.table.is_empty());
    }
}
