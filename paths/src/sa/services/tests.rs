// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use cm_msgs::sa::SaStatus;
use cm_msgs::{Guid, mad};

const PORT: PortId = PortId {
    node_guid: Guid(9),
    port: 1,
};
const OTHER: PortId = PortId { port: 2, ..PORT };

fn service(number: u16) -> Service {
    Service {
        gid: Gid::new(0xfe80 << 48, Guid(number.into())),
        lid: Lid(number),
        lmc: 0,
        pkey: PKey(0xffff),
    }
}

fn wanted(ports: &[(PortId, u16)]) -> Services {
    let mut services = Services::new(Random::new([0; 32]));
    for (port, number) in ports {
        services.handle_port(*port, Some(service(*number)));
    }
    assert_eq!(services.poll_ask(), None, "nobody wants it");
    services.set_wanted(true);
    services
}

/// What was asked: number, port, method, and whose record.
fn asked(services: &mut Services) -> Vec<(u32, PortId, u8, u16)> {
    let asks = std::iter::from_fn(|| services.poll_ask());
    asks.map(|ask| {
        let User::Service(number) = ask.user else {
            panic!("{:?}", ask.user);
        };
        let record = ServiceRecord::decode(ask.mad.data.first_chunk().unwrap());
        assert_eq!(record.service_id, SERVICE_ID);
        let whose = u16::from_be_bytes(*record.service_gid.0.last_chunk().unwrap());
        (number, ask.port, ask.mad.header.method, whose)
    })
    .collect()
}

fn yes() -> Result<Response, Failure> {
    table(&[])
}

fn table(records: &[ServiceRecord]) -> Result<Response, Failure> {
    Ok(Response {
        attribute: ServiceRecord::ATTRIBUTE,
        record_len: 176,
        data: records.iter().flat_map(ServiceRecord::encode).collect(),
    })
}

/// Everything that is asked is answered, tables by an empty one.
fn settle(services: &mut Services, now: Time) -> Vec<(PortId, u8, u16)> {
    let mut all = Vec::new();
    loop {
        let asks = asked(services);
        if asks.is_empty() {
            return all;
        }
        for (number, port, method, whose) in asks {
            all.push((port, method, whose));
            services.handle_reply(now, number, yes());
        }
    }
}

#[test]
fn each_port_is_registered_and_then_reads_who_else_is() {
    let mut services = wanted(&[(PORT, 1), (OTHER, 2)]);
    let asks = asked(&mut services);
    assert_eq!(
        asks,
        [
            (0, PORT, mad::METHOD_SET, 1),
            (1, OTHER, mad::METHOD_SET, 2)
        ]
    );
    services.handle_reply(Time(0), 1, yes());
    let get = mad::METHOD_GET_TABLE;
    assert_eq!(asked(&mut services), [(2, OTHER, get, 0)], "not before");
    services.handle_reply(Time(0), 2, yes());
    assert_eq!(services.take_found(), []);
}

#[test]
fn what_is_registered_says_where_the_daemon_is() {
    let own = Service {
        lmc: 2,
        pkey: PKey(0x8001),
        ..service(0x1234)
    };
    let record = own.record();
    assert_eq!(Service::of(&record.record), Some(own));
    assert_eq!(record.record.service_name.to_string(), "apmd");
    assert!((60..u32::MAX).contains(&record.record.service_lease));
}

#[test]
fn a_table_names_others_once_and_nothing_else() {
    let mut services = wanted(&[(PORT, 1)]);
    asked(&mut services);
    services.handle_reply(Time(0), 0, yes());
    asked(&mut services);
    let record = |number| service(number).record().record;
    let elsewhere = ServiceRecord {
        service_pkey: PKey(0x8005),
        ..record(7)
    };
    let foreign = ServiceRecord {
        service_id: 3,
        ..record(8)
    };
    let unversioned = ServiceRecord {
        service_data8: [0; 16],
        ..record(9)
    };
    let multicast = record(0xc001);
    let records = [
        record(1),
        record(5),
        elsewhere,
        foreign,
        unversioned,
        multicast,
        record(5),
    ];
    services.handle_reply(Time(0), 1, table(&records));
    let far = |lid, partition| FarPort {
        port: PORT,
        lid: Lid(lid),
        partition,
    };
    assert_eq!(services.take_found(), [far(5, 0x7fff), far(7, 5)]);
    assert_eq!(services.take_found(), []);
}

#[test]
fn a_table_of_junk_is_cut_short() {
    let mut services = wanted(&[(PORT, 1)]);
    asked(&mut services);
    services.handle_reply(Time(0), 0, yes());
    asked(&mut services);
    let junk: Vec<_> = (2..=6000).map(|lid| service(lid).record().record).collect();
    services.handle_reply(Time(0), 1, table(&junk));
    assert_eq!(services.take_found().len(), FOUND_MAX);
}

#[test]
fn renewals_read_no_table_and_leave_before_the_lease_ends() {
    let mut services = wanted(&[(PORT, 1)]);
    settle(&mut services, Time(5));
    let renewed = services.poll_timeout().unwrap();
    assert!(renewed < Time(5) + LEASE / 2, "{renewed:?}");
    services.handle_time(renewed);
    let asks = settle(&mut services, renewed);
    assert_eq!(asks, [(PORT, mad::METHOD_SET, 1)]);
    assert!(services.poll_timeout().unwrap() > renewed);
}

#[test]
fn another_subnet_manager_is_told_at_once_and_its_table_read_later() {
    let mut services = wanted(&[(PORT, 1)]);
    services.handle_sm_changed(Time(0), PORT);
    assert_eq!(settle(&mut services, Time(0)).len(), 2, "nothing was read");
    services.handle_sm_changed(Time(7), PORT);
    assert_eq!(settle(&mut services, Time(7)), [(PORT, mad::METHOD_SET, 1)]);
    let read = services.poll_timeout().unwrap();
    assert!(read <= Time(7) + Duration::from_secs(30), "{read:?}");
    services.handle_time(read);
    assert_eq!(
        settle(&mut services, read),
        [(PORT, mad::METHOD_GET_TABLE, 0)]
    );
}

#[test]
fn a_port_that_comes_up_registers_and_reads_at_once() {
    let mut services = wanted(&[(PORT, 1)]);
    settle(&mut services, Time(0));
    services.handle_port(PORT, None);
    services.handle_time(Time(u64::MAX));
    assert_eq!((services.poll_ask(), services.poll_timeout()), (None, None));
    services.handle_port(PORT, Some(service(1)));
    services.handle_port_up(PORT);
    assert_eq!(settle(&mut services, Time(9)).len(), 2);
}

#[test]
fn another_lid_replaces_the_record_and_another_gid_takes_it_away() {
    let mut services = wanted(&[(PORT, 1)]);
    settle(&mut services, Time(0));
    let moved = Service {
        lid: Lid(77),
        ..service(1)
    };
    services.handle_port(PORT, Some(moved));
    let asks = settle(&mut services, Time(0));
    let set = (PORT, mad::METHOD_SET, 1);
    assert_eq!(asks, [set, (PORT, mad::METHOD_GET_TABLE, 0)]);
    services.handle_port(PORT, Some(service(2)));
    let asks = settle(&mut services, Time(0));
    assert_eq!(asks[0], (PORT, mad::METHOD_DELETE, 1));
    assert_eq!(asks[1], (PORT, mad::METHOD_SET, 2));
}

#[test]
fn what_is_registered_is_taken_away_when_nobody_wants_it() {
    let mut services = wanted(&[(PORT, 1), (OTHER, 2)]);
    let asks = asked(&mut services);
    services.handle_reply(Time(0), asks[0].0, yes());
    services.handle_port_gone(OTHER);
    services.set_wanted(false);
    assert_eq!(
        settle(&mut services, Time(0)),
        [(PORT, mad::METHOD_DELETE, 1)]
    );
    assert_eq!((services.poll_ask(), services.poll_timeout()), (None, None));
    services.set_wanted(true);
    assert_eq!(settle(&mut services, Time(0)).len(), 2, "begun anew");
}

#[test]
fn a_refusal_is_tried_again_ever_more_slowly_and_no_table_is_read() {
    let mut services = wanted(&[(PORT, 1)]);
    let mut now = Time(0);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let [(number, _, mad::METHOD_SET, _)] = asked(&mut services)[..] else {
            panic!("not asked once");
        };
        let refused = Failure::Status(SaStatus::RequestDenied);
        services.handle_reply(now, number, Err(refused));
        assert_eq!(services.poll_ask(), None);
        let at = services.poll_timeout().unwrap();
        pauses.push((at - now).as_secs());
        now = at;
        services.handle_time(now);
    }
    assert!(pauses[0] < 3 && pauses[11] >= 480, "{pauses:?}");
    let [(number, ..)] = asked(&mut services)[..] else {
        panic!("not asked once");
    };
    services.handle_reply(now, number, yes());
    assert_eq!(settle(&mut services, now).len(), 1, "at last");
}
