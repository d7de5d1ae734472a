// SPDX-License-Identifier: MIT OR Apache-2.0
//! Building fabrics, refusing contradictions, walking, and changing them.

use cm_msgs::{Guid, Lid, PKey};
use pathdb::{
    BuildError, Builder, Capability, Change, Delta, DeltaError, Fabric, Fault, LidRange, Mtu,
    NodeId, NodeKind, NodeSpec, Path, PortSpec, Rate, SlToVl, World,
};
use test_fabrics::{FatTree, Spread};

fn spec(kind: NodeKind, guid: u64, name: &str, ports: u8) -> NodeSpec {
    NodeSpec {
        kind,
        guid: Guid(guid),
        system: Guid(guid),
        name: name.into(),
        ports,
    }
}

fn lids(base: u16, lmc: u8) -> PortSpec {
    PortSpec {
        lids: LidRange::new(Lid(base), lmc),
        ..PortSpec::default()
    }
}

const WIDE: Capability = Capability {
    mtu: Some(Mtu::B4096),
    rate: Some(Rate::G100),
};
const NARROW: Capability = Capability {
    mtu: Some(Mtu::B2048),
    rate: Some(Rate::G120),
};

/// Two hosts, each on a switch; one link between the switches.
struct Line {
    builder: Builder,
    hosts: [NodeId; 2],
    switches: [NodeId; 2],
}

fn line() -> Result<Line, BuildError> {
    let mut builder = Builder::new();
    let hosts = [
        builder.node(spec(NodeKind::Adapter, 1, "a", 1))?,
        builder.node(spec(NodeKind::Adapter, 2, "b", 1))?,
    ];
    let switches = [
        builder.node(spec(NodeKind::Switch, 3, "left", 3))?,
        builder.node(spec(NodeKind::Switch, 4, "right", 3))?,
    ];
    for (at, base) in [(0, 2), (1, 4)] {
        builder.port(hosts[at], 1, &lids(base, 1))?;
        builder.link((hosts[at], 1), (switches[at], 1), WIDE, true)?;
    }
    builder.port(switches[0], 0, &lids(10, 0))?;
    builder.link((switches[0], 2), (switches[1], 2), NARROW, true)?;
    Ok(Line {
        builder,
        hosts,
        switches,
    })
}

/// The line with tables: LID 5 loops, LID 3 is dropped, everything else arrives.
fn routed_line() -> Fabric {
    let Line {
        builder, switches, ..
    } = line().expect("no contradiction");
    let mut routing = builder.routing();
    let [left, right] = switches;
    for (switch, number, port) in [
        (left, 2, 1),
        (right, 2, 2),
        (left, 4, 2),
        (right, 4, 1),
        (left, 5, 2),
        (right, 5, 2),
        (left, 10, 0),
        (right, 10, 2),
    ] {
        routing.route(switch, Lid(number), port).expect("it has it");
    }
    routing.finish()
}

#[test]
fn a_packet_goes_where_the_tables_send_it() {
    let fabric = routed_line();
    let from = fabric.port_by_lid(Lid(3)).expect("a's second LID");
    let there = fabric.leg(from, Lid(4)).expect("it arrives");
    assert_eq!(there.hops, 3);
    assert_eq!(there.carries.mtu, Some(Mtu::B2048));
    assert_eq!(there.carries.rate, Some(Rate::G100));
    let ports = fabric.trace(from, Lid(4)).expect("it arrives");
    let ports: Vec<_> = ports.iter().map(|&p| fabric.name(p).to_string()).collect();
    assert_eq!(ports, ["a port 1", "left port 2", "right port 1"]);
    assert_eq!(fabric.leg(from, Lid(5)), Err(Fault::Loop));
    assert_eq!(fabric.leg(from, Lid(10)).map(|leg| leg.hops), Ok(1));
    assert_eq!(fabric.leg(from, Lid(2)).map(|leg| leg.hops), Ok(0), "home");
    let b = fabric.port_by_lid(Lid(4)).expect("b");
    assert_eq!(fabric.leg(b, Lid(3)), Err(Fault::DeadEnd), "dropped");
    assert_eq!(fabric.leg(b, Lid(77)), Err(Fault::DeadEnd), "nobody's");
    let left = fabric.port_by_lid(Lid(10)).expect("left");
    assert_eq!(fabric.leg(left, Lid(4)).map(|leg| leg.hops), Ok(2));
}

#[test]
fn a_port_that_is_down_does_not_reach_itself() {
    let mut fabric = routed_line();
    let a = fabric.port_by_lid(Lid(2)).expect("a");
    let down = Change::Link {
        end: (fabric.port(a).node, fabric.port_number(a)),
        up: false,
        carries: fabric.carries(a),
    };
    let delta = Delta {
        from: fabric.epoch(),
        to: fabric.epoch() + 1,
        changes: vec![down],
    };
    fabric.apply(&delta).expect("a delta");
    assert_eq!(fabric.leg(a, Lid(2)), Err(Fault::DeadEnd));
    let half = World::new(&fabric).half_world(a);
    assert!(half.iter().all(|record| record.forward().is_err()));
    let left = fabric.port_by_lid(Lid(10)).expect("left");
    assert!(fabric.leg(left, Lid(10)).is_ok(), "a switch does");
}

#[test]
fn contradictions_are_refused() {
    let shown = |change: fn(&mut Line) -> Result<(), BuildError>| {
        let mut line = line().expect("no contradiction");
        change(&mut line).expect_err("a contradiction").to_string()
    };
    let again = shown(|line| {
        let again = spec(NodeKind::Switch, 1, "c", 3);
        line.builder.node(again).map(|_| ())
    });
    assert_eq!(
        again,
        "node guid 0x0000000000000001 belongs to 'a' and to 'c'"
    );
    let lid_twice = shown(|line| {
        let port = line.builder.port(line.switches[1], 0, &lids(3, 0));
        port.map(|_| ())
    });
    assert_eq!(lid_twice, "lid 3 belongs to 'a port 1' and to 'right'");
    let misplaced = shown(|line| {
        let port = line.builder.port(line.switches[1], 3, &lids(20, 0));
        port.map(|_| ())
    });
    assert!(
        misplaced.starts_with("'right' port 3 cannot have lids"),
        "{misplaced}"
    );
    let two_links = shown(|line| {
        let (a, b) = ((line.switches[0], 1), (line.switches[1], 3));
        line.builder.link(a, b, WIDE, true)
    });
    assert_eq!(
        two_links,
        "'left port 1' is linked to 'a port 1' and to 'right port 3'"
    );
    let differently = shown(|line| {
        let (a, b) = ((line.switches[1], 2), (line.switches[0], 2));
        line.builder.link(a, b, WIDE, true)
    });
    assert_eq!(
        differently,
        "the link between 'right port 2' and 'left port 2' is described twice, and differently"
    );
    let no_port = shown(|line| {
        let (a, b) = ((line.switches[0], 4), (line.switches[1], 3));
        line.builder.link(a, b, WIDE, true)
    });
    assert_eq!(no_port, "'left' has no port 4: it has 3");
    let to_itself = shown(|line| {
        let end = (line.switches[0], 3);
        line.builder.link(end, end, WIDE, true)
    });
    assert_eq!(
        to_itself,
        "no link is possible between 'left port 3' and 'left port 3'"
    );
}

#[test]
fn ports_whose_guid_is_not_known_are_not_one_port() -> Result<(), BuildError> {
    let Line {
        mut builder, hosts, ..
    } = line()?;
    let unknown = PortSpec {
        guid: Some(Guid(0)),
        ..PortSpec::default()
    };
    let host = builder.node(spec(NodeKind::Adapter, 5, "c", 2))?;
    for number in [1, 2] {
        let port = builder.port(host, number, &unknown)?;
        // The same as no GUID.
        assert_eq!(builder.port(host, number, &PortSpec::default())?, port);
    }
    assert!(builder.port(hosts[0], 1, &unknown).is_err(), "it has lids");
    let fabric = builder.routing().finish();
    assert_eq!(fabric.port_by_guid(Guid(0)), None);
    Ok(())
}

#[test]
fn tables_belong_to_switches_and_name_their_ports() {
    let Line {
        builder,
        hosts,
        switches,
    } = line().expect("no contradiction");
    let mut routing = builder.routing();
    let of_a_host = routing.route(hosts[0], Lid(2), 1);
    assert!(matches!(of_a_host, Err(BuildError::NotASwitch { .. })));
    let too_high = routing.route(switches[0], Lid(2), 4);
    assert!(matches!(too_high, Err(BuildError::NoSuchPort { .. })));
    for lid in [Lid(0), Lid(0xc000), Lid::PERMISSIVE] {
        let of_nobody = routing.route(switches[0], lid, 1);
        assert_eq!(of_nobody, Err(BuildError::NotUnicast(lid)));
    }
}

#[test]
fn saying_the_same_again_is_no_contradiction() {
    let mut line = line().expect("no contradiction");
    let (a, b) = ((line.switches[1], 2), (line.switches[0], 2));
    assert_eq!(line.builder.link(a, b, NARROW, true), Ok(()));
    assert!(line.builder.port(line.hosts[0], 1, &lids(2, 1)).is_ok());
    let other = line.builder.port(line.hosts[0], 1, &lids(6, 1));
    assert!(matches!(other, Err(BuildError::Redescribed { .. })));
}

#[test]
fn partitions_decide_who_may_talk() {
    let mut line = line().expect("no contradiction");
    let c = spec(NodeKind::Adapter, 9, "c", 5);
    let c = line.builder.node(c).expect("new");
    let mut with = |number, keys: &[u16]| {
        let spec = PortSpec {
            pkeys: keys.iter().copied().map(PKey).collect(),
            ..PortSpec::default()
        };
        line.builder.port(c, number, &spec).expect("new")
    };
    let full = with(1, &[0xffff, 0x8001]);
    let (limited, unknown) = (with(2, &[0x7fff, 0x8001]), with(3, &[]));
    let (only_limited, other) = (with(4, &[0x7fff]), with(5, &[0x8002]));
    let fabric = line.builder.routing().finish();
    assert!(fabric.share_partition(full, limited));
    assert!(!fabric.share_partition(only_limited, limited));
    assert!(!fabric.share_partition(only_limited, other));
    assert!(fabric.share_partition(limited, unknown));
    let common = |a, b| {
        fabric
            .common_pkeys(a, b)
            .map(|key| key.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(common(full, limited), [0xffff, 0x8001]);
    assert_eq!(common(limited, full), [0x7fff, 0x8001]);
    assert_eq!(
        common(limited, limited),
        [0x8001],
        "limited members of 0x7fff do not talk"
    );
    assert_eq!(common(limited, unknown), []);
}

#[test]
fn service_levels_are_dropped_where_a_table_says_so() {
    let Line {
        mut builder,
        hosts,
        switches,
    } = line().expect("no contradiction");
    let [left, right] = switches;
    let all = SlToVl([0x01, 0x23, 0x45, 0x67, 0x01, 0x23, 0x45, 0x67]);
    let only_0 = SlToVl([0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    let but_0 = SlToVl([0xf0, 0, 0, 0, 0, 0, 0, 0]);
    builder.same_sl_to_vl(left, all).expect("a switch");
    builder.sl_to_vl(right, 2, 1, only_0).expect("new");
    assert_eq!(
        builder.sl_to_vl(right, 2, 1, only_0),
        Ok(()),
        "the same again"
    );
    builder.sl_to_vl(hosts[1], 0, 1, but_0).expect("new");
    let shown = |result: Result<(), BuildError>| result.expect_err("refused").to_string();
    assert_eq!(
        shown(builder.sl_to_vl(right, 2, 1, all)),
        "the sl-to-vl table of 'right port 1' for packets from port 2 is given twice, and \
         differently"
    );
    assert_eq!(
        shown(builder.sl_to_vl(hosts[0], 1, 1, all)),
        "'a port 1' has no sl-to-vl table for packets from port 1: an adapter has one a port"
    );
    let of_a_host = builder.same_sl_to_vl(hosts[0], all);
    assert!(matches!(of_a_host, Err(BuildError::NotASwitch { .. })));
    let no_port = builder.sl_to_vl(right, 9, 1, all);
    assert!(matches!(
        no_port,
        Err(BuildError::NoSuchPort { port: 9, .. })
    ));
    let mut routing = builder.routing();
    for (switch, number, port) in [(left, 4, 2), (right, 4, 1), (left, 2, 1), (right, 2, 2)] {
        routing.route(switch, Lid(number), port).expect("a switch");
    }
    let fabric = routing.finish();
    let [a, b] = [2, 4].map(|number| fabric.port_by_lid(Lid(number)).expect("a host"));
    let levels = |from, to| {
        let levels = fabric.service_levels(from, Lid(to)).expect("it arrives");
        levels.iter().collect::<Vec<_>>()
    };
    assert_eq!(levels(a, 4), [0]);
    assert_eq!(levels(b, 2), (1..16).collect::<Vec<_>>());
    let path = Path {
        slid: Lid(2),
        dlid: Lid(4),
    };
    let both = fabric.path_service_levels(path).expect("it arrives");
    assert_eq!(both.iter().count(), 0, "none gets through both ways");
    assert_eq!(fabric.sl_to_vl(left, 1, 2), Some(all));
    assert_eq!(fabric.sl_to_vl(right, 1, 2), None);
}

#[test]
fn a_delta_is_applied_whole_or_not_at_all() {
    let mut fabric = routed_line();
    let before = fabric.clone();
    let left = fabric.nodes_by_name("left").next().expect("left");
    let a = fabric.port_by_lid(Lid(2)).expect("a");
    let drop = Change::Route {
        switch: left,
        lid: Lid(4),
        port: None,
    };
    let link = |number| Change::Link {
        end: (left, number),
        up: false,
        carries: NARROW,
    };
    let mut delta = Delta {
        from: 0,
        to: 1,
        changes: vec![drop, link(3)],
    };
    let refused = fabric.apply(&delta).expect_err("no cable in port 3");
    assert!(matches!(refused, DeltaError::NoLink { position: 1, .. }));
    assert_eq!(fabric, before);

    delta.changes = vec![drop];
    fabric.apply(&delta).expect("it fits");
    assert_eq!(fabric.epoch(), 1);
    assert_eq!(fabric.leg(a, Lid(4)), Err(Fault::DeadEnd));
    let again = fabric.apply(&delta).expect_err("another epoch");
    assert!(matches!(again, DeltaError::Epoch { at: 1, .. }));

    let back = Change::Route {
        switch: left,
        lid: Lid(4),
        port: Some(2),
    };
    let next = |from, changes| Delta {
        from,
        to: from + 1,
        changes,
    };
    fabric.apply(&next(1, vec![back])).expect("it fits");
    assert!(fabric.leg(a, Lid(4)).is_ok());
    fabric.apply(&next(2, vec![link(2)])).expect("it fits");
    assert_eq!(
        fabric.leg(a, Lid(4)),
        Err(Fault::DeadEnd),
        "the link is down"
    );
    let new_lid = Change::Route {
        switch: left,
        lid: Lid(0xbfff),
        port: Some(1),
    };
    fabric.apply(&next(3, vec![new_lid])).expect("tables grow");
    assert_eq!(fabric.route(left, Lid(0xbfff)), Some(1));
    assert_eq!(fabric.route(left, Lid(0xbffe)), None);
}

#[test]
fn everybody_reaches_everybody_in_a_fat_tree() {
    for spread in [Spread::DModK, Spread::Random(1)] {
        for (dual, lmc) in [(false, 0), (true, 0), (true, 1)] {
            let tree = FatTree {
                pods: 3,
                half: 4,
                dual,
                lmc,
                spread,
            };
            let fabric = tree.build().expect("no contradiction");
            assert_eq!(fabric.switch_count(), 12 + 12 + 16);
            let ends: Vec<_> = fabric.end_ports().collect();
            assert_eq!(ends.len(), 48 + 40);
            for &from in &ends {
                for &to in &ends {
                    let range = fabric.port(to).lids.expect("an end port");
                    for lid in range.iter() {
                        let leg = fabric.leg(from, lid);
                        assert!(leg.is_ok_and(|leg| leg.hops <= 8), "{leg:?}");
                    }
                }
            }
        }
    }
}
