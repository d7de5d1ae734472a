// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a daemon answers at a peer's port, as the local daemon says. Application threads wait for
//! that before they connect, but never for long.

use std::collections::{HashMap, HashSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cm_msgs::PKey;
use cm_msgs::control::PeerPort;

/// How long a thread that connects waits for the answer. Of a peer that is silent the daemon says so by then; its word
/// is worth the wait: without it a failure of the path costs seconds.
const PATIENCE: Duration = Duration::from_millis(120);
/// A daemon that has answered nothing for so long hangs. About a peer that is silent it says so after some 0.1 s.
const HANGS_AFTER: Duration = Duration::from_secs(1);
/// How long a daemon that answers is taken to go on.
const ANSWERING_FOR: Duration = Duration::from_secs(60);
/// And one that does not, or of which nothing was heard: soon asked again, for it may be started.
const SILENT_FOR: Duration = Duration::from_secs(1);

/// Peers that are kept in mind. A process with more of them asks again.
const KNOWN_MAX: usize = 4096;

#[derive(Clone, Copy)]
enum Peer {
    /// The daemon was asked by this number.
    Asked { question: u64 },
    /// So it is until then.
    Known { answer: Answer, until: Instant },
}

/// What is known of a peer when a connection to it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// A daemon answers there, and connections there are not known to go unprotected all the same.
    Yes,
    No,
    /// Nothing: the local daemon has not said it in time.
    Late,
}

impl From<bool> for Answer {
    fn from(answers: bool) -> Self {
        match answers {
            true => Self::Yes,
            false => Self::No,
        }
    }
}

/// What this process knows of its peers.
pub(crate) struct Peers {
    patience: Duration,
    hangs_after: Duration,
    silent_for: Duration,
    table: Mutex<Table>,
    settled: Condvar,
}

impl Default for Peers {
    fn default() -> Self {
        Self::new(PATIENCE, HANGS_AFTER, SILENT_FOR)
    }
}

/// A peer's port, and the partition that it is reached in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FarPort {
    pub(crate) port: PeerPort,
    pub(crate) pkey: PKey,
}

impl FarPort {
    /// Who takes part in a partition as a full and who as a limited member reaches the same port.
    fn place(self) -> (PeerPort, u16) {
        (self.port, self.pkey.partition())
    }
}

#[derive(Default)]
struct Table {
    peers: HashMap<FarPort, Peer>,
    /// Where a daemon may answer, but the last connection of which that is known was not protected: the
    /// program at the far end does not take part.
    unprotected: HashSet<(PeerPort, u16)>,
    questions: HashMap<u64, FarPort>,
    last_question: u64,
    /// When the first question was put to the daemon of those since its last answer, while any is open.
    unanswered_since: Option<Instant>,
}

impl Peers {
    fn new(patience: Duration, hangs_after: Duration, silent_for: Duration) -> Self {
        Self {
            patience,
            hangs_after,
            silent_for,
            table: Mutex::default(),
            settled: Condvar::new(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a daemon answers at the port, and connections there are not known to go unprotected all
    /// the same. `ask` hands the question on, and says
    /// whether it could; it is called once, however many threads want to know, and must not wait.
    /// A local daemon that hangs is asked, too, but not waited for: every connection to another peer would wait as long.
    pub(crate) fn answers(&self, far: FarPort, ask: impl FnOnce(u64) -> bool) -> Answer {
        let until = Instant::now() + self.patience;
        let mut table = self.table();
        if table.unprotected.contains(&far.place()) {
            return Answer::No;
        }
        let question = match table.known(far) {
            Some(Peer::Known { answer, .. }) => return answer,
            Some(Peer::Asked { question }) => question,
            None => {
                let question = table.ask(far);
                drop(table);
                self.put(question, ask);
                table = self.table();
                question
            }
        };
        loop {
            match table.peers.get(&far) {
                Some(Peer::Asked { question: open }) if *open == question => {}
                Some(&Peer::Known { answer, .. }) => return answer,
                // Asked anew since, after silence: what this one waited for did not come.
                _ => return Answer::Late,
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || table.has_waited(self.hangs_after) {
                table.silent(far, self.silent_for);
                self.settled.notify_all();
                return Answer::Late;
            }
            let waited = self.settled.wait_timeout(table, left);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether there is an answer for a peer's port, one is waited for, or none is needed since connections
    /// there go unprotected.
    pub(crate) fn is_asked(&self, far: FarPort) -> bool {
        let table = self.table();
        table.unprotected.contains(&far.place()) || table.known(far).is_some()
    }

    /// As [`Peers::answers`] for who will connect soon: nobody waits.
    pub(crate) fn ask_ahead(&self, far: FarPort, ask: impl FnOnce(u64) -> bool) {
        let mut table = self.table();
        if table.known(far).is_none() && !table.unprotected.contains(&far.place()) {
            let question = table.ask(far);
            drop(table);
            self.put(question, ask);
        }
    }

    fn put(&self, question: u64, ask: impl FnOnce(u64) -> bool) {
        if !ask(question) {
            self.unasked(question);
        }
    }

    /// A connection to the port was given an alternate path, or was there for long without one.
    pub(crate) fn protects(&self, far: FarPort, protected: bool) {
        let unprotected = &mut self.table().unprotected;
        if protected {
            unprotected.remove(&far.place());
            return;
        }
        if unprotected.len() >= KNOWN_MAX && !unprotected.contains(&far.place()) {
            unprotected.clear();
        }
        unprotected.insert(far.place());
    }

    /// The daemon has answered. An answer that comes late counts for the next time.
    pub(crate) fn answered(&self, question: u64, answers: bool) {
        let mut table = self.table();
        table.unanswered_since = None;
        table.settle(question, answers, self.silent_for);
        self.settled.notify_all();
    }

    /// The question cannot be put to the daemon.
    pub(crate) fn unasked(&self, question: u64) {
        let mut table = self.table();
        table.settle(question, false, self.silent_for);
        if table.questions.is_empty() {
            table.unanswered_since = None;
        }
        self.settled.notify_all();
    }

    /// The daemon is gone, and no open question will be answered.
    pub(crate) fn daemon_lost(&self) {
        let mut table = self.table();
        table.unanswered_since = None;
        for question in table.questions.keys().copied().collect::<Vec<_>>() {
            table.settle(question, false, self.silent_for);
        }
        self.settled.notify_all();
    }
}

impl Table {
    /// What is known, if that is not too old, or asked.
    fn known(&self, far: FarPort) -> Option<Peer> {
        let peer = self.peers.get(&far).copied();
        peer.filter(|peer| match peer {
            Peer::Asked { .. } => true,
            Peer::Known { until, .. } => Instant::now() < *until,
        })
    }

    /// The number of a new question.
    fn ask(&mut self, far: FarPort) -> u64 {
        if self.peers.len() >= KNOWN_MAX {
            self.peers.clear();
            self.questions.clear();
        }
        // An answer to an earlier question would be as good, but two numbers for one port are not
        // needed.
        self.questions.retain(|_, asked| *asked != far);
        self.unanswered_since.get_or_insert_with(Instant::now);
        self.last_question += 1;
        let question = self.last_question;
        self.questions.insert(question, far);
        self.peers.insert(far, Peer::Asked { question });
        question
    }

    /// Whether the daemon has answered nothing for so long.
    fn has_waited(&self, span: Duration) -> bool {
        self.unanswered_since
            .is_some_and(|since| since.elapsed() >= span)
    }

    fn settle(&mut self, question: u64, answers: bool, silent_for: Duration) {
        let Some(far) = self.questions.remove(&question) else {
            return;
        };
        let lasts = if answers { ANSWERING_FOR } else { silent_for };
        let until = Instant::now() + lasts;
        let answer = answers.into();
        self.peers.insert(far, Peer::Known { answer, until });
    }

    /// Nobody waits any longer. The question stays open: its answer may come yet.
    fn silent(&mut self, far: FarPort, silent_for: Duration) {
        let known = Peer::Known {
            answer: Answer::Late,
            until: Instant::now() + silent_for,
        };
        self.peers.insert(far, known);
    }
}

#[cfg(test)]
impl Peers {
    /// Whether a daemon answers there, as far as is known in time.
    pub(crate) fn says(&self, far: FarPort, ask: impl FnOnce(u64) -> bool) -> bool {
        self.answers(far, ask) == Answer::Yes
    }

    /// Of threads that wait for an answer which comes. They end where it does not.
    pub(crate) fn patient() -> Self {
        Self::new(Duration::from_secs(20), tests::HOUR, tests::HOUR)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;
    use crate::tests::peer;

    /// Longer than any test takes.
    pub(super) const HOUR: Duration = Duration::from_secs(3600);

    fn not_asked(_: u64) -> bool {
        panic!("it is known")
    }

    #[test]
    fn a_peer_is_asked_once_for_all_threads_and_then_known() {
        let peers = Arc::new(Peers::patient());
        let asked = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..16)
            .map(|_| {
                let (peers, asked) = (Arc::clone(&peers), Arc::clone(&asked));
                thread::spawn(move || {
                    peers.says(peer(9), |question| {
                        asked.fetch_add(1, Ordering::SeqCst);
                        let peers = Arc::clone(&peers);
                        // As the commit thread does.
                        thread::spawn(move || peers.answered(question, true));
                        true
                    })
                })
            })
            .collect();
        let said: Vec<bool> = threads
            .into_iter()
            .map(|t| t.join().expect("ends"))
            .collect();
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert_eq!(said, [true; 16]);
        assert!(peers.says(peer(9), not_asked));
    }

    #[test]
    fn nobody_waits_for_ever_and_a_late_answer_counts_for_the_next() {
        let peers = Peers::new(Duration::ZERO, HOUR, HOUR);
        let mut number = 0;
        let said = peers.answers(peer(9), |question| {
            number = question;
            true
        });
        assert_eq!(said, Answer::Late, "nobody has answered");
        assert!(!peers.says(peer(9), not_asked), "and is not asked at once");
        peers.answered(number, true);
        assert!(peers.says(peer(9), not_asked));
        peers.answered(number, false);
        assert!(peers.says(peer(9), not_asked), "a second answer is none");
    }

    /// A daemon that has let a question about peer 9 wait for so long that it hangs; the question, and the
    /// peers of threads that would wait for an hour now.
    fn hanging() -> (u64, Peers) {
        let mut peers = Peers::new(Duration::ZERO, Duration::ZERO, HOUR);
        let mut number = 0;
        assert!(!peers.says(peer(9), |question| {
            number = question;
            true
        }));
        peers.patience = Peers::patient().patience;
        (number, peers)
    }

    #[test]
    fn a_daemon_that_was_late_once_does_not_hang() {
        let mut peers = Peers::new(Duration::ZERO, HOUR, HOUR);
        assert!(!peers.says(peer(9), |_| true), "silent, or late");
        peers.patience = Peers::patient().patience;
        let peers = &peers;
        let said = thread::scope(|scope| {
            peers.says(peer(10), |question| {
                scope.spawn(move || peers.answered(question, true));
                true
            })
        });
        assert!(said, "it was waited for");
    }

    #[test]
    fn a_daemon_that_hung_is_waited_for_when_it_has_answered_or_is_another() {
        for comes_back in [
            (|peers, question| peers.answered(question, false)) as fn(&Peers, u64),
            |peers, _| peers.daemon_lost(),
        ] {
            let (question, mut peers) = hanging();
            for other in [10, 11] {
                let mut asked = false;
                let said = peers.says(peer(other), |_| {
                    asked = true;
                    true
                });
                assert!(asked && !said, "its answer would count for the next time");
            }
            peers.says(peer(12), |_| false);
            assert!(
                peers.table().unanswered_since.is_some(),
                "nobody has answered that"
            );
            comes_back(&peers, question);
            peers.hangs_after = HOUR;
            let peers = &peers;
            let said = thread::scope(|scope| {
                peers.says(peer(13), |question| {
                    scope.spawn(move || peers.answered(question, true));
                    true
                })
            });
            assert!(said, "it was waited for");
        }
    }

    #[test]
    fn who_asked_ahead_need_not_ask_again() {
        let peers = Peers::patient();
        let mut number = 0;
        assert!(!peers.is_asked(peer(9)));
        peers.ask_ahead(peer(9), |question| {
            number = question;
            true
        });
        assert!(peers.is_asked(peer(9)) && !peers.is_asked(peer(8)));
        peers.ask_ahead(peer(9), not_asked);
        thread::scope(|scope| {
            let waits = scope.spawn(|| peers.says(peer(9), not_asked));
            peers.answered(number, true);
            assert!(waits.join().expect("ends"));
        });
        peers.ask_ahead(peer(9), not_asked);
        peers.ask_ahead(peer(10), |_| false);
        assert!(!peers.says(peer(10), not_asked), "nobody to ask");
    }

    #[test]
    fn a_question_that_cannot_be_put_is_a_no() {
        let peers = Peers::default();
        assert!(!peers.says(peer(9), |_| false));
        assert!(peers.table().questions.is_empty());
    }

    #[test]
    fn ports_are_asked_each_by_itself() {
        let peers = Peers::patient();
        for (dlid, answers) in [(9, true), (10, false)] {
            let said = peers.says(peer(dlid), |question| {
                peers.answered(question, answers);
                true
            });
            assert_eq!(said, answers);
        }
        assert!(peers.says(peer(9), not_asked));
        assert!(!peers.says(peer(10), not_asked));
    }

    #[test]
    fn where_connections_go_unprotected_no_daemon_counts_until_one_is_protected() {
        let peers = Peers::patient();
        let limited = FarPort {
            pkey: PKey(0x7fff),
            ..peer(9)
        };
        peers.protects(limited, false);
        assert!(peers.is_asked(peer(9)), "its device need not be, either");
        peers.ask_ahead(peer(9), not_asked);
        assert!(!peers.says(peer(9), not_asked));
        let ask = |question| {
            peers.answered(question, true);
            true
        };
        assert!(peers.says(peer(10), ask), "another port");
        peers.protects(peer(9), true);
        assert!(peers.says(peer(9), ask));
        peers.protects(peer(9), false);
        assert!(!peers.says(peer(9), not_asked), "whatever was answered");
    }

    #[test]
    fn of_unprotected_ports_as_many_are_kept_and_forgotten_for_new_ones_only() {
        let peers = Peers::default();
        let kept = || peers.table().unprotected.len();
        for lid in 0..KNOWN_MAX as u16 {
            peers.protects(peer(lid), false);
        }
        peers.protects(peer(0), false);
        assert_eq!(kept(), KNOWN_MAX);
        peers.protects(peer(KNOWN_MAX as u16), false);
        assert_eq!(kept(), 1);
    }

    #[test]
    fn a_daemon_that_dies_leaves_nobody_waiting() {
        let peers = Arc::new(Peers::patient());
        let said = peers.says(peer(9), |_| {
            let peers = Arc::clone(&peers);
            thread::spawn(move || peers.daemon_lost());
            true
        });
        assert!(!said);
        assert!(peers.table().questions.is_empty());
    }

    #[test]
    fn what_is_kept_in_mind_is_bounded() {
        let peers = Peers::default();
        for dlid in 0..3 * KNOWN_MAX as u16 {
            peers.says(peer(dlid), |question| {
                peers.answered(question, true);
                true
            });
        }
        assert!(peers.table().peers.len() <= KNOWN_MAX);
        assert!(peers.table().questions.is_empty());
    }
}
