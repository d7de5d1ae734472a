// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACM's streams and the kernel's path requests.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::path::Path;

use cm_msgs::Gid;
use mio::unix::SourceFd;
use mio::{Interest, Registry};
use statemachine::{PortId, Time};

use super::Daemon;
use super::acm_files::Files;
use super::token::{PortKey, Token};
use crate::acm::{Breach, Clients, LocalPort, Service, kernel};
use crate::config::{self, Config, Tcp};
use crate::io::ls::Ls;
use crate::io::seqpacket::ListenError;
use crate::io::stream::{Listener, Routes, Stream};
use crate::log_limit::Nuisance;
use crate::observe::acm as model;
use crate::source::Answer;

/// Read from a client at once; some 400 requests.
const READ: usize = 64 * 1024;
/// Reads of a client before others have their turn.
const READS: usize = 2;

/// The traps that say that a port has left the fabric, and that a link of a switch has changed.
const TRAPS: [u16; 2] = [65, 128];

/// ACM served: the service, its clients, and the kernel.
#[derive(Debug)]
pub(super) struct Acm {
    pub(super) service: Service,
    listeners: Vec<Listener>,
    pub(super) clients: Clients<Stream>,
    ls: Option<Ls>,
    routes: Routes,
    pub(super) files: Files,
    /// The ports whose paths were looked for in the file.
    routed: Vec<Gid>,
    input: Box<[u8]>,
    output: Vec<u8>,
}

/// Whether a client is still there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Going {
    /// It has said all for now.
    On,
    /// It has more to say.
    More,
    /// It is gone, or is to go.
    Off,
}

impl Acm {
    /// Listens, as far as that can be done: what fails is logged, and the daemon does without.
    pub(super) fn open(config: &Config, registry: &Registry, seed: u64) -> Option<Self> {
        if !config.acm.serve {
            return None;
        }
        let files = Files::read(&config.acm, &config.acm_multicast);
        let config = &files.config.clone();
        let mut acm = Self {
            service: Service::new(config.settings(), seed as u32),
            listeners: Vec::new(),
            clients: Clients::default(),
            ls: None,
            routes: Routes::default(),
            files,
            routed: Vec::new(),
            input: vec![0; READ].into(),
            output: Vec::new(),
        };
        acm.take_files();
        for listener in [unix(config), tcp(config)].into_iter().flatten() {
            let added = listener.and_then(|listener| acm.listen(listener, registry));
            if let Err(error) = added {
                tracing::error!(%error, "acm not served there: is ibacm running?");
            }
        }
        if config.kernel {
            match Ls::open().and_then(|ls| {
                register(registry, &ls, Token::Ls, Interest::READABLE)?;
                Ok(ls)
            }) {
                Ok(ls) => acm.ls = Some(ls),
                Err(error) => tracing::warn!(%error, "the kernel's path requests cannot be heard"),
            }
        }
        Some(acm)
    }

    /// The TCP port at which it is served.
    pub(super) fn tcp_port(&self) -> Option<u16> {
        self.listeners.iter().find_map(Listener::port)
    }

    /// Gives the service what the files say.
    fn take_files(&mut self) {
        let host = crate::acm::host_name();
        self.service.set_names(self.files.names.clone(), host);
        self.service.set_known(self.files.addresses());
        self.service.set_routes(self.files.routes(&self.routed));
    }

    /// Looks for the paths of a port that has come up.
    fn route(&mut self, gid: Gid) {
        if !self.routed.contains(&gid) {
            self.routed.push(gid);
            self.service.set_routes(self.files.routes(&self.routed));
        }
    }

    fn listen(&mut self, listener: Listener, registry: &Registry) -> Result<(), ListenError> {
        let token = Token::AcmListener(self.listeners.len() as u32);
        register(registry, &listener, token, Interest::READABLE).map_err(|error| {
            ListenError::Io {
                path: listener.path().to_owned(),
                error,
            }
        })?;
        tracing::info!(path = %listener.path().display(), "acm served");
        self.listeners.push(listener);
        Ok(())
    }

    /// Takes in the next client of a listener; `None` when nobody waits.
    fn accept(
        &mut self,
        place: u32,
        limit: usize,
        registry: &Registry,
    ) -> io::Result<Option<bool>> {
        let Some(listener) = self.listeners.get(place as usize) else {
            return Ok(None);
        };
        let Some(stream) = listener.accept()? else {
            return Ok(None);
        };
        if self.clients.len() >= limit {
            return Ok(Some(false));
        }
        let fd = stream.as_raw_fd();
        let key = self.clients.add(stream);
        let token = Token::AcmCaller(key).into();
        let registered = registry.register(&mut SourceFd(&fd), token, Interest::READABLE);
        registered.inspect_err(|_| drop(self.clients.remove(key)))?;
        Ok(Some(true))
    }

    /// Reads what a client has to say, and answers. A read that does not fill the buffer has taken
    /// all there is, but what follows is seen only by another, which `to_end` asks for: wakeups tell
    /// of changes, and one may tell of the last bytes and of the end together.
    fn serve(
        &mut self,
        now: Time,
        key: u32,
        to_end: bool,
        registry: &Registry,
    ) -> Result<Going, Breach> {
        let Self {
            service,
            clients,
            routes,
            input,
            output,
            ..
        } = self;
        let Some((stream, buffers)) = clients.get(key) else {
            return Ok(Going::On);
        };
        if buffers.is_stuffed() {
            return Ok(Going::On);
        }
        let len = match stream.read(input) {
            Ok(0) => return Ok(Going::Off),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Going::On),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Going::More),
            Err(_) => return Ok(Going::Off),
        };
        output.clear();
        let mut source_of = |to: IpAddr| routes.source_to(to);
        let bytes = input.get(..len).unwrap_or(&[]);
        let understood = buffers.requests(bytes, |header, message| {
            service.handle_request(now, key, header, message, &mut source_of, output);
        });
        let answered = send(registry, key, stream, buffers, output);
        understood?;
        Ok(match answered {
            Ok(()) if to_end || len == input.len() => Going::More,
            Ok(()) => Going::On,
            Err(_) => Going::Off,
        })
    }

    /// Sends a client what there was no room for. Whether it can go on.
    fn flush(&mut self, key: u32, registry: &Registry) -> bool {
        self.clients.get(key).is_none_or(|(stream, buffers)| {
            buffers.unsent().is_empty() || send(registry, key, stream, buffers, &[]).is_ok()
        })
    }
}

/// Sends what was kept and then `bytes`, and keeps what there is no room for.
fn send(
    registry: &Registry,
    key: u32,
    stream: &mut Stream,
    buffers: &mut crate::acm::Buffers,
    bytes: &[u8],
) -> io::Result<()> {
    let waited = !buffers.unsent().is_empty();
    if waited {
        buffers.keep(bytes);
        let sent = stream.write(buffers.unsent())?;
        buffers.sent(sent);
    } else if !bytes.is_empty() {
        let sent = stream.write(bytes)?;
        if let Some(unsent) = bytes.get(sent..).filter(|unsent| !unsent.is_empty()) {
            buffers.keep(unsent);
        }
    }
    // Room is asked for only where it is missing: every read of a client's makes some.
    let waits = !buffers.unsent().is_empty();
    if waits != waited {
        let interest = match waits {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        let fd = stream.as_raw_fd();
        registry.reregister(&mut SourceFd(&fd), Token::AcmCaller(key).into(), interest)?;
    }
    Ok(())
}

fn register(
    registry: &Registry,
    source: &impl AsRawFd,
    token: Token,
    interest: Interest,
) -> io::Result<()> {
    registry.register(&mut SourceFd(&source.as_raw_fd()), token.into(), interest)
}

fn unix(config: &config::Acm) -> Option<Result<Listener, ListenError>> {
    let path = named(&config.socket)?;
    Some(Listener::unix(
        path,
        named(&config.socket_link),
        config.mode,
    ))
}

fn tcp(config: &config::Acm) -> Option<Result<Listener, ListenError>> {
    let ip = match config.tcp {
        Tcp::Off => return None,
        Tcp::Loop => Ipv4Addr::LOCALHOST,
        Tcp::Open => Ipv4Addr::UNSPECIFIED,
    };
    let address = SocketAddr::from((ip, config.tcp_port));
    let link = named(&config.tcp_link);
    Some(Listener::tcp(address, &config.tcp_file, link))
}

fn named(path: &Path) -> Option<&Path> {
    (!path.as_os_str().is_empty()).then_some(path)
}

impl Daemon {
    /// Clients of ACM call.
    pub(super) fn accept_acm(&mut self, place: u32) {
        let registry = self.poll.registry();
        let Some(acm) = self.acm.as_mut() else { return };
        loop {
            match acm.accept(place, self.config.acm.max_clients, registry) {
                Ok(Some(true)) => self.counters.acm_clients += 1,
                Ok(Some(false)) => {
                    self.counters.acm_clients_refused += 1;
                    if let Some(more) = self.limit.allow(self.clock.now(), Nuisance::Client) {
                        let limit = self.config.acm.max_clients;
                        tracing::warn!(limit, more, "client of acm not taken in: too many");
                    }
                }
                Ok(None) => return,
                Err(error) => return self.accept_later(&error),
            }
        }
    }

    /// Those who could not be taken in are, if possible.
    pub(super) fn accept_acm_again(&mut self) {
        let listeners = self.acm.as_ref().map_or(0, |acm| acm.listeners.len());
        for place in 0..listeners {
            self.accept_acm(place as u32);
        }
    }

    /// A client of ACM has something to say, or reads; `to_end`: or will say nothing more. Whether
    /// that was all: what it asked was known and is answered.
    pub(super) fn acm_caller(&mut self, key: u32, to_end: bool) -> bool {
        let registry = self.poll.registry();
        let now = self.clock.now();
        let Some(acm) = self.acm.as_mut() else {
            return false;
        };
        if !acm.flush(key, registry) {
            return self.lose_acm_client(key);
        }
        for _ in 0..READS {
            match acm.serve(now, key, to_end, registry) {
                Ok(Going::More) => {}
                Ok(Going::On) => return self.drain_acm(),
                Ok(Going::Off) => return self.lose_acm_client(key),
                Err(breach) => {
                    self.counters.malformed_acm += 1;
                    if let Some(more) = self.limit.allow(now, Nuisance::MalformedAcm) {
                        tracing::warn!(client = key, %breach, more, "client of acm thrown out");
                    }
                    return self.lose_acm_client(key);
                }
            }
        }
        if let Some((_, buffers)) = acm.clients.get(key)
            && buffers.put_off()
        {
            self.unread.push(Token::AcmCaller(key));
        }
        self.drain_acm();
        false
    }

    /// A client of ACM had more to say than others had to wait for.
    pub(super) fn acm_caller_again(&mut self, key: u32) {
        let client = self.acm.as_mut().and_then(|acm| acm.clients.get(key));
        if let Some((_, buffers)) = client {
            buffers.resume();
            // What woke us last time may have told of the end.
            self.acm_caller(key, true);
        }
    }

    /// A client has gone. Whether that was all.
    fn lose_acm_client(&mut self, key: u32) -> bool {
        if let Some(acm) = self.acm.as_mut() {
            acm.clients.remove(key);
            acm.service.handle_client_gone(key);
        }
        false
    }

    /// The kernel wants paths.
    pub(super) fn kernel_requests(&mut self) {
        let now = self.clock.now();
        let Some(acm) = self.acm.as_mut() else { return };
        let Some(ls) = acm.ls.as_ref() else { return };
        loop {
            let message = match ls.receive() {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "the kernel's path requests are no longer heard");
                    acm.ls = None;
                    break;
                }
            };
            match kernel::Request::decode(&message) {
                Ok(request) => acm.service.handle_kernel(now, request),
                Err((sequence, error)) => {
                    tracing::debug!(%error, "message of the kernel not understood");
                    if let Some(sequence) = sequence {
                        let _ = ls.send(&kernel::refusal(sequence));
                    }
                }
            }
        }
        self.drain_acm();
    }

    /// Asks what the service wants to know, and gives its answers away. Whether there was nothing of
    /// the kind to do.
    pub(super) fn drain_acm(&mut self) -> bool {
        let mut nothing = true;
        while let Some(acm) = self.acm.as_mut() {
            while let Some(lookup) = acm.service.poll_lookup() {
                nothing = false;
                let now = self.clock.now();
                self.acm_net.net.lookup(now, &lookup);
            }
            self.drain_acm_net();
            let asked = self.ask_for_acm();
            let answered = self.answer_acm();
            if !asked && !answered {
                return nothing;
            }
            nothing = false;
        }
        nothing
    }

    /// Puts the service's questions to the path sources. Whether there were any.
    fn ask_for_acm(&mut self) -> bool {
        let mut any = false;
        while let Some(question) = self
            .acm
            .as_mut()
            .and_then(|acm| acm.service.poll_question())
        {
            any = true;
            self.sources.ask(self.clock.now(), question);
        }
        any
    }

    /// Gives away answers that took a while. Whether there were any.
    fn answer_acm(&mut self) -> bool {
        let registry = self.poll.registry();
        let Some(acm) = self.acm.as_mut() else {
            return false;
        };
        let mut any = false;
        let mut broken = Vec::new();
        while let Some(answer) = acm.service.poll_answer() {
            any = true;
            acm.output.clear();
            if let Some(message) = answer.for_kernel() {
                if let Some(Err(error)) = acm.ls.as_ref().map(|ls| ls.send(&message)) {
                    tracing::debug!(%error, "answer to the kernel not sent");
                }
            } else if let Some(key) = answer.for_client(&mut acm.output)
                && let Some((stream, buffers)) = acm.clients.get(key)
                && send(registry, key, stream, buffers, &acm.output).is_err()
            {
                broken.push(key);
            }
        }
        for key in broken {
            self.lose_acm_client(key);
        }
        any
    }

    /// The path sources answered the service.
    pub(super) fn acm_path(&mut self, answer: Answer) {
        let Answer {
            query,
            origin,
            result,
            ..
        } = answer;
        let now = self.clock.now();
        if let Some(acm) = self.acm.as_mut() {
            acm.service.handle_paths(now, query, origin, result);
        }
        self.drain_acm();
    }

    /// Tells the service of a port.
    pub(super) fn acm_port(&mut self, key: PortKey) {
        let Some(acm) = self.acm.as_mut() else { return };
        let (Some(device), Some(port)) = (self.devices.device(key.device), self.devices.port(key))
        else {
            return;
        };
        if let Some(status) = port.watch.status().filter(|status| status.infiniband) {
            let local = LocalPort {
                device: device.verbs.name.clone(),
                status: status.clone(),
                rate: port.watch.rate(),
                subnet_timeout: port.watch.subnet_timeout(),
            };
            let (id, active) = (port.id, status.active);
            acm.route(status.gid);
            acm.service.handle_port(id, local);
            if active && self.config.acm.reports {
                self.reports.subscribe(id, &TRAPS);
            }
        }
    }

    /// Tells the service that a port has gone.
    pub(super) fn acm_port_gone(&mut self, id: PortId) {
        if let Some(acm) = self.acm.as_mut() {
            acm.service.handle_port_gone(id);
        }
    }

    /// Something about a port, or the fabric behind it, is different.
    pub(super) fn acm_port_event(&mut self, key: PortKey) {
        let now = self.clock.now();
        let id = self.devices.port(key).map(|port| port.id);
        if let (Some(acm), Some(id)) = (self.acm.as_mut(), id) {
            acm.service.handle_port_event(now, id);
        }
    }

    /// Forwarding tables, switches or links are different.
    pub(super) fn acm_fabric_changed(&mut self) {
        let now = self.clock.now();
        if let Some(acm) = self.acm.as_mut() {
            acm.service.handle_fabric_changed(now);
        }
    }

    /// A link of a switch has changed, as the SA reports.
    pub(super) fn acm_link_report(&mut self) {
        let now = self.clock.now();
        if let Some(acm) = self.acm.as_mut() {
            acm.service.handle_link_report(now);
        }
    }

    /// A port has left the fabric, as the SA reports.
    pub(super) fn acm_gid_gone(&mut self, gid: Gid) {
        if let Some(acm) = self.acm.as_mut() {
            acm.service.handle_gid_gone(gid);
        }
    }

    /// Tells the service of the addresses of this host's interfaces.
    pub(super) fn acm_addresses(&mut self) {
        if let (Some(acm), Some(rtnl)) = (self.acm.as_mut(), self.rtnl.as_ref()) {
            acm.service.set_interfaces(rtnl.addresses());
        }
        self.acm_net_endpoints();
    }

    /// When the service has something to do.
    pub(super) fn acm_timeout(&self) -> Option<Time> {
        self.acm.as_ref()?.service.poll_timeout()
    }

    /// Does what is due.
    pub(super) fn acm_time(&mut self) {
        let now = self.clock.now();
        if self.acm_timeout().is_some_and(|at| at <= now) {
            if let Some(acm) = self.acm.as_mut() {
                acm.service.handle_time(now);
            }
            self.drain_acm();
        }
    }

    /// The served ACM as operators see it.
    pub(super) fn show_acm(&self) -> Option<model::Acm> {
        let acm = self.acm.as_ref()?;
        let path = |listener: &Listener| listener.path().display().to_string();
        Some(model::Acm {
            served_at: acm.listeners.iter().map(path).collect(),
            kernel: acm.ls.is_some(),
            clients: acm.clients.len(),
            multicast: self.show_acm_net(),
            ..model::show(self.clock.now(), &acm.service)
        })
    }

    /// Takes over what the configuration, which was read again, says of ACM.
    pub(super) fn reload_acm(&mut self) {
        if let Some(acm) = self.acm.as_mut() {
            acm.files = Files::read(&self.config.acm, &self.config.acm_multicast);
            acm.service.set_settings(acm.files.config.settings());
            acm.take_files();
        }
        self.configure_acm_net();
    }
}
