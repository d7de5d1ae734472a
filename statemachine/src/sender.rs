// SPDX-License-Identifier: MIT OR Apache-2.0
//! The port of another host that a MAD came from, as quotas are charged.

use cm_msgs::Lid;

use crate::id::PortId;
use crate::port::Ports;
use crate::subnet::SubnetLid;

/// A port of another host, whichever of its LIDs it sends from and whichever local port hears it. An HCA puts a LID
/// of its own into what it sends, so within a subnet no port can pass for another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Sender(Known);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Known {
    Port(SubnetLid),
    /// Nothing is known of the local port (any more), so neither of its subnet.
    Heard(PortId, Lid),
}

impl Sender {
    /// The port that sends from this LID, as it is heard by a local port.
    pub(crate) fn new(ports: &Ports, local: PortId, lid: Lid) -> Self {
        let end = ports.end(local, lid);
        Self(end.map_or(Known::Heard(local, lid), Known::Port))
    }
}

/// Four local ports of one subnet, of the device with node GUID 1.
#[cfg(test)]
pub(crate) fn local_ports(lmc: u8) -> Ports {
    use crate::input::PortStatus;
    use cm_msgs::{Gid, Guid};

    let mut ports = Ports::default();
    for number in 1..=4 {
        let status = PortStatus {
            active: true,
            lid: Lid(0xb000 + 0x100 * u16::from(number)),
            lmc,
            gid: Gid::new(0xfe80 << 48, Guid(number.into())),
            infiniband: true,
            ..PortStatus::default()
        };
        let id = PortId::new(Guid(1), number);
        ports.update(id, Some(status), core::time::Duration::ZERO);
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::Guid;

    #[test]
    fn a_sender_is_one_by_all_local_ports_of_its_subnet() {
        let ports = local_ports(1);
        let sender = |local, lid| Sender::new(&ports, PortId::new(Guid(1), local), Lid(lid));
        assert_eq!(sender(1, 8), sender(2, 9));
        assert_ne!(sender(1, 8), sender(1, 10), "the LID of another port");
        assert_ne!(sender(1, 8), sender(9, 8), "a local port that is not known");
        assert_ne!(sender(9, 8), sender(10, 8), "nor another one");
    }
}
