// SPDX-License-Identifier: MIT OR Apache-2.0
//! Were pathdb wrong, it would be found.

use pathdb::import::Files;
use pathdb::{Change, Delta, Fabric};
use testbed::fabrics::dumped::Dumped;
use testbed::fabrics::tally::Tally;
use testbed::fabrics::{alternates, hardware, records};
use testbed::ibsim::{Client, Dice, Engine, OpenSm, Place, Routing, Settings, Shape, Simulator};

use super::{is_there, lids_of};

/// Applies one change to what pathdb knows.
fn change(fabric: &mut Fabric, change: Change) {
    let delta = Delta {
        from: fabric.epoch(),
        to: fabric.epoch() + 1,
        changes: vec![change],
    };
    fabric.apply(&delta).expect("a change");
}

#[test]
fn wrong_entries_and_rates_are_found() {
    if !is_there() {
        return;
    }
    let shape = Shape::Grid {
        extents: [3, 3, 1],
        rings: true,
    };
    let net = shape.build(0);
    let place = Place::new().expect("a directory");
    let _simulator = Simulator::start(&place, &net).expect("ibsim starts");
    let settings = Settings {
        routing: Routing::Engine(Engine::Dor),
        lmc: 0,
        roots: shape.roots(),
    };
    let opensm = OpenSm::start(&place, &settings, "host-0").expect("opensm starts");
    let mut client = Client::attach(&place.socket_name(), "host-0").expect("attached");
    let imported = Files::in_dir(opensm.files()).read().expect("read");
    let mut fabric = imported.whole().expect("nothing is left out");
    let dumped = Dumped::read(opensm.files()).expect("read");
    let mut tally = Tally::default();
    let ports0 =
        hardware::ask_ports(&mut client, &mut fabric, "host-0", &mut tally).expect("asked");
    let lids = lids_of(&fabric);
    let top = *lids.iter().max().expect("lids");
    assert_eq!((tally.differences, tally.links), (0, net.cables().len()));

    // A path of at least three links loses its last switch's entry.
    let far = fabric.end_ports().find_map(|from| {
        let to = fabric.end_ports().find(|&to| {
            let lid = fabric.port(to).lids.map(|lids| lids.base());
            fabric.port_number(to) != 0
                && lid.is_some_and(|lid| fabric.leg(from, lid).is_ok_and(|leg| leg.hops > 2))
        })?;
        fabric.port(to).lids.map(|lids| (to, lids.base()))
    });
    let (port, lid) = far.expect("a far port");
    let leaf = fabric.peer(port).expect("a cable");
    let switch = fabric.port(leaf).node;
    let mut wrong = fabric.clone();
    change(
        &mut wrong,
        Change::Route {
            switch,
            lid,
            port: None,
        },
    );
    let mut tally = Tally::default();
    hardware::ask_tables(&mut client, &wrong, "host-0", top, &mut tally).expect("asked");
    assert_eq!(tally.differences, 1, "{:?}", tally.first);
    let pairs = records::pairs(&wrong, &ports0, &lids, &lids);
    let mut tally = Tally::default();
    records::compare(&mut client, &wrong, &pairs, &mut tally).expect("asked");
    // From everywhere else to it there is no way, and from it to everywhere else no way back.
    assert_eq!(tally.differences, 2 * (lids.len() - 1), "{:?}", tally.first);
    let named = format!("lid {lid})");
    assert!(tally.first.iter().all(|words| words.contains(&named)));
    let mut tally = Tally::default();
    records::compare_hops(&wrong, &dumped, &pairs, true, &mut tally);
    assert_eq!(tally.differences, lids.len() - 1, "{:?}", tally.first);

    // Another rate of its cable.
    let mut slow = fabric.clone();
    let carries = pathdb::Capability {
        rate: Some(pathdb::Rate::G2_5),
        ..fabric.carries(port)
    };
    let end = (fabric.port(port).node, fabric.port_number(port));
    change(
        &mut slow,
        Change::Link {
            end,
            up: true,
            carries,
        },
    );
    let pairs = records::pairs(&slow, &ports0, &lids, &lids);
    let mut tally = Tally::default();
    records::compare(&mut client, &slow, &pairs, &mut tally).expect("asked");
    assert_eq!(tally.differences, 2 * lids.len() - 1, "{:?}", tally.first);
    let mut tally = Tally::default();
    hardware::ask_ports(&mut client, &mut slow, "host-0", &mut tally).expect("asked");
    assert_eq!(tally.differences, 1, "{:?}", tally.first);

    // A way that is there and that pathdb does not see.
    let mut tally = Tally::default();
    alternates::compare(&fabric, &dumped, &mut Dice::new(1), &mut tally);
    assert!(tally.differences == 0 && tally.alternates > 100 && tally.disjoint > 0);
    alternates::compare(&wrong, &dumped, &mut Dice::new(1), &mut tally);
    assert!(tally.differences > 0);
}
