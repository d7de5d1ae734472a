// SPDX-License-Identifier: MIT OR Apache-2.0
//! MADs in and out of the ports.

use std::io::{Error, ErrorKind};
use std::time::Duration;

use cm_msgs::mad::{self, MAD_LEN};
use cm_msgs::smp::Smp;
use cm_msgs::{Lid, PKey, Presence, cm};
use paths::sa::SaRequest;
use statemachine::{
    FarPort, MadSource, MadWay, PortId, PresenceTransmit, Probe, ProbePath, Time, Transmit,
};

use super::intake::Sender;
use super::{Note, Ports, PresenceReceived};
use crate::devices::{Agent, SendError, Sending};
use crate::io::umad::{AgentId, Incoming, Received};
use crate::token::PortKey;

/// How long nothing more is sent by a port for which the kernel had no memory.
const FULL_FOR: Duration = Duration::from_millis(10);

/// How long the kernel lets answers to questions about presence through: longer than anybody waits.
const PRESENCE_TIMEOUT_MS: u32 = 100;

/// And answers to probes: late ones count as well.
const PROBE_TIMEOUT_MS: u32 = 700;

/// What is read from one port before others have their turn.
const READ_TURN: usize = 256;

/// Association MADs that go to the engine before other things have their turn.
const ENGINE_TURN: usize = 64;

impl Ports {
    /// Whether a port takes another association MAD now.
    pub(crate) fn has_room(&self, port: PortId) -> bool {
        !self.full.contains_key(&port)
    }

    pub(crate) fn send_association(&mut self, now: Time, send: &Transmit) {
        let mad = send
            .message
            .encode(self.settings.class, send.transaction_id.into());
        // Not `message`, which is tracing's own field for the text.
        let (port, lid, name) = (send.port.port, send.lid.0, send.message.name());
        tracing::trace!(port, lid, name, transaction = send.transaction_id, "sent");
        let watch = self.devices.by_id(send.port).map(|port| &port.watch);
        let how = Sending {
            way: MadWay {
                path_bits: send.path_bits,
                sl: send.sl,
                pkey_index: watch.and_then(|watch| watch.partition_index(send.pkey)),
            },
            ..Sending::default()
        };
        if how.way.pkey_index.is_none() {
            let pkey = send.pkey;
            tracing::warn!(port, lid, name, %pkey, "not sent: the port is not in that partition");
            self.counters.unsent_mads += 1;
            return;
        }
        let sent = self
            .devices
            .send_association(send.port, send.lid, how, &mad);
        if let Err(error) = sent {
            self.unsent(now, send.port, &error);
            tracing::warn!(port, lid, name, %error, "not sent");
        }
    }

    pub(crate) fn send_presence(&mut self, now: Time, send: &PresenceTransmit) {
        let FarPort {
            port,
            lid,
            partition,
        } = send.to;
        let mad = send
            .message
            .encode(self.settings.class, send.transaction_id);
        let watch = self.devices.by_id(port).map(|port| &port.watch);
        let own_place = || watch?.partition_index(PKey(partition));
        let Some(pkey_index) = send.way.pkey_index.or_else(own_place) else {
            self.counters.unsent_mads += 1;
            tracing::debug!(
                port = port.port,
                lid = lid.0,
                partition,
                "question about presence not sent: the port is not in that partition"
            );
            return;
        };
        let how = Sending {
            way: MadWay {
                pkey_index: Some(pkey_index),
                ..send.way
            },
            timeout_ms: match send.message {
                Presence::Get => PRESENCE_TIMEOUT_MS,
                Presence::Answer { .. } => 0,
            },
        };
        if let Err(error) = self.devices.send_association(port, lid, how, &mad) {
            self.unsent(now, port, &error);
            tracing::debug!(port = port.port, lid = lid.0, %error, "question or answer about presence not sent");
        }
    }

    /// Sends a probe over its path and no other.
    pub(crate) fn send_probe(&mut self, now: Time, probe: &Probe) {
        let ProbePath {
            port, dlid, slid, ..
        } = probe.path;
        let Some(way) = self.way_of(&probe.path) else {
            tracing::debug!(
                port = port.port,
                lid = dlid.0,
                "probe not sent: the port is not so"
            );
            return;
        };
        let how = Sending {
            way,
            timeout_ms: PROBE_TIMEOUT_MS,
        };
        let mad = Presence::Get.encode(self.settings.class, probe.transaction_id.into());
        if let Err(error) = self.devices.send_association(port, dlid, how, &mad) {
            self.unsent(now, port, &error);
            tracing::debug!(port = port.port, slid = slid.0, lid = dlid.0, %error, "probe not sent");
        }
    }

    /// How a probe of this path leaves, if its port has its LID and is in its partition.
    fn way_of(&self, path: &ProbePath) -> Option<MadWay> {
        let watch = &self.devices.by_id(path.port)?.watch;
        let status = watch.status()?;
        let path_bits = path.slid.0.checked_sub(status.lid.0)?;
        Some(MadWay {
            path_bits: u8::try_from(path_bits)
                .ok()
                .filter(|bits| bits >> status.lmc == 0)?,
            sl: path.sl,
            pkey_index: Some(watch.pkey_index(path.pkey)?),
        })
    }

    fn unsent(&mut self, now: Time, port: PortId, error: &SendError) {
        self.counters.unsent_mads += 1;
        if error.is_for_want_of_memory() {
            self.full.insert(port, now + FULL_FOR);
        }
    }

    pub(crate) fn send_sa(&self, request: &SaRequest) -> Result<(), SendError> {
        let sent = self.devices.send_sa(request);
        sent.inspect_err(|error| {
            tracing::debug!(port = request.port.port, %error, "request to the SA not sent");
        })
    }

    pub(crate) fn answer_report(&self, key: PortKey, report: &Incoming, answer: &[u8; MAD_LEN]) {
        if let Err(error) = self.devices.answer_report(key, report, answer) {
            tracing::debug!(port = key.port, %error, "report not answered");
        }
    }

    /// A port's umad file has something to read.
    pub(crate) fn handle_mads(&mut self, now: Time, key: PortKey) {
        for _ in 0..READ_TURN {
            let Some(mad_port) = self
                .devices
                .port_mut(key)
                .and_then(|port| port.mad.as_mut())
            else {
                return;
            };
            match mad_port.receive() {
                Ok(None) => return,
                Ok(Some(Received::Mad(mad))) => self.received(now, key, mad),
                Ok(Some(Received::TimedOut {
                    agent,
                    transaction_id,
                })) => {
                    self.timed_out(now, key, agent, transaction_id);
                }
                Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                    tracing::error!(
                        device = key.device,
                        port = key.port,
                        "transfer longer than 64 MB dropped"
                    );
                    self.drop_umad(key);
                    return self.scan(now);
                }
                Err(error) => return self.lose_umad(now, key, &error),
            }
        }
        self.unread.insert(key);
        let id = self.devices.port(key).map(|port| port.id);
        self.notes.extend(id.map(Note::Crowded));
    }

    fn drop_umad(&mut self, key: PortKey) {
        self.devices.drop_umad(key);
        let id = self.devices.port(key).map(|port| port.id);
        self.notes.extend(id.map(Note::MadsLost));
    }

    fn lose_umad(&mut self, now: Time, key: PortKey, error: &Error) {
        tracing::warn!(device = key.device, port = key.port, %error, "umad lost");
        self.drop_umad(key);
        self.read_port(now, key);
        self.scan.soon(now);
    }

    fn agent(&self, key: PortKey, agent: AgentId) -> Option<Agent> {
        Some(self.devices.port(key)?.mad.as_ref()?.agent(agent))
    }

    fn timed_out(&mut self, now: Time, key: PortKey, agent: AgentId, transaction_id: u32) {
        match self.agent(key, agent) {
            Some(Agent::Sa) => self.notes.push_back(Note::SaTimedOut(transaction_id)),
            Some(Agent::Smp) => {
                let Some(port) = self.devices.port_mut(key) else {
                    return;
                };
                if !port.watch.end_read(transaction_id) {
                    return;
                }
                tracing::warn!(port = key.port, "PortInfo not answered");
                if port.watch.try_again() {
                    self.read_port(now, key);
                } else {
                    self.unreadable(now, key);
                }
            }
            Some(Agent::Association | Agent::Reports) | None => {}
        }
    }

    fn received(&mut self, now: Time, key: PortKey, mad: Box<Incoming>) {
        let (lid, qpn) = (mad.lid.0, mad.qpn);
        let taken = match self.agent(key, mad.agent) {
            Some(Agent::Sa) => {
                self.notes.push_back(Note::SaResponse(mad));
                Ok(())
            }
            Some(Agent::Reports) => self.report(key, mad),
            Some(Agent::Smp) => Smp::decode(&mad.bytes)
                .map(|answer| self.port_read(now, key, &answer))
                .map_err(|error| error.to_string()),
            Some(Agent::Association) => match mad.bytes.get(3) {
                Some(&(mad::METHOD_GET | mad::METHOD_GET_RESP)) => self.presence_mad(key, &mad),
                _ => self.association_mad(key, &mad),
            },
            None => Ok(()),
        };
        let Err(error) = taken else { return };
        self.counters.malformed_mads += 1;
        tracing::warn!(port = key.port, lid, qpn, error, "malformed MAD");
    }

    /// A MAD of method Report came in. Only the subnet manager's count: nobody else may send the
    /// daemon looking.
    fn report(&mut self, key: PortKey, mad: Box<Incoming>) -> Result<(), String> {
        let Some(port) = self.devices.port(key) else {
            return Ok(());
        };
        let sm_lid = port.watch.status().map(|status| status.sm_lid);
        if mad.qpn != 1 || Some(mad.lid) != sm_lid {
            let sm_lid = sm_lid.unwrap_or_default();
            return Err(format!(
                "report from lid {} queue pair {}, the subnet manager is lid {sm_lid}",
                mad.lid, mad.qpn
            ));
        }
        self.notes.push_back(Note::Report(key, port.id, mad));
        Ok(())
    }

    fn presence_mad(&mut self, key: PortKey, mad: &Incoming) -> Result<(), String> {
        let (header, message) = Presence::decode(&mad.bytes).map_err(|error| error.to_string())?;
        if mad.qpn != 1 {
            return Err(format!("from queue pair {}, want 1", mad.qpn));
        }
        let Some(port) = self.devices.port(key) else {
            return Ok(());
        };
        let way = MadWay {
            path_bits: mad.path_bits,
            sl: mad.sl,
            pkey_index: Some(mad.pkey_index),
        };
        let path = port.watch.status().and_then(|status| {
            Some(ProbePath {
                port: port.id,
                slid: Lid(status.lid.0 | u16::from(mad.path_bits)),
                dlid: mad.lid,
                sl: mad.sl,
                pkey: port.watch.pkey_at(mad.pkey_index)?,
            })
        });
        self.notes.push_back(Note::Presence(PresenceReceived {
            from: FarPort {
                port: port.id,
                lid: mad.lid,
                // A key that is gone from the table already is in no partition.
                partition: port
                    .watch
                    .pkey_at(mad.pkey_index)
                    .unwrap_or_default()
                    .partition(),
            },
            way,
            path,
            transaction_id: header.transaction_id,
            message,
        }));
        Ok(())
    }

    fn association_mad(&mut self, key: PortKey, mad: &Incoming) -> Result<(), String> {
        let (header, message) =
            cm::Message::decode(&mad.bytes).map_err(|error| error.to_string())?;
        // Only who may open umad sends from QP1; any user has QPs of his own.
        if mad.qpn != 1 {
            return Err(format!(
                "{} from queue pair {}, want 1",
                message.name(),
                mad.qpn
            ));
        }
        let Some(port) = self.devices.port(key) else {
            return Ok(());
        };
        let transaction_id = header.transaction_id as u32;
        tracing::trace!(
            port = key.port,
            lid = mad.lid.0,
            name = message.name(),
            transaction = transaction_id,
            "received"
        );
        let source = MadSource {
            port: port.id,
            lid: mad.lid,
            qpn: mad.qpn,
            sl: mad.sl,
            path_bits: mad.path_bits,
            // A key that is gone from the table already is in no partition.
            pkey: port.watch.pkey_at(mad.pkey_index).unwrap_or_default(),
            transaction_id,
        };
        let waits = (source, Box::new(message));
        // All LIDs of a port are one sender: with LMC 3 it could send from eight.
        let lmc = port.watch.status().map_or(0, |status| status.lmc);
        if !self.intake.push(Sender::new(port.id, mad.lid, lmc), waits) {
            self.counters.discarded_mads += 1;
            let (port, lid) = (key.port, mad.lid.0);
            tracing::warn!(
                port,
                lid,
                "MADs discarded: this sender floods the port; look at its host"
            );
        }
        Ok(())
    }

    /// Association MADs that it is the time for.
    pub(super) fn take_in(&mut self) {
        let mads = std::iter::from_fn(|| self.intake.pop()).take(ENGINE_TURN);
        let notes = mads.map(|(source, message)| Note::Association(source, message));
        self.notes.extend(notes);
        self.notes.extend(self.intake.ports().map(Note::Crowded));
    }

    /// PortInfo was read.
    fn port_read(&mut self, now: Time, key: PortKey, answer: &Smp) {
        let Some(port) = self.devices.port_mut(key) else {
            return;
        };
        if !port.watch.end_read(answer.header.transaction_id as u32) {
            return;
        }
        let info = match answer.port_info() {
            Ok(info) => info,
            Err(error) => {
                tracing::warn!(port = key.port, %error, "PortInfo not read");
                return self.unreadable(now, key);
            }
        };
        if port.watch.needs_facts(&info) {
            self.refresh_facts(key);
        }
        let Some(port) = self.devices.port_mut(key) else {
            return;
        };
        let before = port.watch.status().map(|old| (old.active, old.sm_lid));
        let status = port.watch.answered(now, &info);
        // Which source was first is counted: it tells an operator what his kernel is worth.
        let suspected = port.watch.end_suspicion();
        let is_up = status.as_ref().map(|status| status.active);
        if is_up == Some(true) && before.is_none_or(|(was_up, _)| !was_up) {
            self.notes.push_back(Note::CameUp(port.id));
        }
        if let Some((was_up, old_sm)) = before {
            if old_sm != info.master_sm_lid {
                self.notes.push_back(Note::SmChanged(port.id));
            }
            if was_up && is_up == Some(false) {
                *match suspected {
                    true => &mut self.counters.losses_by_netlink,
                    false => &mut self.counters.losses_by_check,
                } += 1;
            }
        }
        self.tell(key, status);
        // A source may have spoken while the answer was under way.
        self.read_port(now, key);
    }
}
