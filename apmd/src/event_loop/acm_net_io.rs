// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACM between hosts: queue pairs, joins, questions and answers.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;

use cm_msgs::Qpn;
use cm_msgs::acm::resolve::QKEY;
use cm_msgs::sa::{McMemberRecord, SaMad, SaStatus};
use mio::Registry;
use mio::unix::SourceFd;
use mio::{Interest, Token as MioToken};
use statemachine::{PortId, Time};

use super::token::{PortKey, Token};
use super::{Daemon, TURN};
use crate::acm::net::{Net, Output, PortPartition, Settings, UpPort};
use crate::io::ud_qp::{Datagram, Setup, UdQp, Way};
use crate::io::verbs::Device;
use crate::log_limit::Nuisance;
use crate::observe::acm::{Multicast, show_multicast};
use crate::sa::{Ask, Failure, Response, User};

/// Datagrams that a queue pair takes in before somebody looks: a burst of many hosts.
const RECEIVES: u16 = 512;
/// Datagrams under way at the same time.
const SENDS: u16 = 64;

/// The resolver and its queue pairs.
#[derive(Debug)]
pub(super) struct AcmNet {
    pub(super) net: Net,
    /// By a number that is used once, which the loop's token carries.
    pairs: BTreeMap<u32, (PortPartition, UdQp)>,
    next_pair: u32,
}

impl AcmNet {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            net: Net::new(Settings::default(), seed),
            pairs: BTreeMap::new(),
            next_pair: 0,
        }
    }

    fn pair(&mut self, endpoint: PortPartition) -> Option<(u32, &mut UdQp)> {
        let mut pairs = self.pairs.iter_mut();
        pairs.find_map(|(key, (id, qp))| (*id == endpoint).then_some((*key, qp)))
    }

    fn open(
        &mut self,
        device: &Device,
        endpoint: PortPartition,
        pkey_index: u16,
        registry: &Registry,
    ) -> io::Result<Qpn> {
        let setup = Setup {
            port: endpoint.port.port,
            pkey_index,
            qkey: QKEY,
            receives: RECEIVES,
            sends: SENDS,
        };
        let qp = UdQp::open(device, setup)?;
        let token: MioToken = Token::AcmNet(self.next_pair).into();
        registry.register(&mut SourceFd(&qp.as_raw_fd()), token, Interest::READABLE)?;
        let qpn = qp.qpn();
        self.pairs.insert(self.next_pair, (endpoint, qp));
        self.next_pair += 1;
        Ok(qpn)
    }

    fn close(&mut self, endpoint: PortPartition) {
        self.pairs.retain(|_, (id, _)| *id != endpoint);
    }

    fn send(
        &mut self,
        endpoint: PortPartition,
        way: &Way,
        qpn: Qpn,
        bytes: &[u8],
    ) -> io::Result<()> {
        match self.pair(endpoint) {
            Some((_, qp)) => qp.send(way, qpn, bytes),
            None => Ok(()),
        }
    }

    /// The queue pair can no longer be used.
    fn broken(&mut self, now: Time, endpoint: PortPartition) {
        self.close(endpoint);
        self.net.handle_broken(now, endpoint);
    }
}

impl Daemon {
    /// Asks and answers where ACM is served, under all its addresses.
    pub(super) fn acm_net_endpoints(&mut self) {
        let Some(acm) = &self.acm else { return };
        let wanted = self.config.acm_multicast.enabled;
        let named = acm
            .service
            .endpoints()
            .filter(|endpoint| wanted && !endpoint.addresses.is_empty());
        let endpoints: Vec<_> = named
            .map(|endpoint| PortPartition {
                port: endpoint.port,
                pkey: endpoint.pkey,
            })
            .collect();
        self.acm_net.net.set_endpoints(self.clock.now(), &endpoints);
    }

    /// Takes over what the configuration and ibacm's options say.
    pub(super) fn configure_acm_net(&mut self) {
        let config = &self.config.acm_multicast;
        let settings = match &self.acm {
            Some(acm) => acm.files.multicast(config).settings(),
            None => config.settings(),
        };
        self.acm_net.net.set_settings(self.clock.now(), settings);
        self.acm_net_endpoints();
    }

    /// A port is different.
    pub(super) fn acm_net_port(&mut self, key: PortKey) {
        let Some(port) = self.devices.port(key) else {
            return;
        };
        let (id, up) = (port.id, self.up_port(key));
        self.acm_net.net.handle_port(self.clock.now(), id, up);
        self.acm_net_endpoints();
    }

    /// A device has gone, and this port with it.
    pub(super) fn acm_net_port_gone(&mut self, id: PortId) {
        let now = self.clock.now();
        self.acm_net.net.handle_port(now, id, None);
        let gone: Vec<_> = self
            .acm_net
            .pairs
            .values()
            .map(|(endpoint, _)| *endpoint)
            .collect();
        for endpoint in gone.into_iter().filter(|endpoint| endpoint.port == id) {
            self.acm_net.broken(now, endpoint);
        }
    }

    /// The subnet manager wants its clients to register again.
    pub(super) fn acm_net_reregister(&mut self, id: PortId) {
        self.acm_net.net.handle_reregister(self.clock.now(), id);
    }

    fn up_port(&self, key: PortKey) -> Option<UpPort> {
        let port = self.devices.port(key)?;
        let status = port.watch.status()?;
        if !(status.active && status.infiniband && status.sm_lid.is_unicast()) {
            return None;
        }
        Some(UpPort {
            gid: status.gid,
            lid: status.lid,
            sm_lid: status.sm_lid,
            pkeys: port.watch.pkey_table().to_vec(),
            rate: port.watch.rate(),
            mtu: status.mtu,
            subnet_timeout: port.watch.subnet_timeout(),
        })
    }

    /// Time has passed: questions are repeated, and what came in is passed on.
    pub(super) fn acm_net_time(&mut self, now: Time) {
        self.acm_net.net.handle_time(now);
        self.drain_acm();
    }

    /// Does what the resolver wants.
    pub(super) fn drain_acm_net(&mut self) {
        while let Some(output) = self.acm_net.net.poll_output() {
            self.acm_net_output(output);
        }
    }

    fn acm_net_output(&mut self, output: Output) {
        let now = self.clock.now();
        match output {
            Output::Open {
                endpoint,
                pkey_index,
            } => self.acm_net_open(endpoint, pkey_index),
            Output::Close(endpoint) => self.acm_net.close(endpoint),
            Output::Attach {
                endpoint,
                group,
                lid,
            } => {
                let pair = self.acm_net.pair(endpoint);
                let attached = pair.map_or(Ok(()), |(_, qp)| qp.attach(group, lid));
                self.acm_net_done(endpoint, "queue pair not attached to its group", attached);
            }
            Output::Detach {
                endpoint,
                group,
                lid,
            } => {
                if let Some((_, qp)) = self.acm_net.pair(endpoint)
                    && let Err(error) = qp.detach(group, lid)
                {
                    tracing::debug!(%group, %error, "queue pair not detached from its group");
                }
            }
            Output::Join {
                user,
                port,
                membership,
            } => {
                let mad = SaMad::set(0, &membership.record, membership.mask);
                self.ask_join(user, port, mad);
            }
            Output::Leave { port, membership } => {
                let mad = SaMad::delete(0, &membership.record, membership.mask);
                self.ask_join(u32::MAX, port, mad);
            }
            Output::Send {
                endpoint,
                way,
                qpn,
                bytes,
            } => {
                let sent = self.acm_net.send(endpoint, &way, qpn, &*bytes);
                tracing::trace!(lid = %way.lid, %qpn, ?sent, bytes = %Hex(&*bytes), "acm sent");
                // Who asks asks again; a queue pair that is broken says so in its completions. An
                // address that cannot be sent to may be what somebody else made up.
                if let Err(error) = sent
                    && let Some(more) = self.limit.allow(now, Nuisance::SendFailed)
                {
                    tracing::warn!(lid = %way.lid, %qpn, %error, more, "acm: datagram not sent");
                }
            }
            Output::Found(number, result) => {
                if let Some(acm) = self.acm.as_mut() {
                    acm.service.handle_lookup(now, number, result);
                }
            }
        }
    }

    fn acm_net_open(&mut self, endpoint: PortPartition, pkey_index: u16) {
        let now = self.clock.now();
        let Some(device) = self.devices.by_guid(endpoint.port.node_guid) else {
            return self.acm_net.net.handle_broken(now, endpoint);
        };
        let (name, port) = (device.verbs.name.clone(), endpoint.port.port);
        let pkey = endpoint.pkey;
        let registry = self.poll.registry();
        match self
            .acm_net
            .open(&device.verbs, endpoint, pkey_index, registry)
        {
            Ok(qpn) => {
                tracing::info!(device = name, port, %pkey, %qpn, "acm: queue pair made");
                self.acm_net.net.handle_opened(now, endpoint, qpn);
            }
            Err(error) => {
                tracing::warn!(device = name, port, %pkey, %error, "acm: no queue pair");
                self.acm_net.net.handle_broken(now, endpoint);
            }
        }
    }

    fn acm_net_done(&mut self, endpoint: PortPartition, what: &str, result: io::Result<()>) {
        let Err(error) = result else { return };
        let now = self.clock.now();
        if let Some(more) = self.limit.allow(now, Nuisance::SendFailed) {
            tracing::warn!(port = endpoint.port.port, %error, more, "acm: {what}");
        }
        self.acm_net.broken(now, endpoint);
    }

    fn ask_join(&mut self, user: u32, port: PortId, mad: SaMad) {
        self.sa.ask(Ask {
            user: User::Join(user),
            port,
            mad,
            timeout_ms: self.config.sa.timeout_ms,
            tries: self.config.sa.tries,
        });
    }

    /// The SA answered a join.
    pub(super) fn acm_net_joined(&mut self, user: u32, reply: Result<Response, Failure>) {
        let record = reply.and_then(|response| {
            let mut records = response
                .decode::<McMemberRecord>()
                .map_err(Failure::Malformed)?;
            records.next().ok_or(Failure::Status(SaStatus::NoRecords))
        });
        if let Ok(record) = &record {
            let (mgid, mlid) = (record.mgid, record.mlid);
            tracing::info!(%mgid, mlid, "acm: group joined");
        }
        let error = record.as_ref().err().map(ToString::to_string);
        let pause = self
            .acm_net
            .net
            .handle_joined(self.clock.now(), user, record.ok());
        if let Some(pause) = pause {
            tracing::warn!(error, again_in = ?pause, "acm: group not joined");
        }
    }

    /// A queue pair has something to read.
    pub(super) fn acm_net_receive(&mut self, key: u32) {
        for _ in 0..TURN {
            let Some((endpoint, qp)) = self.acm_net.pairs.get_mut(&key) else {
                return;
            };
            let endpoint = *endpoint;
            match qp.receive() {
                Ok(None) => return,
                Ok(Some(datagram)) => self.acm_net_datagram(endpoint, &datagram),
                Err(error) => {
                    return self.acm_net_done(endpoint, "queue pair broken", Err(error));
                }
            }
        }
        self.unread.push(Token::AcmNet(key));
    }

    fn acm_net_datagram(&mut self, endpoint: PortPartition, datagram: &Datagram) {
        let Some(acm) = &self.acm else { return };
        let now = self.clock.now();
        let (lid, qpn) = (datagram.lid, datagram.qpn);
        tracing::trace!(%lid, %qpn, bytes = %Hex(&datagram.payload), "acm received");
        let service = &acm.service;
        let result = self
            .acm_net
            .net
            .handle_datagram(now, endpoint, datagram, |address| {
                service
                    .owner(address)
                    .is_some_and(|owner| owner.port == endpoint.port && owner.pkey == endpoint.pkey)
            });
        if let Err(error) = result
            && let Some(more) = self.limit.allow(now, Nuisance::MalformedMad)
        {
            tracing::warn!(%lid, %qpn, %error, more, "acm: malformed datagram");
        }
    }

    /// The talk with other hosts as operators see it.
    pub(super) fn show_acm_net(&self) -> Multicast {
        show_multicast(&self.acm_net.net, |guid| {
            Some(self.devices.by_guid(guid)?.verbs.name.clone())
        })
    }

    /// Leaves all groups: the daemon ends.
    pub(super) fn end_acm_net(&mut self) {
        self.acm_net.net.set_endpoints(self.clock.now(), &[]);
        self.drain_acm_net();
        self.drain_sa();
    }
}

/// Bytes as hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
