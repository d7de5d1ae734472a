// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a connection can have a second path at all. Where it cannot, its ACK timeout stays long: a
//! path that comes back is all that it can hope for.

use std::collections::BTreeMap;

use statemachine::{PortId, PortStatus};

/// Whether there is another way out of the port's device than by its first LID: a second port, or
/// several LIDs of this one. A port without a cable is none, so the number of ports says nothing.
pub(crate) fn has_second_path(port: PortId, ports: &BTreeMap<PortId, PortStatus>) -> bool {
    let mut device = ports.range(PortId::of_device(port.node_guid));
    device.any(|(&id, status)| {
        let usable = status.infiniband && status.active && status.apm;
        usable && (id != port || status.lmc > 0)
    })
}

#[cfg(test)]
mod tests {
    use cm_msgs::Guid;

    use super::*;

    const FIRST: PortId = port(1, 1);
    const SECOND: PortId = port(1, 2);

    const fn port(node_guid: u64, port: u8) -> PortId {
        PortId {
            node_guid: Guid(node_guid),
            port,
        }
    }

    fn good() -> PortStatus {
        PortStatus {
            active: true,
            infiniband: true,
            apm: true,
            moves_idle: false,
            ..PortStatus::default()
        }
    }

    fn has_second(ports: &[(PortId, PortStatus)]) -> bool {
        has_second_path(FIRST, &ports.iter().cloned().collect())
    }

    #[test]
    fn a_second_path_is_by_another_port_of_the_device_or_another_lid() {
        assert!(!has_second(&[]), "not known");
        assert!(!has_second(&[(FIRST, good())]));
        assert!(has_second(&[(FIRST, good()), (SECOND, good())]));
        assert!(!has_second(&[(FIRST, good()), (port(2, 2), good())]));
        let many_lids = PortStatus { lmc: 1, ..good() };
        assert!(has_second(&[(FIRST, many_lids)]));
    }

    #[test]
    fn a_port_that_carries_nothing_is_no_second_path() {
        let down = PortStatus {
            active: false,
            ..good()
        };
        let ethernet = PortStatus {
            infiniband: false,
            ..good()
        };
        let without_apm = PortStatus {
            apm: false,
            ..good()
        };
        for second in [down, ethernet, without_apm] {
            assert!(
                !has_second(&[(FIRST, good()), (SECOND, second.clone())]),
                "{second:?}"
            );
            let many_lids = PortStatus { lmc: 1, ..second };
            assert!(!has_second(&[(FIRST, many_lids.clone())]), "{many_lids:?}");
        }
    }
}
