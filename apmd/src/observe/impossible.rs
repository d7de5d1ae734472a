// SPDX-License-Identifier: MIT OR Apache-2.0
//! What policies want that the ports of this host do not have, in words.

use cm_msgs::Guid;
use cm_msgs::control::{Mode, Placement, Policy};
use statemachine::view::PortView;

use super::model;

/// A device as connections use it.
pub(crate) struct LocalDevice<'a> {
    pub(crate) name: &'a str,
    pub(crate) node_guid: Guid,
    /// Of all devices.
    pub(crate) ports: &'a [PortView],
}

impl LocalDevice<'_> {
    fn ports(&self) -> impl Iterator<Item = &PortView> {
        let is_its = |port: &&PortView| port.id.node_guid == self.node_guid;
        self.ports.iter().filter(is_its)
    }

    /// Why a connection of this device can never be on the port that it prefers. Of a device that is absent nothing is
    /// known.
    pub(crate) fn refuses(&self, placement: Placement) -> Option<String> {
        let Placement::Prefer(wanted) = placement else {
            return None;
        };
        let count = self.ports().map(|port| port.device_ports).max()?;
        (wanted.get() > count).then(|| {
            let name = self.name;
            let has = match count {
                1 => "port 1 only".to_owned(),
                count => format!("ports 1 to {count} only"),
            };
            format!("failback prefer {wanted}: device {name} has {has}")
        })
    }

    /// What of a connection's policy cannot be met here. `is_armed`: it has an alternate that the policy allows.
    pub(crate) fn obstacles(&self, policy: &Policy, primary: u8, is_armed: bool) -> Vec<String> {
        let mut obstacles = Vec::from_iter(self.refuses(policy.placement));
        let mut ports = self.ports();
        let has_one_lid = ports.any(|port| port.id.port == primary && port.lmc == 0);
        if policy.mode == Mode::Lid && has_one_lid && !is_armed {
            obstacles.push(format!(
                "mode lid: {}/{primary} has one LID (LMC 0), so only another LID of the peer's port can be the \
                 alternate; set mode any, or lmc of the subnet manager (docs/install.md)",
                self.name
            ));
        }
        obstacles
    }
}

/// What of `[policy] default` none of these ports can meet. Of a host without InfiniBand ports nothing is known.
pub(crate) fn of_default(policy: &Policy, ports: &[model::Port]) -> Vec<String> {
    let infiniband = |port: &&model::Port| port.link.link_layer == "infiniband";
    let ports: Vec<_> = ports.iter().filter(infiniband).collect();
    if ports.is_empty() {
        return Vec::new();
    }
    let mut obstacles = Vec::new();
    if let Placement::Prefer(wanted) = policy.placement
        && ports.iter().all(|port| port.port != wanted.get())
    {
        obstacles.push(format!(
            "[policy] default: failback prefer {wanted}: no device of this host has a port {wanted}"
        ));
    }
    if policy.mode == Mode::Lid && ports.iter().all(|port| port.link.lmc == 0) {
        obstacles.push(
            "[policy] default: mode lid: every port of this host has one LID (LMC 0), so only another LID of the \
             peer's port can be an alternate"
                .to_owned(),
        );
    }
    obstacles
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use cm_msgs::{Gid, Lid};
    use statemachine::PortId;
    use statemachine::view::PortState;

    use super::*;

    const NODE: Guid = Guid(7);

    fn port(number: u8, lmc: u8) -> PortView {
        PortView {
            id: PortId::new(NODE, number),
            state: PortState::Up,
            lid: Lid(1),
            lmc,
            sm_lid: Lid(1),
            gid: Gid::default(),
            mtu: 4,
            drained: false,
            primaries: 0,
            alternates: 0,
            device_ports: 2,
        }
    }

    fn device(ports: &[PortView]) -> LocalDevice<'_> {
        LocalDevice {
            name: "mlx5_0",
            node_guid: NODE,
            ports,
        }
    }

    fn prefer(port: u8) -> Placement {
        Placement::Prefer(NonZeroU8::new(port).expect("not 0"))
    }

    #[test]
    fn a_port_that_the_device_does_not_have_is_no_place() {
        // The second port has not been read yet.
        let ports = [port(1, 0)];
        let device = device(&ports);
        assert_eq!(device.refuses(prefer(2)), None);
        assert_eq!(device.refuses(Placement::Stay), None);
        assert_eq!(
            device.refuses(prefer(7)).as_deref(),
            Some("failback prefer 7: device mlx5_0 has ports 1 to 2 only")
        );
        let absent = LocalDevice {
            node_guid: Guid(8),
            ..device
        };
        assert_eq!(absent.refuses(prefer(7)), None, "nothing is known of it");
    }

    #[test]
    fn another_lid_of_a_port_with_one_lid_is_no_alternate() {
        let lid = Policy {
            mode: Mode::Lid,
            ..Policy::DEFAULT
        };
        let of = |ports: &[PortView], policy, is_armed| {
            device(ports).obstacles(policy, 1, is_armed).concat()
        };
        let one_lid = [port(1, 0), port(2, 1)];
        let said = of(&one_lid, &lid, false);
        assert!(
            said.starts_with("mode lid: mlx5_0/1 has one LID (LMC 0)"),
            "{said}"
        );
        assert_eq!(of(&one_lid, &lid, true), "", "the peer has several");
        assert_eq!(of(&one_lid, &Policy::DEFAULT, false), "");
        assert_eq!(of(&[port(1, 1)], &lid, false), "");
    }
}
