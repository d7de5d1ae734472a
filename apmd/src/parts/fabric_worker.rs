// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that reads and compares whole fabrics, so that the loop does not stand still: at
//! 40,960 hosts that takes seconds. It asks the SA through the loop and hands over what is ready.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Instant;

use mio::Waker;
use pathdb::{Fabric, RiskFile, snapshot};

use paths::fabric::{Job, Outcome, Progress, ReadError, Reader, Reading, Task};
use paths::sa::{Ask, Failure, Response};

use crate::io::background::Wake;
use crate::io::thread::spawn;

/// What the loop says.
enum ToThread {
    Job(Box<Job>),
    Reply(u32, Result<Response, Failure>),
}

/// What the thread says.
#[derive(Debug)]
pub(super) enum FromThread {
    /// To be asked of the SA; the reply is for [`FabricWorker::reply`].
    Ask(Box<Ask>),
    /// How far a reading is.
    Progress(Progress),
    /// The job is done.
    Done(Outcome),
}

/// The thread, as the loop sees it. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct FabricWorker {
    to: Sender<ToThread>,
    from: Receiver<FromThread>,
}

impl FabricWorker {
    /// Starts it. It wakes the loop with `waker` whenever it has something to say.
    ///
    /// # Errors
    /// No resources.
    pub(super) fn start(waker: Arc<Waker>) -> io::Result<Self> {
        let (to, inbox) = channel();
        let (outbox, from) = channel();
        let thread = Thread {
            inbox,
            outbox,
            waker: Wake(waker),
            next_number: 0,
            seen: None,
            seen_risks: None,
        };
        spawn("fabric", || thread.run())?;
        Ok(Self { to, from })
    }

    /// Gives it a job.
    pub(super) fn job(&self, job: Job) {
        // Whether it is still there is seen when it is heard.
        let _ = self.to.send(ToThread::Job(Box::new(job)));
    }

    /// Gives it a reply of the SA's.
    pub(super) fn reply(&self, number: u32, reply: Result<Response, Failure>) {
        let _ = self.to.send(ToThread::Reply(number, reply));
    }

    /// What it says, if anything.
    ///
    /// # Errors
    /// It has ended, which it must not.
    pub(super) fn hear(&self) -> Result<Option<FromThread>, Ended> {
        match self.from.try_recv() {
            Ok(said) => Ok(Some(said)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Ended),
        }
    }
}

/// The thread has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended;

/// By what a file is recognised.
type Stamp = (u64, u64, i64, i64, u64);

fn stamp(path: &Path) -> io::Result<Stamp> {
    let file = fs::metadata(path)?;
    let time = (file.mtime(), file.mtime_nsec());
    Ok((file.dev(), file.ino(), time.0, time.1, file.len()))
}

struct Thread {
    inbox: Receiver<ToThread>,
    outbox: Sender<FromThread>,
    next_number: u32,
    /// The snapshot that was last read or written, and the shared-risk groups then.
    seen: Option<Stamp>,
    seen_risks: Option<Stamp>,
    waker: Wake,
}

/// Sets what fails together as far as the fabric has it. Without that the fabric is of use all the
/// same.
fn set_risks(fabric: &mut Fabric, path: &Path) {
    match RiskFile::read(path) {
        Ok(file) => {
            let (risks, missing) = file.bind(fabric);
            for error in missing {
                tracing::warn!(%error, "member of a shared-risk group not found");
            }
            fabric.set_risks(risks);
        }
        Err(error) => tracing::error!(%error, "shared-risk groups not read"),
    }
}

impl Thread {
    fn run(mut self) {
        while let Ok(said) = self.inbox.recv() {
            // Replies to a reading that has ended are too late.
            if let ToThread::Job(job) = said {
                let outcome = self.job(*job);
                self.say(FromThread::Done(outcome));
            }
        }
    }

    fn say(&self, what: FromThread) {
        if self.outbox.send(what).is_ok() {
            self.waker.wake();
        }
    }

    fn job(&mut self, job: Job) -> Outcome {
        let begun = Instant::now();
        let risks = job.risks.as_deref();
        let stamp_of_risks = risks.and_then(|path| stamp(path).ok());
        if self.seen_risks != stamp_of_risks {
            // The fabric that is known has other groups.
            self.seen = None;
            self.seen_risks = stamp_of_risks;
        }
        let (found, file) = match &job.task {
            Task::Load(path) => (self.load(path), None),
            Task::Read(reading, snapshot) => (self.read(*reading), snapshot.as_deref()),
        };
        let mut found = match found {
            Ok(Some(found)) => found,
            Ok(None) => return Outcome::Same,
            Err(error) => return error,
        };
        let read_ms = begun.elapsed().as_millis() as u64;
        if let Some(path) = risks {
            set_risks(&mut found, path);
        }
        let outcome = job.judge(found);
        if let Outcome::New(fabric, matters) = &outcome {
            tracing::info!(
                epoch = fabric.epoch(),
                nodes = fabric.nodes().count(),
                switches = fabric.switch_count(),
                megabytes = fabric.table_bytes() >> 20,
                matters,
                read_ms,
                compare_ms = begun.elapsed().as_millis() as u64 - read_ms,
                "another fabric"
            );
            self.save(fabric, file);
        }
        outcome
    }

    /// `None`: it is the one that was last read or written.
    fn load(&mut self, path: &Path) -> Result<Option<Fabric>, Outcome> {
        let stamp = match stamp(path) {
            Ok(stamp) if self.seen == Some(stamp) => return Ok(None),
            Ok(stamp) => stamp,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Outcome::NoSnapshot);
            }
            Err(error) => {
                let text = format!("{}: {error}", path.display());
                return Err(Outcome::Failed(text));
            }
        };
        self.seen = Some(stamp);
        let loaded = snapshot::load(path);
        loaded
            .map(Some)
            .map_err(|error| Outcome::Failed(error.to_string()))
    }

    fn read(&mut self, reading: Reading) -> Result<Option<Fabric>, Outcome> {
        if reading.unrouted {
            tracing::warn!("ports stay in state init: forwarding tables are read all the same");
        }
        let mut reader = Reader::new(reading, self.next_number);
        let outcome = loop {
            while let Some(ask) = reader.poll_ask() {
                self.say(FromThread::Ask(Box::new(ask)));
            }
            if let Some(outcome) = reader.poll_outcome() {
                break outcome;
            }
            self.say(FromThread::Progress(reader.progress()));
            match self.inbox.recv() {
                Ok(ToThread::Reply(number, reply)) => reader.handle_reply(number, reply),
                // The loop gives one job at a time; without a loop nobody wants to know.
                Ok(ToThread::Job(_)) | Err(_) => {
                    return Err(Outcome::Failed("broken off".to_owned()));
                }
            }
        };
        self.next_number = reader.next_number();
        outcome.map(Some).map_err(|error| match error {
            ReadError::Unrouted { .. } => Outcome::Unrouted(error.to_string()),
            error => Outcome::Failed(error.to_string()),
        })
    }

    /// Writes the snapshot of a fabric that was read live.
    fn save(&mut self, fabric: &Fabric, file: Option<&Path>) {
        let Some(path) = file else { return };
        let saved = path
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .map_err(|error| format!("{}: {error}", path.display()))
            .and_then(|()| snapshot::save(fabric, path).map_err(|error| error.to_string()));
        match saved {
            Ok(_) => self.seen = stamp(path).ok(),
            Err(error) => tracing::error!(error, "snapshot of the fabric not written"),
        }
    }
}
