// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events for applications that opted in, through the event channel they already read.
//!
//! An application waits for a channel by `poll`, `epoll` or a blocking `rdma_get_cm_event` on a
//! descriptor that belongs to the kernel's rdma_ucm, so only rdma_ucm can wake it. A *doorbell*
//! makes it do so: an id of our own on the application's channel that resolves the address of a
//! local port. The kernel queues its ADDR_RESOLVED behind the events that are there, all waiters
//! wake, and `rdma_get_cm_event` hands out our event in the doorbell's place. So our events stand
//! in one order with librdmacm's, and the descriptor is untouched.
#![allow(unsafe_code)]

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cm_msgs::control::AppEvent;
use cm_msgs::path::Path;
use cm_msgs::{Gid, PKey};
use nix::errno::Errno;
use rdma_sys::{
    rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_event_channel, rdma_port_space,
    rdma_resolve_addr,
};

use crate::connection::IdKey;
use crate::device::check;
use crate::real::real;

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

/// An event that waits for its doorbell.
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

/// The application's channels and the events on their way to it.
#[derive(Default)]
pub(crate) struct Channels(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// Channels that the application made; those that librdmacm makes for synchronous ids have no
    /// reader for our events.
    known: HashSet<ChannelKey>,
    /// Where an id's events go.
    routes: HashMap<IdKey, Route>,
    pending: HashMap<ChannelKey, VecDeque<Event>>,
    doorbells: HashMap<IdKey, ChannelKey>,
    /// Handed out, not yet acknowledged.
    delivered: HashSet<usize>,
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

/// What a doorbell stood for.
pub(crate) enum Rung {
    /// The event is no doorbell's.
    Foreign,
    /// It was one, and this is what it stood for, if that is still wanted.
    Doorbell(Option<Event>),
}

impl Channels {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The application made a channel.
    pub(crate) fn add(&self, channel: ChannelKey) {
        self.inner().known.insert(channel);
    }

    /// The application destroys a channel. Returns the doorbells on it, which the caller destroys
    /// before the channel.
    pub(crate) fn remove(&self, channel: ChannelKey) -> Vec<IdKey> {
        let mut inner = self.inner();
        inner.known.remove(&channel);
        inner.pending.remove(&channel);
        inner
            .routes
            .retain(|_, route| !matches!(route, Route::To(to) if *to == channel));
        let on_it: Vec<IdKey> = inner
            .doorbells
            .iter()
            .filter(|&(_, &on)| on == channel)
            .map(|(&id, _)| id)
            .collect();
        inner.doorbells.retain(|_, on| *on != channel);
        on_it
    }

    /// Events of the id go to this channel, if the application reads it.
    pub(crate) fn route(&self, id: IdKey, channel: ChannelKey) {
        let mut inner = self.inner();
        if inner.known.contains(&channel) {
            inner.routes.insert(id, Route::To(channel));
        }
    }

    /// The id is gone: its events are not wanted any more.
    pub(crate) fn forget_id(&self, id: IdKey) {
        let mut inner = self.inner();
        inner.routes.remove(&id);
        inner.disconnected.remove(&id);
        inner.leaving.retain(|_, (leaving, _)| *leaving != id);
        for events in inner.pending.values_mut() {
            events.retain(|event| event.id != id);
        }
    }

    /// The id is about to move to another channel: its events wait.
    pub(crate) fn hold(&self, id: IdKey) {
        let mut inner = self.inner();
        if let Some(route) = inner.routes.get_mut(&id) {
            *route = Route::Moving(Vec::new());
        }
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

    /// An event of this id came out of the kernel.
    pub(crate) fn rung(&self, id: IdKey) -> Rung {
        let mut inner = self.inner();
        let Some(channel) = inner.doorbells.remove(&id) else {
            return Rung::Foreign;
        };
        let pending = inner.pending.get_mut(&channel);
        let event = pending.and_then(VecDeque::pop_front);
        Rung::Doorbell(event.filter(|event| match event.kind {
            Kind::Apm(_) => true,
            Kind::Disconnected => inner.disconnected.insert(event.id),
        }))
    }

    /// The kernel says that an id is disconnected. False if its application has been told so by an
    /// event of ours.
    pub(crate) fn is_first_disconnect(&self, id: IdKey) -> bool {
        let mut inner = self.inner();
        // Nothing of ours gets to an id without a route.
        !inner.routes.contains_key(&id) || inner.disconnected.insert(id)
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

    /// The event as the application gets it; it lives until [`Self::acknowledge`].
    pub(crate) fn deliver(&self, event: Event) -> *mut rdma_cm_event {
        // SAFETY: all zero is a valid event: null pointers and numbers.
        let mut out: Box<rdma_cm_event> = Box::new(unsafe { zeroed() });
        out.id = event.id.0 as *mut rdma_cm_id;
        out.event = code(event.kind);
        out.status = -i32::from(event.status);
        let out = Box::into_raw(out);
        self.inner().delivered.insert(out as usize);
        out
    }

    /// Frees an event if it is one of ours.
    pub(crate) fn acknowledge(&self, event: *mut rdma_cm_event) -> bool {
        let ours = self.inner().delivered.remove(&(event as usize));
        if ours {
            // SAFETY: it was made by `deliver`, and was in the set of those not yet freed.
            drop(unsafe { Box::from_raw(event) });
        }
        ours
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
        let again = event.kind == Kind::Disconnected && self.disconnected.contains(&event.id);
        let pending = self.pending.entry(channel).or_default();
        let is_ours = |event: &&Event| matches!(event.kind, Kind::Apm(_));
        if again || event.kind == Kind::Disconnected && pending.contains(&event) {
            return;
        }
        if is_ours(&&event) && pending.iter().filter(is_ours).count() >= MAX_PENDING {
            crate::log::debug(&format_args!(
                "event {:?} is dropped: nobody reads the channel",
                event.kind
            ));
            return;
        }
        pending.push_back(event);
        if let Err(errno) = self.ring(channel, port) {
            crate::log::debug(&format_args!(
                "event {:?} cannot be delivered: {errno}",
                event.kind
            ));
            if let Some(events) = self.pending.get_mut(&channel) {
                events.pop_back();
            }
        }
    }

    /// Makes a doorbell and rings it. The lock is held throughout: the channel is not destroyed
    /// before [`Channels::remove`] got it, and the bell is known before it can be heard.
    fn ring(&mut self, channel: ChannelKey, port: LocalPort) -> Result<(), Errno> {
        let mut bell = null_mut();
        // SAFETY: the channel is known, so the application has not destroyed it.
        check(unsafe {
            let channel = channel.0 as *mut rdma_event_channel;
            (real().rdma_create_id)(channel, &mut bell, null_mut(), rdma_port_space::RDMA_PS_TCP)
        })?;
        self.doorbells.insert(IdKey(bell as usize), channel);
        let mut address = SockaddrIb::of(port);
        // SAFETY: `bell` is the new id; librdmacm reads as much of the address as its family has.
        let rung = check(unsafe {
            let address = (&raw mut address).cast::<libc::sockaddr>();
            rdma_resolve_addr(bell, null_mut(), address.cast(), RESOLVE_TIMEOUT_MS)
        });
        if rung.is_err() {
            self.doorbells.remove(&IdKey(bell as usize));
            // SAFETY: the id was made above, and no event of it is outstanding.
            unsafe { (real().rdma_destroy_id)(bell) };
        }
        rung
    }
}

/// Resolving a local address does not wait for anybody.
const RESOLVE_TIMEOUT_MS: i32 = 1000;

/// `struct sockaddr_ib` of `infiniband/ib.h`; addresses and masks big-endian.
#[repr(C)]
struct SockaddrIb {
    family: u16,
    pkey: [u8; 2],
    flow_info: [u8; 4],
    address: [u8; 16],
    service_id: [u8; 8],
    service_mask: [u8; 8],
    scope_id: u64,
}

impl SockaddrIb {
    /// `AF_IB`.
    const FAMILY: u16 = 27;
    /// `RDMA_IB_IP_PS_TCP`.
    const TCP_PORT_SPACE: u64 = 0x0106_0000;
    /// `RDMA_IB_IP_PS_MASK`.
    const PORT_SPACE_MASK: u64 = 0xffff_ffff_ffff_0000;

    fn of(port: LocalPort) -> Self {
        Self {
            family: Self::FAMILY,
            pkey: port.pkey.0.to_be_bytes(),
            flow_info: [0; 4],
            address: port.gid.0,
            service_id: Self::TCP_PORT_SPACE.to_be_bytes(),
            service_mask: Self::PORT_SPACE_MASK.to_be_bytes(),
            scope_id: 0,
        }
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
