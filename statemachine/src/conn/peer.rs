// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one end of a connection knows of the other, and what it has told it of itself.

use alloc::vec::Vec;

use cm_msgs::Lid;
use cm_msgs::association::{PeerPort, Ports, PrimaryPath, State};
use cm_msgs::control::{MigrationState, Snapshot};
use cm_msgs::path::{Path, PortAddress};

/// What the peer said of itself. Nothing is kept here before the handshake with it is complete:
/// whoever names both communication IDs, of which ours was sent only to where the QP leads, is the
/// daemon there.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Its ports, and those that path sources led to; LID 0 for those out of service.
    pub(super) ports: Vec<PortAddress>,
    sequence: u32,
    /// The path that it is on, unless our own QP has moved since.
    primary: Option<PrimaryPath>,
}

/// What a state says that was not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// Nothing: it is as old as what is known, or older.
    None,
    /// Nothing about ports.
    State,
    /// Other ports, or other things about them.
    Ports,
}

impl Peer {
    /// The handshake is complete. What was known may be of a daemon before this one.
    pub(super) fn proven(&mut self, state: &State) {
        self.sequence = state.sequence;
        self.take(state);
    }

    /// Whether it has said something later.
    pub(super) fn is_past(&self, state: &State) -> bool {
        is_later(self.sequence, state.sequence)
    }

    /// A later message of the same association.
    pub(super) fn update(&mut self, state: &State) -> News {
        if !is_later(state.sequence, self.sequence) {
            return News::None;
        }
        self.sequence = state.sequence;
        self.take(state)
    }

    fn take(&mut self, state: &State) -> News {
        self.primary = Some(state.primary);
        let ports: Vec<PortAddress> = state.ports.as_slice().iter().map(address).collect();
        if self.ports == ports {
            return News::State;
        }
        self.ports = ports;
        News::Ports
    }

    /// Our QP is on another path, this one: unless the peer was there first, it has to say again where
    /// it is.
    pub(super) fn followed_to(&mut self, path: &Path) {
        if !self.is_on(path) {
            self.primary = None;
        }
    }

    /// Whether the peer is known to be on this path of ours.
    pub(super) fn is_on(&self, path: &Path) -> bool {
        let primary = self.primary.as_ref();
        primary.is_some_and(|primary| is_reverse(path, primary))
    }

    /// Whether the peer says that the port at the far end of this path is out of service.
    pub(super) fn lacks_port_of(&self, path: &Path) -> bool {
        let mut ports = self.ports.iter();
        !path.dgid.is_unspecified() && ports.any(|port| port.gid == path.dgid && port.lid == Lid(0))
    }
}

fn address(port: &PeerPort) -> PortAddress {
    PortAddress {
        gid: port.gid,
        lid: if port.up { port.lid } else { Lid(0) },
    }
}

/// This end as it is told to the peer.
#[derive(Debug)]
pub(super) struct OwnState {
    state: State,
    /// Sequence numbers of the last changes of the primary and of the ports.
    primary_changed: u32,
    ports_changed: u32,
    /// The last that the peer is known to have.
    told: u32,
}

impl OwnState {
    pub(super) fn new(qp: &Snapshot, ports: Ports) -> Self {
        Self {
            state: state(1, qp, ports),
            primary_changed: 1,
            ports_changed: 1,
            told: 0,
        }
    }

    /// This end is like this now.
    pub(super) fn refresh(&mut self, qp: &Snapshot, ports: Ports) {
        let old = self.state;
        let new = state(old.sequence, qp, ports);
        if new == old {
            return;
        }
        let sequence = old.sequence.wrapping_add(1);
        self.state = State { sequence, ..new };
        if new.primary != old.primary {
            self.primary_changed = sequence;
        }
        if new.ports != old.ports {
            self.ports_changed = sequence;
        }
    }

    /// What is said from now on is later than all before, though nothing has changed.
    pub(super) fn advance(&mut self) {
        self.state.sequence = self.state.sequence.wrapping_add(1);
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// A new association: the peer may be a daemon that knows nothing.
    pub(super) fn forgotten(&mut self) {
        self.told = self.state.sequence.wrapping_sub(i32::MAX as u32);
    }

    /// The peer has got the state with this number.
    pub(super) fn told(&mut self, sequence: u32) {
        if is_later(sequence, self.told) {
            self.told = sequence;
        }
    }

    /// Whether the peer has to be told something that it does not find out by itself.
    pub(super) fn is_news_to(&self, peer: &Peer, primary: &Path) -> bool {
        is_later(self.ports_changed, self.told)
            // A peer that has moved first is not told that we have followed.
            || (is_later(self.primary_changed, self.told) && !peer.is_on(primary))
    }
}

/// Sequence numbers wrap, hence the signed difference (RFC 1982).
fn is_later(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

fn state(sequence: u32, qp: &Snapshot, ports: Ports) -> State {
    let Path {
        port, slid, dlid, ..
    } = qp.primary;
    State {
        sequence,
        primary: PrimaryPath {
            port,
            local: slid,
            remote: dlid,
        },
        migration: match qp.alternate {
            // Without an alternate it cannot be more, whatever a driver says.
            None => MigrationState::Migrated,
            Some(_) => qp.migration,
        },
        ports,
    }
}

/// Whether the peer's `theirs` is `ours` from its other end.
pub(super) fn is_reverse(ours: &Path, theirs: &PrimaryPath) -> bool {
    ours.slid == theirs.remote && ours.dlid == theirs.local
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::control::QpState;
    use cm_msgs::{Gid, Guid};

    fn port(number: u16, up: bool) -> PeerPort {
        PeerPort {
            gid: Gid::new(0xfe80 << 48, Guid(number.into())),
            lid: Lid(number),
            lmc: 0,
            up,
        }
    }

    fn qp(port: u8) -> Snapshot {
        let primary = Path {
            port,
            slid: Lid(port.into()),
            dlid: Lid(8 + u16::from(port)),
            ..Path::default()
        };
        Snapshot {
            qp_state: QpState::Rts,
            migration: MigrationState::Migrated,
            primary,
            alternate: None,
        }
    }

    fn ports(second: bool) -> Ports {
        Ports::new([port(1, true), port(2, second)])
    }

    #[test]
    fn an_older_state_changes_nothing() {
        let mut own = OwnState::new(&qp(1), ports(true));
        let first = *own.state();
        own.refresh(&qp(1), ports(false));
        let second = *own.state();
        let mut peer = Peer::default();
        peer.proven(&first);
        assert_eq!(peer.update(&first), News::None);
        assert_eq!(peer.update(&second), News::Ports);
        assert_eq!(peer.update(&first), News::None);
        assert_eq!(peer.ports[1].lid, Lid(0), "out of service");
        peer.proven(&first);
        assert_eq!(peer.ports[1].lid, Lid(2), "another association");
    }

    #[test]
    fn what_the_peer_knows_is_no_news() {
        let peer = Peer::default();
        let mut own = OwnState::new(&qp(1), ports(true));
        own.forgotten();
        assert!(own.is_news_to(&peer, &qp(1).primary));
        own.told(1);
        assert!(!own.is_news_to(&peer, &qp(1).primary));
        own.refresh(&qp(1), ports(false));
        assert!(own.is_news_to(&peer, &qp(1).primary));
        own.told(1);
        assert!(own.is_news_to(&peer, &qp(1).primary), "a late answer");
        own.told(2);
        assert!(!own.is_news_to(&peer, &qp(1).primary));
    }

    #[test]
    fn a_peer_that_moved_first_is_not_told_that_we_followed() {
        let mut own = OwnState::new(&qp(1), ports(true));
        own.told(1);
        own.refresh(&qp(2), ports(true));
        let mut peer = Peer::default();
        assert!(own.is_news_to(&peer, &qp(2).primary));
        let there = PrimaryPath {
            port: 2,
            local: qp(2).primary.dlid,
            remote: qp(2).primary.slid,
        };
        peer.proven(&State {
            sequence: 9,
            primary: there,
            ..State::default()
        });
        assert!(peer.is_on(&qp(2).primary));
        assert!(!own.is_news_to(&peer, &qp(2).primary));
        peer.followed_to(&qp(2).primary);
        assert!(peer.is_on(&qp(2).primary));
        peer.followed_to(&qp(1).primary);
        assert!(!peer.is_on(&qp(2).primary));
    }
}
