// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls on event channels and events.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};

use rdma_sys::{rdma_cm_event, rdma_cm_event_type as event_type, rdma_cm_id, rdma_event_channel};

use crate::channel::{Bell, ChannelKey, name};
use crate::connection::IdKey;
use crate::export::export;
use crate::interpose::{aside, called_by_application, outer};
use crate::library::{IdView, library};
use crate::real::real;

export!(
    "rdma_create_event_channel",
    "RDMACM_1.0",
    create_event_channel
);
unsafe extern "C-unwind" fn create_event_channel() -> *mut rdma_event_channel {
    aside((), || library().begins());
    // SAFETY: the caller's own call.
    let channel = outer(|| unsafe { (real().rdma_create_event_channel)() });
    if !channel.is_null() && called_by_application() {
        aside((), || library().channels.add(ChannelKey(channel as usize)));
    }
    channel
}

export!(
    "rdma_destroy_event_channel",
    "RDMACM_1.0",
    destroy_event_channel
);
unsafe extern "C-unwind" fn destroy_event_channel(channel: *mut rdma_event_channel) {
    aside((), || {
        let bells = library().channels.remove(ChannelKey(channel as usize));
        // SAFETY: they come from the tables, and the channel is destroyed below.
        unsafe { Bell::destroy_all(bells) };
    });
    // SAFETY: the caller's own call.
    unsafe { (real().rdma_destroy_event_channel)(channel) };
}

export!("rdma_migrate_id", "RDMACM_1.0", migrate_id);
unsafe extern "C-unwind" fn migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    let key = IdKey(id as usize);
    aside((), || {
        let bells = library().channels.hold(key);
        // SAFETY: they come from the tables, and the id is still on their channel, which so exists.
        unsafe { Bell::destroy_all(bells) };
    });
    // SAFETY: the caller's own call.
    let result = outer(|| unsafe { (real().rdma_migrate_id)(id, channel) });
    aside((), || {
        // SAFETY: the caller's id is valid; moved or not, it is on this channel now.
        let now = ChannelKey(unsafe { (*id).channel } as usize);
        library().channels.release(key, now);
    });
    result
}

export!("rdma_get_cm_event", "RDMACM_1.0", get_cm_event);
unsafe extern "C-unwind" fn get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    loop {
        // SAFETY: the caller's own call.
        let result = outer(|| unsafe { (real().rdma_get_cm_event)(channel, event) });
        if result != 0 {
            return result;
        }
        // SAFETY: it has succeeded, so there is an event, of an id.
        let got = unsafe { *event };
        // SAFETY: an id is not destroyed before its events are acknowledged.
        match unsafe { Bell::of((*got).id) } {
            Some(bell) => {
                let channel = ChannelKey(channel as usize);
                // SAFETY: the event is the doorbell's, and nobody else has it.
                if let Some(ours) = aside(None, || unsafe { heard(channel, got, bell) }) {
                    // SAFETY: the caller's place for an event.
                    unsafe { *event = ours };
                    return 0;
                }
            }
            // SAFETY: the event is valid.
            None if aside(true, || is_news(unsafe { &*got })) => {
                // SAFETY: the event is valid.
                aside((), || unsafe { notice(&*got) });
                return 0;
            }
            // The application may have been told that the channel is readable, and there may be nothing
            // more. But one that has a thread wait here must not see EAGAIN, and which it is cannot be
            // known: the channel's mode decides.
            None => {
                // SAFETY: the event is valid, and nobody else has it.
                unsafe { (real().rdma_ack_cm_event)(got) };
            }
        }
    }
}

/// A doorbell's event has come: the event of ours that the application gets in its place.
///
/// # Safety
/// `got` is an event of the doorbell's that nobody else acknowledges.
unsafe fn heard(
    channel: ChannelKey,
    got: *mut rdma_cm_event,
    bell: Bell,
) -> Option<*mut rdma_cm_event> {
    let ours = library().channels.rung(channel, bell);
    // First of all: if another thread destroys the doorbell, it waits for this.
    // SAFETY: see above.
    unsafe { (real().rdma_ack_cm_event)(got) };
    let ours = ours?;
    // SAFETY: it comes from the tables; the application, which reads the channel, does not destroy it.
    unsafe { bell.destroy() };
    // SAFETY: the event is ours, and the application does not have it yet.
    let (event, id) = unsafe { ((*ours).event, (*ours).id) };
    if event == event_type::RDMA_CM_EVENT_DISCONNECTED {
        library().close_id(id);
    }
    Some(ours)
}

/// Whether the application has not been told this by us.
fn is_news(event: &rdma_cm_event) -> bool {
    if event.event != event_type::RDMA_CM_EVENT_DISCONNECTED {
        return true;
    }
    let id = IdKey(event.id as usize);
    let Some(bells) = library().channels.first_disconnect(id) else {
        return false;
    };
    // SAFETY: they come from the tables, and the id, whose event this is, is on their channel.
    unsafe { Bell::destroy_all(bells) };
    true
}

/// What an event means to us.
///
/// # Safety
/// The event is valid, not yet acknowledged, and so are its ids.
unsafe fn notice(event: &rdma_cm_event) {
    match event.event {
        event_type::RDMA_CM_EVENT_CONNECT_REQUEST => {
            let (child, listener) = (IdKey(event.id as usize), IdKey(event.listen_id as usize));
            library().registry.inherit(child, listener);
            // SAFETY: the event's id is valid.
            unsafe { library().routed(event.id) };
        }
        event_type::RDMA_CM_EVENT_ROUTE_RESOLVED => {
            // SAFETY: the event's id is valid.
            unsafe { library().routed(event.id) };
        }
        event_type::RDMA_CM_EVENT_ESTABLISHED => {
            // SAFETY: the event's id is valid.
            library().established(unsafe { IdView::of(event.id) });
        }
        // The passive side was managed before it heard from the peer.
        event_type::RDMA_CM_EVENT_CONNECT_ERROR
        | event_type::RDMA_CM_EVENT_UNREACHABLE
        | event_type::RDMA_CM_EVENT_REJECTED
        | event_type::RDMA_CM_EVENT_DISCONNECTED
        | event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT
        | event_type::RDMA_CM_EVENT_DEVICE_REMOVAL => library().close_id(event.id),
        _ => {}
    }
}

export!("rdma_ack_cm_event", "RDMACM_1.0", ack_cm_event);
unsafe extern "C-unwind" fn ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if aside(false, || library().channels.acknowledge(event)) {
        return 0;
    }
    // SAFETY: the caller's own call.
    unsafe { (real().rdma_ack_cm_event)(event) }
}

export!("rdma_event_str", "RDMACM_1.0", event_str);
unsafe extern "C-unwind" fn event_str(code: u32) -> *const c_char {
    match name(code) {
        Some(name) => name.as_ptr().cast(),
        // SAFETY: the caller's own call.
        None => unsafe { (real().rdma_event_str)(code) },
    }
}
