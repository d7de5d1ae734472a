// SPDX-License-Identifier: MIT OR Apache-2.0
//! Local ports in the operators' form.

use pathdb::{Mtu, Rate};
use statemachine::view::{self, PortState};

use super::model::{IgnoredDevice, Port, PortLink, PortSums};
use crate::devices::{Device, Devices};
use crate::io::rtnl::Rtnl;

/// MTU in bytes of an IBA code; 0 for what is none.
pub(super) fn mtu_bytes(code: u8) -> u32 {
    Mtu::from_code(code).map_or(0, |mtu| mtu.bytes().into())
}

/// Mb/s of an IBA code.
pub(super) fn rate_mbps(code: u8) -> Option<u32> {
    Rate::from_code(code).map(Rate::megabits)
}

/// The ports of all devices, with what the engine makes of them.
pub(crate) fn show(devices: &Devices, views: &[view::PortView], rtnl: Option<&Rtnl>) -> Vec<Port> {
    let of_device = |device: &Device| {
        let one = |port: &crate::devices::Port| {
            let view = views.iter().find(|view| view.id == port.id);
            show_port(device, port, view, rtnl)
        };
        device.ports.iter().map(one).collect::<Vec<_>>()
    };
    let mut ports: Vec<_> = devices.iter().flat_map(of_device).collect();
    ports.sort_by(|a, b| (&a.device, a.port).cmp(&(&b.device, b.port)));
    ports
}

/// Returns the devices at which no connection can end, and why.
pub(crate) fn ignored(devices: &Devices) -> Vec<IgnoredDevice> {
    let unopened = devices.unopened().iter();
    let ignored = unopened.filter(|(_, device)| device.ignored);
    let shown = ignored.map(|(name, device)| IgnoredDevice {
        device: name.clone(),
        reason: device.why.clone(),
    });
    shown.collect()
}

fn show_port(
    device: &Device,
    port: &crate::devices::Port,
    view: Option<&view::PortView>,
    rtnl: Option<&Rtnl>,
) -> Port {
    let status = port.watch.status();
    let gid = status.map(|status| status.gid).unwrap_or_default();
    Port {
        device: device.name.clone(),
        port: port.id.port,
        node_guid: port.id.node_guid.to_string(),
        state: view.map_or("unknown".to_owned(), |view| view.state.to_string()),
        apm: device.apm,
        moves_idle: device.idle_trial.moves_idle(),
        mads: port
            .mad
            .as_ref()
            .is_some_and(crate::devices::MadPort::has_association),
        interface: rtnl.and_then(|rtnl| rtnl.interface(gid)).map(str::to_owned),
        drained: view.is_some_and(|view| view.drained),
        primaries: view.map_or(0, |view| view.primaries),
        alternates: view.map_or(0, |view| view.alternates),
        link: PortLink {
            link_layer: if port.watch.is_foreign() {
                "other"
            } else {
                "infiniband"
            }
            .to_owned(),
            grh_required: port.watch.requires_grh(),
            lid: status.map_or(0, |status| status.lid.0),
            lmc: status.map_or(0, |status| status.lmc),
            sm_lid: status.map_or(0, |status| status.sm_lid.0),
            gid: gid.to_string(),
            mtu: status.map_or(0, |status| mtu_bytes(status.mtu)),
            rate_mbps: status.and_then(|status| rate_mbps(status.rate)),
            pkeys: status
                .iter()
                .flat_map(|status| &status.pkeys)
                .map(|key| key.0)
                .collect(),
        },
    }
}

/// Ports by state, beside the paths over which a peer's apmd does not answer any more.
pub(crate) fn sums(views: &[view::PortView], paths_to_silent_apmd: usize) -> PortSums {
    let count = |state| views.iter().filter(|view| view.state == state).count();
    PortSums {
        total: views.len(),
        up: count(PortState::Up),
        settling: count(PortState::Settling),
        down: count(PortState::Down),
        drained: views.iter().filter(|view| view.drained).count(),
        paths_to_silent_apmd,
    }
}
