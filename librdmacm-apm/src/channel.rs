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
use cm_msgs::{Gid, PKey};
use nix::errno::Errno;
use rdma_sys::{rdma_cm_event, rdma_cm_id, rdma_event_channel, rdma_port_space, rdma_resolve_addr};

use crate::connection::IdKey;
use crate::device::check;
use crate::real::real;

/// Events kept for one channel: an application that has stopped reading must not fill up with them.
const MAX_PENDING: usize = 64;

/// The address of an event channel: a key, dereferenced only while the channel is known to exist.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ChannelKey(pub(crate) usize);

/// An event that waits for its doorbell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) id: IdKey,
    pub(crate) kind: AppEvent,
    /// 0, or a positive errno.
    pub(crate) status: u8,
}

/// A local port: what a doorbell resolves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LocalPort {
    pub(crate) gid: Gid,
    pub(crate) pkey: PKey,
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
        let mut inner = self.inner();
        match inner.routes.get_mut(&event.id) {
            Some(Route::To(channel)) => {
                let channel = *channel;
                inner.post(event, channel, port);
            }
            Some(Route::Moving(waiting)) => waiting.push((event, port)),
            None => {}
        }
    }

    /// An event of this id came out of the kernel.
    pub(crate) fn rung(&self, id: IdKey) -> Rung {
        let mut inner = self.inner();
        let Some(channel) = inner.doorbells.remove(&id) else {
            return Rung::Foreign;
        };
        Rung::Doorbell(
            inner
                .pending
                .get_mut(&channel)
                .and_then(VecDeque::pop_front),
        )
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

impl Inner {
    fn post(&mut self, event: Event, channel: ChannelKey, port: LocalPort) {
        let pending = self.pending.entry(channel).or_default();
        if pending.len() >= MAX_PENDING {
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
pub(crate) const fn code(kind: AppEvent) -> u32 {
    0x1000 + kind.code() as u32 - 1
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
mod tests {
    use super::*;

    const ALL: [AppEvent; 5] = [
        AppEvent::AltRouteResolved,
        AppEvent::AltRouteError,
        AppEvent::LoadAltPath,
        AppEvent::AltPathLoaded,
        AppEvent::PathMigrated,
    ];

    #[test]
    fn every_event_has_a_number_and_a_name() {
        let header = include_str!("../include/rdma/rdma_apm.h");
        for kind in ALL {
            let name = name(code(kind)).expect("a name").trim_end_matches('\0');
            let definition = format!("{name} = {:#x}", code(kind));
            assert!(
                header.contains(&definition),
                "rdma_apm.h has no {definition}"
            );
        }
        assert_eq!((name(0x0fff), name(0x1005)), (None, None));
    }

    #[test]
    fn an_event_is_handed_out_and_acknowledged_once() {
        let channels = Channels::default();
        let event = Event {
            id: IdKey(0x40),
            kind: AppEvent::AltRouteError,
            status: 113,
        };
        let out = channels.deliver(event);
        // SAFETY: it was delivered and is not yet acknowledged.
        let (id, code, status) = unsafe { ((*out).id as usize, (*out).event, (*out).status) };
        assert_eq!((id, code, status), (0x40, 0x1001, -113));
        assert!(channels.acknowledge(out));
        assert!(!channels.acknowledge(out), "this one is librdmacm's");
    }

    #[test]
    fn an_event_whose_bell_cannot_be_rung_leaves_nothing_behind() {
        // Without a device, or with one and no descriptor, rdma_create_id fails.
        let dead = rdma_event_channel { fd: -1 };
        let (channel, id) = (ChannelKey(&raw const dead as usize), IdKey(0x40));
        let channels = Channels::default();
        let port = LocalPort {
            gid: Gid::default(),
            pkey: PKey(0xffff),
        };
        channels.route(id, channel);
        assert!(
            channels.inner().routes.is_empty(),
            "not the application's channel"
        );
        channels.add(channel);
        channels.route(id, channel);
        channels.post(
            Event {
                id,
                kind: AppEvent::PathMigrated,
                status: 0,
            },
            port,
        );
        let inner = channels.inner();
        assert!(inner.doorbells.is_empty() && inner.pending.values().all(VecDeque::is_empty));
    }

    #[test]
    fn events_of_a_moving_id_wait_and_follow_it() {
        let (old, new, id) = (ChannelKey(0x100), ChannelKey(0x200), IdKey(0x40));
        let channels = Channels::default();
        let port = LocalPort {
            gid: Gid::default(),
            pkey: PKey(0xffff),
        };
        channels.add(old);
        channels.route(id, old);
        channels.hold(id);
        channels.post(
            Event {
                id,
                kind: AppEvent::PathMigrated,
                status: 0,
            },
            port,
        );
        let waits = |route: &Route| matches!(route, Route::Moving(events) if events.len() == 1);
        assert!(channels.inner().routes.get(&id).is_some_and(waits));
        // To a channel that the application does not read: nobody wants them.
        channels.release(id, new);
        assert!(channels.inner().routes.is_empty() && channels.inner().pending.is_empty());
    }

    #[test]
    fn a_destroyed_channel_gives_back_its_bells() {
        let (channel, bell) = (ChannelKey(0x100), IdKey(0x50));
        let channels = Channels::default();
        channels.add(channel);
        channels.route(IdKey(0x40), channel);
        channels.inner().doorbells.insert(bell, channel);
        assert_eq!(channels.remove(channel), [bell]);
        assert!(channels.inner().routes.is_empty() && channels.inner().doorbells.is_empty());
        assert!(matches!(channels.rung(bell), Rung::Foreign));
    }

    #[test]
    fn bells_hand_out_events_in_the_order_in_which_they_were_posted() {
        let channel = ChannelKey(0x100);
        let event = |id, kind| Event {
            id: IdKey(id),
            kind,
            status: 0,
        };
        let channels = Channels::default();
        {
            let mut inner = channels.inner();
            inner.doorbells.extend([
                (IdKey(1), channel),
                (IdKey(2), channel),
                (IdKey(3), channel),
            ]);
            inner.pending.entry(channel).or_default().extend([
                event(0x40, AppEvent::AltRouteResolved),
                event(0x60, AppEvent::LoadAltPath),
                event(0x40, AppEvent::LoadAltPath),
            ]);
        }
        channels.forget_id(IdKey(0x60));
        let rung = |bell| match channels.rung(IdKey(bell)) {
            Rung::Doorbell(event) => event,
            Rung::Foreign => panic!("{bell} is a bell"),
        };
        assert_eq!(rung(2), Some(event(0x40, AppEvent::AltRouteResolved)));
        assert_eq!(rung(1), Some(event(0x40, AppEvent::LoadAltPath)));
        assert_eq!(rung(3), None);
    }
}
