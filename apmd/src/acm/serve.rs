// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of clients and of the kernel, and their answers.
//!
//! Answers are byte for byte those of ibacm (`ibacm/src/acm.c`), its omissions included: a RESOLVE
//! answer that the provider gives does not carry the mark of an answer, one that is refused before
//! does. One thing differs on purpose: endpoint N of a PERF query is the Nth of all, as in an EP
//! query, where ibacm takes the number for a port's as well.

use std::net::IpAddr;

use cm_msgs::Gid;
use cm_msgs::acm::{
    Address, Counters, Endpoint as Config, Entry, Flags, Header, Info, Op, Status, text,
};
use cm_msgs::sa::PathRecord;
use statemachine::Time;

use super::cache::{Key, Waiter};
use super::endpoints::{Endpoint, EndpointId};
use super::kernel;
use super::request::Wanted;
use super::service::{Answer, Asker, Service, With};

/// What resolves for an endpoint, as EP queries tell it.
const PROVIDER: &str = "apmd";

/// Finds the local address from which the kernel would send to another.
pub type SourceOf<'a> = dyn FnMut(IpAddr) -> Option<IpAddr> + 'a;

impl Service {
    /// Takes the request `message` of a client, of which `header` is the beginning. The answer is
    /// added to `out`, or comes later from [`Service::poll_answer`].
    pub fn handle_request(
        &mut self,
        now: Time,
        client: u32,
        header: &Header,
        message: &[u8],
        source_of: &mut SourceOf<'_>,
        out: &mut Vec<u8>,
    ) {
        let body = message.get(Header::LEN..).unwrap_or(&[]);
        match header.op {
            Op::Resolve => self.resolve_request(now, client, header, body, source_of, out),
            Op::Perf => self.perf_request(header, body, out),
            Op::Endpoint => self.endpoint_request(header, out),
            Op::Other(_) => out.extend(header.answer(Status::Invalid).encode()),
        }
    }

    fn resolve_request(
        &mut self,
        now: Time,
        client: u32,
        header: &Header,
        body: &[u8],
        source_of: &mut SourceOf<'_>,
        out: &mut Vec<u8>,
    ) {
        self.counters.resolve += 1;
        let start = Wanted::read(body).and_then(|wanted| self.start(wanted, source_of));
        let start = match start {
            Ok(start) => start,
            Err(status) => {
                self.count_failure(None, status);
                out.extend(header.answer(status).encode());
                return;
            }
        };
        let with = start.with;
        let asker = Asker::Client {
            client,
            header: *header,
            with,
        };
        let (to, dgid, no_delay) = match start.goal {
            Goal::Verify(path) => {
                if let Err(status) = self.verify(start.from, asker, path) {
                    self.count_failure(Some(start.from), status);
                    out.extend(refused(header, status).encode());
                }
                return;
            }
            Goal::Resolve { to, dgid, no_delay } => (to, dgid, no_delay),
        };
        if let Some(counters) = self.endpoints.counters(start.from) {
            counters.resolve += 1;
        }
        let key = Key {
            from: start.from,
            to,
        };
        match self.resolve(now, key, no_delay, Waiter { asker, dgid }) {
            Some(Ok(entry)) => {
                self.count(start.from, |counters| &mut counters.route_cache);
                write_path(header, &entry, with, out);
            }
            Some(Err(status)) => {
                self.count_failure(Some(start.from), status);
                out.extend(refused(header, status).encode());
            }
            None => {}
        }
    }

    /// Where a resolution starts, and where it is to lead.
    fn start(&self, wanted: Wanted, source_of: &mut SourceOf<'_>) -> Result<Start, Status> {
        match wanted {
            Wanted::Address {
                source: Some(source),
                destination,
                no_delay,
            } => {
                let from = self.endpoints.owner(&source).ok_or(Status::SourceAddress)?;
                Ok(Start::to(from, destination, no_delay))
            }
            Wanted::Address {
                source: None,
                destination,
                no_delay,
            } => {
                let (from, chosen) = self.choose_source(&destination, source_of)?;
                let start = Start::to(from, destination, no_delay);
                let with = chosen.map_or(With::Nothing, With::Source);
                Ok(Start { with, ..start })
            }
            Wanted::Path { path, no_delay } => self.start_of_path(&path, no_delay),
            Wanted::Verify { path } => {
                let from = self
                    .endpoints
                    .start_of(&path)
                    .ok_or(Status::SourceAddress)?;
                Ok(Start {
                    from: from.id,
                    with: With::Verification,
                    goal: Goal::Verify(path),
                })
            }
        }
    }

    fn start_of_path(&self, path: &PathRecord, no_delay: bool) -> Result<Start, Status> {
        let from = self.endpoints.start_of(path).ok_or(Status::SourceAddress)?;
        let to = match path.dlid.0 {
            0 => Address::Gid(path.dgid),
            _ => Address::Lid(path.dlid),
        };
        let goal = Goal::Resolve {
            to,
            dgid: path.dgid,
            no_delay,
        };
        Ok(Start {
            from: from.id,
            with: With::Nothing,
            goal,
        })
    }

    /// An IP address is reached from where the kernel's routes say; anything else, and what the
    /// kernel has no route to but the file of addresses knows, from the first port that is up.
    fn choose_source(
        &self,
        destination: &Address,
        source_of: &mut SourceOf<'_>,
    ) -> Result<(&Endpoint, Option<Address>), Status> {
        let ip = match destination {
            Address::Ip(ip) => Some(IpAddr::V4(*ip)),
            Address::Ip6(ip) => Some(IpAddr::V6(*ip)),
            _ => None,
        };
        let source = ip.and_then(source_of).map(|source| match source {
            IpAddr::V4(ip) => Address::Ip(ip),
            IpAddr::V6(ip) => Address::Ip6(ip),
        });
        if let Some(source) = source {
            let from = self.endpoints.owner(&source).ok_or(Status::SourceAddress)?;
            return Ok((from, Some(source)));
        }
        let mut endpoints = self.endpoints.listed(None);
        let from = match ip {
            Some(_) => endpoints.find(|from| self.listed(destination, from.pkey).is_some()),
            None => endpoints.next(),
        };
        let from = from.ok_or(Status::SourceAddress)?;
        Ok((from, from.addresses.first().map(|own| own.address)))
    }

    /// A path request of the kernel.
    pub fn handle_kernel(&mut self, now: Time, request: kernel::Request) {
        self.stats.kernel_requests += 1;
        self.counters.resolve += 1;
        let asker = Asker::Kernel(request);
        let start = match request.needs_sa() {
            true => Err(Status::NoData),
            false => self.start_of_path(&request.path, false),
        };
        let result = start.map(|start| (start.from, start.goal));
        let answer = match result {
            Ok((from, Goal::Resolve { to, dgid, no_delay })) => {
                let waiter = Waiter { asker, dgid };
                self.resolve(now, Key { from, to }, no_delay, waiter)
                    .map(|found| (Some(from), found))
            }
            Ok((from, Goal::Verify(_))) => Some((Some(from), Err(Status::Invalid))),
            Err(status) => Some((None, Err(status))),
        };
        let Some((from, found)) = answer else { return };
        match (from, &found) {
            (Some(from), Ok(_)) => self.count(from, |counters| &mut counters.route_cache),
            (from, Err(status)) => self.count_failure(from, *status),
            (None, Ok(_)) => {}
        }
        let result = found.map(|entry| path_of(&entry));
        self.answers.push_back(Answer { asker, result });
    }

    fn perf_request(&self, header: &Header, body: &[u8], out: &mut Vec<u8>) {
        let [_, index, _] = header.data;
        let source = body
            .first_chunk()
            .map(Entry::decode)
            .filter(|entry| entry.flags.contains(Flags::SOURCE));
        let counters = match (index, body.len() >= Entry::LEN, source) {
            (0, false, _) | (_, true, None) => Some(self.counters),
            (0, true, Some(entry)) => self.counters_of(&entry),
            (index, ..) => self.nth(index, None).map(|endpoint| endpoint.counters),
        };
        let Some(counters) = counters else {
            let mut answer = header.answer(Status::SourceAddress);
            answer.data = [0, index, 0];
            out.extend(answer.encode());
            return;
        };
        let answer = Header {
            data: [Counters::COUNT, index, 0],
            length: (Header::LEN + Counters::LEN) as u16,
            ..header.answer(Status::Success)
        };
        out.extend(answer.encode());
        out.extend(counters.encode());
    }

    fn counters_of(&self, entry: &Entry) -> Option<Counters> {
        let Info::Address(address) = entry.info else {
            return None;
        };
        let owner = self.endpoints.owner(&address)?;
        Some(owner.counters)
    }

    /// The endpoint with this number, counted from 1; `port`: among those on ports with this number.
    fn nth(&self, number: u8, port: Option<u8>) -> Option<&Endpoint> {
        let index = usize::from(number).checked_sub(1)?;
        self.endpoints.listed(port).nth(index)
    }

    fn endpoint_request(&self, header: &Header, out: &mut Vec<u8>) {
        let [number, port, _] = header.data;
        let endpoint = self.nth(number, (port != 0).then_some(port));
        let local = endpoint.and_then(|endpoint| self.endpoints.port(endpoint.port));
        let data = [number, 0, 0];
        let Some((endpoint, local)) = endpoint.zip(local) else {
            let answer = header.answer(Status::Invalid);
            out.extend(Header { data, ..answer }.encode());
            return;
        };
        let room = (usize::from(u16::MAX) - Header::LEN - Config::LEN) / cm_msgs::acm::ADDRESS_LEN;
        let addresses = endpoint
            .addresses
            .get(..room)
            .unwrap_or(&endpoint.addresses);
        let config = Config {
            device: endpoint.port.node_guid,
            port: endpoint.port.port,
            port_count: local.status.device_ports,
            pkey: endpoint.pkey,
            address_count: addresses.len() as u16,
            provider: text(PROVIDER),
        };
        let len = Header::LEN + Config::LEN + addresses.len() * cm_msgs::acm::ADDRESS_LEN;
        let answer = Header {
            data,
            length: len as u16,
            ..header.answer(Status::Success)
        };
        out.extend(answer.encode());
        out.extend(config.encode());
        for address in addresses {
            out.extend(text(&address.label));
        }
    }
}

/// What a resolution begins with.
struct Start {
    from: EndpointId,
    with: With,
    goal: Goal,
}

enum Goal {
    Resolve {
        to: Address,
        dgid: Gid,
        no_delay: bool,
    },
    Verify(PathRecord),
}

impl Start {
    fn to(from: &Endpoint, to: Address, no_delay: bool) -> Self {
        Self {
            from: from.id,
            with: With::Nothing,
            goal: Goal::Resolve {
                to,
                dgid: Gid::default(),
                no_delay,
            },
        }
    }
}

impl Answer {
    /// The key of the client that asked, and the answer for it.
    pub fn for_client(&self, out: &mut Vec<u8>) -> Option<u32> {
        let Asker::Client {
            client,
            header,
            with,
        } = self.asker
        else {
            return None;
        };
        match self.result {
            Ok(path) => {
                let flags = match with {
                    With::Verification => Flags::QUERY_SA,
                    With::Nothing | With::Source(_) => Flags::WHOLE_PATH,
                };
                write_path(&header, &Entry::path(flags, path).encode(), with, out);
            }
            Err(status) => out.extend(refused(&header, status).encode()),
        }
        Some(client)
    }

    /// The answer for the kernel, if it asked.
    pub fn for_kernel(&self) -> Option<Vec<u8>> {
        let Asker::Kernel(request) = &self.asker else {
            return None;
        };
        Some(match &self.result {
            Ok(path) => request.answer(path),
            Err(_) => kernel::refusal(request.sequence),
        })
    }
}

fn path_of(entry: &[u8; Entry::LEN]) -> PathRecord {
    match Entry::decode(entry).info {
        Info::Path(path) => path,
        Info::Address(_) | Info::Other(_) => PathRecord::default(),
    }
}

/// The path first, then the source, in one piece: clients read it with one call.
fn write_path(header: &Header, path: &[u8; Entry::LEN], with: With, out: &mut Vec<u8>) {
    let source = match with {
        With::Source(source) => Some(Entry::address(Flags::SOURCE, source)),
        With::Nothing | With::Verification => None,
    };
    let entries = 1 + usize::from(source.is_some());
    let answer = Header {
        ack: with == With::Verification,
        length: (Header::LEN + entries * Entry::LEN) as u16,
        ..header.answer(Status::Success)
    };
    out.extend(answer.encode());
    out.extend(path);
    if let Some(source) = source {
        out.extend(source.encode());
    }
}

fn refused(header: &Header, status: Status) -> Header {
    Header {
        ack: false,
        ..header.answer(status)
    }
}
