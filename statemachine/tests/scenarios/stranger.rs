// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that nobody should act upon.

use cm_msgs::association::{PrimaryPath, State};
use cm_msgs::cm::{self, Apr, Dreq, Lap, Mra, Rej, RejReason, Rep, Req, Rtu};
use cm_msgs::{Lid, PKey, Qpn};
use statemachine::{MadSource, SERVICE_ID};

use super::association::assert_open;
use super::pair::{ACTIVE, PASSIVE, Pair, base_lid};

fn source(pair: &Pair, host: usize, lid: Lid) -> MadSource {
    MadSource {
        port: pair.hosts[host].port_id(1),
        lid,
        qpn: 1,
        sl: 0,
        path_bits: 0,
        pkey: PKey::DEFAULT_FULL,
        transaction_id: 77,
    }
}

/// All messages that an association knows, with its IDs.
fn messages(local: u32, remote: u32) -> Vec<cm::Message> {
    let (local_comm_id, remote_comm_id) = (local, remote);
    let reason = RejReason::InvalidCommId.into();
    vec![
        Rep {
            local_comm_id,
            remote_comm_id,
            ..Rep::default()
        }
        .into(),
        Rtu {
            local_comm_id,
            remote_comm_id,
            ..Rtu::default()
        }
        .into(),
        Mra {
            local_comm_id,
            remote_comm_id,
            ..Mra::default()
        }
        .into(),
        Rej {
            local_comm_id,
            remote_comm_id,
            reason,
            ..Rej::default()
        }
        .into(),
        Dreq {
            local_comm_id,
            remote_comm_id,
            ..Dreq::default()
        }
        .into(),
        Lap {
            local_comm_id,
            remote_comm_id,
            ..Lap::default()
        }
        .into(),
        Apr {
            local_comm_id,
            remote_comm_id,
            ..Apr::default()
        }
        .into(),
    ]
}

fn ids(pair: &Pair, host: usize) -> (u32, u32) {
    let association = pair.view(host).association;
    (
        association.local_comm_id.expect("open"),
        association.remote_comm_id.expect("open"),
    )
}

#[test]
fn a_queue_pair_that_anybody_can_have_is_not_heard() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(1);
        let (ours, theirs) = ids(&pair, host);
        let wrong_qp = MadSource {
            qpn: 5,
            sl: 0,
            path_bits: 0,
            ..source(&pair, host, base_lid((1 - host, 1)))
        };
        for message in messages(theirs, ours) {
            pair.forge(host, wrong_qp, message);
        }
        pair.run(1_000);
        assert_open(&pair);
        pair.assert_armed();
        let counters = pair.hosts[host]
            .engine
            .as_ref()
            .map(|engine| engine.counters());
        assert_eq!(
            counters.map(|counters| counters.mads_from_strangers),
            Some(7)
        );
    }
}

#[test]
fn messages_of_no_association_change_nothing() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(2);
        let (ours, theirs) = ids(&pair, host);
        let peer = source(&pair, host, base_lid((1 - host, 1)));
        for message in messages(theirs ^ 1, ours ^ 1) {
            pair.forge(host, peer, message);
        }
        // The right name of ours, and a wrong one of the peer's: an association long gone.
        for message in messages(theirs ^ 1, ours) {
            pair.forge(host, peer, message);
        }
        pair.run(1_000);
        assert_open(&pair);
        pair.assert_armed();
    }
}

#[test]
fn an_unknown_association_is_named_to_who_would_wait() {
    let mut pair = Pair::armed(3);
    let peer = source(&pair, PASSIVE, base_lid((ACTIVE, 1)));
    let before = [("REJ", 0), ("DREP", 0)].map(|(name, _)| pair.hosts[PASSIVE].sent(name));
    for message in messages(1, 2) {
        pair.forge(PASSIVE, peer, message);
    }
    let after = ["REJ", "DREP"].map(|name| pair.hosts[PASSIVE].sent(name));
    assert_eq!(
        after,
        [before[0] + 2, before[1] + 1],
        "REJ to REP and LAP, DREP to DREQ"
    );
}

#[test]
fn foreign_reqs_are_rejected() {
    let mut pair = Pair::armed(4);
    let peer = source(&pair, PASSIVE, base_lid((ACTIVE, 1)));
    let foreign = Req {
        local_comm_id: 9,
        service_id: 1,
        ..Req::default()
    };
    let damaged = Req {
        local_comm_id: 9,
        service_id: SERVICE_ID,
        ..Req::default()
    };
    for req in [foreign, damaged] {
        pair.forge(PASSIVE, peer, req.into());
    }
    assert_eq!(pair.hosts[PASSIVE].sent("REJ"), 2);
    let counters = pair.hosts[PASSIVE]
        .engine
        .as_ref()
        .map(|engine| engine.counters());
    assert_eq!(counters.map(|counters| counters.mads_malformed), Some(1));
}

#[test]
fn a_late_req_of_an_older_association_does_not_replace_the_newer() {
    let mut pair = Pair::new(5);
    pair.record("REQ");
    pair.begin();
    pair.run(100);
    pair.kill(ACTIVE);
    pair.start(ACTIVE);
    pair.run(1_000);
    assert_open(&pair);
    let newer = ids(&pair, PASSIVE);
    let recorded = pair.recorded();
    assert_eq!(recorded.len(), 2);
    let (to, source, old) = recorded[0].clone();
    assert_eq!(to, PASSIVE);
    pair.forge(to, source, old);
    // What it was answered is forgotten after a while.
    pair.run(31_000);
    assert_eq!(ids(&pair, PASSIVE), newer);
    assert_open(&pair);
    pair.assert_asleep(PASSIVE);
}

#[test]
fn a_late_lap_does_not_bring_its_path_back() {
    let mut pair = Pair::new(6);
    pair.record("LAP");
    pair.begin();
    pair.run(500);
    pair.pull(ACTIVE, 2);
    pair.run(500);
    pair.assert_armed();
    let proposes = |message: &cm::Message| match message {
        cm::Message::Lap(lap) => lap.alternate.local_port_lid != Lid(0),
        _ => false,
    };
    let recorded = pair.recorded().iter();
    let recorded: Vec<_> = recorded.filter(|(_, _, lap)| proposes(lap)).collect();
    assert_eq!(
        recorded.len(),
        2,
        "one for each alternate, with the same primary"
    );
    let (to, source, old) = recorded[0].clone();
    // The peer has said since that its port is lost: that it was sent before is in what it says.
    let anew = MadSource {
        transaction_id: pair.last_transaction("LAP").wrapping_add(1),
        ..source
    };
    for source in [source, anew] {
        pair.forge(to, source, old.clone());
        pair.run(500);
        pair.assert_armed();
    }
}

#[test]
fn a_lap_with_a_path_that_cannot_be_is_declined() {
    let mut pair = Pair::armed(7);
    let (ours, theirs) = ids(&pair, PASSIVE);
    let good = {
        let path = pair.qp(ACTIVE).alternate.expect("armed");
        let primary = pair.qp(ACTIVE).primary;
        let data = State {
            // Later than all that was said.
            sequence: 1_000,
            primary: PrimaryPath {
                port: primary.port,
                local: primary.slid,
                remote: primary.dlid,
            },
            ..State::default()
        };
        Lap {
            local_comm_id: theirs,
            remote_comm_id: ours,
            remote_qpn_eecn: Qpn(1),
            alternate: cm::PathFields {
                local_port_lid: path.slid,
                remote_port_lid: path.dlid,
                local_port_gid: path.sgid,
                remote_port_gid: path.dgid,
                subnet_local: true,
                ..Default::default()
            },
            private_data: data.encode(),
            ..Lap::default()
        }
    };
    let loads = pair.view(PASSIVE).counters.loads;
    let mut wrong_gid = good.clone();
    wrong_gid.alternate.remote_port_gid = Default::default();
    let mut wrong_lid = good.clone();
    wrong_lid.alternate.remote_port_lid = Lid(3);
    let mut current = good.clone();
    current.alternate.remote_port_gid = pair.qp(PASSIVE).primary.sgid;
    current.alternate.remote_port_lid = pair.qp(PASSIVE).primary.slid;
    current.alternate.local_port_lid = pair.qp(PASSIVE).primary.dlid;
    current.alternate.local_port_gid = pair.qp(PASSIVE).primary.dgid;
    let mut elsewhere = good.clone();
    elsewhere.alternate.local_port_lid = Lid(0x99);
    pair.record("APR");
    let recent = pair.last_transaction("LAP");
    for (number, lap) in (1..).zip([wrong_gid, wrong_lid, current, elsewhere]) {
        let peer = MadSource {
            transaction_id: recent.wrapping_add(number),
            ..source(&pair, PASSIVE, base_lid((ACTIVE, 2)))
        };
        pair.forge_later(PASSIVE, peer, &lap, number);
        pair.run(2);
    }
    let statuses: Vec<u8> = pair
        .recorded()
        .iter()
        .map(|(_, _, message)| match message {
            cm::Message::Apr(apr) => apr.ar_status,
            _ => u8::MAX,
        })
        .collect();
    assert_eq!(statuses, [8, 7, 5, 8]);
    assert_eq!(pair.view(PASSIVE).counters.loads, loads);
    pair.assert_armed();
}

/// Of the 256 places for REQs of unregistered queue pairs a stranger has a quarter, by whichever local ports of its
/// subnet they come in.
#[test]
fn a_stranger_has_one_share_of_places_for_reqs_by_all_local_ports() {
    let mut pair = Pair::armed(9);
    let lid = Lid(0x999);
    for number in 0..400_u32 {
        let req = Req {
            local_comm_id: number + 1,
            service_id: SERVICE_ID,
            local_qpn: Qpn(0x70_0000 + number),
            primary: cm::PathFields {
                local_port_lid: lid,
                remote_port_lid: base_lid((PASSIVE, 1)),
                remote_port_gid: super::pair::gid((PASSIVE, 1)),
                subnet_local: true,
                ..Default::default()
            },
            private_data: cm_msgs::association::ReqData {
                peer_qpn: Qpn(0x60_0000 + number),
                state: State::default(),
            }
            .encode(),
            ..Req::default()
        };
        let from = MadSource {
            port: pair.hosts[PASSIVE].port_id(1 + (number % 2) as u8),
            transaction_id: number + 1,
            ..source(&pair, PASSIVE, lid)
        };
        pair.forge(PASSIVE, from, req.into());
    }
    pair.run(100);
    let kept = pair.to_strangers.iter();
    let kept = kept.filter(|(to, message)| *to == lid && matches!(message, cm::Message::Mra(_)));
    assert_eq!(kept.count(), 64);
}
