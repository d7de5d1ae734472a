// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events for applications that opted in, through the event channel they already read.
//!
//! An application waits for a channel by `poll`, `epoll` or a blocking `rdma_get_cm_event` on a
//! descriptor that belongs to the kernel's rdma_ucm, so only rdma_ucm can wake it. A *doorbell*
//! makes it do so: an id of our own on the application's channel that resolves the address of a
//! local port. The kernel queues its ADDR_RESOLVED behind the events that are there, all waiters
//! wake, and `rdma_get_cm_event` hands out our event in the doorbell's place. So our events stand
//! in one order with librdmacm's, and the descriptor is untouched.
//!
//! A channel has one doorbell for each event that waits. An event that is not wanted any more is dropped
//! together with a doorbell, or the channel would stay readable with nothing to be read from it.
#![allow(unsafe_code)]

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem::{take, zeroed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use cm_msgs::control::AppEvent;
use cm_msgs::path::Path;
use cm_msgs::{Gid, PKey};
use rdma_sys::{rdma_cm_event, rdma_cm_event_type, rdma_cm_id};

pub(crate) use self::bell::Bell;
use crate::connection::IdKey;

mod bell;

/// Events kept for one channel: an application that has stopped reading must not fill up with them.
const MAX_PENDING: usize = 64;

/// The address of an event channel: a key, dereferenced only while the channel is known to exist.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ChannelKey(pub(crate) usize);

/// What an event tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// An event of our own, for applications that opted in.
    Apm(AppEvent),
    /// librdmacm's, where the CM's DREQ may not get through; each id gets one, whosever comes first.
    Disconnected,
}

/// An event on its way to the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) id: IdKey,
    pub(crate) kind: Kind,
    /// 0, or a positive errno.
    pub(crate) status: u8,
}

/// A local port: what a doorbell resolves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LocalPort {
    pub(crate) gid: Gid,
    pub(crate) pkey: PKey,
}

impl LocalPort {
    /// Where a path begins.
    pub(crate) const fn of(path: &Path) -> Self {
        Self {
            gid: path.sgid,
            pkey: path.pkey,
        }
    }
}

/// An event on a channel, and a doorbell of the channel's that has not been heard.
struct Waiting {
    event: Event,
    port: LocalPort,
    bell: Bell,
}

/// The application's channels and the events on their way to it.
#[derive(Default)]
pub(crate) struct Channels {
    inner: Mutex<Inner>,
    /// An event has been acknowledged.
    acknowledged: Condvar,
}

#[derive(Default)]
struct Inner {
    /// Channels that the application made; those that librdmacm makes for synchronous ids have no
    /// reader for our events.
    known: HashSet<ChannelKey>,
    /// Where an id's events go.
    routes: HashMap<IdKey, Route>,
    /// All events of an id are on the channel where it is.
    pending: HashMap<ChannelKey, VecDeque<Waiting>>,
    /// Events that the application has and has not acknowledged, each with its id.
    delivered: HashMap<usize, IdKey>,
    /// Ids whose applications were told that they are disconnected.
    disconnected: HashSet<IdKey>,
    /// Migrated connections, by their numbers, whose applications have disconnected and wait for the
    /// event of it.
    leaving: HashMap<u64, (IdKey, LocalPort)>,
}

enum Route {
    To(ChannelKey),
    /// The id moves to another channel.
    Moving(Vec<(Event, LocalPort)>),
}

impl Channels {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The application made a channel.
    pub(crate) fn add(&self, channel: ChannelKey) {
        self.inner().known.insert(channel);
    }

    /// Whether it is one that the application made.
    pub(crate) fn has(&self, channel: ChannelKey) -> bool {
        self.inner().known.contains(&channel)
    }

    /// The application destroys a channel. Returns its doorbells, which the caller destroys before it.
    pub(crate) fn remove(&self, channel: ChannelKey) -> Vec<Bell> {
        let mut inner = self.inner();
        inner.known.remove(&channel);
        inner
            .routes
            .retain(|_, route| !matches!(route, Route::To(to) if *to == channel));
        let waiting = inner.pending.remove(&channel).unwrap_or_default();
        waiting.into_iter().map(|waiting| waiting.bell).collect()
    }

    /// Events of the id go to this channel, if the application reads it.
    pub(crate) fn route(&self, id: IdKey, channel: ChannelKey) {
        let mut inner = self.inner();
        if inner.known.contains(&channel) {
            inner.routes.insert(id, Route::To(channel));
        }
    }

    /// The id is gone: its events are not wanted any more. Returns their doorbells, which the caller
    /// destroys before the id: so long the application keeps their channel.
    pub(crate) fn forget_id(&self, id: IdKey) -> Vec<Bell> {
        let mut inner = self.inner();
        inner.routes.remove(&id);
        inner.disconnected.remove(&id);
        inner.leaving.retain(|_, (leaving, _)| *leaving != id);
        inner.drop_events(|event| event.id == id)
    }

    /// The id is about to move to another channel: its events wait, and go there. Returns their
    /// doorbells, which the caller destroys before the id moves: so long the application keeps their
    /// channel.
    pub(crate) fn hold(&self, id: IdKey) -> Vec<Bell> {
        let mut inner = self.inner();
        if !matches!(inner.routes.get(&id), Some(Route::To(_))) {
            return Vec::new();
        }
        let waiting = inner.take_out(|event| event.id == id);
        let events = waiting.iter().map(|waiting| (waiting.event, waiting.port));
        inner.routes.insert(id, Route::Moving(events.collect()));
        waiting.iter().map(|waiting| waiting.bell).collect()
    }

    /// The id is on this channel now.
    pub(crate) fn release(&self, id: IdKey, channel: ChannelKey) {
        let mut inner = self.inner();
        let Some(Route::Moving(waiting)) = inner.routes.remove(&id) else {
            return;
        };
        if !inner.known.contains(&channel) {
            return;
        }
        inner.routes.insert(id, Route::To(channel));
        for (event, port) in waiting {
            inner.post(event, channel, port);
        }
    }

    /// Sends an event on its way.
    pub(crate) fn post(&self, event: Event, port: LocalPort) {
        self.inner().send(event, port);
    }

    /// A doorbell's event came out of the kernel. Returns the event of ours that is next, as the
    /// application gets it; it lives until [`Self::acknowledge`]. The caller destroys the doorbell.
    /// `None`: somebody else does, and its event has been dropped.
    pub(crate) fn rung(&self, channel: ChannelKey, bell: Bell) -> Option<*mut rdma_cm_event> {
        let mut inner = self.inner();
        let waiting = inner.pending.get_mut(&channel)?;
        // Doorbells may be heard in another order than they were rung in; events keep theirs.
        let heard = waiting.iter().position(|waiting| waiting.bell == bell)?;
        waiting[heard].bell = waiting.front()?.bell;
        let event = waiting.pop_front()?.event;
        if event.kind == Kind::Disconnected {
            inner.disconnected.insert(event.id);
        }
        let out = event.handed_out();
        // Under the same lock: at any time who destroys the id finds the event in one table or the other.
        inner.delivered.insert(out as usize, event.id);
        Some(out)
    }

    /// The kernel says that an id is disconnected. `None`: its application has been told so by an event
    /// of ours. Else such events are not wanted any more; returns their doorbells, which the caller
    /// destroys before it hands out the kernel's event.
    pub(crate) fn first_disconnect(&self, id: IdKey) -> Option<Vec<Bell>> {
        let mut inner = self.inner();
        // Nothing of ours gets to an id without a route.
        if inner.routes.contains_key(&id) && !inner.disconnected.insert(id) {
            return None;
        }
        Some(inner.drop_events(|event| *event == Event::disconnected(id)))
    }

    /// The id's application disconnects a connection that has migrated.
    pub(crate) fn leaves(&self, number: u64, id: IdKey, port: LocalPort) {
        let mut inner = self.inner();
        if inner.routes.contains_key(&id) {
            inner.leaving.insert(number, (id, port));
        }
    }

    /// The peer has heard of that. Whether the connection was one of these.
    pub(crate) fn left(&self, number: u64) -> bool {
        let mut inner = self.inner();
        let leaving = inner.leaving.remove(&number);
        if let Some((id, port)) = leaving {
            inner.send(Event::disconnected(id), port);
        }
        leaving.is_some()
    }

    /// Frees an event if it is one of ours.
    pub(crate) fn acknowledge(&self, event: *mut rdma_cm_event) -> bool {
        let ours = self.inner().delivered.remove(&(event as usize)).is_some();
        if ours {
            // SAFETY: it was made by `handed_out`, and was in the table of those not yet freed.
            drop(unsafe { Box::from_raw(event) });
            self.acknowledged.notify_all();
        }
        ours
    }

    /// Waits until the application has acknowledged all events of ours that it has of an id: it has no
    /// business with the id after that, which librdmacm, too, waits for with its own.
    pub(crate) fn wait_for_acknowledgement(&self, id: IdKey) {
        let is_held = |inner: &mut Inner| inner.delivered.values().any(|of| *of == id);
        let idle = self.acknowledged.wait_while(self.inner(), is_held);
        drop(idle.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Event {
    pub(crate) const fn disconnected(id: IdKey) -> Self {
        Self {
            id,
            kind: Kind::Disconnected,
            status: 0,
        }
    }

    fn handed_out(self) -> *mut rdma_cm_event {
        // SAFETY: all zero is a valid event: null pointers and numbers.
        let mut out: Box<rdma_cm_event> = Box::new(unsafe { zeroed() });
        out.id = self.id.0 as *mut rdma_cm_id;
        out.event = code(self.kind);
        out.status = -i32::from(self.status);
        Box::into_raw(out)
    }
}

impl Inner {
    fn send(&mut self, event: Event, port: LocalPort) {
        match self.routes.get_mut(&event.id) {
            Some(Route::To(channel)) => {
                let channel = *channel;
                self.post(event, channel, port);
            }
            Some(Route::Moving(waiting)) => waiting.push((event, port)),
            None => {}
        }
    }

    fn post(&mut self, event: Event, channel: ChannelKey, port: LocalPort) {
        let pending = self.pending.entry(channel).or_default();
        let mut events = pending.iter().map(|waiting| waiting.event);
        match event.kind {
            Kind::Disconnected => {
                if self.disconnected.contains(&event.id) || events.any(|other| other == event) {
                    return;
                }
            }
            Kind::Apm(kind) => {
                let ours = events.filter(|event| matches!(event.kind, Kind::Apm(_)));
                if ours.count() >= MAX_PENDING {
                    crate::log::debug(&format_args!(
                        "event {kind:?} is dropped: nobody reads the channel"
                    ));
                    return;
                }
            }
        }
        // The lock is held throughout, so that the doorbell is known before it is heard.
        // SAFETY: the channel is known, and not destroyed before `Channels::remove` has the lock.
        match unsafe { Bell::ring(channel, port) } {
            Ok(bell) => pending.push_back(Waiting { event, port, bell }),
            Err(errno) => crate::log::debug(&format_args!(
                "event {:?} cannot be delivered: {errno}",
                event.kind
            )),
        }
    }

    /// Takes events off their channels, in order.
    fn take_out(&mut self, meant: impl Fn(&Event) -> bool) -> Vec<Waiting> {
        let mut out = Vec::new();
        for pending in self.pending.values_mut() {
            let all = take(pending).into_iter();
            let (meant, others) = all.partition::<VecDeque<_>, _>(|waiting| meant(&waiting.event));
            *pending = others;
            out.extend(meant);
        }
        out
    }

    /// The same for events that nobody wants any more: their doorbells.
    fn drop_events(&mut self, unwanted: impl Fn(&Event) -> bool) -> Vec<Bell> {
        let dropped = self.take_out(unwanted);
        dropped.into_iter().map(|waiting| waiting.bell).collect()
    }
}

/// `RDMA_CM_EVENT_*` of `rdma_apm.h`. Mainline's numbers end far below; 16 to 19, which an older
/// kernel patch had used for these, mean other things today.
pub(crate) const fn code(kind: Kind) -> u32 {
    match kind {
        Kind::Apm(event) => 0x1000 + event.code() as u32 - 1,
        Kind::Disconnected => rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED,
    }
}

/// The event's name, NUL included, if the number is one of ours.
pub(crate) fn name(code: u32) -> Option<&'static str> {
    Some(match code {
        0x1000 => "RDMA_CM_EVENT_ALT_ROUTE_RESOLVED\0",
        0x1001 => "RDMA_CM_EVENT_ALT_ROUTE_ERROR\0",
        0x1002 => "RDMA_CM_EVENT_LOAD_ALT_PATH\0",
        0x1003 => "RDMA_CM_EVENT_ALT_PATH_LOADED\0",
        0x1004 => "RDMA_CM_EVENT_PATH_MIGRATED\0",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
