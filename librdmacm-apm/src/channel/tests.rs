// SPDX-License-Identifier: MIT OR Apache-2.0
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
    let channels = Channels::default();
    let event = Event {
        id: IdKey(0x40),
        kind: Kind::Apm(AppEvent::AltRouteError),
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
            kind: Kind::Apm(AppEvent::PathMigrated),
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
            kind: Kind::Apm(AppEvent::PathMigrated),
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
fn an_id_is_disconnected_once_whoever_says_so_first() {
    let (channel, told, heard) = (ChannelKey(0x100), IdKey(0x40), IdKey(0x60));
    let channels = Channels::default();
    channels.add(channel);
    for id in [told, heard] {
        channels.route(id, channel);
    }
    {
        let mut inner = channels.inner();
        inner
            .doorbells
            .extend([(IdKey(1), channel), (IdKey(2), channel)]);
        let events = [told, heard].map(Event::disconnected);
        inner.pending.entry(channel).or_default().extend(events);
    }
    // Of one the kernel has told before the doorbell is heard, of the other after that.
    assert!(channels.is_first_disconnect(heard));
    assert!(matches!(channels.rung(IdKey(1)), Rung::Doorbell(Some(event)) if event.id == told));
    assert!(matches!(channels.rung(IdKey(2)), Rung::Doorbell(None)));
    assert!(!channels.is_first_disconnect(told));
    // Another id at the address, and ids of which the library knows nothing.
    channels.forget_id(told);
    channels.route(told, channel);
    assert!(channels.is_first_disconnect(told));
    assert!(channels.is_first_disconnect(IdKey(0x80)));
    assert!(channels.is_first_disconnect(IdKey(0x80)));
}

#[test]
fn an_id_that_is_destroyed_hears_no_more_of_its_disconnect() {
    let (channel, id) = (ChannelKey(0x100), IdKey(0x40));
    let port = LocalPort {
        gid: Gid::default(),
        pkey: PKey(0xffff),
    };
    let channels = Channels::default();
    channels.leaves(7, id, port);
    assert!(!channels.left(7), "its channel is not the application's");
    channels.add(channel);
    channels.route(id, channel);
    channels.leaves(7, id, port);
    channels.forget_id(id);
    assert!(!channels.left(7));
    // A move of the id keeps the event from a channel that there is not.
    channels.route(id, channel);
    channels.leaves(8, id, port);
    channels.hold(id);
    assert!(channels.left(8) && !channels.left(8));
}

#[test]
fn bells_hand_out_events_in_the_order_in_which_they_were_posted() {
    let channel = ChannelKey(0x100);
    let event = |id, kind| Event {
        id: IdKey(id),
        kind: Kind::Apm(kind),
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
