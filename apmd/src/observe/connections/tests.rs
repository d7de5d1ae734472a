// SPDX-License-Identifier: MIT OR Apache-2.0
use std::collections::BTreeSet;
use std::sync::Arc;

use cm_msgs::control::{MigrationState, PolicyOverride, QpState, Register, Role, Snapshot};
use cm_msgs::sa::{NodeDescription, NodeRecord, Record, SaMad};
use cm_msgs::{Gid, Lid, PKey, Qpn};
use paths::fabric::Outcome;
use paths::sa::{Response, User};
use paths::source::ssa::Settings;
use statemachine::{Config, Input, Payer, PortId, PortStatus, Random};
use test_fabrics::two_rails::{self, Shape};

use super::*;

const NODE: Guid = Guid(0x10);
const NOW: Time = Time(1_000_000);

fn gid(last: u8) -> Gid {
    let mut gid = [0; 16];
    gid[15] = last;
    Gid(gid)
}

/// An engine with a port, and this many connections of each of the clients 7 and 8.
fn engine(conns: u32) -> Engine {
    let mut engine = Engine::new(Config::default(), Random::new([7; 32]));
    let port = PortId {
        node_guid: NODE,
        port: 1,
    };
    let status = PortStatus {
        active: true,
        lid: Lid(1),
        lmc: 0,
        sm_lid: Lid(9),
        sm_guid: Guid(1),
        gid: gid(1),
        pkeys: vec![PKey::DEFAULT_FULL],
        mtu: 4,
        rate: 7,
        apm: true,
        moves_idle: false,
        infiniband: true,
        device_ports: 2,
    };
    engine.handle(Time(0), Input::Port(port, Some(status)));
    for client in [7, 8] {
        for conn in 1..=conns {
            let primary = path::Path {
                port: 1,
                slid: Lid(1),
                dlid: Lid(2),
                sgid: gid(1),
                dgid: gid(2),
                pkey: PKey::DEFAULT_FULL,
                ..path::Path::default()
            };
            let number = client * 10_000 + conn;
            let register = Register {
                role: Role::Active,
                opted_in: false,
                node_guid: NODE,
                qpn: Qpn(number),
                peer_qpn: Qpn(number),
                policy: PolicyOverride::default(),
                snapshot: Snapshot {
                    qp_state: QpState::Rts,
                    migration: MigrationState::Migrated,
                    primary,
                    alternate: None,
                },
            };
            let id = ConnId { client, conn };
            engine.handle(Time(0), Input::Register(id, Payer(1), register));
        }
    }
    engine
}

#[test]
fn the_peer_has_a_name_where_the_fabric_is_known() {
    let fabric = two_rails::fabric(Shape::default());
    let mut ssa = Ssa::new(crate::config::Ssa::default().settings());
    ssa.poll_job(NOW, &[]).expect("to be read at the start");
    let peer = |ssa: &Ssa| {
        let page = page_from(&engine(1), ssa, 0, &ConnectionFilter::default());
        page.expect("all").connections[0].qp.peer_node.clone()
    };
    assert_eq!(peer(&ssa), None);
    ssa.handle_outcome(NOW, Outcome::New(Arc::new(fabric), true));
    assert_eq!(peer(&ssa).as_deref(), Some("node 1"), "LID 2");
}

#[test]
fn the_peer_has_the_name_that_subnet_administration_knows() {
    let mut names = NodeNames::new(Random::new([7; 32]));
    let port = PortId::new(NODE, 1);
    names.handle_port(port, Some(0));
    names.want(NOW, port, Lid(2));
    let peer = |names: &NodeNames| {
        let (engine, ssa) = (engine(1), Ssa::new(Settings::default()));
        let known = PeerDaemons::default();
        let page = page_with(
            &engine,
            &ssa,
            names,
            &known,
            0,
            &ConnectionFilter::default(),
        );
        page.expect("all").connections[0].qp.peer_node.clone()
    };
    assert_eq!(peer(&names), None);
    let ask = names.poll_ask(NOW).expect("asked for");
    let User::Node(number) = ask.user else {
        panic!("{ask:?}");
    };
    let mut description = NodeDescription::default();
    description.0[..5].copy_from_slice(b"node7");
    let record = NodeRecord::any().lid(Lid(2)).node_description(description);
    let answer = Response {
        attribute: NodeRecord::ATTRIBUTE,
        record_len: 112,
        data: SaMad::get(0, &record).data.to_vec(),
    };
    names.handle_reply(NOW, number, Ok(answer));
    assert_eq!(peer(&names).as_deref(), Some("node7"));
}

#[test]
fn a_peer_whose_kernel_answers_in_its_daemons_place_is_silent() {
    let engine = engine(1);
    let mut known = PeerDaemons::default();
    let shown = |known: &PeerDaemons| {
        let ssa = Ssa::new(Settings::default());
        let page = page_with(
            &engine,
            &ssa,
            &no_names(),
            known,
            0,
            &ConnectionFilter::default(),
        );
        let daemon = &page.expect("all").connections[0].association.peer_daemon;
        (daemon.state.clone(), daemon.heard_seconds)
    };
    assert_eq!(shown(&known), ("unknown".to_owned(), None));
    let port = PortId::new(NODE, 1);
    known.answered(Time(500_000), port, Lid(2), true);
    assert_eq!(shown(&known), ("answers".to_owned(), Some(0.5)));
    known.answered(NOW, port, Lid(2), false);
    assert_eq!(shown(&known), ("silent".to_owned(), Some(0.5)));
}

/// What a user is shown: client 7 is a program of user 1000, client 8 of user 1001.
fn page(engine: &Engine, uid: u32, filter: &ConnectionFilter) -> Result<ConnectionPage, String> {
    page_from(engine, &Ssa::new(Settings::default()), uid, filter)
}

/// The same with what is known of the fabric.
fn page_from(
    engine: &Engine,
    ssa: &Ssa,
    uid: u32,
    filter: &ConnectionFilter,
) -> Result<ConnectionPage, String> {
    let known = PeerDaemons::default();
    page_with(engine, ssa, &no_names(), &known, uid, filter)
}

fn no_names() -> NodeNames {
    NodeNames::new(Random::new([7; 32]))
}

/// The same with names of peers' nodes, and with what is known of their daemons.
fn page_with(
    engine: &Engine,
    ssa: &Ssa,
    names: &NodeNames,
    peer_daemons: &PeerDaemons,
    uid: u32,
    filter: &ConnectionFilter,
) -> Result<ConnectionPage, String> {
    let client = |pid, uid| Client {
        peer: Peer { pid, uid },
        command: Some("rping".to_owned()),
    };
    let (seven, eight) = (client(70, 1000), client(80, 1001));
    let connections = Connections {
        now: NOW,
        engine,
        devices: &Devices::for_test(),
        client: &|id| Some(if id.client == 7 { &seven } else { &eight }),
        warnings: &|_| Vec::new(),
        ssa,
        names,
        peer_daemons,
        observer: Peer { pid: 1, uid },
        history: false,
    };
    connections.page(filter).map_err(|refused| refused.error)
}

#[test]
fn an_answer_is_bounded_and_all_connections_come_in_turn() {
    let engine = engine(2500);
    let walk = |mut filter: ConnectionFilter| {
        let mut pages = Vec::new();
        let mut seen = BTreeSet::new();
        loop {
            let page = page(&engine, 0, &filter).expect("no such filter is refused");
            pages.push(page.connections.len());
            seen.extend(page.connections.into_iter().map(|conn| conn.id));
            match page.next {
                Some(next) => filter.after = Some(next),
                None => return (pages, seen.len()),
            }
        }
    };
    let (pages, seen) = walk(ConnectionFilter::default());
    assert_eq!((pages.iter().max(), seen), (Some(&SHOWN_MAX), 5000));
    // Those that fit no filter are work, too.
    let last = ConnectionFilter {
        qpn: Some(82_500),
        ..ConnectionFilter::default()
    };
    assert_eq!(walk(last), (vec![0, 1], 1));
    let of_pid = ConnectionFilter {
        pid: Some(80),
        ..ConnectionFilter::default()
    };
    assert_eq!(walk(of_pid).1, 2500);
    let of_owner = |owner: &str| ConnectionFilter {
        owner: Some(owner.to_owned()),
        ..ConnectionFilter::default()
    };
    let counts = ["rping", "rping[70]", "kernel"].map(|owner| walk(of_owner(owner)).1);
    assert_eq!(counts, [5000, 2500, 0]);
}

/// A view costs more than all that is asked here.
#[test]
fn who_does_not_fit_is_told_without_a_view() {
    let engine = engine(2);
    let fitting = |filter: &ConnectionFilter, device| {
        let [seven, eight] = [70, 80].map(|pid| Client {
            peer: Peer { pid, uid: 1000 },
            command: Some(format!("rping{pid}")),
        });
        let connections = Connections {
            now: NOW,
            engine: &engine,
            devices: &Devices::for_test(),
            client: &|id| Some(if id.client == 7 { &seven } else { &eight }),
            warnings: &|_| Vec::new(),
            ssa: &Ssa::new(Settings::default()),
            names: &no_names(),
            peer_daemons: &PeerDaemons::default(),
            observer: Peer { pid: 1, uid: 0 },
            history: false,
        };
        let identities = engine.identities_in(..);
        let fitting = identities.filter(|it| connections.may_fit(filter, device, it));
        fitting.map(|it| name(it.id)).collect::<Vec<_>>().join(" ")
    };
    let any = ConnectionFilter::default;
    assert_eq!(fitting(&any(), None), "7.1 7.2 8.1 8.2");
    assert_eq!(fitting(&any(), Some(NODE)), "7.1 7.2 8.1 8.2");
    assert_eq!(fitting(&any(), Some(Guid(0x99))), "");
    let qpn = Some(70_002);
    assert_eq!(fitting(&ConnectionFilter { qpn, ..any() }, None), "7.2");
    let pid = Some(80);
    assert_eq!(fitting(&ConnectionFilter { pid, ..any() }, None), "8.1 8.2");
    for named in ["rping70", "rping70[70]"] {
        let owner = Some(named.to_owned());
        let filter = ConnectionFilter { owner, ..any() };
        assert_eq!(fitting(&filter, None), "7.1 7.2");
    }
    let command = Some("rping80".to_owned());
    let filter = ConnectionFilter { command, ..any() };
    assert_eq!(fitting(&filter, None), "8.1 8.2");
}

#[test]
fn one_that_is_not_there_is_refused() {
    let engine = engine(1);
    let with_id = |id: &str| ConnectionFilter {
        id: Some(id.to_owned()),
        ..ConnectionFilter::default()
    };
    let found = page(&engine, 0, &with_id("8.1")).expect("it is there");
    assert_eq!(found.connections.len(), 1);
    let error = page(&engine, 0, &with_id("8.2")).unwrap_err();
    assert_eq!(error, "conn 8.2: no such connection");
    assert!(page(&engine, 0, &with_id("8")).is_err());
    let of_device = ConnectionFilter {
        device: Some("mlx5_9".to_owned()),
        ..ConnectionFilter::default()
    };
    assert!(page(&engine, 0, &of_device).is_err());
}

#[test]
fn comm_ids_are_shown_to_the_users_own_and_to_root() {
    let engine = engine(1);
    let shown = |uid| {
        let page = page(&engine, uid, &ConnectionFilter::default()).expect("all");
        let ids = page.connections.into_iter().map(|conn| conn.association);
        let shown = |it: Association| {
            assert_ne!(it.comm_ids_hidden, it.local_comm_id.is_some());
            it.local_comm_id.is_some()
        };
        ids.map(shown).collect::<Vec<_>>()
    };
    assert_eq!(shown(0), [true, true]);
    assert_eq!(shown(1000), [true, false]);
    assert_eq!(shown(1001), [false, true]);
    assert_eq!(shown(65534), [false, false]);
}

/// What setting a policy comes to, for a user; client 7 is a program of user 1000.
fn set(engine: &mut Engine, uid: u32, id: &str, words: &str) -> Result<String, String> {
    let filter = ConnectionFilter {
        id: Some(id.to_owned()),
        ..ConnectionFilter::default()
    };
    let client = |pid, uid| Client {
        peer: Peer { pid, uid },
        command: Some("rping".to_owned()),
    };
    let (seven, eight) = (client(70, 1000), client(80, 1001));
    let input = set_policy(
        words,
        &filter,
        &Connections {
            now: NOW,
            engine,
            devices: &Devices::for_test(),
            client: &|id| Some(if id.client == 7 { &seven } else { &eight }),
            warnings: &|_| Vec::new(),
            ssa: &Ssa::new(Settings::default()),
            names: &no_names(),
            peer_daemons: &PeerDaemons::default(),
            observer: Peer { pid: 1, uid },
            history: false,
        },
        uid == 0,
    );
    engine.handle(NOW, input.map_err(|refused| refused.error)?);
    let policy = page(engine, uid, &filter)?
        .connections
        .remove(0)
        .standing
        .policy;
    Ok(format!(
        "{} {} {}",
        policy.mode, policy.failback, policy.spread
    ))
}

#[test]
fn root_and_the_programs_user_set_a_policy_and_only_what_they_name() {
    let mut engine = engine(1);
    let set = |engine: &mut Engine, uid, words| set(engine, uid, "7.1", words);
    assert_eq!(
        set(&mut engine, 1000, "mode lid").as_deref(),
        Ok("lid stay false")
    );
    assert_eq!(
        set(&mut engine, 0, "failback prefer 2").as_deref(),
        Ok("lid prefer 2 false")
    );
    assert_eq!(
        set(&mut engine, 0, "spread on mode any").as_deref(),
        Ok("any stay true")
    );
    let refused = set(&mut engine, 1001, "mode port").expect_err("another's");
    assert!(refused.contains("only root"), "{refused}");
    assert_eq!(
        set(&mut engine, 0, "spread off").as_deref(),
        Ok("any stay false")
    );
}

#[test]
fn a_port_that_the_device_does_not_have_is_refused_and_a_mode_without_effect_is_warned_of() {
    let mut engine = engine(1);
    let error = set(&mut engine, 0, "7.1", "failback prefer 7").expect_err("two ports");
    assert!(
        error.starts_with("conn 7.1: failback prefer 7: device ") && error.ends_with("1 to 2 only"),
        "{error}"
    );
    let warnings = |engine: &Engine| {
        let mut page = page(engine, 0, &ConnectionFilter::default()).expect("all");
        page.connections.remove(0).standing.warnings
    };
    assert_eq!(warnings(&engine), Vec::<String>::new());
    set(&mut engine, 0, "7.1", "mode lid").expect("it may work one day");
    assert!(warnings(&engine).concat().starts_with("mode lid: "));
}

#[test]
fn codes_are_told_in_units_too() {
    let path = path(&path::Path {
        rate: 7,
        ack_timeout: 14,
        ..path::Path::default()
    });
    let json = serde_json::to_value(&path).expect("JSON");
    assert_eq!(
        (&json["rate"], &json["rate_mbps"]),
        (&7.into(), &40_000.into())
    );
    assert_eq!(json["ack_timeout_ns"], 67_108_864);
    let unknown = super::path(&path::Path::default());
    assert_eq!(unknown.plain, PlainUnits::default());
    assert_eq!(ack_timeout_ns(31), Some(8_796_093_022_208));
    assert_eq!(ack_timeout_ns(32), None);
}
