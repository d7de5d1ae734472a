// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's RDMA devices and their ports: opened when they appear, dropped when they go.

use std::collections::BTreeMap;
use std::io;

use cm_msgs::cm;
use cm_msgs::mad::{self, MAD_LEN};
use cm_msgs::smp::{self, Routing, Smp};
use cm_msgs::{Gid, Guid, Lid, sa};
use mio::unix::SourceFd;
use mio::{Interest, Registry};
use statemachine::{PortId, PortStatus};
use std::os::fd::AsRawFd;

use crate::config::Config;
use crate::event_loop::token::{PortKey, Token};
use crate::io::umad::{AgentClass, AgentId, Destination, Umad, UmadName};
use crate::io::{umad, verbs};
use crate::ports::{DeviceFacts, PortWatch};
use crate::sa::SaRequest;

/// How long the port's own management agent may take. It answers in microseconds.
const READ_TIMEOUT_MS: u32 = 1000;

/// The umad file of a port, with what was registered on it.
#[derive(Debug)]
pub struct MadPort {
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
pub enum Agent {
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
        let smp = umad.register(AgentClass {
            qpn: 0,
            mgmt_class: mad::CLASS_SM_DIRECTED_ROUTE,
            class_version: smp::CLASS_VERSION,
            receive: None,
            rmpp: false,
        })?;
        let sa = umad.register(AgentClass {
            qpn: 1,
            mgmt_class: mad::CLASS_SA,
            class_version: sa::CLASS_VERSION,
            receive: None,
            rmpp: true,
        })?;
        let reports = umad.register(AgentClass {
            qpn: 1,
            mgmt_class: mad::CLASS_SA,
            class_version: sa::CLASS_VERSION,
            receive: Some(mad::METHOD_REPORT),
            rmpp: false,
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
        let association = umad.register(AgentClass {
            qpn: 1,
            mgmt_class: class,
            class_version: cm::CLASS_VERSION,
            receive: Some(mad::METHOD_SEND),
            rmpp: false,
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
        let sender = || {
            umad.register(AgentClass {
                qpn: 1,
                mgmt_class: class,
                class_version: cm::CLASS_VERSION,
                receive: None,
                rmpp: false,
            })
        };
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
    pub fn receive(&mut self) -> io::Result<Option<umad::Received>> {
        self.umad.receive()
    }

    /// Whether association MADs can be sent and received.
    pub fn has_association(&self) -> bool {
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
    pub fn agent(&self, id: AgentId) -> Agent {
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
pub struct Port {
    /// The engine's name for it.
    pub id: PortId,
    /// Its umad file, once there is one.
    pub mad: Option<MadPort>,
    /// What is known of it.
    pub watch: PortWatch,
}

/// An opened device.
#[derive(Debug)]
pub struct Device {
    /// Its verbs side.
    pub verbs: verbs::Device,
    /// Its ports, the first is port 1.
    pub ports: Vec<Port>,
}

/// All opened devices.
#[derive(Debug, Default)]
pub struct Devices {
    devices: BTreeMap<u32, Device>,
    next_key: u32,
    next_read: u32,
}

/// Why a MAD was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
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

impl Devices {
    /// Opens what has appeared. The keys of the ports that are new or can send only now.
    pub fn scan(&mut self, config: &Config, registry: &Registry) -> Vec<PortKey> {
        let mut news = Vec::new();
        for name in verbs::list() {
            let known = self
                .devices
                .values()
                .any(|device| device.verbs.name == name);
            if !known && config.wants_device(&name) {
                news.extend(self.open_device(&name, registry));
            }
        }
        for name in umad::list() {
            news.extend(self.open_umad(&name, config.association.class, registry));
        }
        news.sort();
        news.dedup();
        news
    }

    /// Whether something that should be there is not.
    pub fn is_incomplete(&self, config: &Config) -> bool {
        let ports = || self.devices.values().flat_map(|device| &device.ports);
        let open = |name: &String| {
            self.devices
                .values()
                .any(|device| device.verbs.name == *name)
        };
        self.devices.is_empty()
            || !config.devices.iter().all(open)
            || ports().any(|port| port.mad.is_none() && !port.watch.is_foreign())
    }

    fn open_device(&mut self, name: &str, registry: &Registry) -> Vec<PortKey> {
        let device = verbs::Device::open(name).and_then(|device| {
            let token = Token::Verbs(self.next_key).into();
            registry.register(
                &mut SourceFd(&device.as_raw_fd()),
                token,
                Interest::READABLE,
            )?;
            Ok(device)
        });
        let device = match device {
            Ok(device) => device,
            Err(error) => {
                tracing::warn!(device = name, %error, "device not opened");
                return Vec::new();
            }
        };
        let facts = DeviceFacts {
            apm: device.apm,
            ports: device.ports,
        };
        let node_guid = device.node_guid;
        tracing::info!(
            device = name,
            %node_guid,
            ports = facts.ports,
            apm = facts.apm,
            "device opened"
        );
        let key = self.next_key;
        self.next_key += 1;
        let ports = (1..=facts.ports).map(|port| Port {
            id: PortId { node_guid, port },
            mad: None,
            watch: PortWatch::new(facts),
        });
        self.devices.insert(
            key,
            Device {
                ports: ports.collect(),
                verbs: device,
            },
        );
        (1..=facts.ports)
            .map(|port| PortKey { device: key, port })
            .collect()
    }

    fn open_umad(&mut self, name: &UmadName, class: u8, registry: &Registry) -> Option<PortKey> {
        let (device, _) = self
            .devices
            .iter()
            .find(|(_, d)| d.verbs.name == name.device)?;
        let key = PortKey {
            device: *device,
            port: name.port,
        };
        let port = self.port_mut(key).filter(|port| port.mad.is_none())?;
        let opened = MadPort::open(name, class).and_then(|mad| {
            let fd = mad.umad.as_raw_fd();
            registry.register(
                &mut SourceFd(&fd),
                Token::Umad(key).into(),
                Interest::READABLE,
            )?;
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

    /// Drops a device that has gone; its ports.
    pub fn drop_device(&mut self, key: u32) -> Vec<PortId> {
        let Some(device) = self.devices.remove(&key) else {
            return Vec::new();
        };
        tracing::warn!(device = device.verbs.name, "device gone");
        device.ports.iter().map(|port| port.id).collect()
    }

    /// Drops the umad file of a port, which is broken.
    pub fn drop_umad(&mut self, key: PortKey) {
        if let Some(port) = self.port_mut(key) {
            port.mad = None;
            port.watch.look();
        }
    }

    /// A device.
    pub fn device(&self, key: u32) -> Option<&Device> {
        self.devices.get(&key)
    }

    /// A port.
    pub fn port(&self, key: PortKey) -> Option<&Port> {
        let index = usize::from(key.port).checked_sub(1)?;
        self.devices.get(&key.device)?.ports.get(index)
    }

    /// A port.
    pub fn port_mut(&mut self, key: PortKey) -> Option<&mut Port> {
        let index = usize::from(key.port).checked_sub(1)?;
        self.devices.get_mut(&key.device)?.ports.get_mut(index)
    }

    /// The device with this node GUID.
    pub fn by_guid(&self, node_guid: Guid) -> Option<&Device> {
        self.devices
            .values()
            .find(|device| device.verbs.node_guid == node_guid)
    }

    fn by_id(&self, id: PortId) -> Option<&Port> {
        self.by_guid(id.node_guid)?
            .ports
            .iter()
            .find(|port| port.id == id)
    }

    /// What the engine was last told of a port.
    pub fn status(&self, id: PortId) -> Option<&PortStatus> {
        self.by_id(id)?.watch.status()
    }

    /// The port with this GID.
    pub fn by_gid(&self, gid: Gid) -> Option<PortKey> {
        self.keys().find(|key| {
            let status = self.port(*key).and_then(|port| port.watch.status());
            status.is_some_and(|status| status.gid == gid)
        })
    }

    /// All ports.
    pub fn keys(&self) -> impl Iterator<Item = PortKey> {
        self.devices.iter().flat_map(|(key, device)| {
            let key = *key;
            device.ports.iter().map(move |port| PortKey {
                device: key,
                port: port.id.port,
            })
        })
    }

    /// All devices.
    pub fn iter(&self) -> impl Iterator<Item = &Device> {
        self.devices.values()
    }

    /// Sends an association MAD.
    ///
    /// # Errors
    /// The port cannot.
    pub fn send_association(
        &self,
        port: PortId,
        lid: Lid,
        mad: &[u8; MAD_LEN],
    ) -> Result<(), SendError> {
        let port = self.by_id(port).ok_or(SendError::NoPort)?;
        let mad_port = port.mad.as_ref().ok_or(SendError::NoPort)?;
        let to = Destination {
            qpn: 1,
            lid,
            sl: 0,
            pkey_index: port.watch.default_pkey_index(),
            timeout_ms: 0,
        };
        mad_port.send_association(to, mad)
    }

    /// Sends a request to the SA of the port's subnet.
    ///
    /// # Errors
    /// The port cannot.
    pub fn send_sa(&self, request: &SaRequest) -> Result<(), SendError> {
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
            timeout_ms: request.timeout_ms,
        };
        Ok(mad_port.umad.send(mad_port.sa, to, &request.mad)?)
    }

    /// Answers a report that the SA has sent to a port.
    ///
    /// # Errors
    /// The port cannot.
    pub fn answer_report(
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
            timeout_ms: 0,
        };
        Ok(mad_port.umad.send(report.agent, to, answer)?)
    }

    /// Asks a port for its PortInfo if a read is wanted. `Err`: it cannot be asked.
    ///
    /// # Errors
    /// The port cannot.
    pub fn read_port(&mut self, key: PortKey) -> Result<(), SendError> {
        self.next_read = self.next_read.wrapping_add(1);
        let transaction_id = self.next_read;
        let port = self.port_mut(key).ok_or(SendError::NoPort)?;
        if !port.watch.start_read(transaction_id) {
            return Ok(());
        }
        let mad_port = port.mad.as_ref().ok_or(SendError::NoPort)?;
        let smp = Smp::get_port_info(Routing::Directed, transaction_id.into(), key.port);
        let to = Destination {
            qpn: 0,
            lid: Lid::PERMISSIVE,
            sl: 0,
            pkey_index: 0,
            timeout_ms: READ_TIMEOUT_MS,
        };
        Ok(mad_port.umad.send(mad_port.smp, to, &smp.encode())?)
    }
}
