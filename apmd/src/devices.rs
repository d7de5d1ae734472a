// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's RDMA devices and their ports: opened when they appear, dropped when they go.

mod idle_trial;
mod opening;
mod unopened;

pub(crate) use unopened::Unopened;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use cm_msgs::cm;
use cm_msgs::mad::{self, MAD_LEN};
use cm_msgs::smp::{self, Routing, Smp};
use cm_msgs::{Gid, Guid, Lid, sa};
use mio::Waker;
use statemachine::{MadWay, PortId, Random};

use crate::config::Config;
use crate::io::umad::{AgentClass, AgentId, Destination, Umad, UmadName};
use crate::io::{umad, verbs};
use crate::port_watch::PortWatch;
use crate::token::PortKey;
use idle_trial::{IdleTrial, UnderWay};
use paths::sa::SaRequest;

/// How long the port's own management agent may take. It answers in microseconds.
const READ_TIMEOUT_MS: u32 = 1000;

/// The umad file of a port, with what was registered on it.
#[derive(Debug)]
pub(crate) struct MadPort {
    umad: Umad,
    association: Option<AgentId>,
    /// Further senders of association MADs. umad refuses a MAD while one of the same agent, class
    /// and transaction is still on its way out, such as a REP right behind its MRA.
    senders: [AgentId; 3],
    sa: AgentId,
    /// Receives what the SA reports, unless somebody else on this port does.
    reports: Option<AgentId>,
    smp: AgentId,
}

/// What one of our agents received or got back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Agent {
    /// The association's.
    Association,
    /// Queries to the SA.
    Sa,
    /// Reports of the SA.
    Reports,
    /// Reads of PortInfo.
    Smp,
}

impl MadPort {
    fn open(name: &UmadName, class: u8) -> io::Result<Self> {
        let umad = Umad::open(&name.path)?;
        let (sa_class, sa_version) = (mad::CLASS_SA, sa::CLASS_VERSION);
        let directed = mad::CLASS_SM_DIRECTED_ROUTE;
        let smp = umad.register(AgentClass::sender(0, directed, smp::CLASS_VERSION))?;
        let sa = umad.register(AgentClass {
            rmpp: true,
            ..AgentClass::sender(1, sa_class, sa_version)
        })?;
        let reports = umad.register(AgentClass {
            receive: &[mad::METHOD_REPORT],
            ..AgentClass::sender(1, sa_class, sa_version)
        });
        let reports = reports
            .inspect_err(|error| {
                tracing::warn!(
                    device = name.device,
                    port = name.port,
                    %error,
                    "no reports of subnet administration: does another program (srp_daemon) \
                     receive them on this port?"
                );
            })
            .ok();
        let of_association = AgentClass::sender(1, class, cm::CLASS_VERSION);
        let association = umad.register(AgentClass {
            receive: &[mad::METHOD_SEND, mad::METHOD_GET],
            ..of_association
        });
        let association = association
            .inspect_err(|error| {
                tracing::error!(
                    device = name.device,
                    port = name.port,
                    %error,
                    "management class {class:#04x} cannot be registered: in use on this port? \
                     set association.class to another on all hosts"
                );
            })
            .ok();
        let sender = || umad.register(of_association);
        let senders = [sender()?, sender()?, sender()?];
        Ok(Self {
            umad,
            association,
            senders,
            sa,
            reports,
            smp,
        })
    }

    /// Reads what came in.
    ///
    /// # Errors
    /// The port has gone.
    pub(crate) fn receive(&mut self) -> io::Result<Option<umad::Received>> {
        self.umad.receive()
    }

    /// Whether association MADs can be sent and received.
    pub(crate) fn has_association(&self) -> bool {
        self.association.is_some()
    }

    /// Sends an association MAD by the first agent that takes it.
    fn send_association(&self, to: Destination, mad: &[u8; MAD_LEN]) -> Result<(), SendError> {
        let first = self.association.ok_or(SendError::NoPort)?;
        let mut result = self.umad.send(first, to, mad);
        for sender in self.senders {
            match &result {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    result = self.umad.send(sender, to, mad);
                }
                _ => break,
            }
        }
        Ok(result?)
    }

    /// Which of our agents `id` is.
    pub(crate) fn agent(&self, id: AgentId) -> Agent {
        if id == self.sa {
            Agent::Sa
        } else if Some(id) == self.reports {
            Agent::Reports
        } else if id == self.smp {
            Agent::Smp
        } else {
            Agent::Association
        }
    }
}

/// A port of an opened device.
#[derive(Debug)]
pub(crate) struct Port {
    /// The engine's name for it.
    pub(crate) id: PortId,
    /// Its umad file, once there is one.
    pub(crate) mad: Option<MadPort>,
    /// What is known of it.
    pub(crate) watch: PortWatch,
}

/// A device that is managed.
#[derive(Debug)]
pub(crate) struct Device {
    /// Its uverbs file, by which it is known again when it has another name.
    uverbs: String,
    /// Its name.
    pub(crate) name: String,
    /// Its node GUID.
    pub(crate) node_guid: Guid,
    /// It claims automatic path migration.
    pub(crate) apm: bool,
    /// Whether it can move idle connections.
    pub(crate) idle_trial: IdleTrial,
    /// Its verbs side. Closed where no port is InfiniBand: some drivers of such devices (rdma_rxe, siw) have whoever
    /// removes a device wait until nobody has it open.
    pub(crate) verbs: Option<verbs::Device>,
    /// Its ports, the first is port 1.
    pub(crate) ports: Vec<Port>,
}

/// Which devices are managed, and how.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// By name; none: all.
    names: Vec<String>,
    /// Management class of association MADs.
    pub(crate) class: u8,
}

impl From<&Config> for Settings {
    fn from(config: &Config) -> Self {
        Self {
            names: config.devices.clone(),
            class: config.association.class,
        }
    }
}

impl Settings {
    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

/// All opened devices.
#[derive(Debug)]
pub(crate) struct Devices {
    devices: BTreeMap<u32, Device>,
    /// Those that could not be opened, by name.
    unopened: BTreeMap<String, Unopened>,
    next_key: u32,
    /// Transaction IDs of reads.
    random: Random,
    /// For the threads on which devices are tried.
    waker: Arc<Waker>,
    trials: UnderWay,
}

/// What else a MAD of the association's class may want of its sending.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sending {
    pub(crate) way: MadWay,
    /// How long the kernel lets an answer through; 0: none is expected.
    pub(crate) timeout_ms: u32,
}

/// Why a MAD was not sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The port has gone or carries no MADs.
    #[error("the port cannot send")]
    NoPort,
    /// The SM has not yet given the port what it needs.
    #[error("the port knows no subnet manager")]
    NoSm,
    /// The system says no.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl SendError {
    /// Whether the same may go out a little later.
    pub(crate) fn is_for_want_of_memory(&self) -> bool {
        let Self::Io(error) = self else { return false };
        matches!(
            error.raw_os_error(),
            Some(libc::ENOMEM | libc::ENOBUFS | libc::EAGAIN)
        )
    }
}

impl Devices {
    /// None; `random` makes the transaction IDs of reads, `waker` tells of [`Self::handle_threads`].
    pub(crate) fn new(random: Random, waker: Arc<Waker>) -> Self {
        Self {
            devices: BTreeMap::new(),
            unopened: BTreeMap::new(),
            next_key: 0,
            random,
            waker,
            trials: UnderWay::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn for_test() -> Self {
        let poll = mio::Poll::new().expect("epoll");
        let waker = Waker::new(poll.registry(), mio::Token(0)).expect("eventfd");
        Self::new(Random::new([1; 32]), Arc::new(waker))
    }

    /// A trial may be done: the ports of which the status is different.
    pub(crate) fn handle_threads(&mut self) -> Vec<PortKey> {
        let mut changed = Vec::new();
        for (&key, device) in &mut self.devices {
            if device.idle_trial.poll() {
                let ports = device.ports.iter_mut();
                let told =
                    ports.filter_map(|port| port.watch.set_moves_idle().then_some(port.id.port));
                changed.extend(told.map(|port| PortKey { device: key, port }));
            }
        }
        changed
    }

    /// Drops a device that has gone; its ports.
    pub(crate) fn drop_device(&mut self, key: u32) -> Vec<PortId> {
        let Some(device) = self.devices.remove(&key) else {
            return Vec::new();
        };
        tracing::warn!(device = device.name, "device gone");
        device.ports.iter().map(|port| port.id).collect()
    }

    /// Whether a device that is not open has gone, or is another than it was: nobody tells of that.
    pub(crate) fn has_changed(&self, key: u32) -> bool {
        self.devices.get(&key).is_some_and(|device| {
            let count = device.ports.len() as u8;
            device.verbs.is_none()
                && !verbs::is_still_foreign(&device.name, device.node_guid, count)
        })
    }

    /// Drops the umad file of a port, which is broken.
    pub(crate) fn drop_umad(&mut self, key: PortKey) {
        if let Some(port) = self.port_mut(key) {
            port.mad = None;
            port.watch.look();
        }
    }

    /// A device.
    pub(crate) fn device(&self, key: u32) -> Option<&Device> {
        self.devices.get(&key)
    }

    /// A port.
    pub(crate) fn port(&self, key: PortKey) -> Option<&Port> {
        let index = usize::from(key.port).checked_sub(1)?;
        self.devices.get(&key.device)?.ports.get(index)
    }

    /// A port.
    pub(crate) fn port_mut(&mut self, key: PortKey) -> Option<&mut Port> {
        let index = usize::from(key.port).checked_sub(1)?;
        self.devices.get_mut(&key.device)?.ports.get_mut(index)
    }

    /// The device of this name, with its key.
    pub(crate) fn by_name(&self, name: &str) -> Option<(&u32, &Device)> {
        let mut devices = self.devices.iter();
        devices.find(|(_, device)| device.name == name)
    }

    /// The device with this node GUID.
    pub(crate) fn by_guid(&self, node_guid: Guid) -> Option<&Device> {
        self.devices
            .values()
            .find(|device| device.node_guid == node_guid)
    }

    pub(crate) fn by_id(&self, id: PortId) -> Option<&Port> {
        self.by_guid(id.node_guid)?
            .ports
            .iter()
            .find(|port| port.id == id)
    }

    /// Where the port is kept.
    pub(crate) fn key_of(&self, id: PortId) -> Option<PortKey> {
        self.keys()
            .find(|key| self.port(*key).is_some_and(|port| port.id == id))
    }

    /// The port with this GID.
    pub(crate) fn by_gid(&self, gid: Gid) -> Option<PortKey> {
        self.keys().find(|key| {
            let status = self.port(*key).and_then(|port| port.watch.status());
            status.is_some_and(|status| status.gid == gid)
        })
    }

    /// All ports.
    pub(crate) fn keys(&self) -> impl Iterator<Item = PortKey> {
        self.devices.iter().flat_map(|(key, device)| {
            let key = *key;
            device.ports.iter().map(move |port| PortKey {
                device: key,
                port: port.id.port,
            })
        })
    }

    /// Devices that are there and could not be opened, by name.
    pub(crate) fn unopened(&self) -> &BTreeMap<String, Unopened> {
        &self.unopened
    }

    /// All devices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Device> {
        self.devices.values()
    }

    /// Sends an association MAD.
    ///
    /// # Errors
    /// The port cannot.
    pub(crate) fn send_association(
        &self,
        port: PortId,
        lid: Lid,
        how: Sending,
        mad: &[u8; MAD_LEN],
    ) -> Result<(), SendError> {
        let port = self.by_id(port).ok_or(SendError::NoPort)?;
        let mad_port = port.mad.as_ref().ok_or(SendError::NoPort)?;
        let to = Destination {
            qpn: 1,
            lid,
            sl: how.way.sl,
            pkey_index: how
                .way
                .pkey_index
                .unwrap_or_else(|| port.watch.default_pkey_index()),
            path_bits: how.way.path_bits,
            timeout_ms: how.timeout_ms,
        };
        mad_port.send_association(to, mad)
    }

    /// Sends a request to the SA of the port's subnet.
    ///
    /// # Errors
    /// The port cannot.
    pub(crate) fn send_sa(&self, request: &SaRequest) -> Result<(), SendError> {
        let port = self.by_id(request.port).ok_or(SendError::NoPort)?;
        let mad_port = port.mad.as_ref().ok_or(SendError::NoPort)?;
        let sm_lid = port
            .watch
            .status()
            .map(|status| status.sm_lid)
            .unwrap_or_default();
        if !sm_lid.is_unicast() {
            return Err(SendError::NoSm);
        }
        let to = Destination {
            qpn: 1,
            lid: sm_lid,
            sl: port.watch.sm_sl(),
            pkey_index: port.watch.default_pkey_index(),
            path_bits: 0,
            timeout_ms: request.timeout_ms,
        };
        Ok(mad_port.umad.send(mad_port.sa, to, &request.mad)?)
    }

    /// Answers a report that the SA has sent to a port.
    ///
    /// # Errors
    /// The port cannot.
    pub(crate) fn answer_report(
        &self,
        key: PortKey,
        report: &umad::Incoming,
        answer: &[u8; MAD_LEN],
    ) -> Result<(), SendError> {
        let port = self.port(key).ok_or(SendError::NoPort)?;
        let mad_port = port.mad.as_ref().ok_or(SendError::NoPort)?;
        let to = Destination {
            qpn: report.qpn,
            lid: report.lid,
            sl: port.watch.sm_sl(),
            pkey_index: port.watch.default_pkey_index(),
            ..Destination::default()
        };
        Ok(mad_port.umad.send(report.agent, to, answer)?)
    }

    /// Asks a port for its PortInfo if a read is wanted. `Err`: it cannot be asked.
    ///
    /// # Errors
    /// The port cannot.
    pub(crate) fn read_port(&mut self, key: PortKey) -> Result<(), SendError> {
        let transaction_id = self.new_transaction_id();
        let port = self.port_mut(key).ok_or(SendError::NoPort)?;
        if !port.watch.start_read(transaction_id) {
            return Ok(());
        }
        let mad_port = port.mad.as_ref().ok_or(SendError::NoPort)?;
        let smp = Smp::get_port_info(Routing::Directed, transaction_id.into(), key.port);
        let to = Destination {
            qpn: 0,
            lid: Lid::PERMISSIVE,
            timeout_ms: READ_TIMEOUT_MS,
            ..Destination::default()
        };
        Ok(mad_port.umad.send(mad_port.smp, to, &smp.encode())?)
    }

    fn new_transaction_id(&mut self) -> u32 {
        loop {
            let drawn = self.random.nonzero_u32();
            let ports = self.devices.values().flat_map(|device| &device.ports);
            if !ports.into_iter().any(|port| port.watch.is_reading(drawn)) {
                return drawn;
            }
        }
    }
}
