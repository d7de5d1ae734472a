// SPDX-License-Identifier: MIT OR Apache-2.0
//! Service records (IBA 15.2.5.14): by these the daemons of a subnet find each other before anybody
//! connects. Each registers its ports, and reads once who else is there. No I/O here.

use std::collections::BTreeSet;
use std::time::Duration;

use cm_msgs::sa::{NodeDescription, Record, SaMad, ServiceRecord, Template};
use cm_msgs::{Gid, Lid, PKey};
use statemachine::{Backoff, FarPort, PortId, Random, SERVICE_ID, Time};

use super::stage::Stage;
use super::{Ask, Failure, Response, User};

/// Wait for the answer to the first copy of a registration, and for a whole table.
const TIMEOUT_MS: u32 = 500;
const TABLE_TIMEOUT_MS: u32 = 10_000;
/// Copies of each before it is left alone for a while.
const TRIES: u8 = 4;
const TABLE_TRIES: u8 = 2;
/// First pause before what failed is tried again; doubles with every failure.
const PAUSE_FIRST: Duration = Duration::from_secs(2);
/// The longest such pause: there are subnets whose SA refuses for ever.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// How long a record outlives a daemon that did not take it away.
const LEASE: Duration = Duration::from_secs(3600);
/// Three attempts fit into a lease.
const RENEWED_AFTER: Duration = Duration::from_secs(1200);
/// Not all hosts at the same time.
const JITTER_PERCENT: u8 = 20;

/// When the subnet manager has changed all hosts register anew at once, and read the tables, of which
/// each is as long as there are ports, within this time.
const TABLE_WITHIN_MS: u32 = 30_000;

/// Ports that are taken from one table.
const FOUND_MAX: usize = 4096;

const NAME: &[u8] = b"apmd";
/// Of what the data mean; later ones only add to it.
const VERSION: u8 = 1;

/// A port at which a daemon answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Service {
    /// The port.
    pub gid: Gid,
    /// Its base LID.
    pub lid: Lid,
    /// It has 2^n LIDs.
    pub lmc: u8,
    /// Of the partition that it is asked in.
    pub pkey: PKey,
}

impl Service {
    fn named(&self) -> Template<ServiceRecord> {
        let any = ServiceRecord::any().service_id(SERVICE_ID);
        any.service_gid(self.gid).service_pkey(self.pkey)
    }

    fn record(&self) -> Template<ServiceRecord> {
        let mut name = NodeDescription::default();
        name.0[..NAME.len()].copy_from_slice(NAME);
        let (mut data8, mut data16) = ([0; 16], [0; 16]);
        data8[..2].copy_from_slice(&[VERSION, self.lmc]);
        data16[..2].copy_from_slice(&self.lid.0.to_be_bytes());
        let named = self.named().service_lease(LEASE.as_secs() as u32);
        let named = named.service_name(name);
        named.service_data8(data8).service_data16(data16)
    }

    /// What a record says, which anybody may have registered.
    fn of(record: &ServiceRecord) -> Option<Self> {
        let [version, lmc, ..] = record.service_data8;
        let [high, low, ..] = record.service_data16;
        let lid = Lid(u16::from_be_bytes([high, low]));
        let is_ours = record.service_id == SERVICE_ID && version >= VERSION;
        (is_ours && lid.is_unicast()).then_some(Self {
            gid: record.service_gid,
            lid,
            lmc,
            pkey: record.service_pkey,
        })
    }
}

#[derive(Debug)]
struct Registration {
    port: PortId,
    /// What is to be registered; `None` while the port cannot ask.
    service: Option<Service>,
    /// What the SA has or may have.
    held: Option<Service>,
    stage: Stage,
    /// The SA has it, so that whoever registers later reads of this port.
    is_registered: bool,
    table: Stage,
    backoff: Backoff,
}

impl Registration {
    /// The SA may not have it, and has others that this one has not read of.
    fn begin(&mut self) {
        self.stage = Stage::Due;
        self.table = Stage::Due;
        self.is_registered = false;
        self.backoff.reset();
    }

    /// When to ask, and not what for: a table is of use to who is registered.
    fn due(&self) -> Option<Time> {
        self.service?;
        let table = self.table.due().filter(|_| self.is_registered);
        self.stage.due().into_iter().chain(table).min()
    }
}

/// Registrations of local ports, kept through changes of the subnet manager, and who else is registered.
#[derive(Debug)]
pub struct Services {
    /// Whether anybody wants to find and to be found.
    wanted: bool,
    registrations: Vec<Registration>,
    /// To be taken away, by which port.
    obsolete: Vec<(PortId, Service)>,
    next_number: u32,
    random: Random,
    found: Vec<FarPort>,
}

impl Services {
    /// Nothing is registered before that is wanted. Times are spread by `random`.
    pub fn new(random: Random) -> Self {
        Self {
            wanted: false,
            registrations: Vec::new(),
            obsolete: Vec::new(),
            next_number: 0,
            random,
            found: Vec::new(),
        }
    }

    /// Whether daemons are to find each other. What is registered is taken away otherwise.
    pub fn set_wanted(&mut self, wanted: bool) {
        if std::mem::replace(&mut self.wanted, wanted) == wanted {
            return;
        }
        for registration in &mut self.registrations {
            let held = registration.held.take();
            self.obsolete
                .extend(held.map(|held| (registration.port, held)));
            registration.begin();
        }
    }

    /// What is to be registered of a port; `None` while it cannot ask.
    pub fn handle_port(&mut self, port: PortId, service: Option<Service>) {
        let mut registrations = self.registrations.iter_mut();
        let Some(known) = registrations.find(|known| known.port == port) else {
            self.registrations.push(Registration {
                port,
                service,
                held: None,
                stage: Stage::Due,
                is_registered: false,
                table: Stage::Due,
                backoff: Backoff::new(PAUSE_FIRST, PAUSE_MAX),
            });
            return;
        };
        if known.service == service {
            return;
        }
        known.service = service;
        let Some(service) = service else {
            return;
        };
        let is_other = |held: &mut Service| (held.gid, held.pkey) != (service.gid, service.pkey);
        if let Some(held) = known.held.take_if(is_other) {
            self.obsolete.push((port, held));
        }
        known.begin();
    }

    /// A port has gone, and cannot ask for anything any more. The lease will end.
    pub fn handle_port_gone(&mut self, port: PortId) {
        self.registrations.retain(|known| known.port != port);
        self.obsolete.retain(|(by, _)| *by != port);
    }

    /// The port has come up: the SA may have forgotten it, or given it another LID.
    pub fn handle_port_up(&mut self, port: PortId) {
        if let Some(known) = self.registrations.iter_mut().find(|it| it.port == port) {
            known.begin();
        }
    }

    /// Another subnet manager, or the same anew: its records are gone, all hosts'.
    pub fn handle_sm_changed(&mut self, now: Time, port: PortId) {
        let Some(known) = self.registrations.iter_mut().find(|it| it.port == port) else {
            return;
        };
        let had_read = matches!(known.table, Stage::Done | Stage::Until(_));
        known.begin();
        if had_read {
            let after = Duration::from_millis(self.random.below(TABLE_WITHIN_MS).into());
            known.table = Stage::Until(now + after);
        }
    }

    /// The next thing to ask the SA, for [`User::Service`].
    pub fn poll_ask(&mut self) -> Option<Ask> {
        let number = self.next_number;
        let ask = |port, mad, timeout_ms, tries| Ask {
            user: User::Service(number),
            port,
            mad,
            timeout_ms,
            tries,
        };
        let ask = if let Some((port, service)) = self.obsolete.pop() {
            ask(port, SaMad::delete(0, &service.named()), TIMEOUT_MS, TRIES)
        } else {
            let mut all = self.registrations.iter_mut().filter(|_| self.wanted);
            all.find_map(|known| {
                let service = known.service?;
                if known.stage == Stage::Due {
                    known.stage = Stage::Asked(number);
                    known.held = Some(service);
                    let mad = SaMad::set(0, &service.record());
                    return Some(ask(known.port, mad, TIMEOUT_MS, TRIES));
                }
                (known.table == Stage::Due && known.is_registered).then(|| {
                    known.table = Stage::Asked(number);
                    let all = ServiceRecord::any().service_id(SERVICE_ID);
                    let mad = SaMad::get_table(0, &all);
                    ask(known.port, mad, TABLE_TIMEOUT_MS, TABLE_TRIES)
                })
            })?
        };
        self.next_number = number.wrapping_add(1);
        Some(ask)
    }

    /// What came of the request with this number.
    pub fn handle_reply(&mut self, now: Time, number: u32, reply: Result<Response, Failure>) {
        let is_asked =
            |known: &&mut Registration| [known.stage, known.table].contains(&Stage::Asked(number));
        let Some(known) = self.registrations.iter_mut().find(is_asked) else {
            return;
        };
        let port = known.port;
        let is_table = known.table == Stage::Asked(number);
        let read = reply.and_then(|response| match is_table {
            true => services(&response),
            false => Ok(Vec::new()),
        });
        let next = match read {
            Ok(services) if is_table => {
                let records = services.len();
                tracing::debug!(port = port.port, records, "services read");
                let mut seen = BTreeSet::new();
                let others = services.into_iter().filter(|other| {
                    known.service.is_some_and(|own| own.gid != other.gid)
                        && seen.insert(other.lid.0)
                });
                self.found
                    .extend(others.take(FOUND_MAX).map(|other| FarPort {
                        port,
                        lid: other.lid,
                        partition: other.pkey.partition(),
                    }));
                Stage::Done
            }
            Ok(_) => {
                if !known.is_registered {
                    tracing::debug!(port = port.port, "service registered");
                }
                known.is_registered = true;
                Stage::Until(now + self.random.jitter(RENEWED_AFTER, JITTER_PERCENT))
            }
            Err(error) => {
                // It goes on without, and there are subnets where that is so for ever.
                if known.backoff.failures() == 0 {
                    let port = port.port;
                    tracing::debug!(port, is_table, %error, "service not registered, or others not read");
                }
                let pause = known.backoff.next_delay();
                Stage::Until(now + self.random.jitter(pause, JITTER_PERCENT))
            }
        };
        match is_table {
            true => known.table = next,
            false => known.stage = next,
        }
        if known.is_registered && known.table == Stage::Done {
            known.backoff.reset();
        }
    }

    /// Ports at which daemons say that they answer, as anybody may.
    pub fn take_found(&mut self) -> Vec<FarPort> {
        std::mem::take(&mut self.found)
    }

    /// When something is to be asked again.
    pub fn poll_timeout(&self) -> Option<Time> {
        let all = self.registrations.iter().filter(|_| self.wanted);
        all.filter_map(Registration::due).min()
    }

    /// Asks again for what has come due.
    pub fn handle_time(&mut self, now: Time) {
        for known in &mut self.registrations {
            known.stage.handle_time(now);
            known.table.handle_time(now);
        }
    }
}

fn services(response: &Response) -> Result<Vec<Service>, Failure> {
    let records = response.decode::<ServiceRecord>()?;
    Ok(records.filter_map(|record| Service::of(&record)).collect())
}

#[cfg(test)]
mod tests;
