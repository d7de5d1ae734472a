// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices that have appeared are opened, and known again under another name.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;

use cm_msgs::Guid;
use mio::Registry;
use statemachine::PortId;

use super::{Device, Devices, MadPort, Port, Settings};
use crate::io::umad::UmadName;
use crate::io::{umad, verbs, watched};
use crate::port_watch::{DeviceFacts, PortWatch};
use crate::token::{PortKey, Token};

/// What looking for devices has brought.
#[derive(Default, Debug)]
pub(crate) struct Found {
    /// The ports that are new or can send only now.
    pub(crate) ports: Vec<PortKey>,
    /// The ports of devices that have another name.
    pub(crate) renamed: Vec<PortKey>,
    /// Devices are there that could not be opened, and were not before.
    pub(crate) has_unopened: bool,
}

impl Found {
    /// Whether anything is different.
    pub(crate) fn is_news(&self) -> bool {
        !(self.ports.is_empty() && self.renamed.is_empty()) || self.has_unopened
    }
}

impl Devices {
    /// Opens what has appeared.
    pub(crate) fn scan(&mut self, settings: &Settings, registry: &Registry) -> Found {
        let mut found = Found::default();
        let listed = verbs::list();
        let mut unopened = BTreeMap::new();
        for name in &listed {
            if self.by_name(name).is_none()
                && settings.wants(name)
                && let Err(error) = self.open_device(name, &listed, registry, &mut found)
            {
                unopened.insert(name.clone(), format!("cannot be opened: {error}"));
            }
        }
        for name in verbs::infiniband_in_sysfs() {
            if self.by_name(&name).is_none() && settings.wants(&name) && !listed.contains(&name) {
                let why =
                    "libibverbs does not show it: load ib_uverbs, install its driver's provider";
                unopened.insert(name, why.to_owned());
            }
        }
        found.has_unopened = self.take_unopened(unopened);
        for name in umad::list() {
            let opened = self.open_umad(&name, settings.class, registry);
            found.ports.extend(opened);
        }
        found.ports.sort();
        found.ports.dedup();
        found
    }

    /// What could not be opened this time. Says what is new of it, and whether a device is.
    fn take_unopened(&mut self, unopened: BTreeMap<String, String>) -> bool {
        for (device, why) in &unopened {
            if self.unopened.get(device) != Some(why) {
                tracing::warn!(device, "device not opened, tried again: {why}");
            }
        }
        let has_new = { unopened.keys() }.any(|device| !self.unopened.contains_key(device));
        self.unopened = unopened;
        has_new
    }

    fn open_device(
        &mut self,
        name: &str,
        listed: &[String],
        registry: &Registry,
        found: &mut Found,
    ) -> io::Result<()> {
        let device = verbs::Device::open(name)?;
        if let Some(key) = self.renamed(device.node_guid, device.ports, listed) {
            let device = watched(device, registry, Token::Verbs(key))?;
            found.renamed.extend(self.rename(key, device));
            return Ok(());
        }
        let device = watched(device, registry, Token::Verbs(self.next_key))?;
        found.ports.extend(self.add(name, device));
        Ok(())
    }

    /// The device that has this GUID and so many ports, if its name is not there any more: udev gives a device
    /// that has just appeared another name.
    fn renamed(&self, node_guid: Guid, ports: u8, listed: &[String]) -> Option<u32> {
        let mut devices = self.devices.iter();
        let found = devices.find(|(_, known)| {
            known.node_guid == node_guid
                && known.ports.len() == usize::from(ports)
                && !listed.contains(&known.name)
        });
        found.map(|(key, _)| *key)
    }

    /// The same device, opened by its new name: the context that was opened by the old one looks for files that
    /// are not there any more.
    fn rename(&mut self, key: u32, opened: verbs::Device) -> Vec<PortKey> {
        let Some(device) = self.devices.get_mut(&key) else {
            return Vec::new();
        };
        tracing::info!(device = device.name, name = opened.name, "device renamed");
        device.name.clone_from(&opened.name);
        if device.verbs.is_some() {
            device.verbs = Some(opened);
        }
        for port in &mut device.ports {
            port.watch.look();
        }
        keys(key, device.ports.len())
    }

    fn add(&mut self, name: &str, device: verbs::Device) -> Vec<PortKey> {
        let facts = DeviceFacts {
            apm: device.apm,
            ports: device.ports,
        };
        let node_guid = device.node_guid;
        let key = self.next_key;
        self.next_key += 1;
        let ports = (1..=facts.ports).map(|port| {
            let mut watch = PortWatch::new(facts);
            // First of all: whether it has MADs. What cannot be read now is asked for again.
            if let Ok(facts) = device.port_facts(port) {
                watch.set_facts(facts);
            }
            Port {
                id: PortId { node_guid, port },
                mad: None,
                watch,
            }
        });
        let ports: Vec<_> = ports.collect();
        let foreign = ports.iter().all(|port| port.watch.is_foreign());
        match foreign {
            true => tracing::info!(
                device = name,
                %node_guid,
                "device left alone: no InfiniBand port, and others have no automatic path migration"
            ),
            false => tracing::info!(
                device = name,
                %node_guid,
                ports = facts.ports,
                apm = facts.apm,
                "device opened"
            ),
        }
        let keys = keys(key, ports.len());
        self.devices.insert(
            key,
            Device {
                name: name.to_owned(),
                node_guid,
                apm: facts.apm,
                verbs: (!foreign).then_some(device),
                ports,
            },
        );
        keys
    }

    fn open_umad(&mut self, name: &UmadName, class: u8, registry: &Registry) -> Option<PortKey> {
        let (&device, _) = self.by_name(&name.device)?;
        let port = name.port;
        let key = PortKey { device, port };
        // The kernel shows a umad file of ports that have no MADs, too, and does not let it be opened.
        let has_mads = |port: &&mut Port| port.mad.is_none() && !port.watch.is_foreign();
        let port = self.port_mut(key).filter(has_mads)?;
        let opened = MadPort::open(name, class).and_then(|mad| {
            watched(mad.umad.as_raw_fd(), registry, Token::Umad(key))?;
            Ok(mad)
        });
        match opened {
            Ok(mad) => {
                port.mad = Some(mad);
                port.watch.look();
                Some(key)
            }
            Err(error) => {
                let path = name.path.display();
                tracing::warn!(device = name.device, port = name.port, %path, %error, "umad not opened");
                None
            }
        }
    }
}

/// All ports of a device.
fn keys(device: u32, ports: usize) -> Vec<PortKey> {
    let ports = (1..=u8::MAX).take(ports);
    ports.map(|port| PortKey { device, port }).collect()
}

#[cfg(test)]
mod tests {
    use statemachine::Random;

    use super::*;

    const GUID: Guid = Guid(0x11);

    /// One device, which is not open, with two ports.
    fn devices() -> Devices {
        let facts = DeviceFacts {
            apm: true,
            ports: 2,
        };
        let port = |port| Port {
            id: PortId::new(GUID, port),
            mad: None,
            watch: PortWatch::new(facts),
        };
        let device = Device {
            name: "mlx5_0".to_owned(),
            node_guid: GUID,
            apm: true,
            verbs: None,
            ports: vec![port(1), port(2)],
        };
        let mut devices = Devices::new(Random::new([1; 32]));
        devices.devices.insert(7, device);
        devices
    }

    #[test]
    fn a_device_is_known_again_by_its_guid_when_its_name_is_gone() {
        let devices = devices();
        let names = |names: &[&str]| -> Vec<_> { names.iter().map(ToString::to_string).collect() };
        let renamed = |guid, ports, listed: &[&str]| devices.renamed(guid, ports, &names(listed));
        assert_eq!(renamed(GUID, 2, &["ibp1s0"]), Some(7));
        assert_eq!(renamed(GUID, 2, &["ibp1s0", "mlx5_0"]), None, "two of them");
        assert_eq!(renamed(Guid(0x12), 2, &["ibp1s0"]), None);
        assert_eq!(renamed(GUID, 1, &["ibp1s0"]), None);
    }

    #[test]
    fn what_cannot_be_opened_is_kept_with_the_reason_and_is_news_once() {
        let mut devices = devices();
        let unopened = |why: &str| BTreeMap::from([("mlx5_1".to_owned(), why.to_owned())]);
        assert!(devices.take_unopened(unopened("busy")));
        assert!(!devices.take_unopened(unopened("busy")));
        assert!(!devices.take_unopened(unopened("not permitted")));
        assert_eq!(devices.unopened()["mlx5_1"], "not permitted");
        assert!(!devices.take_unopened(BTreeMap::new()));
        assert!(devices.unopened().is_empty());
    }
}
