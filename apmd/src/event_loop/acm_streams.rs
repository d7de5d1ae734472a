// SPDX-License-Identifier: MIT OR Apache-2.0
//! The streams of ACM's clients: taken in, read and written to.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::path::Path;

use cm_msgs::acm::Header;
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Interest, Registry};
use statemachine::Time;

use super::Daemon;
use super::hurry::Turn;
use super::opened::Opened;
use super::token::Token;
use crate::acm::{Breach, Buffers, Clients, Ended};
use crate::config::{self, Tcp};
use crate::io::seqpacket::ListenError;
use crate::io::stream::{Listener, Stream};
use crate::log_limit::Nuisance;

/// The place of the Unix socket among the listeners.
const UNIX: usize = 0;
/// Read from a client at once; some 400 requests.
const READ: usize = 64 * 1024;
/// Reads of a client before others have their turn.
const READS: usize = 2;

/// Where ACM is served, and whom.
#[derive(Debug)]
pub(super) struct AcmStreams {
    /// On the Unix socket, and on TCP.
    listeners: [Opened<Listener>; 2],
    clients: Clients<Stream>,
    input: Box<[u8]>,
    output: Vec<u8>,
}

/// Whether a client is still there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Going {
    /// It has nothing to say.
    Silent,
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
            listeners: [Opened::Unwanted, Opened::Unwanted],
            clients: Clients::default(),
            input: vec![0; READ].into(),
            output: Vec::new(),
        };
        for place in 0..streams.listeners.len() {
            streams.listen(place, config, registry);
        }
        streams
    }

    /// Listens where it could not be done before.
    pub(super) fn listen_again(&mut self, config: &config::Acm, registry: &Registry) {
        for place in 0..self.listeners.len() {
            if self.listeners[place].failure().is_some() {
                self.listen(place, config, registry);
            }
        }
    }

    fn listen(&mut self, place: usize, config: &config::Acm, registry: &Registry) {
        let wanted = match place {
            UNIX => unix(config),
            _ => tcp(config),
        };
        let token = Token::AcmListener(place as u32).into();
        let listening =
            wanted.map(|listener| listener.and_then(|it| registered(it, token, registry)));
        if let Some(Err(error)) = &listening {
            tracing::error!(%error, "acm not served there: is ibacm running?");
        }
        self.listeners[place] = Opened::from(listening);
    }

    /// Why it is not served where it should be.
    pub(super) fn failures(&self) -> impl Iterator<Item = &str> {
        self.listeners.iter().filter_map(Opened::failure)
    }

    fn listening(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter().filter_map(Opened::get)
    }

    /// The TCP port at which it is served.
    pub(super) fn tcp_port(&self) -> Option<u16> {
        self.listening().find_map(Listener::port)
    }

    /// Where it is served, for operators.
    pub(super) fn served_at(&self) -> Vec<String> {
        let path = |listener: &Listener| listener.path().display().to_string();
        self.listening().map(path).collect()
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
        let listener = self.listeners.get(place as usize);
        let Some(listener) = listener.and_then(Opened::get) else {
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

    /// Reads what a client has to say, and sends what `answer` writes to each request; where it
    /// writes nothing, the answer comes later. A read that does not fill the buffer has taken all
    /// there is, but of a client that is ending, the end is seen only by another: wakeups tell of
    /// changes, and one may tell of the last bytes and of the end together.
    pub(super) fn serve(
        &mut self,
        key: u32,
        registry: &Registry,
        mut answer: impl FnMut(&Header, &[u8], &mut Vec<u8>),
    ) -> Result<Going, Breach> {
        let Some((stream, buffers)) = self.clients.get(key) else {
            return Ok(Going::Silent);
        };
        if buffers.is_stuffed() {
            return Ok(Going::Silent);
        }
        let len = match stream.read(&mut self.input) {
            Ok(0) => {
                buffers.read_out();
                return Ok(match buffers.is_done() {
                    true => Going::Off,
                    false => Going::Silent,
                });
            }
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Going::Silent),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Going::More),
            Err(_) => return Ok(Going::Off),
        };
        self.output.clear();
        let bytes = self.input.get(..len).unwrap_or(&[]);
        let output = &mut self.output;
        let mut later = 0;
        let understood = buffers.requests(bytes, |header, message| {
            let before = output.len();
            answer(header, message, output);
            later += usize::from(output.len() == before);
        });
        buffers.owe(later);
        let answered = send(registry, key, stream, buffers, &self.output);
        understood?;
        Ok(match answered {
            Ok(()) if buffers.is_ending() || len == self.input.len() => Going::More,
            Ok(()) => Going::On,
            Err(_) => Going::Off,
        })
    }

    /// Sends a client an answer that took a while. Whether it can go on.
    pub(super) fn answer(&mut self, key: u32, bytes: &[u8], registry: &Registry) -> bool {
        self.clients.get(key).is_none_or(|(stream, buffers)| {
            buffers.pay();
            send(registry, key, stream, buffers, bytes).is_ok() && !buffers.is_done()
        })
    }

    /// Sends a client what there was no room for. Whether it can go on.
    fn flush(&mut self, key: u32, registry: &Registry) -> bool {
        self.clients.get(key).is_none_or(|(stream, buffers)| {
            buffers.unsent().is_empty() || send(registry, key, stream, buffers, &[]).is_ok()
        })
    }
}

fn registered(
    listener: Listener,
    token: mio::Token,
    registry: &Registry,
) -> Result<Listener, ListenError> {
    let fd = listener.as_raw_fd();
    let registered = registry.register(&mut SourceFd(&fd), token, Interest::READABLE);
    registered.map_err(|error| ListenError::Io {
        path: listener.path().to_owned(),
        error,
    })?;
    tracing::info!(path = %listener.path().display(), "acm served");
    Ok(listener)
}

/// What a wakeup tells of the end of a client's stream.
pub(super) fn ended(event: &Event) -> Ended {
    match (event.is_write_closed(), event.is_read_closed()) {
        (true, _) => Ended::Everything,
        (false, true) => Ended::Speaking,
        (false, false) => Ended::Nothing,
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

    /// A client of ACM may have something to say, or reads, or so much of its stream has ended.
    pub(super) fn acm_caller(&mut self, now: Time, key: u32, ended: Ended) -> Turn {
        let registry = self.poll.registry();
        let Some(acm) = self.acm.as_mut() else {
            return Turn::Other;
        };
        if let Some((_, buffers)) = acm.streams.clients.get(key) {
            buffers.end(ended);
        }
        if !acm.streams.flush(key, registry) {
            return self.lose_acm_client(key);
        }
        for read in 0..READS {
            match acm.serve(now, key, registry) {
                Ok(Going::Silent) if read == 0 => return Turn::Quiet,
                Ok(Going::More) => {}
                Ok(Going::On | Going::Silent) => {
                    return match self.drain_acm() {
                        true => Turn::Answered { by: Some(key) },
                        false => Turn::Other,
                    };
                }
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
        Turn::Other
    }

    /// A client of ACM had more to say than others had to wait for.
    pub(super) fn acm_caller_again(&mut self, key: u32) {
        let acm = self.acm.as_mut();
        let client = acm.and_then(|acm| acm.streams.clients.get(key));
        if let Some((_, buffers)) = client {
            buffers.resume();
            self.acm_caller(self.clock.now(), key, Ended::Nothing);
        }
    }

    /// A client has gone.
    pub(super) fn lose_acm_client(&mut self, key: u32) -> Turn {
        if let Some(acm) = self.acm.as_mut() {
            acm.streams.clients.remove(key);
            acm.service.handle_client_gone(key);
        }
        Turn::Other
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    use cm_msgs::acm::Op;
    use mio::Poll;

    use super::*;

    /// A client that has asked something whose answer takes a while.
    fn asked(streams: &mut AcmStreams) -> (UnixStream, u32) {
        let (mut client, served) = UnixStream::pair().unwrap();
        served.set_nonblocking(true).unwrap();
        let key = streams.clients.add(Stream::Unix(served));
        let request = Header::request(Op::Resolve, 1, Header::LEN as u16);
        client.write_all(&request.encode()).unwrap();
        (client, key)
    }

    /// Reads it to the end, of which the system has told so much.
    fn read_out(streams: &mut AcmStreams, poll: &Poll, key: u32, ended: Ended) -> Going {
        let (_, buffers) = streams.clients.get(key).unwrap();
        buffers.end(ended);
        for _ in 0..READS {
            match streams.serve(key, poll.registry(), |_, _, _| {}).unwrap() {
                Going::More => {}
                going => return going,
            }
        }
        Going::More
    }

    #[test]
    fn who_says_no_more_gets_the_answer_that_takes_a_while() {
        let poll = Poll::new().unwrap();
        let nowhere = config::Acm {
            socket: "".into(),
            ..config::Acm::default()
        };
        let mut streams = AcmStreams::open(&nowhere, poll.registry());
        let (mut client, key) = asked(&mut streams);
        client.shutdown(Shutdown::Write).unwrap();
        let going = read_out(&mut streams, &poll, key, Ended::Speaking);
        assert!(going == Going::Silent, "it hears");
        assert!(!streams.answer(key, b"answer", poll.registry()), "the last");
        streams.clients.remove(key);
        let mut heard = String::new();
        client.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "answer");
        let (gone, key) = asked(&mut streams);
        drop(gone);
        let going = read_out(&mut streams, &poll, key, Ended::Everything);
        assert!(going == Going::Off, "nobody hears");
    }
}
