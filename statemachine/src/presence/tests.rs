// SPDX-License-Identifier: MIT OR Apache-2.0
mod answers;

use alloc::collections::BTreeSet;

use cm_msgs::Guid;
use cm_msgs::sa::ClassPortInfo;
use proptest::prelude::*;

use super::replies::{PORT_MAX, SENDER_MAX};
use super::*;
use crate::sender::local_ports;

const MS: u64 = 1000;
const USER: u32 = 1000;

fn port(number: u8) -> PortId {
    PortId::new(Guid(1), number)
}

fn far(number: u8, lid: u16) -> FarPort {
    FarPort {
        port: port(number),
        lid: Lid(lid),
        partition: 0x7fff,
    }
}

/// The port that asks from there.
fn sender(from: FarPort) -> Sender {
    Sender::new(&local_ports(0), from.port, from.lid)
}

impl PeerPresence {
    /// A MAD comes in from a port.
    fn hear(&mut self, now: Time, from: FarPort, way: MadWay, id: u64, message: &Presence) {
        self.handle(now, from, sender(from), way, id, message);
    }
}

fn question(client: u32, question: u64) -> PeerQuestion {
    PeerQuestion { client, question }
}

fn presence() -> PeerPresence {
    PeerPresence::new(Random::new([3; 32]))
}

fn sent(presence: &mut PeerPresence) -> Vec<PresenceTransmit> {
    core::iter::from_fn(|| presence.poll_transmit(|_| true)).collect()
}

fn verdicts(presence: &mut PeerPresence) -> Vec<(u64, bool)> {
    core::iter::from_fn(|| presence.poll_verdict())
        .map(|(question, answers)| (question.question, answers))
        .collect()
}

fn nobody() -> Presence {
    Presence::Answer {
        status: 0x000c,
        info: ClassPortInfo::default(),
    }
}

/// Lets time go by until nothing is asked any more.
fn give_up(presence: &mut PeerPresence) -> Time {
    let mut now = Time(0);
    while !presence.transactions.is_empty() {
        now = presence
            .poll_timeout()
            .expect("what is asked has a deadline");
        presence.handle_timeout(now);
    }
    now
}

/// How a question came.
const WAY: MadWay = MadWay {
    path_bits: 3,
    sl: 2,
    pkey_index: Some(1),
};

#[test]
fn an_answer_in_another_partition_is_a_strangers() {
    let mut presence = presence();
    let now = Time(0);
    let asked = FarPort {
        partition: 5,
        ..far(1, 9)
    };
    presence.ask(now, question(1, 1), USER, asked);
    let mads = sent(&mut presence);
    assert_eq!(mads[0].to, asked);
    let id = mads[0].transaction_id;
    presence.hear(now, far(1, 9), WAY, id, &Presence::here());
    assert_eq!(presence.counters().from_strangers, 1);
    assert_eq!(presence.poll_verdict(), None);
    presence.hear(now, asked, WAY, id, &Presence::here());
    assert_eq!(presence.poll_verdict(), Some((question(1, 1), true)));
}

#[test]
fn a_daemon_that_answers_is_remembered_for_all_who_ask() {
    let mut presence = presence();
    let now = Time(0);
    presence.ask(now, question(1, 1), USER, far(1, 9));
    presence.ask(now, question(2, 2), USER, far(1, 9));
    let mads = sent(&mut presence);
    assert_eq!(mads.len(), 1, "one question, however many wait for it");
    assert_eq!((mads[0].to, mads[0].message), (far(1, 9), Presence::Get));
    assert_eq!(verdicts(&mut presence), []);
    // As umad does with the upper half.
    let transaction = mads[0].transaction_id | 7 << 32;
    presence.hear(
        now,
        far(1, 9),
        MadWay::default(),
        transaction,
        &Presence::here(),
    );
    assert_eq!(verdicts(&mut presence), [(1, true), (2, true)]);
    presence.ask(Time(60_000 * MS), question(1, 3), USER, far(1, 9));
    assert_eq!(verdicts(&mut presence), [(3, true)]);
    assert_eq!(sent(&mut presence), []);
    presence.handle_timeout(now + ANSWERING_FOR);
    presence.ask(now + ANSWERING_FOR, question(1, 4), USER, far(1, 9));
    assert_eq!(verdicts(&mut presence), [], "it has been too long");
    assert_eq!(sent(&mut presence).len(), 1);
}

#[test]
fn what_is_forgotten_is_asked_again_and_what_is_asked_goes_on() {
    let mut presence = presence();
    let now = Time(0);
    presence.ask(now, question(1, 1), USER, far(1, 9));
    let id = sent(&mut presence)[0].transaction_id;
    presence.hear(now, far(1, 9), WAY, id, &Presence::here());
    presence.ask(now, question(1, 2), USER, far(1, 7));
    let open = sent(&mut presence)[0].transaction_id;
    presence.forget_known();
    presence.hear(now, far(1, 7), WAY, open, &Presence::here());
    assert_eq!(verdicts(&mut presence), [(1, true), (2, true)]);
    presence.ask(now, question(1, 3), USER, far(1, 9));
    assert_eq!(sent(&mut presence).len(), 1);
    assert_eq!(verdicts(&mut presence), []);
}

#[test]
fn silence_is_a_no_after_three_copies_and_for_seconds_only() {
    let mut presence = presence();
    presence.ask(Time(0), question(1, 1), USER, far(1, 9));
    let mut copies = BTreeSet::new();
    let mut at = Vec::new();
    while verdicts(&mut presence).is_empty() {
        let mads = sent(&mut presence);
        assert!(mads.len() <= 1);
        copies.extend(mads.iter().map(|mad| mad.transaction_id));
        let now = presence.poll_timeout().expect("a deadline");
        at.push(now);
        presence.handle_timeout(now);
    }
    assert_eq!(copies.len(), 3, "each with a number of its own");
    assert_eq!(presence.counters().asked, 3);
    assert_eq!(at, [Time(5 * MS), Time(15 * MS), Time(100 * MS)]);
    presence.ask(Time(101 * MS), question(1, 2), USER, far(1, 9));
    assert_eq!(verdicts(&mut presence), [(2, false)]);
    let found = Time(100 * MS) + SILENT_FOR;
    presence.handle_timeout(found);
    presence.ask(found, question(1, 3), USER, far(1, 9));
    assert_eq!(sent(&mut presence).len(), 1, "a daemon may have started");
}

#[test]
fn a_kernel_that_answers_for_nobody_is_a_no_at_once() {
    let mut presence = presence();
    presence.ask(Time(0), question(1, 1), USER, far(1, 9));
    let mad = sent(&mut presence)[0];
    presence.hear(
        Time(1),
        far(1, 9),
        MadWay::default(),
        mad.transaction_id,
        &nobody(),
    );
    assert_eq!(verdicts(&mut presence), [(1, false)]);
    presence.hear(
        Time(2),
        far(1, 9),
        MadWay::default(),
        mad.transaction_id,
        &Presence::here(),
    );
    presence.ask(Time(3), question(1, 2), USER, far(1, 9));
    assert_eq!(verdicts(&mut presence), [(2, false)], "it was settled");
}

#[test]
fn only_the_port_that_was_asked_is_believed_and_only_by_its_number() {
    let mut presence = presence();
    presence.ask(Time(0), question(1, 1), USER, far(1, 9));
    presence.ask(Time(0), question(1, 2), USER, far(1, 10));
    let mads = sent(&mut presence);
    let number = mads[0].transaction_id;
    let here = Presence::here();
    presence.hear(Time(1), far(1, 10), MadWay::default(), number, &here);
    presence.hear(Time(1), far(2, 9), MadWay::default(), number, &here);
    presence.hear(Time(1), far(1, 9), MadWay::default(), number ^ 1, &here);
    presence.hear(Time(1), far(1, 9), MadWay::default(), 0, &here);
    assert_eq!(verdicts(&mut presence), []);
    assert_eq!(presence.counters().from_strangers, 4);
    // An earlier copy's answer is as good.
    presence.handle_timeout(Time(5 * MS));
    presence.hear(Time(6 * MS), far(1, 9), MadWay::default(), number, &here);
    assert_eq!(verdicts(&mut presence), [(1, true)]);
}

#[test]
fn a_peer_is_answered_from_the_lid_that_it_asked() {
    let mut presence = presence();
    presence.hear(Time(0), far(1, 9), WAY, 0x1c_0000_0001, &Presence::Get);
    let answer = PresenceTransmit {
        to: far(1, 9),
        way: WAY,
        transaction_id: 0x1c_0000_0001,
        message: Presence::here(),
    };
    assert_eq!(sent(&mut presence), [answer]);
    assert_eq!(presence.counters().answered, 1);
}

#[test]
fn no_user_uses_up_what_others_need() {
    let mut presence = presence();
    for lid in 1..=2000 {
        presence.ask(Time(0), question(1, lid.into()), USER, far(1, lid));
    }
    let asked = sent(&mut presence).len();
    assert!(asked <= UNANSWERED_MAX * 3 / 4, "{asked}");
    let no = verdicts(&mut presence);
    assert_eq!(no.len() + asked, 2000, "who is refused hears it at once");
    assert_eq!(presence.counters().refused, no.len() as u64);
    presence.ask(Time(0), question(2, 1), USER + 1, far(2, 1));
    assert_eq!(sent(&mut presence).len(), 1, "another user");
    // Many questions for one peer.
    for number in 0..5000 {
        presence.ask(Time(0), question(3, number), USER + 2, far(2, 1));
    }
    assert!(verdicts(&mut presence).len() > 4000);
    presence.ask(Time(0), question(4, 1), USER + 3, far(2, 1));
    assert_eq!(
        verdicts(&mut presence),
        [],
        "another user waits for it, too"
    );
}

/// Where nobody is, each question costs all its copies: who asks for LID after LID is held back.
#[test]
fn programs_draw_few_questions_to_where_nobody_is() {
    let mut presence = presence();
    let (mut mads, mut number) = (0, 0);
    for ms in 0..30_000 {
        let now = Time(ms * MS);
        presence.handle_timeout(now);
        for user in USER..USER + 4 {
            number += 1;
            let lid = 1 + (number % 0xbffe) as u16;
            presence.ask(now, question(user, number), user, far(1, lid));
        }
        mads += sent(&mut presence).len();
        verdicts(&mut presence);
    }
    assert!(mads <= 200 * 31, "{mads} in 30 s");
    let here = far(2, 9);
    presence.handle_timeout(Time(40_000 * MS));
    presence.ask(Time(40_000 * MS), question(9, 1), USER, here);
    assert_eq!(sent(&mut presence).len(), 1, "places come back");
}

#[test]
fn what_is_known_is_bounded_however_long_somebody_asks() {
    let mut presence = presence();
    let mut now = Time(0);
    for lid in 1..0xbfff {
        presence.ask(now, question(1, lid.into()), USER, far(1, lid));
        for mad in sent(&mut presence) {
            presence.hear(
                now,
                mad.to,
                MadWay::default(),
                mad.transaction_id,
                &Presence::here(),
            );
        }
        now = now + Duration::from_micros(10);
    }
    assert!(presence.entries.len() <= KNOWN_MAX * 3 / 4);
    assert!(presence.transactions.is_empty());
    presence.ask(now, question(2, 1), USER + 1, far(1, 0xb000));
    assert_eq!(sent(&mut presence).len(), 1, "another user finds a place");
}

#[test]
fn a_client_that_goes_gives_its_places_back() {
    let mut presence = presence();
    presence.ask(Time(0), question(1, 1), USER, far(1, 9));
    presence.ask(Time(0), question(1, 3), USER, far(1, 9));
    presence.ask(Time(0), question(2, 2), USER, far(1, 9));
    presence.client_gone(1);
    assert_eq!(presence.waiting_share.total(), 1);
    let now = give_up(&mut presence);
    assert_eq!(verdicts(&mut presence), [(2, false)]);
    assert_eq!(presence.waiting_share.total(), 0);
    for client in [1, 2] {
        presence.ask(now, question(client, 4), USER, far(1, 9));
    }
    presence.client_gone(1);
    let told = presence.poll_verdict();
    assert_eq!(told, Some((question(2, 4), false)), "it is still there");
    assert_eq!(presence.poll_verdict(), None);
}

#[test]
fn a_port_that_changes_forgets_its_peers() {
    let mut presence = presence();
    presence.ask(Time(0), question(1, 1), USER, far(1, 9));
    let mad = sent(&mut presence)[0];
    presence.hear(
        Time(0),
        far(1, 9),
        MadWay::default(),
        mad.transaction_id,
        &Presence::here(),
    );
    presence.ask(Time(0), question(1, 2), USER, far(1, 10));
    presence.ask(Time(0), question(1, 3), USER, far(2, 9));
    verdicts(&mut presence);
    presence.port_changed(Time(1), port(1));
    assert_eq!(verdicts(&mut presence), [(2, false)]);
    assert_eq!(sent(&mut presence).len(), 1, "the other port's question");
    assert_eq!(presence.known_share.total(), 1);
    presence.ask(Time(1), question(1, 4), USER, far(1, 9));
    assert_eq!(sent(&mut presence).len(), 1, "asked anew");
}

#[test]
fn who_asked_last_pays_for_what_is_known_and_root_for_all_that_it_asked() {
    let mut presence = presence();
    let now = Time(0);
    let mut number = 0;
    let mut ask = |presence: &mut PeerPresence, user| {
        number += 1;
        presence.ask(now, question(1, number), user, far(1, 9));
        for mad in sent(presence) {
            let id = mad.transaction_id;
            presence.hear(now, mad.to, MadWay::default(), id, &Presence::here());
        }
        presence.entries[&far(1, 9)].user
    };
    for (user, pays) in [
        (USER, USER),
        (USER + 1, USER + 1),
        (USER, USER),
        (ROOT, ROOT),
        (USER, ROOT),
    ] {
        assert_eq!(ask(&mut presence, user), pays);
        assert_eq!(presence.known_share.total(), 1);
    }
    presence.handle_timeout(now + ANSWERING_FOR);
    assert_eq!(presence.known_share.total(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Ask(u32, u32, u8, u16),
    Answer(usize, bool),
    Forged(u8, u16, u64),
    Asked(u8, u16),
    Send(bool),
    Gone(u32),
    Changed(u8),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let ask = (1..4u32, 0..3u32, 1..3u8, 1..40u16).prop_map(|(c, u, p, l)| Step::Ask(c, u, p, l));
    let forged = (1..3u8, 1..40u16, any::<u64>()).prop_map(|(p, l, t)| Step::Forged(p, l, t));
    prop_oneof![
        8 => ask,
        4 => (any::<usize>(), any::<bool>()).prop_map(|(n, yes)| Step::Answer(n, yes)),
        2 => forged,
        2 => (1..3u8, 1..40u16).prop_map(|(p, l)| Step::Asked(p, l)),
        4 => any::<bool>().prop_map(Step::Send),
        1 => (1..4u32).prop_map(Step::Gone),
        1 => (1..3u8).prop_map(Step::Changed),
        4 => (0..200_000u64).prop_map(Step::Pass),
    ]
}

proptest! {
    /// Whatever happens, each question has one verdict, yes comes from nobody but who was asked, and
    /// in the end all places are free.
    #[test]
    fn every_question_has_one_verdict_and_every_place_comes_back(steps in proptest::collection::vec(step(), 0..300)) {
        let mut presence = presence();
        let mut now = Time(0);
        let mut open: BTreeMap<PeerQuestion, FarPort> = BTreeMap::new();
        let mut on_the_way: Vec<PresenceTransmit> = Vec::new();
        let mut said_yes: BTreeSet<FarPort> = BTreeSet::new();
        let mut number = 0;
        for step in steps {
            match step {
                Step::Ask(client, user, port, lid) => {
                    number += 1;
                    open.insert(question(client, number), far(port, lid));
                    presence.ask(now, question(client, number), user, far(port, lid));
                }
                Step::Answer(which, yes) if !on_the_way.is_empty() => {
                    let which = which % on_the_way.len();
                    let mad = on_the_way.swap_remove(which);
                    let answer = if yes { Presence::here() } else { nobody() };
                    if yes {
                        said_yes.insert(mad.to);
                    }
                    presence.hear(now, mad.to, MadWay::default(), mad.transaction_id, &answer);
                }
                Step::Answer(..) => {}
                Step::Forged(port, lid, transaction) => {
                    presence.hear(now, far(port, lid), MadWay::default(), transaction, &Presence::here());
                }
                Step::Asked(port, lid) => presence.hear(now, far(port, lid), MadWay::default(), 1, &Presence::Get),
                Step::Send(both) => {
                    let sent = core::iter::from_fn(|| presence.poll_transmit(|id| both || id.port == 1));
                    on_the_way.extend(sent.filter(|mad| mad.message == Presence::Get));
                }
                Step::Gone(client) => {
                    presence.client_gone(client);
                    open.retain(|question, _| question.client != client);
                }
                Step::Changed(number) => presence.port_changed(now, port(number)),
                Step::Pass(us) => {
                    now = now + Duration::from_micros(us);
                    presence.handle_timeout(now);
                }
            }
            while let Some((question, answers)) = presence.poll_verdict() {
                let far = open.remove(&question);
                prop_assert!(far.is_some(), "{question:?} had a verdict, or its client is gone");
                prop_assert!(!answers || far.is_some_and(|far| said_yes.contains(&far)));
            }
            prop_assert!(presence.out.len() <= 80);
            prop_assert!(presence.replies.len() <= 2 * PORT_MAX);
            prop_assert_eq!(presence.waiting_share.total(), open.len());
        }
        while let Some(at) = presence.poll_timeout() {
            now = now.max(at);
            presence.handle_timeout(now);
            while let Some((question, answers)) = presence.poll_verdict() {
                prop_assert!(!answers);
                prop_assert!(open.remove(&question).is_some());
            }
        }
        prop_assert!(open.is_empty(), "{open:?} were never answered");
        sent(&mut presence);
        let left = [
            presence.known_share.total(),
            presence.unanswered_share.total(),
            presence.waiting_share.total(),
            presence.transactions.len(),
            presence.entries.len(),
            presence.replies.len(),
        ];
        prop_assert_eq!(left, [0; 6]);
    }
}

#[test]
fn a_copy_that_waits_for_its_port_is_replaced_and_what_is_settled_is_not_asked() {
    let mut presence = presence();
    presence.ask(Time(0), question(1, 1), USER, far(1, 9));
    presence.ask(Time(0), question(1, 2), USER, far(1, 10));
    presence.hear(Time(0), far(1, 9), WAY, 5, &Presence::Get);
    presence.handle_timeout(Time(5 * MS));
    let mads = sent(&mut presence);
    let asked = |lid| {
        let to = mads.iter().filter(move |mad| mad.to == far(1, lid));
        to.filter(|mad| mad.message == Presence::Get).count()
    };
    assert_eq!(
        (asked(9), asked(10), mads.len()),
        (1, 1, 3),
        "and the reply"
    );
    // The answer to the second copy comes while the third waits.
    let number = mads.iter().find(|mad| mad.to == far(1, 10));
    let number = number.expect("asked").transaction_id;
    presence.handle_timeout(Time(15 * MS));
    presence.hear(Time(16 * MS), far(1, 10), WAY, number, &Presence::here());
    let left: Vec<_> = sent(&mut presence).iter().map(|mad| mad.to).collect();
    assert_eq!(left, [far(1, 9)]);
}

#[test]
fn a_known_port_is_not_charged_to_a_user_without_room() {
    let mut presence = presence();
    let ask = |presence: &mut PeerPresence, number: u64, user, lid| {
        presence.ask(Time(0), question(1, number), user, far(1, lid));
        for mad in sent(presence) {
            let id = mad.transaction_id;
            presence.hear(Time(0), mad.to, WAY, id, &Presence::here());
        }
    };
    ask(&mut presence, 0, USER + 1, 0xb000);
    for lid in 1..=KNOWN_MAX as u16 {
        ask(&mut presence, lid.into(), USER, lid);
    }
    ask(&mut presence, 9_999, USER, 0xb000);
    assert_eq!(presence.entries[&far(1, 0xb000)].user, USER + 1);
}
