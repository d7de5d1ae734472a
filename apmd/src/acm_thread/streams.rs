// SPDX-License-Identifier: MIT OR Apache-2.0
//! The streams of ACM's clients: taken in, read and written to.

mod accept;

use std::io;
use std::os::fd::AsRawFd;

use acm::{Breach, Client, Clients, Ended, Served, User};
use cm_msgs::acm::Header;
use ipnet::IpNet;
use mio::Registry;
use nix::poll::PollTimeout;
use statemachine::Time;

use super::latest::{Latest, Woken, interest, look_for};
use super::opened::Opened;
use super::token::Token;
use crate::config;
use crate::descriptors;
use crate::io::seqpacket::ListenError;
use crate::io::stream::{Listener, Stream};
use crate::io::watched;

pub(super) use accept::{Refusal, Waiting};

/// The place of the Unix socket among the listeners.
const UNIX: usize = 0;
/// Read from a client at once; some 400 requests.
const READ: usize = 64 * 1024;
/// Reads of a client before others have their turn.
const READS: usize = 2;

/// Where ACM is served, and whom.
#[derive(Debug)]
pub(super) struct Streams {
    /// Whose hosts may call by TCP, besides this one.
    networks: Vec<IpNet>,
    /// On the Unix socket, and on TCP.
    listeners: [Opened<Listener>; Self::LISTENERS as usize],
    clients: Clients<Stream>,
    /// Clients with more to read than one turn takes.
    unread: Vec<u32>,
    latest: Latest,
    exchange: Exchange,
}

/// Reads requests and sends answers: what clients need only while it is their turn.
#[derive(Debug)]
struct Exchange {
    registry: Registry,
    input: Box<[u8]>,
    output: Vec<u8>,
}

/// What came of reading a client once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// All that it said for now, which may be nothing.
    All,
    /// It may have said more.
    Some,
    /// It is gone.
    End,
}

/// What came of a client's turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    Over,
    /// The client is gone.
    Gone,
    /// It broke the protocol, and is gone.
    Broken(User, Breach),
}

impl Streams {
    /// How many listeners there may be.
    pub(super) const LISTENERS: u32 = 2;

    /// Listens, as far as that can be done: what fails is logged, and ACM does without.
    pub(super) fn open(config: &config::Acm, registry: Registry) -> Self {
        let mut streams = Self {
            listeners: [Opened::Unwanted, Opened::Unwanted],
            clients: Clients::new(descriptors::acm_clients()),
            networks: config.tcp_networks.clone(),
            unread: Vec::new(),
            latest: Latest::default(),
            exchange: Exchange {
                registry,
                input: vec![0; READ].into(),
                output: Vec::new(),
            },
        };
        for place in 0..streams.listeners.len() {
            streams.listen(place, config);
        }
        streams
    }

    /// Listens where it could not be done before.
    pub(super) fn listen_again(&mut self, config: &config::Acm) {
        for place in 0..self.listeners.len() {
            if self.listeners[place].failure().is_some() {
                self.listen(place, config);
            }
        }
    }

    fn listen(&mut self, place: usize, config: &config::Acm) {
        let wanted = match place {
            UNIX => Some(unix(config)),
            _ => tcp(config),
        };
        let token = Token::Listener(place as u32);
        let registry = &self.exchange.registry;
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

    /// When [`Streams::expired`] has something to say.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.clients.poll_timeout()
    }

    /// A client that left half a request or its answers for too long, and is gone.
    pub(super) fn expired(&mut self, now: Time) -> Option<Client> {
        let key = self.clients.expired(now)?;
        let user = self.clients.get(key)?.user();
        self.clients.remove(key);
        Some(Client { key, user })
    }

    /// A client may have something to say, or reads, or so much of its stream has ended. `answer`
    /// writes the answer to each request; where it writes nothing, that comes later.
    pub(super) fn handle_ready(
        &mut self,
        now: Time,
        key: u32,
        ended: Ended,
        mut answer: impl FnMut(Client, &Header, &[u8], &mut Vec<u8>),
    ) -> Turn {
        self.latest
            .served(key, &mut self.clients, &self.exchange.registry);
        let Some(served) = self.clients.get(key) else {
            return Turn::Over;
        };
        let user = served.user();
        served.buffers.end(ended);
        let mut answer = |header: &Header, message: &[u8], out: &mut Vec<u8>| {
            answer(Client { key, user }, header, message, out);
        };
        match self.exchange.take_turn(key, served, &mut answer) {
            // Mostly: a request came whole, and its answer has gone.
            Ok(Progress::All) if served.is_settled() => return Turn::Over,
            Ok(Progress::All) => {}
            Ok(Progress::Some) => {
                if served.buffers.put_off() {
                    self.unread.push(key);
                }
            }
            Ok(Progress::End) => return self.lose(key),
            Err(breach) => {
                self.lose(key);
                return Turn::Broken(user, breach);
            }
        }
        self.settle(now, key)
    }

    /// What is kept for the client is taken from its user's share.
    fn settle(&mut self, now: Time, key: u32) -> Turn {
        match self.clients.settle(now, key) {
            true => Turn::Over,
            false => self.lose(key),
        }
    }

    fn lose(&mut self, key: u32) -> Turn {
        self.clients.remove(key);
        Turn::Gone
    }

    /// Waits, no longer than `timeout`, until the poll has something to say, or the client that asks
    /// again and again has.
    ///
    /// # Errors
    /// As poll(2); a signal is none.
    pub(super) fn sleep(&mut self, timeout: PollTimeout) -> io::Result<Woken> {
        let Self {
            latest,
            clients,
            exchange,
            ..
        } = self;
        latest.sleep(clients, &exchange.registry, timeout)
    }

    /// Whether clients have more to read than one turn took.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// The clients with more to read, whose turn it is again.
    pub(super) fn take_unread(&mut self) -> Vec<u32> {
        for key in &self.unread {
            if let Some(served) = self.clients.get(*key) {
                served.buffers.resume();
            }
        }
        std::mem::take(&mut self.unread)
    }

    /// Sends a client an answer that took a while. Whether it is still there.
    pub(super) fn answer(&mut self, now: Time, key: u32, bytes: &[u8]) -> Turn {
        let Some(served) = self.clients.get(key) else {
            return Turn::Over;
        };
        let was_full = served.buffers.is_full();
        served.buffers.answered();
        let sent = send(&self.exchange.registry, key, served, bytes);
        if sent.is_err() || served.buffers.is_done() {
            return self.lose(key);
        }
        if was_full && !served.buffers.is_full() && served.buffers.put_off() {
            self.unread.push(key);
        }
        self.settle(now, key)
    }
}

impl Exchange {
    /// Sends what there was no room for, and takes some of what the client says.
    fn take_turn(
        &mut self,
        key: u32,
        served: &mut Served<Stream>,
        answer: &mut impl FnMut(&Header, &[u8], &mut Vec<u8>),
    ) -> Result<Progress, Breach> {
        let unsent = !served.buffers.unsent().is_empty();
        if unsent && send(&self.registry, key, served, &[]).is_err() {
            return Ok(Progress::End);
        }
        for _ in 0..READS {
            let progress = self.read(key, served, answer)?;
            if progress != Progress::Some {
                return Ok(progress);
            }
        }
        Ok(Progress::Some)
    }

    /// A read that does not fill the buffer has taken all there is, but of a client that is ending,
    /// the end is seen only by another: wakeups tell of changes, and one may tell of the last bytes
    /// and of the end together.
    fn read(
        &mut self,
        key: u32,
        served: &mut Served<Stream>,
        answer: &mut impl FnMut(&Header, &[u8], &mut Vec<u8>),
    ) -> Result<Progress, Breach> {
        let Served {
            stream, buffers, ..
        } = served;
        if buffers.is_full() {
            return Ok(Progress::All);
        }
        let len = match stream.read(&mut self.input) {
            Ok(0) => {
                buffers.read_out();
                return Ok(match buffers.is_done() {
                    true => Progress::End,
                    false => Progress::All,
                });
            }
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Progress::All),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Progress::Some),
            Err(_) => return Ok(Progress::End),
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
        buffers.expect_answers(later);
        let answered = send(&self.registry, key, served, &self.output);
        understood?;
        Ok(match answered {
            Ok(()) if served.buffers.is_ending() || len == self.input.len() => Progress::Some,
            Ok(()) => Progress::All,
            Err(_) => Progress::End,
        })
    }
}

fn registered(
    listener: Listener,
    token: Token,
    registry: &Registry,
) -> Result<Listener, ListenError> {
    watched(listener.as_raw_fd(), registry, token).map_err(|error| ListenError::Io {
        path: listener.path().to_owned(),
        error,
    })?;
    tracing::info!(path = %listener.path().display(), "acm served");
    Ok(listener)
}

/// Sends what was kept and then `bytes`, and keeps what there is no room for.
fn send(
    registry: &Registry,
    key: u32,
    served: &mut Served<Stream>,
    bytes: &[u8],
) -> io::Result<()> {
    let Served {
        stream, buffers, ..
    } = served;
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
        look_for(key, stream, interest(buffers), registry)?;
    }
    Ok(())
}

/// Everybody on this host may ask, as with ibacm.
const MODE: u32 = 0o666;

fn unix(config: &config::Acm) -> Result<Listener, ListenError> {
    Listener::unix(&config.socket(), Some(&config.socket_link()), MODE)
}

fn tcp(config: &config::Acm) -> Option<Result<Listener, ListenError>> {
    let address = config.tcp()?;
    let link = config.port_link();
    Some(Listener::tcp(address, &config.port_file(), Some(&link)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    use cm_msgs::acm::Op;
    use mio::Poll;

    use super::*;

    const NOW: Time = Time(0);

    /// A client that has asked something whose answer takes a while.
    fn asked(streams: &mut Streams) -> (UnixStream, u32) {
        let (mut client, served) = UnixStream::pair().unwrap();
        served.set_nonblocking(true).unwrap();
        let key = streams
            .clients
            .add(User::Local(1), Stream::Unix(served))
            .unwrap();
        let request = Header::request(Op::Resolve, 1, Header::LEN as u16);
        client.write_all(&request.encode()).unwrap();
        (client, key)
    }

    #[test]
    fn who_says_no_more_gets_the_answer_that_takes_a_while() {
        let poll = Poll::new().unwrap();
        let nowhere = config::Acm {
            directory: "/nonexistent".into(),
            ..config::Acm::default()
        };
        let mut streams = Streams::open(&nowhere, poll.registry().try_clone().unwrap());
        let (mut client, key) = asked(&mut streams);
        client.shutdown(Shutdown::Write).unwrap();
        let turn = streams.handle_ready(NOW, key, Ended::Speaking, |_, _, _, _| {});
        assert_eq!(turn, Turn::Over, "it hears");
        assert_eq!(streams.answer(NOW, key, b"answer"), Turn::Gone, "the last");
        let mut heard = String::new();
        client.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "answer");
        let (gone, key) = asked(&mut streams);
        drop(gone);
        let turn = streams.handle_ready(NOW, key, Ended::Everything, |_, _, _, _| {});
        assert_eq!(turn, Turn::Gone, "nobody hears");
    }
}
