// SPDX-License-Identifier: MIT OR Apache-2.0
//! What handshakes have proven of far-end ports, for connections to the same port whose own handshake is
//! not complete.
//!
//! A new connection knows one port of its peer's: the one that its QP leads to. If that fails before the
//! two daemons have spoken, the peer could not be reached by it. The daemon at that port may have said to
//! another connection which ports its host has besides.
//!
//! Only that counts which was said by whoever was told a communication ID that went to this port and to
//! no other: it was said there, and whoever is there is the peer of every connection that leads there. A
//! QP of a local program may lead elsewhere as well, by its alternate; then nothing comes of its handshake.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use cm_msgs::path::PortAddress;
use cm_msgs::{Gid, Guid, Lid};

use crate::subnet::SubnetLid;

/// Where a communication ID has been sent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum SentTo {
    /// Nowhere yet.
    #[default]
    Nowhere,
    /// To this port only.
    Port(SubnetLid),
    /// To several.
    Several,
}

impl SentTo {
    /// It is sent to this port, too.
    pub(crate) fn add(&mut self, port: SubnetLid) {
        *self = match *self {
            Self::Nowhere => Self::Port(port),
            Self::Port(only) if only == port => Self::Port(port),
            Self::Port(_) | Self::Several => Self::Several,
        };
    }
}

/// The ports of one far end's host.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Proof {
    /// The far-end port's GID: its LID may be given to another port, whose peers are others.
    gid: Gid,
    ports: Arc<Vec<PortAddress>>,
    /// Open associations that it was proven in.
    associations: u32,
}

/// The ports that were proven, by local device and far-end port. There are no more than
/// open associations, and each list is one that its connection has as well.
#[derive(Default, Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct ProvenPorts {
    proofs: BTreeMap<(Guid, SubnetLid), Proof>,
}

impl ProvenPorts {
    /// A handshake is complete, for which our ID was sent to `far` only: these are its host's ports. Nothing
    /// counts that does not name that port, or gives it another GID than the connection's own path has (`gid`;
    /// unspecified where that is not known). Returns whether it counts.
    pub(crate) fn prove(
        &mut self,
        node_guid: Guid,
        far: SubnetLid,
        gid: Gid,
        ports: &Arc<Vec<PortAddress>>,
    ) -> bool {
        let fits =
            |port: &&PortAddress| far.is_base_of(port) && (gid.is_unspecified() || port.gid == gid);
        let mut named = ports.iter().filter(fits);
        // In two subnets of one prefix two ports can have that LID: which of them it is must be known.
        let (Some(named), None) = (named.next(), named.next()) else {
            return false;
        };
        let proof = self.proofs.entry((node_guid, far)).or_insert(Proof {
            gid: named.gid,
            ports: Arc::clone(ports),
            associations: 0,
        });
        proof.associations += 1;
        // What was said last is true now.
        proof.gid = named.gid;
        proof.ports = Arc::clone(ports);
        true
    }

    /// One of the associations in which this was proven is over.
    pub(crate) fn ended(&mut self, node_guid: Guid, far: SubnetLid) {
        let key = (node_guid, far);
        if let Some(proof) = self.proofs.get_mut(&key) {
            proof.associations = proof.associations.saturating_sub(1);
            if proof.associations == 0 {
                self.proofs.remove(&key);
            }
        }
    }

    /// One of them has heard which ports its peer has now. What is not among them, or is out of service,
    /// counts no more. What is new does not count: it may be said by others who have the ID since.
    pub(crate) fn told(&mut self, node_guid: Guid, far: SubnetLid, now: &[PortAddress]) {
        let Some(proof) = self.proofs.get_mut(&(node_guid, far)) else {
            return;
        };
        let gid = proof.gid;
        // Out of service it still is the same port.
        let same =
            |port: &PortAddress| port.gid == gid && (far.is_base_of(port) || port.lid == Lid(0));
        let known = |port: &PortAddress| now.iter().any(same) && now.contains(port);
        if !proof.ports.iter().all(known) {
            let left = proof.ports.iter().filter(|port| known(port)).copied();
            proof.ports = Arc::new(left.collect());
        }
    }

    /// The subnet may be another than before for this device: other ports may have these LIDs.
    pub(crate) fn forget(&mut self, node_guid: Guid) {
        for (&(device, _), proof) in &mut self.proofs {
            if device == node_guid {
                proof.ports = Arc::default();
            }
        }
    }

    /// The ports of the host at the far end of a path to this port.
    pub(crate) fn at(&self, node_guid: Guid, far: SubnetLid, gid: Gid) -> &[PortAddress] {
        let proof = self.proofs.get(&(node_guid, far));
        let proof = proof.filter(|proof| !gid.is_unspecified() && proof.gid == gid);
        proof.map_or(&[], |proof| &proof.ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const HERE: Guid = Guid(1);
    const SUBNET: u64 = 0xfe80 << 48;

    fn gid(number: u8) -> Gid {
        Gid::new(SUBNET, Guid(number.into()))
    }

    fn far(lid: u16) -> SubnetLid {
        SubnetLid::in_subnet(SUBNET, Lid(lid))
    }

    fn port(number: u8) -> PortAddress {
        PortAddress {
            gid: gid(number),
            lid: Lid(number.into()),
        }
    }

    fn with_lid(number: u8, lid: u16) -> PortAddress {
        PortAddress {
            lid: Lid(lid),
            ..port(number)
        }
    }

    fn down(number: u8) -> PortAddress {
        with_lid(number, 0)
    }

    /// A port with that LID in another subnet.
    fn elsewhere(lid: u8) -> PortAddress {
        PortAddress {
            gid: Gid::new(SUBNET + 1, Guid(lid.into())),
            lid: Lid(lid.into()),
        }
    }

    /// Ports 4 and 5 of a host, proven at port 4.
    fn proven() -> ProvenPorts {
        let mut proven = ProvenPorts::default();
        let ports = Arc::new(vec![port(4), port(5)]);
        assert!(proven.prove(HERE, far(4), gid(4), &ports));
        proven
    }

    #[test]
    fn an_id_that_went_to_two_ports_proves_nothing_of_either() {
        let mut sent = SentTo::default();
        sent.add(far(4));
        sent.add(far(4));
        assert_eq!(sent, SentTo::Port(far(4)));
        sent.add(far(5));
        sent.add(far(4));
        assert_eq!(sent, SentTo::Several);
    }

    #[test]
    fn it_is_for_paths_to_the_same_port() {
        let proven = proven();
        assert_eq!(proven.at(HERE, far(4), gid(4)), [port(4), port(5)]);
        assert!(proven.at(HERE, far(5), gid(5)).is_empty(), "not asked");
        assert!(proven.at(Guid(2), far(4), gid(4)).is_empty(), "subnet");
        assert!(proven.at(HERE, far(4), gid(9)).is_empty(), "LID reused");
        assert!(proven.at(HERE, far(4), Gid::default()).is_empty());
    }

    #[test]
    fn who_does_not_name_the_port_where_it_is_proves_nothing() {
        let mut proven = ProvenPorts::default();
        for (lid, known, ports) in [
            (4, gid(4), vec![port(5)]),
            (4, gid(4), vec![down(4), port(5)]),
            (4, gid(9), vec![port(4), port(5)]),
            (0, gid(4), vec![down(4), port(5)]),
            (4, gid(4), vec![port(5), elsewhere(4)]),
        ] {
            assert!(!proven.prove(HERE, far(lid), known, &Arc::new(ports)));
        }
        let two = Arc::new(vec![port(4), with_lid(5, 4)]);
        assert!(!proven.prove(HERE, far(4), Gid::default(), &two), "which?");
        assert!(proven.proofs.is_empty());
        assert!(proven.prove(HERE, far(4), gid(4), &two));
    }

    #[test]
    fn it_ends_with_the_last_association() {
        let mut proven = proven();
        let ports = Arc::new(vec![port(4), port(5), port(6)]);
        assert!(proven.prove(HERE, far(4), Gid::default(), &ports));
        assert_eq!(proven.at(HERE, far(4), gid(4)).len(), 3, "the latest");
        proven.ended(HERE, far(4));
        assert!(!proven.at(HERE, far(4), gid(4)).is_empty());
        proven.ended(HERE, far(4));
        assert!(proven.proofs.is_empty());
        proven.ended(HERE, far(4));
    }

    #[test]
    fn what_changes_counts_no_more() {
        let mut of_one = proven();
        of_one.told(HERE, far(4), &[down(4), port(5), port(6)]);
        assert_eq!(of_one.at(HERE, far(4), gid(4)), [port(5)]);
        of_one.told(HERE, far(4), &[port(4), down(5)]);
        assert!(of_one.at(HERE, far(4), gid(4)).is_empty());
        let mut moved = proven();
        moved.told(HERE, far(4), &[with_lid(4, 8), port(5)]);
        assert!(moved.at(HERE, far(4), gid(4)).is_empty());
        let mut subnet = proven();
        subnet.forget(Guid(2));
        assert!(!subnet.at(HERE, far(4), gid(4)).is_empty());
        subnet.forget(HERE);
        assert!(subnet.at(HERE, far(4), gid(4)).is_empty());
    }
}
