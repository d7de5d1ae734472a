// SPDX-License-Identifier: MIT OR Apache-2.0
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rdma_sys::rdma_event_channel;

use super::*;

const PORT: LocalPort = LocalPort {
    gid: Gid([0; 16]),
    pkey: PKey(0xffff),
};

const fn apm(id: IdKey, event: AppEvent) -> Event {
    Event {
        id,
        kind: Kind::Apm(event),
        status: 0,
    }
}

/// The id, number and status of an event.
type Read = (usize, u32, i32);

fn as_read(event: Event) -> Read {
    (event.id.0, code(event.kind), -i32::from(event.status))
}

/// What stands in an event that was handed out and is not acknowledged.
fn read(out: *mut rdma_cm_event) -> Read {
    // SAFETY: see above.
    unsafe { ((*out).id as usize, (*out).event, (*out).status) }
}

impl Channels {
    /// What the application reads when a doorbell is heard. It acknowledges it at once.
    fn heard(&self, channel: ChannelKey, bell: usize) -> Option<Read> {
        let out = self.rung(channel, Bell(bell))?;
        let what = read(out);
        assert!(self.acknowledge(out));
        Some(what)
    }

    /// An event as if it had been posted and a doorbell rung: there is no kernel to do that here.
    fn wait(&self, channel: ChannelKey, bell: usize, event: Event) {
        let (bell, port) = (Bell(bell), PORT);
        let waiting = Waiting { event, port, bell };
        let mut inner = self.inner();
        inner.pending.entry(channel).or_default().push_back(waiting);
    }
}

const ALL: [AppEvent; 5] = [
    AppEvent::AltRouteResolved,
    AppEvent::AltRouteError,
    AppEvent::LoadAltPath,
    AppEvent::AltPathLoaded,
    AppEvent::PathMigrated,
];

#[test]
fn every_event_has_a_number_and_a_name() {
    let header = include_str!("../../include/rdma/rdma_apm.h");
    for kind in ALL {
        let name = name(code(Kind::Apm(kind)))
            .expect("a name")
            .trim_end_matches('\0');
        let definition = format!("{name} = {:#x}", code(Kind::Apm(kind)));
        assert!(
            header.contains(&definition),
            "rdma_apm.h has no {definition}"
        );
    }
    assert_eq!((name(0x0fff), name(0x1005)), (None, None));
}

#[test]
fn an_event_is_handed_out_and_acknowledged_once() {
    let channel = ChannelKey(0x100);
    let channels = Channels::default();
    let event = Event {
        id: IdKey(0x40),
        kind: Kind::Apm(AppEvent::AltRouteError),
        status: 113,
    };
    channels.wait(channel, 1, event);
    let out = channels.rung(channel, Bell(1)).expect("an event");
    assert_eq!(read(out), (0x40, 0x1001, -113));
    assert!(channels.acknowledge(out));
    assert!(!channels.acknowledge(out), "this one is librdmacm's");
}

#[test]
fn an_id_is_not_destroyed_before_its_events_are_acknowledged() {
    let (channel, id, other) = (ChannelKey(0x100), IdKey(0x40), IdKey(0x60));
    let channels = Channels::default();
    for (bell, id) in [(1, id), (2, id), (3, other), (4, id)] {
        channels.wait(channel, bell, apm(id, AppEvent::LoadAltPath));
    }
    let out = [1, 2, 3].map(|bell| channels.rung(channel, Bell(bell)).expect("an event"));
    // What nobody has read is not waited for.
    assert_eq!(channels.forget_id(id), [Bell(4)]);
    let acknowledged = AtomicUsize::new(0);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            channels.wait_for_acknowledgement(id);
            acknowledged.load(Ordering::SeqCst)
        });
        for event in &out[..2] {
            // Time in which one that does not wait comes to its end.
            for _ in 0..20 {
                thread::sleep(Duration::from_millis(1));
                assert!(!waits.is_finished());
            }
            acknowledged.fetch_add(1, Ordering::SeqCst);
            assert!(channels.acknowledge(*event));
        }
        assert_eq!(waits.join().expect("ends"), 2);
    });
    // Nobody has one of this id, whatever there is of others.
    channels.wait_for_acknowledgement(id);
    assert!(channels.acknowledge(out[2]));
    channels.wait_for_acknowledgement(other);
}

#[test]
fn an_event_whose_bell_cannot_be_rung_leaves_nothing_behind() {
    // Without a device, or with one and no descriptor, rdma_create_id fails.
    let dead = rdma_event_channel { fd: -1 };
    let (channel, id) = (ChannelKey(&raw const dead as usize), IdKey(0x40));
    let channels = Channels::default();
    channels.route(id, channel);
    assert!(
        channels.inner().routes.is_empty(),
        "not the application's channel"
    );
    channels.add(channel);
    channels.route(id, channel);
    channels.post(apm(id, AppEvent::PathMigrated), PORT);
    assert!(channels.inner().pending.values().all(VecDeque::is_empty));
}

#[test]
fn events_of_a_moving_id_wait_and_follow_it() {
    let (old, new, id) = (ChannelKey(0x100), ChannelKey(0x200), IdKey(0x40));
    let channels = Channels::default();
    channels.add(old);
    channels.route(id, old);
    let events = [AppEvent::LoadAltPath, AppEvent::AltPathLoaded].map(|kind| apm(id, kind));
    channels.wait(old, 1, events[0]);
    channels.wait(old, 2, apm(IdKey(0x60), AppEvent::LoadAltPath));
    assert_eq!(channels.hold(id), [Bell(1)], "the old channel wakes nobody");
    channels.post(events[1], PORT);
    let all = events.map(|event| (event, PORT));
    let waits = |route: &Route| matches!(route, Route::Moving(events) if events[..] == all);
    assert!(channels.inner().routes.get(&id).is_some_and(waits));
    assert!(channels.hold(id).is_empty() && channels.inner().routes.get(&id).is_some_and(waits));
    // To a channel that the application does not read: nobody wants them.
    channels.release(id, new);
    assert!(channels.inner().routes.is_empty());
    assert_eq!(channels.remove(old), [Bell(2)]);
}

#[test]
fn a_destroyed_channel_gives_back_its_bells() {
    let (channel, id) = (ChannelKey(0x100), IdKey(0x40));
    let channels = Channels::default();
    channels.add(channel);
    channels.route(id, channel);
    channels.wait(channel, 1, Event::disconnected(id));
    assert_eq!(channels.remove(channel), [Bell(1)]);
    assert!(channels.inner().routes.is_empty() && channels.inner().pending.is_empty());
    assert_eq!(channels.heard(channel, 1), None);
}

#[test]
fn an_id_is_disconnected_once_whoever_says_so_first() {
    let (channel, told, heard) = (ChannelKey(0x100), IdKey(0x40), IdKey(0x60));
    let channels = Channels::default();
    channels.add(channel);
    for id in [told, heard] {
        channels.route(id, channel);
    }
    channels.wait(channel, 1, Event::disconnected(told));
    channels.wait(channel, 2, Event::disconnected(heard));
    // Of one the kernel tells before the doorbell is heard, of the other after that.
    assert_eq!(channels.first_disconnect(heard), Some(vec![Bell(2)]));
    assert_eq!(channels.first_disconnect(heard), None);
    let event = channels.heard(channel, 1);
    assert_eq!(event, Some(as_read(Event::disconnected(told))));
    assert_eq!(channels.first_disconnect(told), None);
    // Another id at the address, and ids of which the library knows nothing.
    channels.forget_id(told);
    channels.route(told, channel);
    assert_eq!(channels.first_disconnect(told), Some(vec![]));
    assert_eq!(channels.first_disconnect(IdKey(0x80)), Some(vec![]));
    assert_eq!(channels.first_disconnect(IdKey(0x80)), Some(vec![]));
}

#[test]
fn an_id_that_is_destroyed_hears_no_more_of_its_disconnect() {
    let (channel, id) = (ChannelKey(0x100), IdKey(0x40));
    let channels = Channels::default();
    channels.leaves(7, id, PORT);
    assert!(!channels.left(7), "its channel is not the application's");
    channels.add(channel);
    channels.route(id, channel);
    channels.leaves(7, id, PORT);
    channels.forget_id(id);
    assert!(!channels.left(7));
    // A move of the id keeps the event from a channel that there is not.
    channels.route(id, channel);
    channels.leaves(8, id, PORT);
    channels.hold(id);
    assert!(channels.left(8) && !channels.left(8));
}

#[test]
fn bells_hand_out_events_in_the_order_in_which_they_were_posted() {
    let channel = ChannelKey(0x100);
    let channels = Channels::default();
    let events = [
        apm(IdKey(0x40), AppEvent::AltRouteResolved),
        apm(IdKey(0x60), AppEvent::LoadAltPath),
        apm(IdKey(0x40), AppEvent::LoadAltPath),
    ];
    for (bell, event) in (1..).zip(events) {
        channels.wait(channel, bell, event);
    }
    for (bell, event) in [3, 1, 2].into_iter().zip(events) {
        assert_eq!(channels.heard(channel, bell), Some(as_read(event)));
    }
    assert_eq!(channels.heard(channel, 3), None);
}

#[test]
fn an_event_that_is_dropped_takes_a_bell_with_it() {
    let (channel, other) = (ChannelKey(0x100), ChannelKey(0x200));
    let (gone, id) = (IdKey(0x60), IdKey(0x40));
    let channels = Channels::default();
    channels.wait(channel, 1, apm(id, AppEvent::AltRouteResolved));
    channels.wait(channel, 2, apm(gone, AppEvent::LoadAltPath));
    channels.wait(channel, 3, apm(gone, AppEvent::AltPathLoaded));
    channels.wait(channel, 4, apm(id, AppEvent::LoadAltPath));
    channels.wait(other, 5, apm(id, AppEvent::LoadAltPath));
    // One is heard before its turn, so that the bell of the first is left for another event.
    let first = as_read(apm(id, AppEvent::AltRouteResolved));
    assert_eq!(channels.heard(channel, 3), Some(first));
    assert_eq!(channels.forget_id(gone), [Bell(2), Bell(1)]);
    // Another thread had read its event: there is nothing for it, and it leaves the bell alone.
    assert_eq!(channels.heard(channel, 1), None);
    let last = as_read(apm(id, AppEvent::LoadAltPath));
    assert_eq!(channels.heard(channel, 4), Some(last));
    assert_eq!(channels.remove(other), [Bell(5)]);
}
