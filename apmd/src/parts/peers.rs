// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether peers' daemons answer, and the answer to peers that ask for this one.

use statemachine::{
    FarPort, PeerPresence, PeerQuestion, PortId, PresenceCounters, PresenceTransmit, Random, Time,
};

use crate::parts::ports::PresenceReceived;

/// What concerns others.
#[derive(Debug)]
pub(crate) enum Note {
    Send(PresenceTransmit),
    /// A daemon answers where a library asked, or none does.
    Answered(PeerQuestion, bool),
}

/// The core, which does all; the MADs go through the ports.
pub(crate) struct Peers(PeerPresence);

impl Peers {
    pub(crate) fn new(random: Random) -> Self {
        Self(PeerPresence::new(random))
    }

    pub(crate) fn ask(&mut self, now: Time, question: PeerQuestion, uid: u32, far: FarPort) {
        self.0.ask(now, question, uid, far);
    }

    pub(crate) fn handle_mad(&mut self, now: Time, mad: &PresenceReceived) {
        self.0.handle(
            now,
            mad.from,
            mad.path_bits,
            mad.transaction_id,
            &mad.message,
        );
    }

    pub(crate) fn handle_client_gone(&mut self, client: u64) {
        self.0.client_gone(client);
    }

    /// A port is another than before, or gone.
    pub(crate) fn handle_port(&mut self, now: Time, port: PortId) {
        self.0.port_changed(now, port);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.0.poll_timeout()
    }

    pub(crate) fn handle_time(&mut self, now: Time) {
        self.0.handle_timeout(now);
    }

    pub(crate) fn counters(&self) -> PresenceCounters {
        self.0.counters()
    }

    /// `has_room`: whether a port takes another MAD now.
    pub(crate) fn poll_note(&mut self, has_room: impl FnMut(PortId) -> bool) -> Option<Note> {
        if let Some(send) = self.0.poll_transmit(has_room) {
            return Some(Note::Send(send));
        }
        let (question, answers) = self.0.poll_verdict()?;
        Some(Note::Answered(question, answers))
    }
}
