// SPDX-License-Identifier: MIT OR Apache-2.0
//! The least that any server could do: it knows every request and its answer by heart, never sleeps,
//! and does nothing but read, look up and write. What it reaches is the most that this machine and
//! this client leave room for.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::client::Client;
use super::client::Place;
use super::preload::DIRECTORY;
use super::question::{Question, TID};
use super::server::{Transport, cpu_time_of};
use crate::failure::Failure;

/// Where a message says how long it is; in the order of this host's bytes.
const LENGTH: std::ops::Range<usize> = 6..8;

trait Stream: Read + Write + AsFd {}
impl<T: Read + Write + AsFd> Stream for T {}

/// Answers by their requests.
type Answers = HashMap<Vec<u8>, Vec<u8>>;

/// What the thread is to do.
#[derive(Default)]
struct Orders {
    /// Leave the processor to others.
    rest: AtomicBool,
    end: AtomicBool,
}

/// A thread that serves one client; it ends when dropped.
pub(super) struct Bare {
    place: Place,
    task: String,
    orders: Arc<Orders>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Bare {
    /// Starts it.
    pub(super) fn start(
        transport: Transport,
        questions: &[Question],
        connections: usize,
    ) -> Result<Self, Failure> {
        let answers = questions.iter();
        let answers = answers.map(|one| (one.request.clone(), one.answer.clone()));
        let answers: Answers = answers.collect();
        let (place, accept) = listen(transport).map_err(failed)?;
        let orders = Arc::new(Orders::default());
        let (tell, told) = std::sync::mpsc::channel();
        let given = Arc::clone(&orders);
        let thread = std::thread::spawn(move || {
            let _ = tell.send(fs::read_link("/proc/thread-self"));
            let streams: io::Result<Vec<_>> = (0..connections).map(|_| accept()).collect();
            serve(streams?, &answers, &given)
        });
        let task = told.recv().map_err(|error| failed(io::Error::other(error)));
        let task = task?.map_err(failed)?;
        Ok(Self {
            place,
            task: format!("/proc/{}", task.display()),
            orders,
            thread: Some(thread),
        })
    }

    /// While others are measured, it is not to have the processor.
    pub(super) fn rest(&self, rest: bool) {
        self.orders.rest.store(rest, Ordering::Relaxed);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Its one client.
    pub(super) fn client(&self, connections: usize) -> Result<Client, Failure> {
        Client::new("the bare server", &self.place, connections, 1)
    }

    /// Processor time that it has had.
    pub(super) fn cpu_time(&self) -> Result<Duration, Failure> {
        cpu_time_of(Path::new(&self.task))
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.orders.end.store(true, Ordering::Relaxed);
        self.rest(false);
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("apm-acm-bench: the bare server: {error}");
        }
        if let Place::Unix(path) = &self.place {
            let _ = fs::remove_file(path);
        }
    }
}

fn failed(source: io::Error) -> Failure {
    Failure::Start {
        command: "the bare server".to_owned(),
        source,
    }
}

type Accept = Box<dyn Fn() -> io::Result<Box<dyn Stream + Send>> + Send>;

fn listen(transport: Transport) -> io::Result<(Place, Accept)> {
    Ok(match transport {
        Transport::Unix => {
            let path = Path::new(DIRECTORY).join("bare.sock");
            let listener = UnixListener::bind(&path)?;
            let accept = move || {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Box::new(stream) as _)
            };
            (Place::Unix(path), Box::new(accept))
        }
        Transport::Tcp => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let port = listener.local_addr()?.port();
            let accept = move || {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream) as _)
            };
            (Place::Tcp(port), Box::new(accept))
        }
    })
}

/// With one client it need not ask which is ready.
fn serve(
    mut streams: Vec<Box<dyn Stream + Send>>,
    answers: &Answers,
    orders: &Orders,
) -> io::Result<()> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for (at, stream) in streams.iter().enumerate() {
        epoll.add(stream, EpollEvent::new(EpollFlags::EPOLLIN, at as u64))?;
    }
    let mut events = vec![EpollEvent::empty(); streams.len()];
    while !orders.end.load(Ordering::Relaxed) {
        while orders.rest.load(Ordering::Relaxed) {
            std::thread::park();
        }
        if let [stream] = streams.as_mut_slice() {
            answer(stream, answers)?;
            continue;
        }
        let ready = epoll.wait(&mut events, EpollTimeout::ZERO)?;
        for event in &events[..ready] {
            answer(&mut streams[event.data() as usize], answers)?;
        }
    }
    Ok(())
}

/// Answers the one request that is there, if there is one. A client that has gone is not noticed.
fn answer(stream: &mut Box<dyn Stream + Send>, answers: &Answers) -> io::Result<()> {
    let mut buffer = [0; 1024];
    let read = match stream.read(&mut buffer) {
        Ok(0) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
        read => read?,
    };
    let request = &mut buffer[..read];
    let mut number = [0; 8];
    number.copy_from_slice(&request[TID]);
    request[TID].fill(0);
    let whole = usize::from(u16::from_ne_bytes([
        request[LENGTH.start],
        request[LENGTH.start + 1],
    ]));
    let known = answers.get(&*request).filter(|_| whole == read);
    let known = known.ok_or_else(|| io::Error::other(format!("unknown request {request:02x?}")))?;
    let out = &mut buffer[..known.len()];
    out.copy_from_slice(known);
    out[TID].copy_from_slice(&number);
    stream.write_all(out)
}
