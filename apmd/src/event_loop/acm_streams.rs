// SPDX-License-Identifier: MIT OR Apache-2.0
//! The streams of ACM's clients: taken in, read and written to.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::path::Path;

use cm_msgs::acm::Header;
use mio::unix::SourceFd;
use mio::{Interest, Registry};

use super::Daemon;
use super::token::Token;
use crate::acm::{Breach, Buffers, Clients};
use crate::config::{self, Tcp};
use crate::io::seqpacket::ListenError;
use crate::io::stream::{Listener, Stream};
use crate::log_limit::Nuisance;

/// Read from a client at once; some 400 requests.
const READ: usize = 64 * 1024;
/// Reads of a client before others have their turn.
const READS: usize = 2;

/// Where ACM is served, and whom.
#[derive(Debug)]
pub(super) struct AcmStreams {
    listeners: Vec<Listener>,
    clients: Clients<Stream>,
    input: Box<[u8]>,
    output: Vec<u8>,
}

/// Whether a client is still there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Going {
    /// It has said all for now.
    On,
    /// It has more to say.
    More,
    /// It is gone, or is to go.
    Off,
}

impl AcmStreams {
    /// Listens, as far as that can be done: what fails is logged, and the daemon does without.
    pub(super) fn open(config: &config::Acm, registry: &Registry) -> Self {
        let mut streams = Self {
            listeners: Vec::new(),
            clients: Clients::default(),
            input: vec![0; READ].into(),
            output: Vec::new(),
        };
        for listener in [unix(config), tcp(config)].into_iter().flatten() {
            let added = listener.and_then(|listener| streams.listen(listener, registry));
            if let Err(error) = added {
                tracing::error!(%error, "acm not served there: is ibacm running?");
            }
        }
        streams
    }

    fn listen(&mut self, listener: Listener, registry: &Registry) -> Result<(), ListenError> {
        let token = Token::AcmListener(self.listeners.len() as u32);
        registry
            .register(
                &mut SourceFd(&listener.as_raw_fd()),
                token.into(),
                Interest::READABLE,
            )
            .map_err(|error| ListenError::Io {
                path: listener.path().to_owned(),
                error,
            })?;
        tracing::info!(path = %listener.path().display(), "acm served");
        self.listeners.push(listener);
        Ok(())
    }

    /// The TCP port at which it is served.
    pub(super) fn tcp_port(&self) -> Option<u16> {
        self.listeners.iter().find_map(Listener::port)
    }

    /// Where it is served, for operators.
    pub(super) fn served_at(&self) -> Vec<String> {
        let path = |listener: &Listener| listener.path().display().to_string();
        self.listeners.iter().map(path).collect()
    }

    /// Clients served now.
    pub(super) fn clients(&self) -> usize {
        self.clients.len()
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

    /// Reads what a client has to say, and sends what `answer` writes to each request. A read that
    /// does not fill the buffer has taken all there is, but what follows is seen only by another,
    /// which `to_end` asks for: wakeups tell of changes, and one may tell of the last bytes and of
    /// the end together.
    pub(super) fn serve(
        &mut self,
        key: u32,
        to_end: bool,
        registry: &Registry,
        mut answer: impl FnMut(&Header, &[u8], &mut Vec<u8>),
    ) -> Result<Going, Breach> {
        let Some((stream, buffers)) = self.clients.get(key) else {
            return Ok(Going::On);
        };
        if buffers.is_stuffed() {
            return Ok(Going::On);
        }
        let len = match stream.read(&mut self.input) {
            Ok(0) => return Ok(Going::Off),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Going::On),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Going::More),
            Err(_) => return Ok(Going::Off),
        };
        self.output.clear();
        let bytes = self.input.get(..len).unwrap_or(&[]);
        let output = &mut self.output;
        let understood = buffers.requests(bytes, |header, message| answer(header, message, output));
        let answered = send(registry, key, stream, buffers, &self.output);
        understood?;
        Ok(match answered {
            Ok(()) if to_end || len == self.input.len() => Going::More,
            Ok(()) => Going::On,
            Err(_) => Going::Off,
        })
    }

    /// Sends a client an answer. Whether it can go on.
    pub(super) fn answer(&mut self, key: u32, bytes: &[u8], registry: &Registry) -> bool {
        self.clients
            .get(key)
            .is_none_or(|(stream, buffers)| send(registry, key, stream, buffers, bytes).is_ok())
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
    buffers: &mut Buffers,
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
            match acm
                .streams
                .accept(place, self.config.acm.max_clients, registry)
            {
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
        let acm = self.acm.as_ref();
        let listeners = acm.map_or(0, |acm| acm.streams.listeners.len());
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
        if !acm.streams.flush(key, registry) {
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
        if let Some((_, buffers)) = acm.streams.clients.get(key)
            && buffers.put_off()
        {
            self.unread.push(Token::AcmCaller(key));
        }
        self.drain_acm();
        false
    }

    /// A client of ACM had more to say than others had to wait for.
    pub(super) fn acm_caller_again(&mut self, key: u32) {
        let acm = self.acm.as_mut();
        let client = acm.and_then(|acm| acm.streams.clients.get(key));
        if let Some((_, buffers)) = client {
            buffers.resume();
            // What woke us last time may have told of the end.
            self.acm_caller(key, true);
        }
    }

    /// A client has gone. Whether that was all.
    pub(super) fn lose_acm_client(&mut self, key: u32) -> bool {
        if let Some(acm) = self.acm.as_mut() {
            acm.streams.clients.remove(key);
            acm.service.handle_client_gone(key);
        }
        false
    }
}
