// SPDX-License-Identifier: MIT OR Apache-2.0
//! What takes too long for the failover loop, on a thread that lives as long as it takes.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use mio::Waker;

use super::thread;

/// Wakes the loop, also when a thread ends; as the last field, after its end of the channel went.
pub(crate) struct Wake(pub(crate) Arc<Waker>);

impl Wake {
    pub(crate) fn wake(&self) {
        if let Err(error) = self.0.wake() {
            tracing::error!(%error, "the loop is not woken");
        }
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.wake();
    }
}

type Job<T> = Box<dyn FnOnce() -> T + Send>;

/// Makes a value anew at each request, one at a time; of requests meanwhile only the last counts.
pub(crate) struct Background<T> {
    name: &'static str,
    waker: Arc<Waker>,
    running: Option<Receiver<T>>,
    next: Option<Job<T>>,
}

impl<T: Send + 'static> Background<T> {
    pub(crate) fn new(name: &'static str, waker: Arc<Waker>) -> Self {
        Self {
            name,
            waker,
            running: None,
            next: None,
        }
    }

    pub(crate) fn start(&mut self, job: impl FnOnce() -> T + Send + 'static) {
        self.next = Some(Box::new(job));
        if self.running.is_none() {
            self.start_next();
        }
    }

    /// The value of the last request, once, when it is made.
    pub(crate) fn poll(&mut self) -> Option<T> {
        let value = match self.running.as_ref()?.try_recv() {
            Ok(value) => Some(value),
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                tracing::error!(thread = self.name, "a thread has ended without a result");
                None
            }
        };
        self.running = None;
        self.start_next();
        value.filter(|_| self.running.is_none())
    }

    fn start_next(&mut self) {
        let Some(job) = self.next.take() else { return };
        let (outbox, inbox) = channel();
        self.running = Some(inbox);
        let reply = Reply {
            outbox,
            _wake: Wake(Arc::clone(&self.waker)),
        };
        if let Err(error) = thread::spawn(self.name, move || reply.send(job())) {
            tracing::error!(thread = self.name, %error, "a thread does not start");
        }
    }
}

impl<T> fmt::Debug for Background<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background")
            .field("name", &self.name)
            .field("running", &self.running.is_some())
            .finish_non_exhaustive()
    }
}

struct Reply<T> {
    outbox: Sender<T>,
    _wake: Wake,
}

impl<T> Reply<T> {
    fn send(self, value: T) {
        // Whoever is not there any more does not want it.
        let _ = self.outbox.send(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll, Token};

    fn wait<T: Send + 'static>(poll: &mut Poll, background: &mut Background<T>) -> Option<T> {
        let mut events = Events::with_capacity(1);
        poll.poll(&mut events, None).unwrap();
        background.poll()
    }

    #[test]
    fn nobody_waits_for_a_job_and_the_last_request_counts() {
        let mut poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), Token(0)).unwrap();
        let mut background = Background::new("test", Arc::new(waker));
        let (go, may_go) = channel();
        background.start(move || may_go.recv().map_or(0, |()| 1));
        for number in 2..=3 {
            background.start(move || number);
        }
        assert_eq!(background.poll(), None, "it has not begun");
        go.send(()).unwrap();
        assert_eq!(wait(&mut poll, &mut background), None, "outdated");
        assert_eq!(wait(&mut poll, &mut background), Some(3));
        assert_eq!(background.poll(), None);
    }

    #[test]
    fn a_job_that_panics_is_not_the_last() {
        let mut poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), Token(0)).unwrap();
        let mut background = Background::new("test", Arc::new(waker));
        background.start(|| panic!("for the test"));
        assert_eq!(wait(&mut poll, &mut background), None::<u8>);
        background.start(|| 4);
        assert_eq!(wait(&mut poll, &mut background), Some(4));
    }
}
