// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether peers' daemons answer, as the answers to probes of connections' paths show: without a daemon the peer's
//! kernel answers in its place. Nothing is sent for this. No I/O here.

use std::collections::BTreeMap;
use std::time::Duration;

use cm_msgs::Lid;
use statemachine::{PortId, Time};

/// Far LIDs that are remembered. Each is one that a path of a connection led to.
const KNOWN_MAX: usize = 8_192;
/// If there are more, those are forgotten of which nothing was learnt for this long.
const STALE: Duration = Duration::from_secs(600);
/// A daemon is said to answer if it was heard within this time, and its kernel has not answered since.
const RECENT: Duration = Duration::from_secs(30);

/// What the probes of one far LID showed.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    /// The daemon answered.
    daemon: Option<Time>,
    /// The kernel answered in its place: for the first time since the daemon did, and for the last time.
    kernel: Option<(Time, Time)>,
}

/// A daemon that does not answer for this long has not just been restarted.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(10);

/// By the local port, and the LID that was probed.
#[derive(Debug, Default)]
pub(crate) struct PeerDaemons {
    known: BTreeMap<(PortId, Lid), Answers>,
}

/// What is known of one peer's daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerDaemon {
    /// It answered this long ago, and nothing has shown since that it does not.
    Answers(Duration),
    /// Its kernel has answered in its place for `since` at least; it was heard `heard` ago, if it was.
    Silent {
        since: Duration,
        heard: Option<Duration>,
    },
    /// Nothing recent is known; it was heard this long ago, if it was.
    Unknown(Option<Duration>),
}

impl PeerDaemons {
    /// A probe over this path has come back: `by_daemon`, or from the peer's kernel.
    pub(crate) fn answered(&mut self, now: Time, port: PortId, far: Lid, by_daemon: bool) {
        let key = (port, far);
        if self.known.len() >= KNOWN_MAX && !self.known.contains_key(&key) {
            self.known
                .retain(|_, answers| answers.last().is_some_and(|last| now - last < STALE));
            if self.known.len() >= KNOWN_MAX {
                return;
            }
        }
        let answers = self.known.entry(key).or_default();
        if by_daemon {
            answers.daemon = Some(now);
            answers.kernel = None;
        } else {
            let first = answers.kernel.map_or(now, |(first, _)| first);
            answers.kernel = Some((first, now));
        }
    }

    /// Paths, from a local port to a far LID each, over which the daemon answered once and has not for
    /// [`SILENT_AFTER`]. Only those that are still probed count.
    pub(crate) fn silent(&self, now: Time) -> usize {
        let is_probed = |answers: &&Answers| answers.last().is_some_and(|last| now - last < RECENT);
        let since = |answers: &Answers| answers.silent_since();
        let since = self.known.values().filter(is_probed).filter_map(since);
        since.filter(|&since| now - since >= SILENT_AFTER).count()
    }

    /// The port has changed, or is gone: other ports may have these LIDs.
    pub(crate) fn forget(&mut self, port: PortId) {
        self.known.retain(|&(known, _), _| known != port);
    }

    /// What is known of the daemon at the far end of these paths of one connection. `spoke`: when it was heard in its
    /// association with this host.
    pub(crate) fn of(
        &self,
        now: Time,
        paths: impl Iterator<Item = (PortId, Lid)>,
        spoke: Option<Time>,
    ) -> PeerDaemon {
        let (mut heard, mut silent) = (spoke, None::<(Time, Time)>);
        for answers in paths.filter_map(|path| self.known.get(&path)) {
            heard = heard.max(answers.daemon);
            // The latest answer counts.
            if let Some((first, last)) = answers.kernel {
                silent = silent.max(Some((last, first)));
            }
        }
        let age = |time: Time| now - time;
        match (heard, silent) {
            (heard, Some((last, first))) if heard.is_none_or(|heard| heard < last) => {
                PeerDaemon::Silent {
                    since: age(heard.map_or(first, |heard| heard.max(first))),
                    heard: heard.map(age),
                }
            }
            (Some(heard), _) if age(heard) < RECENT => PeerDaemon::Answers(age(heard)),
            (heard, _) => PeerDaemon::Unknown(heard.map(age)),
        }
    }
}

impl Answers {
    /// Since when its kernel has answered in the place of a daemon that was heard before.
    fn silent_since(&self) -> Option<Time> {
        let (first, _) = self.kernel.filter(|_| self.daemon.is_some())?;
        Some(first)
    }

    fn last(&self) -> Option<Time> {
        self.daemon.max(self.kernel.map(|(_, last)| last))
    }
}

#[cfg(test)]
mod tests {
    use cm_msgs::Guid;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000)
    }

    fn port(port: u8) -> PortId {
        PortId {
            node_guid: Guid(1),
            port,
        }
    }

    #[test]
    fn a_daemon_that_was_killed_is_silent_with_the_next_probe_until_it_answers_again() {
        let mut known = PeerDaemons::default();
        let paths = || [(port(1), Lid(7)), (port(2), Lid(9))].into_iter();
        let of = |known: &PeerDaemons, now, spoke| known.of(at(now), paths(), spoke);
        assert_eq!(of(&known, 1, None), PeerDaemon::Unknown(None));
        known.answered(at(10), port(1), Lid(7), true);
        known.answered(at(11), port(2), Lid(9), true);
        assert_eq!(of(&known, 12, None), PeerDaemon::Answers(SECOND));
        known.answered(at(13), port(1), Lid(7), false);
        known.answered(at(19), port(1), Lid(7), false);
        let silent = PeerDaemon::Silent {
            since: SECOND * 7,
            heard: Some(SECOND * 9),
        };
        assert_eq!(of(&known, 20, None), silent);
        // Another connection's path says nothing of this peer.
        known.answered(at(20), port(1), Lid(8), true);
        assert_eq!(of(&known, 20, None), silent);
        // It is back, and says so in an association before a probe shows it.
        assert_eq!(of(&known, 21, Some(at(20))), PeerDaemon::Answers(SECOND));
        known.answered(at(22), port(2), Lid(9), true);
        assert_eq!(of(&known, 22, None), PeerDaemon::Answers(Duration::ZERO));
    }

    #[test]
    fn daemons_that_stopped_answering_are_counted_while_they_are_probed() {
        let mut known = PeerDaemons::default();
        // One that is killed, one that runs, one that was never there.
        known.answered(at(10), port(1), Lid(7), true);
        known.answered(at(10), port(1), Lid(8), true);
        for second in 11..30 {
            known.answered(at(second), port(1), Lid(7), false);
            known.answered(at(second), port(1), Lid(8), true);
            known.answered(at(second), port(1), Lid(9), false);
        }
        assert_eq!([20, 21, 29].map(|now| known.silent(at(now))), [0, 1, 1]);
        assert_eq!(known.silent(at(60)), 0, "its connections are closed");
        known.answered(at(61), port(1), Lid(7), true);
        assert_eq!(known.silent(at(61)), 0);
    }

    #[test]
    fn an_old_word_is_no_proof_and_a_changed_port_tells_nothing() {
        let mut known = PeerDaemons::default();
        let of =
            |known: &PeerDaemons, now| known.of(at(now), [(port(1), Lid(7))].into_iter(), None);
        known.answered(at(10), port(1), Lid(7), true);
        assert_eq!(of(&known, 410), PeerDaemon::Unknown(Some(SECOND * 400)));
        known.forget(port(2));
        assert_eq!(of(&known, 11), PeerDaemon::Answers(SECOND));
        known.forget(port(1));
        assert_eq!(of(&known, 11), PeerDaemon::Unknown(None));
        known.answered(at(20), port(1), Lid(7), false);
        let never = PeerDaemon::Silent {
            since: SECOND * 5,
            heard: None,
        };
        assert_eq!(of(&known, 25), never);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut known = PeerDaemons::default();
        for lid in 0..9_000 {
            known.answered(at(1), port(1), Lid(lid), true);
        }
        assert_eq!(known.known.len(), KNOWN_MAX);
        known.answered(at(700), port(1), Lid(9_000), true);
        assert_eq!(known.known.len(), 1);
    }
}
