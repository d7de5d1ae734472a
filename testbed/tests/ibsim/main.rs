// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fabric in ibsim under OpenSM: started, asked, cut, and nothing of it left behind; and what holds
//! pathdb against OpenSM finds what differs.
//!
//! Needs Debian's ibsim-utils, libumad2sim0 and opensm; without them the test says so and passes,
//! unless `APMD_REQUIRE_IBSIM=1`.

mod differences;
mod program;

use std::path::Path;

use cm_msgs::Lid;
use cm_msgs::sa::{PathRecord, Record, SaMad};
use testbed::ibsim::{
    Client, Engine, Node, OpenSm, Place, Request, Routing, Settings, Shape, Simulator, Target,
    Undeliverable,
};

fn is_there() -> bool {
    let there = Path::new("/usr/bin/ibsim").exists() && Path::new("/usr/sbin/opensm").exists();
    let required = std::env::var_os("APMD_REQUIRE_IBSIM").is_some_and(|required| required == "1");
    assert!(
        there || !required,
        "install the Debian packages ibsim-utils, libumad2sim0 and opensm"
    );
    if !there {
        eprintln!("skipped: ibsim is not installed");
    }
    there
}

fn lids_of(fabric: &pathdb::Fabric) -> Vec<u16> {
    let ranges = fabric.end_ports().filter_map(|port| fabric.port(port).lids);
    ranges
        .flat_map(|range| range.iter())
        .map(|lid| lid.0)
        .collect()
}

fn path(manager: u16, slid: u16, dlid: u16) -> Request {
    let path = PathRecord::any().slid(Lid(slid)).dlid(Lid(dlid));
    Request {
        dlid: manager,
        target: Target::Gsi,
        mad: SaMad::get(0, &path).encode(),
    }
}

#[test]
fn a_fabric_comes_up_is_asked_and_cut_and_leaves_nothing() {
    if !is_there() {
        return;
    }
    let shape = Shape::Tree2 {
        leaves: 2,
        spines: 2,
        down: 3,
        dual: true,
    };
    let net = shape.build(0);
    let settings = Settings {
        routing: Routing::Engine(Engine::Dor),
        lmc: 1,
        roots: shape.roots(),
    };
    let place = Place::new().expect("a directory");
    let directory = place.path().to_path_buf();
    let mut simulator = Simulator::start(&place, &net).expect("ibsim starts");
    let mut opensm = OpenSm::start(&place, &settings, "host-0").expect("opensm starts");
    assert_eq!(opensm.engine_used().expect("it says so"), "dor");
    let mut client = Client::attach(&place.socket_name(), "host-0").expect("attached");
    let manager = client.manager_lid().expect("a subnet manager");
    let fabric = pathdb::import::Files::in_dir(opensm.files())
        .read()
        .expect("read")
        .whole()
        .expect("nothing is left out");
    let lids: Vec<u16> = lids_of(&fabric);
    assert_eq!(lids.len(), 2 * net.end_ports() + net.switch_count());
    // More than a socket's queue holds.
    let pairs: Vec<(u16, u16)> = lids
        .iter()
        .flat_map(|&a| lids.iter().map(move |&b| (a, b)))
        .collect();
    let mut seen = vec![false; pairs.len()];
    let requests = pairs.iter().map(|&(slid, dlid)| path(manager, slid, dlid));
    client
        .exchange(200, requests, |position, reply| {
            let Ok(mad) = reply else {
                panic!("{reply:?}");
            };
            let mad = SaMad::decode(&mad).expect("a MAD of the SA");
            let record = mad.path_record().expect("a path");
            assert_eq!((record.slid.0, record.dlid.0), pairs[position]);
            seen[position] = true;
            Ok(())
        })
        .expect("all answered");
    assert!(seen.iter().all(|seen| *seen));

    let last = Node::Host(net.host_count() - 1);
    let cables = net.cables().iter();
    let its: Vec<_> = cables.filter(|cable| cable.ends[1].node == last).collect();
    for cable in &its {
        simulator.unplug(cable).expect("unplugged");
    }
    assert!(simulator.unplug(its[0]).is_err(), "it is unplugged");
    opensm.sweep().expect("a sweep");
    let fewer = pathdb::import::Files::in_dir(opensm.files())
        .read()
        .expect("read")
        .whole()
        .expect("nothing is left out");
    assert_eq!(lids_of(&fewer).len(), lids.len() - 2 * its.len());
    let gone = lids
        .iter()
        .find(|&&lid| fewer.port_by_lid(Lid(lid)).is_none());
    let sma = cm_msgs::smp::Smp::get_port_info(cm_msgs::smp::Routing::Lid, 0, 1);
    let request = Request {
        dlid: *gone.expect("a LID"),
        target: Target::Sma,
        mad: sma.encode(),
    };
    let reply = client.ask(request).expect("told");
    assert_eq!(reply, Err(Undeliverable(110)), "nobody is there");

    drop((client, opensm, simulator));
    drop(place);
    assert!(!directory.exists());
}
