// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue pairs on which the ACM services of hosts ask each other, in verbs contexts of the
//! thread's own.

use std::collections::BTreeMap;
use std::io;

use acm::net::{Datagram, PortPartition};
use cm_msgs::acm::resolve::QKEY;
use cm_msgs::{Guid, Qpn};
use mio::Registry;
use statemachine::PortId;

use super::token::Token;
use crate::io::ud_qp::{Setup, UdQp};
use crate::io::verbs::Device;
use crate::io::watched;

/// Datagrams that a queue pair takes in before somebody looks: a burst of many hosts.
const RECEIVES: u16 = 512;
/// Datagrams under way at the same time.
const SENDS: u16 = 64;

#[derive(Debug)]
pub(super) struct QueuePairs {
    registry: Registry,
    /// By a number that is used once, which the token carries.
    pairs: BTreeMap<u32, (PortPartition, UdQp)>,
    devices: BTreeMap<u32, Device>,
    next_key: u32,
}

impl QueuePairs {
    pub(super) fn new(registry: Registry) -> Self {
        Self {
            registry,
            pairs: BTreeMap::new(),
            devices: BTreeMap::new(),
            next_key: 0,
        }
    }

    /// Makes the queue pair of an endpoint on the device called `device`.
    pub(super) fn open(
        &mut self,
        device: &str,
        endpoint: PortPartition,
        pkey_index: u16,
    ) -> io::Result<Qpn> {
        let setup = Setup {
            port: endpoint.port.port,
            pkey_index,
            qkey: QKEY,
            receives: RECEIVES,
            sends: SENDS,
        };
        let qp = UdQp::open(self.device(device, endpoint.port.node_guid)?, setup)?;
        let key = self.key();
        let qp = watched(qp, &self.registry, Token::QueuePair(key))?;
        let qpn = qp.qpn();
        self.pairs.insert(key, (endpoint, qp));
        Ok(qpn)
    }

    fn device(&mut self, name: &str, guid: Guid) -> io::Result<&Device> {
        let opened = self.devices.iter();
        let mut opened = opened.filter(|(_, device)| device.node_guid == guid);
        let key = match opened.next() {
            Some((key, _)) => *key,
            None => {
                let device = Device::open(|listed| listed.name == name)?;
                let key = self.key();
                let device = watched(device, &self.registry, Token::Device(key))?;
                self.devices.insert(key, device);
                key
            }
        };
        self.devices
            .get(&key)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn key(&mut self) -> u32 {
        self.next_key += 1;
        self.next_key
    }

    /// Takes a device's events, which the kernel would keep otherwise. Changes of ports come from
    /// the failover loop.
    pub(super) fn take_events(&mut self, key: u32) {
        let Some(device) = self.devices.get(&key) else {
            return;
        };
        loop {
            match device.next_event() {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(node_guid = %device.node_guid, %error, "no more events");
                    self.devices.remove(&key);
                    return;
                }
            }
        }
    }

    /// The endpoints on a port that have a queue pair.
    pub(super) fn on(&self, port: PortId) -> Vec<PortPartition> {
        let endpoints = self.pairs.values().map(|(endpoint, _)| *endpoint);
        endpoints.filter(|endpoint| endpoint.port == port).collect()
    }

    pub(super) fn close(&mut self, endpoint: PortPartition) {
        self.pairs.retain(|_, (id, _)| *id != endpoint);
    }

    /// Closes the devices that are not among these.
    pub(super) fn keep_devices(&mut self, present: impl Fn(Guid) -> bool) {
        self.devices.retain(|_, device| present(device.node_guid));
    }

    /// Does something with the queue pair of an endpoint, if it has one.
    pub(super) fn with(
        &mut self,
        endpoint: PortPartition,
        act: impl FnOnce(&mut UdQp) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut pairs = self.pairs.values_mut();
        let pair = pairs.find_map(|(id, qp)| (*id == endpoint).then_some(qp));
        pair.map_or(Ok(()), act)
    }

    pub(super) fn endpoint(&self, key: u32) -> Option<PortPartition> {
        self.pairs.get(&key).map(|(endpoint, _)| *endpoint)
    }

    /// What came in next; `None` when there is nothing for now.
    pub(super) fn receive(&mut self, key: u32) -> io::Result<Option<Datagram>> {
        match self.pairs.get_mut(&key) {
            Some((_, qp)) => qp.receive(),
            None => Ok(None),
        }
    }
}
