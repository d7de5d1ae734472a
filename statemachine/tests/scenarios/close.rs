// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applications that close.

use cm_msgs::association::DreqData;
use cm_msgs::cm::{Drep, Dreq, Message, Rej};
use cm_msgs::{Lid, PKey};
use statemachine::view::{AssociationState, Reason};
use statemachine::{Input, MadSource};

use super::pair::{ACTIVE, Cable, PASSIVE, Pair, base_lid};

fn assert_nothing_left(pair: &Pair, host: usize) {
    assert!(pair.views(host).is_empty());
    pair.assert_asleep(host);
}

#[test]
fn closing_on_either_side_frees_both_sides() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(1);
        pair.close(host);
        pair.run(10);
        assert_nothing_left(&pair, host);
        assert_eq!(pair.hosts[1 - host].sent("DREP"), 1);
        let other = pair.view(1 - host);
        assert_eq!(other.association.local_comm_id, None);
        pair.close(1 - host);
        pair.run(1_000);
        assert_nothing_left(&pair, ACTIVE);
        assert_nothing_left(&pair, PASSIVE);
    }
}

/// Whose port it is that was lost does not matter: the MADs go where the QPs are.
#[test]
fn a_disconnect_is_told_to_both_libraries_though_the_old_port_stays_dead() {
    for host in [ACTIVE, PASSIVE] {
        for lost in [ACTIVE, PASSIVE] {
            let mut pair = Pair::armed(1);
            pair.pull(lost, 1);
            pair.run(100);
            pair.lose.insert("DREQ", 1);
            pair.disconnect(host);
            pair.run(1_000);
            assert_nothing_left(&pair, host);
            assert_eq!(pair.hosts.each_ref().map(|host| host.disconnected), [1, 1]);
        }
    }
}

#[test]
fn a_mere_close_disconnects_nobody() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(1);
        pair.close(host);
        pair.run(1_000);
        assert_eq!(pair.hosts.each_ref().map(|host| host.disconnected), [0, 0]);
    }
}

/// A peer that never answers: the CM's own DREQ is all there is then.
#[test]
fn a_disconnect_that_nobody_hears_leaves_nothing() {
    let mut pair = Pair::armed(1);
    pair.set_traffic(false);
    pair.lose.insert("DREQ", usize::MAX);
    pair.disconnect(ACTIVE);
    pair.run(20_000);
    assert_nothing_left(&pair, ACTIVE);
    assert_eq!(pair.hosts.each_ref().map(|host| host.disconnected), [0, 0]);
}

#[test]
fn applications_that_disconnect_at_once_both_hear_of_it() {
    let mut pair = Pair::armed(1);
    pair.disconnect(ACTIVE);
    pair.disconnect(PASSIVE);
    pair.run(1_000);
    assert_nothing_left(&pair, ACTIVE);
    assert_nothing_left(&pair, PASSIVE);
    assert_eq!(pair.hosts.each_ref().map(|host| host.disconnected), [1, 1]);
}

#[test]
fn closing_on_both_sides_at_once_frees_both() {
    let mut pair = Pair::armed(1);
    pair.close(ACTIVE);
    pair.close(PASSIVE);
    pair.run(100);
    assert_nothing_left(&pair, ACTIVE);
    assert_nothing_left(&pair, PASSIVE);
}

#[test]
fn closing_frees_even_when_every_message_is_lost() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(2);
        pair.set_traffic(false);
        pair.lose.insert("DREQ", usize::MAX);
        pair.close(host);
        pair.run(20_000);
        assert_nothing_left(&pair, host);
        assert_eq!(pair.hosts[host].sent("DREQ"), 6);
        // The other side learns of it at the latest when its own application closes.
        pair.close(1 - host);
        pair.run(20_000);
        assert_nothing_left(&pair, 1 - host);
    }
}

/// Neither end is told that the other has closed; both find out.
#[test]
fn an_association_whose_other_end_has_closed_unheard_is_found_out() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(2);
        pair.set_traffic(false);
        pair.lose.insert("DREQ", usize::MAX);
        pair.close(host);
        pair.run(20_000);
        pair.lose.clear();
        let open = |pair: &Pair| pair.view(1 - host).association.state;
        assert_eq!(open(&pair), AssociationState::Established);
        pair.run(660_000);
        assert_ne!(open(&pair), AssociationState::Established);
    }
}

#[test]
fn a_lost_drep_is_made_good() {
    let mut pair = Pair::armed(3);
    pair.lose.insert("DREP", 2);
    pair.close(ACTIVE);
    pair.run(5_000);
    assert_nothing_left(&pair, ACTIVE);
    assert_eq!(pair.hosts[ACTIVE].sent("DREQ"), 3);
    assert_eq!(pair.hosts[PASSIVE].sent("DREP"), 3);
}

#[test]
fn the_peer_says_why_it_is_unprotected() {
    let mut pair = Pair::armed(4);
    pair.close(ACTIVE);
    pair.run(100);
    let view = pair.view(PASSIVE);
    assert_eq!(view.association.state, AssociationState::None);

    let mut pair = Pair::running(4);
    pair.set_traffic(false);
    pair.lose.insert("LAP", usize::MAX);
    pair.run(100);
    pair.close(PASSIVE);
    pair.run(100);
    assert_eq!(pair.view(ACTIVE).reason, Some(Reason::PeerClosed));
}

#[test]
fn closing_during_any_step_leaves_nothing() {
    for host in [ACTIVE, PASSIVE] {
        for tenths in 0..80 {
            let mut pair = Pair::running(1);
            pair.run_us(tenths * 100);
            pair.close(host);
            pair.run_us(tenths * 30);
            pair.close(1 - host);
            pair.run(40_000);
            assert_nothing_left(&pair, ACTIVE);
            assert_nothing_left(&pair, PASSIVE);
        }
    }
}

/// The only path there is has failed, but the daemon at the peer can be reached at its other port, and answers from there.
#[test]
fn the_end_is_heard_at_a_port_that_no_path_leads_to() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::new(3);
        pair.sa_dead = true;
        pair.begin();
        pair.run(2_000);
        assert_eq!(
            pair.view(host).association.state,
            AssociationState::Established
        );
        pair.pull(1 - host, 1);
        pair.run(100);
        pair.close(host);
        pair.run(1_000);
        assert_nothing_left(&pair, host);
        let sent = pair.hosts[host].sent("DREQ");
        assert!(sent < 4, "{sent} DREQs");
    }
}

#[test]
fn many_that_close_hold_up_none_that_begins() {
    let mut pair = Pair::with(5, 0, 101);
    pair.sa_dead = true;
    for host in [PASSIVE, ACTIVE] {
        pair.start(host);
        pair.register_some(host, 0..100);
    }
    pair.run(5_000);
    pair.lose.insert("DREQ", usize::MAX);
    for conn in 0..100 {
        let id = pair.id(ACTIVE, conn);
        pair.hosts[ACTIVE].registered[conn] = false;
        pair.tell(ACTIVE, Input::Close(id));
    }
    let others = pair.hosts[ACTIVE].sent("REQ");
    pair.register_some(ACTIVE, 100..101);
    pair.run(5);
    assert_eq!(pair.hosts[ACTIVE].sent("REQ"), others + 1);
}

#[test]
fn nothing_wakes_a_daemon_whose_connections_have_all_ended() {
    for host in [ACTIVE, PASSIVE] {
        let mut pair = Pair::armed(6);
        pair.close(host);
        pair.run(1_000);
        pair.close(1 - host);
        pair.run(30_000);
        for host in [ACTIVE, PASSIVE] {
            let engine = pair.hosts[host].engine.as_ref().expect("it runs");
            assert_eq!(engine.next_alarm(), None, "host {host}");
        }
    }
}

/// A third host knows the communication IDs, but cannot send from another port's LID.
#[test]
fn only_the_peer_confirms_the_end_of_an_association() {
    let mut pair = Pair::armed(7);
    let name = |pair: &Pair, host| pair.view(host).association.local_comm_id;
    let names = [PASSIVE, ACTIVE].map(|host| name(&pair, host).expect("open"));
    let [local_comm_id, remote_comm_id] = names;
    pair.lose.insert("DREP", usize::MAX);
    pair.disconnect(ACTIVE);
    pair.run(20);
    let source = MadSource {
        port: pair.hosts[ACTIVE].port_id(1),
        lid: Lid(0x99),
        qpn: 1,
        sl: 0,
        path_bits: 0,
        pkey: PKey::DEFAULT_FULL,
        transaction_id: pair.last_transaction("DREQ"),
    };
    let drep = Drep {
        local_comm_id,
        remote_comm_id,
        ..Drep::default()
    };
    let rej = Rej {
        local_comm_id,
        remote_comm_id,
        ..Rej::default()
    };
    let forged: [Message; 2] = [drep.into(), rej.into()];
    for message in forged {
        pair.forge(ACTIVE, source, message);
        assert_eq!(pair.hosts[ACTIVE].disconnected, 0);
    }
    let before = pair.hosts[ACTIVE].sent("DREQ");
    pair.lose.clear();
    pair.run(5_000);
    assert!(pair.hosts[ACTIVE].sent("DREQ") > before, "it goes on");
    assert_eq!(pair.hosts[ACTIVE].disconnected, 1, "the peer's answer");
}

#[test]
fn a_peer_that_rejects_the_association_knows_of_its_end() {
    let mut pair = Pair::armed(8);
    let name = |pair: &Pair, host| pair.view(host).association.local_comm_id;
    let names = [PASSIVE, ACTIVE].map(|host| name(&pair, host).expect("open"));
    let [local_comm_id, remote_comm_id] = names;
    pair.lose.insert("DREP", usize::MAX);
    pair.close(ACTIVE);
    let source = MadSource {
        port: pair.hosts[ACTIVE].port_id(1),
        lid: base_lid((PASSIVE, 1)),
        qpn: 1,
        sl: 0,
        path_bits: 0,
        pkey: PKey::DEFAULT_FULL,
        transaction_id: pair.last_transaction("DREQ"),
    };
    let rej = Rej {
        local_comm_id,
        remote_comm_id,
        ..Rej::default()
    };
    pair.forge(ACTIVE, source, rej.into());
    pair.run(5_000);
    assert_eq!(pair.hosts[ACTIVE].sent("DREQ"), 1);
    assert_nothing_left(&pair, ACTIVE);
}

/// An armed pair of which the active end has given the association up, and the passive end has not.
fn given_up_by_one(seed: u64) -> Pair {
    let mut pair = Pair::armed(seed);
    pair.set_traffic(false);
    for port in [1, 2] {
        pair.black_hole(ACTIVE, port);
    }
    // The active end has something to say, and gives the association up.
    pair.drain_port(ACTIVE, 2, true);
    while pair.view(ACTIVE).association.state != AssociationState::Pausing {
        pair.run(10);
    }
    let open = pair.view(PASSIVE).association.state;
    assert_eq!(open, AssociationState::Established);
    for port in [1, 2] {
        *pair.net.cable((ACTIVE, port)) = Cable::Plugged;
    }
    pair
}

/// The passive end's application disconnects. Its DREQ is answered, so it counts as told; the other end must be told as well.
#[test]
fn a_disconnect_in_an_association_that_was_given_up_is_told_to_both_libraries_or_to_none() {
    let mut pair = given_up_by_one(3);
    pair.disconnect(PASSIVE);
    pair.run(1_000);
    let told = pair.hosts.each_ref().map(|host| host.disconnected);
    assert_eq!(told[ACTIVE], told[PASSIVE], "{told:?}");
}

#[test]
fn a_disconnect_in_an_association_that_was_given_up_counts_from_the_peers_ports_only() {
    for (lid, told) in [(Lid(0x99), 0), (base_lid((PASSIVE, 1)), 1)] {
        let mut pair = given_up_by_one(4);
        let dreq = disconnect_of(&pair);
        pair.forge(ACTIVE, source(&pair, lid), dreq.into());
        pair.run(10);
        assert_eq!(pair.hosts[ACTIVE].disconnected, told, "{lid}");
    }
}

/// The first DREQ ends the association.
#[test]
fn a_disconnect_that_comes_twice_is_told_once() {
    let mut pair = Pair::armed(5);
    let dreq = disconnect_of(&pair);
    for _ in 0..2 {
        let source = source(&pair, base_lid((PASSIVE, 1)));
        pair.forge(ACTIVE, source, dreq.clone().into());
    }
    pair.run(10);
    assert_eq!(pair.hosts[ACTIVE].disconnected, 1);
}

/// What the passive end says in the association that it has, when its application disconnects.
fn disconnect_of(pair: &Pair) -> Dreq {
    let open = pair.view(PASSIVE).association;
    Dreq {
        local_comm_id: open.local_comm_id.expect("open"),
        remote_comm_id: open.remote_comm_id.expect("open"),
        remote_qpn_eecn: pair.hosts[ACTIVE].qpn(0),
        private_data: DreqData { disconnected: true }.encode(),
    }
}

/// By the active end's first port.
fn source(pair: &Pair, lid: Lid) -> MadSource {
    MadSource {
        port: pair.hosts[ACTIVE].port_id(1),
        lid,
        qpn: 1,
        sl: 0,
        path_bits: 0,
        pkey: PKey::DEFAULT_FULL,
        transaction_id: 9,
    }
}
