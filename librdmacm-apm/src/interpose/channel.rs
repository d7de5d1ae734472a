// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls on event channels and events.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};

use rdma_sys::{rdma_cm_event, rdma_cm_event_type as event_type, rdma_cm_id, rdma_event_channel};

use crate::channel::{ChannelKey, Kind, Rung, name};
use crate::connection::IdKey;
use crate::export::export;
use crate::interpose::{aside, called_by_application, outer};
use crate::library::library;
use crate::real::real;

export!(
    "rdma_create_event_channel",
    "RDMACM_1.0",
    create_event_channel
);
unsafe extern "C-unwind" fn create_event_channel() -> *mut rdma_event_channel {
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
        for bell in library().channels.remove(ChannelKey(channel as usize)) {
            // SAFETY: it is an id of ours that nobody else knows any more.
            unsafe { (real().rdma_destroy_id)(bell.0 as *mut rdma_cm_id) };
        }
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
    aside((), || library().channels.hold(key));
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
        // SAFETY: as above.
        let id = unsafe { (*got).id };
        match aside(Rung::Foreign, || {
            library().channels.rung(IdKey(id as usize))
        }) {
            Rung::Foreign => {
                // SAFETY: the event is valid.
                let wanted = aside(true, || is_news(unsafe { &*got }));
                if !wanted {
                    // SAFETY: the event is valid, and nobody else has it.
                    unsafe { (real().rdma_ack_cm_event)(got) };
                    continue;
                }
                // SAFETY: the event is valid.
                aside((), || unsafe { notice(&*got) });
                return 0;
            }
            Rung::Doorbell(ours) => {
                // SAFETY: the event and the id are of a doorbell, which is ours and used up.
                unsafe {
                    (real().rdma_ack_cm_event)(got);
                    (real().rdma_destroy_id)(id);
                }
                if let Some(ours) = ours {
                    if ours.kind == Kind::Disconnected {
                        aside((), || library().close_id(ours.id.0 as *mut rdma_cm_id));
                    }
                    // SAFETY: the caller's place for an event.
                    unsafe { *event = library().channels.deliver(ours) };
                    return 0;
                }
            }
        }
    }
}

/// Whether the application has not been told this by us.
fn is_news(event: &rdma_cm_event) -> bool {
    event.event != event_type::RDMA_CM_EVENT_DISCONNECTED
        || library()
            .channels
            .is_first_disconnect(IdKey(event.id as usize))
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
            unsafe { library().established(event.id) };
        }
        // The passive side was looked after before it heard from the peer.
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
