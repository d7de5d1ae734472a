// SPDX-License-Identifier: MIT OR Apache-2.0
//! SAPs of the passive side: how often they are repeated, which answer ends that, and what ends a pause.

use cm_msgs::PKey;
use cm_msgs::cm::Message;
use statemachine::trace::What;
use statemachine::{Command, Doubt};

use super::pair::{ACTIVE, PASSIVE, Pair, gid};

type Change = fn(&mut Pair);

fn saps(pair: &Pair) -> usize {
    pair.hosts[PASSIVE].sent("SAP")
}

/// The passive side has something to say, and for so long nobody has heard it.
fn unheard(seed: u64, ms: u64) -> Pair {
    let mut pair = Pair::armed(seed);
    pair.run(2_000);
    pair.lose.insert("SAP", usize::MAX);
    pair.command(PASSIVE, Command::Rearm);
    pair.run(ms);
    pair
}

#[test]
fn saps_that_nobody_answers_become_ever_rarer_and_do_not_end() {
    let mut pair = unheard(1, 100_000);
    let before = saps(&pair);
    pair.run(300_000);
    let rounds = (saps(&pair) - before) / usize::from(pair.config.tries);
    assert!((4..=8).contains(&rounds), "{rounds} in 300 s");
    let answered = pair.hosts[ACTIVE].sent("SPR");
    pair.lose.clear();
    pair.run(75_000);
    assert_eq!(pair.hosts[ACTIVE].sent("SPR"), answered + 1);
}

#[test]
fn a_change_at_the_passive_side_ends_the_pause_between_saps() {
    let operator = |pair: &mut Pair| pair.command(PASSIVE, Command::Rearm);
    let port = |pair: &mut Pair| pair.join_partition(PASSIVE, 2, PKey(0x8005));
    let nothing = |_: &mut Pair| {};
    let changes: [(Change, bool); 3] = [(operator, true), (port, true), (nothing, false)];
    for (change, ends) in changes {
        let mut pair = unheard(2, 100_000);
        // The pause has just begun.
        let mut before = saps(&pair);
        while saps(&pair) - before < usize::from(pair.config.tries) {
            pair.run(10);
        }
        pair.run(10_000);
        before = saps(&pair);
        pair.lose.clear();
        change(&mut pair);
        pair.run(20);
        assert_eq!(saps(&pair) > before, ends);
    }
}

/// The network may deliver a copy of an answer at any time.
#[test]
fn a_late_answer_to_an_earlier_sap_does_not_answer_this_one() {
    let mut pair = Pair::armed(3);
    pair.run(2_000);
    pair.record("SPR");
    pair.command(PASSIVE, Command::Rearm);
    pair.run(100);
    let (to, source, spr) = pair.recorded()[0].clone();
    assert_eq!(to, PASSIVE);
    pair.lose.insert("SAP", 1);
    pair.command(PASSIVE, Command::Rearm);
    let before = saps(&pair);
    pair.forge(PASSIVE, source, spr);
    pair.run(100);
    assert!(saps(&pair) > before, "it is repeated");
}

#[test]
fn the_trace_of_a_sap_tells_whether_it_suggests_a_port() {
    let mut pair = Pair::new(4);
    pair.record("SAP");
    pair.sa_dead = true;
    pair.begin();
    pair.run(2_000);
    pair.command(PASSIVE, Command::Rearm);
    pair.run(1_000);
    pair.sa_dead = false;
    pair.run(70_000);
    pair.assert_armed();
    pair.command(PASSIVE, Command::Rearm);
    pair.run(1_000);
    let suggests = |message: &Message| match message {
        Message::Sap(sap) => Some(!sap.alternate_local_port_gid.is_unspecified()),
        _ => None,
    };
    let recorded = pair.recorded().iter();
    let sent: Vec<bool> = recorded
        .filter_map(|(_, _, message)| suggests(message))
        .collect();
    let said = pair.traces(PASSIVE).filter_map(|trace| match trace.what {
        What::SapSent { suggests } => Some(suggests),
        _ => None,
    });
    let said: Vec<bool> = said.collect();
    assert_eq!(said, sent);
    assert!(sent.contains(&true) && sent.contains(&false), "{sent:?}");
}

/// The network delivers a copy of the SAP that suggested a port after the port has failed. The peer has said that it has,
/// and says so again.
#[test]
fn a_port_that_a_late_sap_suggests_is_out_of_service_again_when_the_peer_repeats_that() {
    let mut pair = Pair::new(5);
    pair.record("SAP");
    pair.sa_dead = true;
    pair.begin();
    pair.run(2_000);
    pair.command(PASSIVE, Command::Rearm);
    pair.run(1_000);
    let suggests = |message: &Message| match message {
        Message::Sap(sap) => sap.alternate_local_port_gid == gid((PASSIVE, 2)),
        _ => false,
    };
    let mut suggested = pair.recorded().iter().rev();
    let late = suggested.find(|(_, _, message)| suggests(message));
    let (to, source, sap) = late.expect("a suggestion").clone();
    assert_eq!(to, ACTIVE);
    pair.sa_dead = false;
    pair.run(70_000);
    pair.assert_armed();
    pair.pull(PASSIVE, 2);
    pair.run(10_000);
    pair.assert_armed();
    // What a path source says of the port is another thing.
    pair.sa_dead = true;
    let doubt = |pair: &Pair| {
        let other = pair.view(ACTIVE).runner_up.expect("the other port");
        assert_eq!(other.dgid, gid((PASSIVE, 2)));
        other.score.doubt
    };
    assert_eq!(doubt(&pair), Doubt::RemoteDown);
    pair.forge(ACTIVE, source, sap);
    assert_eq!(doubt(&pair), Doubt::None);
    pair.run(100);
    assert_eq!(doubt(&pair), Doubt::None);
    let answered = saps(&pair);
    pair.report_broken_alternate(PASSIVE);
    pair.run(20);
    assert!(saps(&pair) > answered, "it says how its ports are");
    assert_eq!(doubt(&pair), Doubt::RemoteDown);
}
