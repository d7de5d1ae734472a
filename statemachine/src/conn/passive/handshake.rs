// SPDX-License-Identifier: MIT OR Apache-2.0
//! REQs that were answered by REP, until RTU or whatever only an open association sends.
//!
//! A REQ may be anybody's. Our communication ID in the REP is sent only to where the QP leads, so
//! whoever names it is the daemon there; until then nothing that a REQ says is acted upon, and what a
//! stranger's costs is bounded: one place, and one REP a second.

use core::time::Duration;

use cm_msgs::association::State;

use crate::conn::association::CommIds;
use crate::proven_ports::SentTo;
use crate::time::Time;

/// Where a REQ came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sender {
    /// From where the QP leads, or a port that is known to be the peer's. An HCA does not let its
    /// host send by another port's LID.
    AtPeer,
    /// From another port of the peer's, or from a stranger.
    Elsewhere,
}

/// How long a REQ from elsewhere keeps its place, and how often it is answered.
const ELSEWHERE_PACE: Duration = Duration::from_secs(1);

/// A REQ that was answered.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Offer {
    pub(super) remote: u32,
    /// What it said of its sender, to be believed when the sender is known.
    pub(super) state: State,
    /// Sequence number of our state in the first REP: which of the REPs to copies of the REQ the peer took is not
    /// known.
    pub(super) told: u32,
}

/// The REQs of one connection that were answered.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Handshake {
    /// Our name for the association that comes of it.
    pub(super) local: u32,
    at_peer: Option<Offer>,
    elsewhere: Option<Offer>,
    /// When one from elsewhere was answered last.
    elsewhere_at: Option<Time>,
    /// REPs sent.
    answers: usize,
    /// Where they went.
    pub(super) sent_to: SentTo,
}

impl Handshake {
    pub(super) fn new(local: u32) -> Self {
        Self {
            local,
            at_peer: None,
            elsewhere: None,
            elsewhere_at: None,
            answers: 0,
            sent_to: SentTo::default(),
        }
    }

    /// Takes a REQ. If it is answered: how many were before.
    pub(super) fn take(
        &mut self,
        sender: Sender,
        remote: u32,
        state: &State,
        told: u32,
        now: Time,
    ) -> Option<usize> {
        if sender == Sender::Elsewhere {
            if self
                .elsewhere_at
                .is_some_and(|at| now - at < ELSEWHERE_PACE)
            {
                return None;
            }
            self.elsewhere_at = Some(now);
        }
        let told = self.first_told(remote).unwrap_or(told);
        let place = match sender {
            Sender::AtPeer => &mut self.at_peer,
            Sender::Elsewhere => &mut self.elsewhere,
        };
        *place = Some(Offer {
            remote,
            state: *state,
            told,
        });
        self.answers += 1;
        Some(self.answers - 1)
    }

    /// What was told in the first REP to this REQ, if this is a copy of it.
    fn first_told(&self, remote: u32) -> Option<u32> {
        let mut offers = [&self.at_peer, &self.elsewhere].into_iter().flatten();
        let first = offers.find(|offer| offer.remote == remote)?;
        Some(first.told)
    }

    /// The offer that a message with these names confirms.
    pub(super) fn confirm(&mut self, local: u32, remote: u32) -> Option<Offer> {
        if self.local != local {
            return None;
        }
        let places = [&mut self.at_peer, &mut self.elsewhere];
        let is_it = |offer: &mut Offer| offer.remote == remote;
        places.into_iter().find_map(|place| place.take_if(is_it))
    }

    /// The peer does not know this association: a REQ of an earlier time, or not the peer's at all.
    pub(super) fn refused(&mut self, remote: u32) {
        for place in [&mut self.at_peer, &mut self.elsewhere] {
            place.take_if(|offer| offer.remote == remote);
        }
    }

    /// The names of the association that it may come to, if the peer's port asked for it.
    pub(super) fn ids(&self) -> Option<CommIds> {
        let offer = self.at_peer.as_ref()?;
        Some(CommIds {
            local: self.local,
            remote: offer.remote,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn take(handshake: &mut Handshake, sender: Sender, remote: u32, now: Time) -> bool {
        let state = State::default();
        handshake.take(sender, remote, &state, 1, now).is_some()
    }

    #[test]
    fn strangers_do_not_displace_the_peer() {
        let mut handshake = Handshake::new(7);
        let now = Time(1_000_000);
        assert!(take(&mut handshake, Sender::AtPeer, 1, now));
        let reqs = 0..1_000;
        let answered = reqs.filter(|&number| {
            let at = now + MS * number;
            take(&mut handshake, Sender::Elsewhere, 100 + number, at)
        });
        assert_eq!(answered.count(), 1);
        assert!(take(&mut handshake, Sender::AtPeer, 1, now), "a copy");
        assert!(handshake.confirm(7, 99).is_none());
        assert!(handshake.confirm(6, 1).is_none());
        assert_eq!(handshake.confirm(7, 1).map(|offer| offer.remote), Some(1));
        assert!(handshake.confirm(7, 1).is_none(), "once");
    }

    #[test]
    fn what_the_peer_does_not_know_is_forgotten() {
        let mut handshake = Handshake::new(7);
        take(&mut handshake, Sender::Elsewhere, 2, Time(0));
        assert_eq!(handshake.ids(), None, "not shown as the peer's");
        take(&mut handshake, Sender::AtPeer, 1, Time(0));
        handshake.refused(1);
        assert_eq!(handshake.ids(), None);
        assert!(handshake.confirm(7, 1).is_none());
        handshake.refused(2);
        let soon = Time(0) + MS;
        assert!(!take(&mut handshake, Sender::Elsewhere, 3, soon), "paced");
    }

    #[test]
    fn a_req_from_elsewhere_is_answered_once_a_second() {
        let mut handshake = Handshake::new(7);
        let late = Time(0) + ELSEWHERE_PACE;
        assert!(take(&mut handshake, Sender::Elsewhere, 2, Time(0)));
        assert!(!take(&mut handshake, Sender::Elsewhere, 3, Time(999_999)));
        assert!(take(&mut handshake, Sender::Elsewhere, 3, late));
        assert!(handshake.confirm(7, 2).is_none(), "it has lost its place");
        assert!(handshake.confirm(7, 3).is_some());
    }

    #[test]
    fn answers_are_counted_and_copies_keep_what_was_told_first() {
        let mut handshake = Handshake::new(7);
        let state = State::default();
        let mut take = |remote, told| handshake.take(Sender::AtPeer, remote, &state, told, Time(0));
        assert_eq!([take(1, 5), take(1, 6), take(1, 7)], [0, 1, 2].map(Some));
        assert_eq!(handshake.confirm(7, 1).map(|offer| offer.told), Some(5));
        handshake.take(Sender::AtPeer, 1, &state, 8, Time(0));
        handshake.take(Sender::AtPeer, 2, &state, 9, Time(0));
        assert_eq!(handshake.confirm(7, 2).map(|offer| offer.told), Some(9));
    }
}
