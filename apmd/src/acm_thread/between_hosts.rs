// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACM between hosts: queue pairs, groups and datagrams, as the resolver wants them.

use std::io;

use acm::Arrival;
use acm::net::{Datagram, Output, PortPartition};
use cm_msgs::sa::{McMemberRecord, SaMad, SaStatus};
use paths::sa::{Failure, Response};
use statemachine::Time;

use super::channel::FromThread;
use super::thread::AcmThread;

/// Datagrams taken from a queue pair before others have their turn.
const TURN: usize = 64;

impl AcmThread {
    pub(super) fn output(&mut self, now: Time, output: Output) {
        match output {
            Output::Open {
                endpoint,
                pkey_index,
            } => self.open(now, endpoint, pkey_index),
            Output::Close(endpoint) => self.queue_pairs.close(endpoint),
            Output::Attach {
                endpoint,
                group,
                lid,
            } => {
                let attached = self.queue_pairs.with(endpoint, |qp| qp.attach(group, lid));
                self.check(
                    now,
                    endpoint,
                    "queue pair not attached to its group",
                    attached,
                );
            }
            Output::Detach {
                endpoint,
                group,
                lid,
            } => {
                let detached = self.queue_pairs.with(endpoint, |qp| qp.detach(group, lid));
                if let Err(error) = detached {
                    tracing::debug!(%group, %error, "queue pair not detached from its group");
                }
            }
            Output::Join {
                user,
                port,
                membership,
            } => {
                let mad = Box::new(SaMad::set(0, &membership));
                self.mail.send(FromThread::Join { user, port, mad });
            }
            Output::Leave { port, membership } => {
                let mad = Box::new(SaMad::delete(0, &membership));
                let user = u32::MAX;
                self.mail.send(FromThread::Join { user, port, mad });
            }
            Output::Send {
                endpoint,
                to,
                qpn,
                bytes,
            } => {
                let sent = self
                    .queue_pairs
                    .with(endpoint, |qp| qp.send(&to, qpn, &*bytes));
                tracing::trace!(lid = %to.lid, %qpn, ?sent, bytes = %Hex(&*bytes), "acm sent");
                // Who asks asks again; a queue pair that is broken says so in its completions. An
                // address that cannot be sent to may be what somebody else made up.
                if let Err(error) = sent {
                    tracing::warn!(lid = %to.lid, %qpn, %error, "acm: datagram not sent");
                }
            }
            Output::Resolved(number, result) => self.service.handle_lookup(now, number, result),
            Output::Claimed {
                endpoint,
                address,
                gid,
            } => self.service.handle_claim(now, endpoint.pkey, address, gid),
        }
    }

    /// An address of this host has come to one of its endpoints.
    pub(super) fn announce(&mut self, now: Time, arrival: Arrival) {
        let Arrival {
            address,
            port,
            pkey,
            moved,
        } = arrival;
        if moved {
            tracing::info!(%address, port = port.port, %pkey, "acm: address has moved to another port of this host");
        }
        let endpoint = PortPartition { port, pkey };
        self.net.announce(now, endpoint, address, moved);
    }

    fn open(&mut self, now: Time, endpoint: PortPartition, pkey_index: u16) {
        let (port, pkey) = (endpoint.port.port, endpoint.pkey);
        let Some(local) = self.host.ports.get(&endpoint.port) else {
            return self.net.handle_broken(now, endpoint);
        };
        let device = &local.device;
        match self.queue_pairs.open(device, endpoint, pkey_index) {
            Ok(qpn) => {
                tracing::info!(device, port, %pkey, %qpn, "acm: queue pair made");
                self.net.handle_opened(now, endpoint, qpn);
            }
            Err(error) => {
                tracing::warn!(device, port, %pkey, %error, "acm: no queue pair");
                self.net.handle_broken(now, endpoint);
            }
        }
    }

    fn check(&mut self, now: Time, endpoint: PortPartition, what: &str, result: io::Result<()>) {
        let Err(error) = result else { return };
        tracing::warn!(port = endpoint.port.port, %error, "acm: {what}");
        self.broken(now, endpoint);
    }

    /// The queue pair can no longer be used.
    pub(super) fn broken(&mut self, now: Time, endpoint: PortPartition) {
        self.queue_pairs.close(endpoint);
        self.net.handle_broken(now, endpoint);
    }

    pub(super) fn joined(&mut self, now: Time, user: u32, reply: Result<Response, Failure>) {
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
        let pause = self.net.handle_joined(now, user, record.ok());
        if let Some(pause) = pause {
            tracing::warn!(error, again_in = ?pause, "acm: group not joined");
        }
    }

    /// A queue pair has something to read.
    pub(super) fn receive(&mut self, now: Time, key: u32) {
        let Some(endpoint) = self.queue_pairs.endpoint(key) else {
            return;
        };
        for _ in 0..TURN {
            match self.queue_pairs.receive(key) {
                Ok(None) => return,
                Ok(Some(datagram)) => self.datagram(now, endpoint, &datagram),
                Err(error) => {
                    return self.check(now, endpoint, "queue pair broken", Err(error));
                }
            }
        }
        self.wakeups.unread.push(key);
    }

    fn datagram(&mut self, now: Time, endpoint: PortPartition, datagram: &Datagram) {
        let (lid, qpn) = (datagram.lid, datagram.qpn);
        tracing::trace!(%lid, %qpn, bytes = %Hex(&datagram.payload), "acm received");
        let service = &self.service;
        let mine = |address: &_| {
            service
                .owner(address)
                .is_some_and(|owner| owner.port == endpoint.port && owner.pkey == endpoint.pkey)
        };
        if let Err(error) = self.net.handle_datagram(now, endpoint, datagram, mine) {
            tracing::warn!(%lid, %qpn, %error, "acm: malformed datagram");
        }
    }

    /// The daemon ends.
    pub(super) fn leave_groups(&mut self, now: Time) {
        self.net.set_endpoints(now, &[]);
        self.drain(now);
    }
}

/// Bytes as hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
