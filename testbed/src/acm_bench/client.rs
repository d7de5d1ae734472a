// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client: some connections, on each of them always the same number of requests under way.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::question::{Question, TID};
use crate::failure::{Failure, ensure};

/// An answer that takes longer counts as lost.
const LIMIT: Duration = Duration::from_secs(10);

/// Where a server listens.
pub(super) enum Place {
    Unix(PathBuf),
    Tcp(u16),
}

/// What one round showed.
pub(super) struct Sample {
    /// Answers, all of them right.
    pub(super) answers: u64,
    /// How long that took.
    pub(super) time: Duration,
    /// From each request's sending to its answer, nanoseconds.
    pub(super) latencies: Vec<u32>,
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn connect(place: &Place) -> io::Result<Self> {
        match place {
            Place::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(LIMIT))?;
                Ok(Self::Unix(stream))
            }
            Place::Tcp(port) => {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, *port))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(LIMIT))?;
                Ok(Self::Tcp(stream))
            }
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.write_all(bytes),
            Self::Tcp(stream) => stream.write_all(bytes),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

/// A request that is under way.
struct Asked {
    question: usize,
    number: u64,
    at: Instant,
}

struct Connection {
    stream: Stream,
    asked: VecDeque<Asked>,
    input: Vec<u8>,
    output: Vec<u8>,
}

/// A client with some connections to one server.
pub(super) struct Client {
    server: &'static str,
    connections: Vec<Connection>,
    epoll: Epoll,
    depth: usize,
    number: u64,
}

impl Client {
    pub(super) fn new(
        server: &'static str,
        place: &Place,
        connections: usize,
        depth: usize,
    ) -> Result<Self, Failure> {
        let failed = |source| Failure::Start {
            command: format!("connection to {server}"),
            source,
        };
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|e| failed(e.into()))?;
        let connect = |at: usize| {
            let stream = Stream::connect(place)?;
            epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, at as u64))?;
            Ok(Connection {
                stream,
                asked: VecDeque::new(),
                input: Vec::new(),
                output: Vec::new(),
            })
        };
        let connections = (0..connections).map(connect);
        let connections: io::Result<_> = connections.collect();
        Ok(Self {
            server,
            connections: connections.map_err(failed)?,
            epoll,
            depth,
            number: 0,
        })
    }

    /// Asks one question and returns whatever is answered, with number 0.
    pub(super) fn ask(&mut self, question: &Question) -> Result<Vec<u8>, Failure> {
        let server = self.server;
        let broken = |source| broken(server, source);
        self.number += 1;
        let number = self.number;
        let connection = &mut self.connections[0];
        connection.push(question, 0, number, Instant::now());
        connection.flush().map_err(broken)?;
        while connection.input.len() < question.answer.len() {
            if connection.receive().map_err(broken)? < question.answer.len() {
                break;
            }
        }
        connection.asked.clear();
        let mut answer = std::mem::take(&mut connection.input);
        let right = answer.get(TID) == Some(number.to_ne_bytes().as_slice());
        ensure(right, || format!("{server} answers {answer:02x?}"))?;
        answer[TID].fill(0);
        Ok(answer)
    }

    /// Asks the questions round and round for a time.
    pub(super) fn drive(
        &mut self,
        questions: &[Question],
        time: Duration,
    ) -> Result<Sample, Failure> {
        let server = self.server;
        let broken = |source| broken(server, source);
        let mut next = (0..questions.len()).cycle();
        let mut latencies = Vec::with_capacity(1 << 16);
        let started = Instant::now();
        let mut now = started;
        for connection in &mut self.connections {
            for _ in 0..self.depth {
                self.number += 1;
                let question = next.next().unwrap_or_default();
                connection.push(&questions[question], question, self.number, now);
            }
            connection.flush().map_err(broken)?;
        }
        let end = started + time;
        let mut events = vec![EpollEvent::empty(); self.connections.len()];
        let mut under_way = self.connections.len() * self.depth;
        while under_way > 0 {
            let ready = self.ready(&mut events).map_err(broken)?;
            for event in &events[..ready] {
                let connection = &mut self.connections[event.data() as usize];
                connection.receive().map_err(broken)?;
                now = Instant::now();
                while let Some(asked) = connection.take(questions, server)? {
                    let latency = now.duration_since(asked.at).as_nanos();
                    latencies.push(u32::try_from(latency).unwrap_or(u32::MAX));
                    under_way -= 1;
                    if now < end {
                        self.number += 1;
                        let question = next.next().unwrap_or_default();
                        connection.push(&questions[question], question, self.number, now);
                        under_way += 1;
                    }
                }
                connection.flush().map_err(broken)?;
            }
        }
        Ok(Sample {
            answers: latencies.len() as u64,
            time: started.elapsed(),
            latencies,
        })
    }

    /// The connections that have something to read.
    fn ready(&self, events: &mut [EpollEvent]) -> io::Result<usize> {
        if self.connections.len() == 1 {
            events[0] = EpollEvent::new(EpollFlags::EPOLLIN, 0);
            return Ok(1);
        }
        let limit = EpollTimeout::try_from(LIMIT).unwrap_or(EpollTimeout::MAX);
        match self.epoll.wait(events, limit)? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            ready => Ok(ready),
        }
    }
}

fn broken(server: &str, source: io::Error) -> Failure {
    Failure::Start {
        command: format!("request to {server}"),
        source,
    }
}

impl Connection {
    /// Puts a request down to be sent.
    fn push(&mut self, question: &Question, at: usize, number: u64, now: Instant) {
        let start = self.output.len();
        self.output.extend_from_slice(&question.request);
        self.output[start..][TID].copy_from_slice(&number.to_ne_bytes());
        self.asked.push_back(Asked {
            question: at,
            number,
            at: now,
        });
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.output.is_empty() {
            self.stream.write(&self.output)?;
            self.output.clear();
        }
        Ok(())
    }

    /// Reads what there is, at least one byte, and says how much of an answer there is now.
    fn receive(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 8192];
        let read = self.stream.read(&mut buffer)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.input.extend_from_slice(&buffer[..read]);
        Ok(self.input.len())
    }

    /// Takes the next answer if all of it has come: it must be that to the oldest request.
    fn take(&mut self, questions: &[Question], server: &str) -> Result<Option<Asked>, Failure> {
        let Some(asked) = self.asked.front() else {
            return ensure(self.input.is_empty(), || {
                format!("{server} says something that nobody asked for")
            })
            .map(|()| None);
        };
        let right = &questions[asked.question].answer;
        let Some(answer) = self.input.get(..right.len()) else {
            return Ok(None);
        };
        let number = answer[TID] == asked.number.to_ne_bytes();
        let same =
            answer[..TID.start] == right[..TID.start] && answer[TID.end..] == right[TID.end..];
        ensure(number && same, || {
            format!("{server} answers {answer:02x?}, not {right:02x?}")
        })?;
        self.input.drain(..right.len());
        Ok(self.asked.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread::JoinHandle;

    use super::*;

    fn questions() -> Vec<Question> {
        let question = |number: u8| Question {
            request: [vec![0; 16], vec![number; 72]].concat(),
            answer: [vec![0; 16], vec![number; 144]].concat(),
        };
        (0..5).map(question).collect()
    }

    /// Answers the requests of one client, in pieces, until it goes; wrongly from `wrong` on.
    fn serve(listener: UnixListener, wrong: usize) -> JoinHandle<usize> {
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = [0; 88];
            let mut served = 0;
            while stream.read_exact(&mut request).is_ok() {
                let number = request[16] + u8::from(served >= wrong);
                let answer = [request[..16].to_vec(), vec![number; 144]].concat();
                let pieces = answer.split_at(7 * (served % 20));
                let sent = stream
                    .write_all(pieces.0)
                    .and_then(|()| stream.write_all(pieces.1));
                served += usize::from(sent.is_ok());
            }
            served
        })
    }

    fn drive(name: &str, depth: usize, wrong: usize) -> (Result<Sample, Failure>, usize) {
        let file = format!("acm-bench-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let server = serve(UnixListener::bind(&path).expect("a new path"), wrong);
        let client = Client::new("test", &Place::Unix(path.clone()), 1, depth);
        std::fs::remove_file(&path).expect("bound above");
        let sample = client.and_then(|mut client| {
            let alone = client.ask(&questions()[2])?;
            assert_eq!(alone, questions()[2].answer);
            client.drive(&questions(), Duration::from_millis(30))
        });
        (sample, server.join().expect("no panic"))
    }

    #[test]
    fn right_answers_are_counted() {
        for (name, depth) in [("one", 1), ("many", 8)] {
            let (sample, served) = drive(name, depth, usize::MAX);
            let sample = sample.expect("right answers");
            assert_eq!(sample.answers as usize + 1, served);
            assert_eq!(sample.latencies.len() + 1, served);
            assert!(served > depth);
        }
    }

    #[test]
    fn one_wrong_answer_is_enough() {
        let (sample, served) = drive("wrong", 1, 4);
        let failure = sample.err().map(|failure| failure.to_string());
        assert!(failure.is_some_and(|text| text.starts_with("test answers [")));
        assert_eq!(served, 5);
    }
}
