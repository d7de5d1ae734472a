// SPDX-License-Identifier: MIT OR Apache-2.0
//! Subnets, and LIDs within them. A LID names a port only within one subnet: rails with subnet managers of
//! their own have ports with equal LIDs, and often equal subnet prefixes as well.

use core::num::NonZeroU32;

use cm_msgs::path::PortAddress;
use cm_msgs::{Guid, Lid};

use crate::id::PortId;
use crate::input::MadSource;
use crate::port::{Port, Ports};

/// A subnet of this host's, as far as it can be told from the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Subnet {
    /// Prefix of the GIDs in it.
    prefix: u64,
    /// Serial number of the first of the host's ports in it, of all devices: two subnets can have equal prefixes.
    first: NonZeroU32,
}

/// A port, by its subnet and its base LID. LIDs are compared as this type only.
///
/// The subnet's fields one by one: a pair would need half as much memory again, which counts in each connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct SubnetLid {
    prefix: u64,
    first: NonZeroU32,
    base: Lid,
}

impl SubnetLid {
    fn new(subnet: Subnet, base: Lid) -> Self {
        let Subnet { prefix, first } = subnet;
        Self {
            prefix,
            first,
            base,
        }
    }

    pub(crate) fn subnet(self) -> Subnet {
        let Self { prefix, first, .. } = self;
        Subnet { prefix, first }
    }

    /// The port's base LID.
    pub(crate) fn lid(self) -> Lid {
        self.base
    }

    /// Whether it can be the port with this address, whose LID is the base LID.
    pub(crate) fn is_base_of(self, port: &PortAddress) -> bool {
        self.may_be(port, 0)
    }

    /// Whether it can be the port with this address: that has the prefix of its subnet.
    fn may_be(self, port: &PortAddress, lmc: u8) -> bool {
        port.lid != Lid(0)
            && !port.gid.is_unspecified()
            && port.gid.subnet_prefix() == self.prefix
            && port.lid.base(lmc) == self.base
    }

    /// A port of a subnet that has its prefix for itself.
    #[cfg(test)]
    pub(crate) fn in_subnet(prefix: u64, base: Lid) -> Self {
        let first = NonZeroU32::MIN;
        Self {
            prefix,
            first,
            base,
        }
    }
}

/// Whether two ports of one prefix are in different subnets all the same: they have different subnet
/// managers, or have a LID in common, which a subnet manager gives only once. Of a port that is down it is what
/// was so before.
fn are_apart(a: &Port, b: &Port) -> bool {
    let (a, b) = (&a.status, &b.status);
    !a.may_share_subnet_with(b) || a.has_lid(b.lid) || b.has_lid(a.lid)
}

impl Ports {
    /// The subnet that a port is in.
    pub(crate) fn subnet(&self, id: PortId) -> Option<Subnet> {
        let port = self.get(id)?;
        let prefix = port.status.gid.subnet_prefix();
        let is_there = |other: &&Port| {
            other.status.gid.subnet_prefix() == prefix
                && (other.id == id || !are_apart(other, port))
        };
        let there = self.iter().filter(is_there);
        let first = there.map(|port| port.serial).min()?;
        Some(Subnet { prefix, first })
    }

    /// The port with a LID that can be reached from a local port.
    pub(crate) fn end(&self, from: PortId, lid: Lid) -> Option<SubnetLid> {
        let lmc = self.get(from)?.status.lmc;
        Some(SubnetLid::new(self.subnet(from)?, lid.base(lmc)))
    }

    /// A port that its host has told of, in whose first GID is the prefix of its subnet. `None`: none of the
    /// device's ports is in that subnet, or several are in different ones of that prefix.
    pub(crate) fn end_of(&self, node_guid: Guid, port: &PortAddress) -> Option<SubnetLid> {
        let prefix = port.gid.subnet_prefix();
        let local = self.of_device(node_guid);
        let local = local.filter(|local| local.status.gid.subnet_prefix() == prefix);
        let mut ends = local
            .clone()
            .filter_map(|local| self.end(local.id, port.lid));
        let end = ends.next()?;
        // A LID that a port here has is nobody else's in that subnet: the port told of is in another.
        let is_own = |own: &Port| own.is_up() && self.end(own.id, own.status.lid) == Some(end);
        let is_taken = local
            .clone()
            .any(|own| is_own(own) && own.status.gid != port.gid);
        (!is_taken && ends.all(|other| other == end)).then_some(end)
    }

    /// Whether two MADs come from one port, whichever of this host's they came in by.
    pub(crate) fn is_one_sender(&self, a: &MadSource, b: &MadSource) -> bool {
        let from = self.end(a.port, a.lid);
        from.is_some() && from == self.end(b.port, b.lid)
    }

    /// Whether a MAD comes from a port that its host has told of.
    pub(crate) fn is_from(&self, source: &MadSource, port: &PortAddress) -> bool {
        let lmc = self.get(source.port).map_or(0, |port| port.status.lmc);
        let from = self.end(source.port, source.lid);
        from.is_some_and(|from| from.may_be(port, lmc))
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::input::PortStatus;
    use cm_msgs::Gid;

    const HOST: Guid = Guid(0x10);
    const PREFIX: u64 = 0xfe80 << 48;

    fn id(port: u8) -> PortId {
        PortId::new(HOST, port)
    }

    fn status(port: u8, prefix: u64, lid: u16, sm: u16) -> PortStatus {
        PortStatus {
            active: true,
            lid: Lid(lid),
            sm_lid: Lid(sm),
            gid: Gid::new(prefix, Guid(HOST.0 + u64::from(port))),
            infiniband: true,
            ..PortStatus::default()
        }
    }

    fn ports(all: [PortStatus; 2]) -> Ports {
        let mut ports = Ports::default();
        for (number, status) in (1..).zip(all) {
            ports.update(id(number), Some(status), Duration::ZERO);
        }
        ports
    }

    fn are_one_subnet(all: [PortStatus; 2]) -> bool {
        let ports = ports(all);
        ports.subnet(id(1)) == ports.subnet(id(2))
    }

    #[test]
    fn what_tells_two_subnets_apart() {
        let first = status(1, PREFIX, 4, 1);
        let second = |prefix, lid, sm| status(2, prefix, lid, sm);
        assert!(are_one_subnet([first.clone(), second(PREFIX, 5, 1)]));
        assert!(!are_one_subnet([first.clone(), second(PREFIX + 1, 5, 1)]));
        assert!(!are_one_subnet([first.clone(), second(PREFIX, 5, 2)]), "SM");
        assert!(
            !are_one_subnet([first.clone(), second(PREFIX, 4, 1)]),
            "LID"
        );
        let with_sm = |status, sm_guid| PortStatus {
            sm_guid: Guid(sm_guid),
            ..status
        };
        let managed = |a, b| {
            let second = with_sm(second(PREFIX, 5, 1), b);
            are_one_subnet([with_sm(first.clone(), a), second])
        };
        assert!(managed(7, 7) && managed(7, 0) && managed(0, 7));
        assert!(!managed(7, 8));
    }

    #[test]
    fn a_port_that_is_down_still_is_on_its_rail() {
        let down = |lid, sm| PortStatus {
            active: false,
            ..status(2, PREFIX, lid, sm)
        };
        assert!(!are_one_subnet([status(1, PREFIX, 4, 1), down(5, 2)]));
        assert!(!are_one_subnet([status(1, PREFIX, 4, 1), down(4, 0)]));
        assert!(are_one_subnet([status(1, PREFIX, 4, 1), down(0, 0)]));
    }

    #[test]
    fn path_bits_are_the_ports() {
        let with_lmc = PortStatus {
            lmc: 2,
            ..status(1, PREFIX, 4, 1)
        };
        let ports = ports([with_lmc, status(2, PREFIX + 1, 4, 1)]);
        assert_eq!(ports.end(id(1), Lid(11)), ports.end(id(1), Lid(8)));
        assert_ne!(ports.end(id(1), Lid(12)), ports.end(id(1), Lid(8)));
        assert_ne!(ports.end(id(2), Lid(11)), ports.end(id(2), Lid(8)), "LMC 0");
    }

    #[test]
    fn equal_lids_in_two_subnets_are_two_ports() {
        let apart = ports([status(1, PREFIX, 4, 1), status(2, PREFIX, 4, 1)]);
        assert_ne!(apart.end(id(1), Lid(9)), apart.end(id(2), Lid(9)));
        let joined = ports([status(1, PREFIX, 4, 1), status(2, PREFIX, 5, 1)]);
        assert_eq!(joined.end(id(1), Lid(9)), joined.end(id(2), Lid(9)));
    }

    #[test]
    fn a_told_port_is_found_where_only_one_subnet_can_have_it() {
        let far = |prefix, lid| PortAddress {
            gid: Gid::new(prefix, Guid(0x21)),
            lid: Lid(lid),
        };
        let joined = ports([status(1, PREFIX, 4, 1), status(2, PREFIX, 5, 1)]);
        let end = joined.end_of(HOST, &far(PREFIX, 9));
        assert!(end.is_some());
        assert_eq!(end, joined.end(id(2), Lid(9)));
        assert_eq!(joined.end_of(HOST, &far(PREFIX + 1, 9)), None);
        assert_eq!(joined.end_of(HOST, &far(PREFIX, 5)), None, "crossed LIDs");
        let apart = ports([status(1, PREFIX, 4, 1), status(2, PREFIX, 4, 1)]);
        assert_eq!(
            apart.end_of(HOST, &far(PREFIX, 9)),
            None,
            "which of the two?"
        );
        let prefixes = ports([status(1, PREFIX, 4, 1), status(2, PREFIX + 1, 4, 1)]);
        let end = prefixes.end_of(HOST, &far(PREFIX + 1, 9));
        assert_eq!(end, prefixes.end(id(2), Lid(9)));
    }

    #[test]
    fn a_mad_is_from_a_port_of_its_own_subnet_only() {
        let ports = ports([status(1, PREFIX, 4, 1), status(2, PREFIX + 1, 4, 1)]);
        let source = |port| MadSource {
            port: id(port),
            lid: Lid(9),
            qpn: 1,
            sl: 0,
            path_bits: 0,
            pkey: cm_msgs::PKey::DEFAULT_FULL,
            transaction_id: 0,
        };
        let far = PortAddress {
            gid: Gid::new(PREFIX, Guid(0x21)),
            lid: Lid(9),
        };
        assert!(ports.is_from(&source(1), &far));
        assert!(!ports.is_from(&source(2), &far));
        let lost = PortAddress { lid: Lid(0), ..far };
        assert!(!ports.is_from(&source(1), &lost));
    }

    /// Within a subnet a LID is one port's. A port that is not known here says nothing of where a MAD comes from.
    #[test]
    fn one_sender_is_one_port_of_one_subnet() {
        let source = |port, lid| MadSource {
            port: id(port),
            lid: Lid(lid),
            qpn: 1,
            sl: 0,
            path_bits: 0,
            pkey: cm_msgs::PKey::DEFAULT_FULL,
            transaction_id: 0,
        };
        let joined = ports([status(1, PREFIX, 4, 1), status(2, PREFIX, 5, 1)]);
        assert!(joined.is_one_sender(&source(1, 9), &source(2, 9)));
        assert!(!joined.is_one_sender(&source(1, 9), &source(1, 8)));
        let apart = ports([status(1, PREFIX, 4, 1), status(2, PREFIX + 1, 5, 1)]);
        assert!(!apart.is_one_sender(&source(1, 9), &source(2, 9)));
        assert!(
            !apart.is_one_sender(&source(3, 9), &source(3, 9)),
            "no such port"
        );
    }

    /// Two HCAs with one port each, on two rails of one prefix, each with a subnet manager of its own.
    #[test]
    fn equal_lids_on_the_rails_of_two_devices_are_two_ports() {
        let other = PortId::new(Guid(0x20), 1);
        let of_other = |sm_guid, lid| PortStatus {
            sm_guid: Guid(sm_guid),
            gid: Gid::new(PREFIX, Guid(0x21)),
            ..status(1, PREFIX, lid, 1)
        };
        let first = PortStatus {
            sm_guid: Guid(7),
            ..status(1, PREFIX, 4, 1)
        };
        let source = |port| MadSource {
            port,
            lid: Lid(9),
            qpn: 1,
            sl: 0,
            path_bits: 0,
            pkey: cm_msgs::PKey::DEFAULT_FULL,
            transaction_id: 0,
        };
        for (second, is_one) in [
            (of_other(8, 4), false),
            (of_other(7, 4), false),
            (of_other(7, 5), true),
        ] {
            let mut ports = Ports::default();
            ports.update(other, Some(second), Duration::ZERO);
            ports.update(id(1), Some(first.clone()), Duration::ZERO);
            let ends = [id(1), other].map(|port| ports.end(port, Lid(9)));
            assert_eq!(ends[0] == ends[1], is_one);
            let one_sender = ports.is_one_sender(&source(id(1)), &source(other));
            assert_eq!(one_sender, is_one);
        }
    }
}
