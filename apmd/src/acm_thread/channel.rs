// SPDX-License-Identifier: MIT OR Apache-2.0
//! Between the failover loop and ACM's thread: one bounded channel each way. Whoever gives
//! something wakes the other's poll; nobody waits for room.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use acm::{Interface, LocalPort};
use cm_msgs::Gid;
use cm_msgs::sa::{PathRecord, SaMad};
use mio::Waker;
use paths::sa::{Failure, Response};
use paths::source::Question;
use statemachine::{Origin, PortId, QueryError};

use crate::config;
use crate::observe::filter::DestinationFilter;

/// Messages that wait in a channel. The thread asks far fewer questions at a time, so that their
/// answers find room unless news pile up as well.
const CAPACITY: usize = 256;

/// This host, as far as ACM goes.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) config: config::Acm,
    /// How often the configuration was read again: ibacm's files are, too.
    pub(super) reloads: u32,
    pub(super) ports: BTreeMap<PortId, LocalPort>,
    pub(super) interfaces: Vec<Interface>,
}

#[derive(Debug)]
pub(super) enum ToThread {
    /// Something about the host is different, and may be so again before this is read.
    Host(Box<Host>),
    /// Other news found no room: whatever can be different is to be looked at again.
    Everything(Box<Host>),
    /// A port has another subnet manager, or the same one anew.
    SmChanged(PortId),
    FabricChanged,
    /// A switch reported that a link of its own has changed.
    LinkChanged,
    /// A port has left the fabric.
    GidGone(Gid),
    Paths {
        number: u32,
        origin: Option<Origin>,
        result: Result<Vec<PathRecord>, QueryError>,
    },
    Joined(u32, Result<Response, Failure>),
    /// An operator, by his key, wants to see ACM's state.
    Show(u32, DestinationFilter),
    Stop,
}

#[derive(Debug)]
pub(super) enum FromThread {
    Ask(Question),
    Join {
        user: u32,
        port: PortId,
        mad: Box<SaMad>,
    },
    /// JSON for the operator.
    Shown(u32, Vec<u8>),
    Status(Status),
}

/// What the failover loop is told without asking.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Status {
    /// The TCP port at which ACM is served.
    pub(super) tcp_port: Option<u16>,
    /// What an operator should look at, in words.
    pub(super) problems: Vec<String>,
}

/// The giving end. The other end is woken also when this one goes.
#[derive(Debug)]
pub(super) struct Sender<T> {
    channel: SyncSender<T>,
    waker: Arc<Waker>,
}

pub(super) fn channel<T>(waker: Arc<Waker>) -> (Sender<T>, Receiver<T>) {
    let (channel, receiver) = sync_channel(CAPACITY);
    (Sender { channel, waker }, receiver)
}

impl<T> Sender<T> {
    /// Gives a message, unless there is no room for it or nobody is there.
    pub(super) fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        self.channel.try_send(message)?;
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "poll not woken");
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.wake();
    }
}
