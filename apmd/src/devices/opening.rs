// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices that have appeared are opened, and known again under another name.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use cm_msgs::Guid;
use mio::Registry;
use statemachine::{PortId, Time};

use super::idle_trial::IdleTrial;
use super::unopened::Unopened;
use super::{Device, Devices, MadPort, Port, Settings};
use crate::io::rdma_class::{self, Kind};
use crate::io::umad::UmadName;
use crate::io::verbs::Listed;
use crate::io::{umad, verbs, watched};
use crate::port_watch::{DeviceFacts, PortWatch};
use crate::token::{PortKey, Token};

/// libibverbs loads what it has of providers when it first meets a device that wants one, and never again.
const NOT_LISTED: &str = "libibverbs does not show it: load ib_uverbs, or install its driver's provider \
                          (ibverbs-providers) and restart apmd";

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
    pub(crate) fn scan(&mut self, now: Time, settings: &Settings, registry: &Registry) -> Found {
        let mut found = Found::default();
        let listed = verbs::list();
        let kinds = rdma_class::devices();
        let mut unopened = BTreeMap::new();
        for device in &listed {
            let kind = kinds.get(&device.name);
            if let Some(key) = self.known(device) {
                found.renamed.extend(self.rename(key, &device.name));
            } else if settings.wants(&device.name) {
                let why = match useless(device, kind) {
                    Some(why) => Some(Unopened::ignored(&why)),
                    None => {
                        let is_infiniband = kind == Some(&Kind::InfiniBand);
                        self.try_to_open(now, device, is_infiniband, registry, &mut found)
                    }
                };
                unopened.extend(why.map(|why| (device.name.clone(), why)));
            }
        }
        for (name, kind) in kinds {
            let is_listed = listed.iter().any(|device| device.name == name);
            if is_listed || self.by_name(&name).is_some() || !settings.wants(&name) {
                continue;
            }
            match kind {
                Kind::InfiniBand => unopened.insert(name, Unopened::new(NOT_LISTED, true)),
                Kind::NoEndpoint(why) => unopened.insert(name, Unopened::ignored(&why)),
                Kind::Foreign => None,
            };
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

    /// What could not be opened is tried again with the next search.
    pub(crate) fn retry_unopened(&mut self) {
        self.unopened.values_mut().for_each(Unopened::retry);
    }

    /// What could not be opened this time. Says what is new of it, and whether a device is that counts.
    fn take_unopened(&mut self, unopened: BTreeMap<String, Unopened>) -> bool {
        for (device, Unopened { why, ignored, .. }) in &unopened {
            match self.unopened.get(device).map(|known| &known.why) {
                Some(known) if known == why => {}
                _ if *ignored => tracing::info!(device, "device ignored: {why}"),
                _ => tracing::warn!(device, "device not opened, tried again: {why}"),
            }
        }
        let mut counting = unopened.iter().filter(|(_, device)| device.infiniband);
        let has_new = counting.any(|(device, _)| !self.unopened.contains_key(device));
        self.unopened = unopened;
        has_new
    }

    /// Opens a device, unless it is left alone for now. Why it is not open.
    fn try_to_open(
        &mut self,
        now: Time,
        device: &Listed,
        is_infiniband: bool,
        registry: &Registry,
        found: &mut Found,
    ) -> Option<Unopened> {
        let before = self.unopened.get(&device.name).cloned();
        match before {
            Some(before) if before.is_left_alone(now) => Some(before),
            before => {
                let error = self.open_device(device, registry, found).err()?;
                Some(Unopened::refused(before, now, &error, is_infiniband))
            }
        }
    }

    fn open_device(
        &mut self,
        listed: &Listed,
        registry: &Registry,
        found: &mut Found,
    ) -> io::Result<()> {
        let device = verbs::Device::open(|found| found == listed)?;
        let device = watched(device, registry, Token::Verbs(self.next_key))?;
        found.ports.extend(self.add(listed, device));
        Ok(())
    }

    /// The device that this one is, whatever it was called.
    fn known(&self, listed: &Listed) -> Option<u32> {
        let mut devices = self.devices.iter();
        let found = devices.find(|(_, known)| {
            known.uverbs == listed.uverbs && known.node_guid == listed.node_guid
        });
        found.map(|(key, _)| *key)
    }

    /// The device has this name now: udev gives one that has just appeared another, and so may an operator at any
    /// time. What is open of it stays open, with all that goes by it. Its ports, if the name is new.
    fn rename(&mut self, key: u32, name: &str) -> Vec<PortKey> {
        let device = self.devices.get_mut(&key);
        let Some(device) = device.filter(|device| device.name != name) else {
            return Vec::new();
        };
        tracing::info!(device = device.name, name, "device renamed");
        name.clone_into(&mut device.name);
        for port in &mut device.ports {
            port.watch.look();
        }
        keys(key, device.ports.len())
    }

    fn add(&mut self, listed: &Listed, device: verbs::Device) -> Vec<PortKey> {
        let name = &listed.name;
        let facts = DeviceFacts {
            apm: device.apm,
            moves_idle: false,
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
        let idle_trial = match facts.apm && !foreign {
            true => IdleTrial::start(listed, &self.trials, Arc::clone(&self.waker)),
            false => IdleTrial::default(),
        };
        let keys = keys(key, ports.len());
        self.devices.insert(
            key,
            Device {
                uverbs: listed.uverbs.clone(),
                name: name.clone(),
                node_guid,
                apm: facts.apm,
                idle_trial,
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

/// Why a device that libibverbs shows cannot have connections that migrate.
fn useless(device: &Listed, kind: Option<&Kind>) -> Option<String> {
    match kind {
        Some(Kind::NoEndpoint(why)) => Some(why.clone()),
        // Only its name identifies it: neither peers nor the kernel's tables could say which device it is.
        _ if device.node_guid == Guid(0) && kind == Some(&Kind::InfiniBand) => Some(
            "its node GUID is 0: give it one (a virtual function: `ip link set DEVICE vf N node_guid`)"
                .to_owned(),
        ),
        _ => None,
    }
}

/// All ports of a device.
fn keys(device: u32, ports: usize) -> Vec<PortKey> {
    let ports = (1..=u8::MAX).take(ports);
    ports.map(|port| PortKey { device, port }).collect()
}

#[cfg(test)]
mod tests {
    use cm_msgs::Guid;

    use super::*;

    const GUID: Guid = Guid(0x11);

    /// One device, which is not open, with two ports.
    fn devices() -> Devices {
        let facts = DeviceFacts {
            apm: true,
            moves_idle: false,
            ports: 2,
        };
        let port = |port| Port {
            id: PortId::new(GUID, port),
            mad: None,
            watch: PortWatch::new(facts),
        };
        let device = Device {
            uverbs: "uverbs0".to_owned(),
            name: "mlx5_0".to_owned(),
            node_guid: GUID,
            apm: true,
            idle_trial: IdleTrial::default(),
            verbs: None,
            ports: vec![port(1), port(2)],
        };
        let mut devices = Devices::for_test();
        devices.devices.insert(7, device);
        devices
    }

    #[test]
    fn a_device_is_known_again_by_its_uverbs_file_whatever_its_name() {
        let mut devices = devices();
        let listed = |uverbs: &str, node_guid, name: &str| Listed {
            uverbs: uverbs.to_owned(),
            name: name.to_owned(),
            node_guid,
        };
        let known = |devices: &Devices, listed| devices.known(&listed);
        assert_eq!(known(&devices, listed("uverbs0", GUID, "mlx5_0")), Some(7));
        assert_eq!(known(&devices, listed("uverbs0", GUID, "ibp1s0")), Some(7));
        let another = listed("uverbs0", Guid(0x12), "mlx5_0");
        assert_eq!(known(&devices, another), None, "its number was given away");
        let twin = listed("uverbs1", GUID, "mlx5_0");
        assert_eq!(known(&devices, twin), None, "names were exchanged");

        assert!(devices.rename(7, "mlx5_0").is_empty());
        let ports = devices.rename(7, "ibp1s0");
        assert_eq!(ports, keys(7, 2));
        assert!(devices.by_name("mlx5_0").is_none());
        assert_eq!(devices.by_name("ibp1s0").map(|(key, _)| *key), Some(7));
    }

    #[test]
    fn what_cannot_be_opened_is_kept_with_the_reason_and_is_news_once() {
        let mut devices = devices();
        let unopened = |device: &str, why: &str, infiniband| {
            BTreeMap::from([(device.to_owned(), Unopened::new(why, infiniband))])
        };
        assert!(devices.take_unopened(unopened("mlx5_1", "busy", true)));
        assert!(!devices.take_unopened(unopened("mlx5_1", "busy", true)));
        assert!(!devices.take_unopened(unopened("mlx5_1", "not permitted", true)));
        assert_eq!(devices.unopened()["mlx5_1"].why, "not permitted");
        let roce = unopened("rxe0", "not permitted", false);
        assert!(
            !devices.take_unopened(roce),
            "nothing could be protected there"
        );
        assert!(!devices.take_unopened(BTreeMap::new()));
        assert!(devices.unopened().is_empty());
    }
}
