// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one end of a connection knows of the other, and what it has told it of itself.

use alloc::sync::Arc;
use alloc::vec::Vec;

use cm_msgs::association::{MAX_PORTS, Movement, PeerPort, Ports, PrimaryPath, State};
use cm_msgs::control::{MigrationState, Snapshot};
use cm_msgs::path::{Path, PortAddress};
use cm_msgs::{Gid, Lid};

use crate::guard::guard;

/// What the peer said of itself. Nothing is kept here before the handshake with it is complete:
/// whoever names both communication IDs, of which ours was sent only to where the QP leads, is the
/// daemon there.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Peer {
    /// Its ports, and those that path sources led to; LID 0 for those out of service.
    pub(super) ports: Arc<Vec<PortAddress>>,
    sequence: u32,
    /// The path that it is on, unless our own QP has moved since.
    primary: Option<PrimaryPath>,
    /// How its QP is, unless our own has moved since.
    migration: Option<MigrationState>,
    movement: Movement,
    /// Which of `ports` are drained: the first in bit 0.
    drained: u8,
    /// It has said since the handshake that its ports are others.
    has_other_ports: bool,
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
        self.has_other_ports = false;
    }

    /// Whether a handshake with it has ever been complete. It counts its states from 1.
    pub(super) fn has_answered(&self) -> bool {
        self.sequence != 0
    }

    /// Whether it has said something later.
    pub(super) fn is_past(&self, state: &State) -> bool {
        is_later(self.sequence, state.sequence)
    }

    /// A later message of the same association.
    pub(super) fn update(&mut self, state: &State) -> News {
        if !guard!(OldState, is_later(state.sequence, self.sequence)) {
            return News::None;
        }
        self.sequence = state.sequence;
        self.take(state)
    }

    fn take(&mut self, state: &State) -> News {
        self.primary = Some(state.primary);
        self.migration = Some(state.migration);
        self.movement = state.movement;
        let told = state.ports.as_slice();
        let ports: Vec<PortAddress> = told.iter().map(address).collect();
        let bits = told.iter().rev();
        let drained = bits.fold(0, |bits, port| bits << 1 | u8::from(port.drained));
        if *self.ports == ports && self.drained == drained {
            return News::State;
        }
        self.ports = Arc::new(ports);
        self.drained = drained;
        self.has_other_ports = true;
        News::Ports
    }

    /// Whether it has said since the last time that its ports are others.
    pub(super) fn take_other_ports(&mut self) -> bool {
        core::mem::take(&mut self.has_other_ports)
    }

    /// Our QP is on another path, this one: unless the peer was there first, it has to say again where
    /// it is.
    pub(super) fn followed_to(&mut self, path: &Path) {
        self.migration = None;
        if !self.is_on(path) {
            self.primary = None;
        }
    }

    /// Whether its QP is known to be Armed.
    pub(super) fn is_armed(&self) -> bool {
        self.migration == Some(MigrationState::Armed)
    }

    /// Whether the peer is known to be on this path of ours.
    pub(super) fn is_on(&self, path: &Path) -> bool {
        let primary = self.primary.as_ref();
        primary.is_some_and(|primary| is_reverse(path, primary))
    }

    /// Whether the peer is known to be armed, with this path of ours as its primary.
    pub(super) fn is_armed_on(&self, path: &Path) -> bool {
        self.migration == Some(MigrationState::Armed) && self.is_on(path)
    }

    /// Whether it is on the peer's wish that the QP has left `from` for `to`.
    pub(super) fn wants_move(&self, from: &Path, to: &Path) -> bool {
        match self.movement {
            Movement::None => false,
            Movement::Leaves => self.is_on(from),
            Movement::Left => self.is_on(to),
        }
    }

    /// Whether the peer's operator wants paths off this port of the peer's.
    pub(super) fn drains(&self, gid: Gid) -> bool {
        let mut ports = self.ports.iter().take(MAX_PORTS).enumerate();
        ports.any(|(place, port)| port.gid == gid && self.drained >> place & 1 == 1)
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
#[cfg_attr(test, derive(Clone))]
pub(super) struct OwnState {
    /// Counts up with every change; wraps.
    sequence: u32,
    primary: PrimaryPath,
    migration: MigrationState,
    movement: Movement,
    /// All connections of a device share them.
    ports: Arc<Ports>,
    /// Sequence numbers of the last changes of the primary and of the ports.
    primary_changed: u32,
    ports_changed: u32,
    /// And of the last time that it is to be told that this end leaves its primary.
    leaves_since: u32,
    /// The last that the peer is known to have; `None` if it may know of nothing.
    told: Option<u32>,
}

impl OwnState {
    pub(super) fn new(qp: &Snapshot, ports: Arc<Ports>) -> Self {
        Self {
            sequence: 1,
            primary: primary_path(qp),
            migration: migration(qp, false),
            movement: Movement::None,
            ports,
            primary_changed: 1,
            ports_changed: 1,
            leaves_since: 0,
            told: None,
        }
    }

    /// This end is like this now. `distrusted`: its alternate is no good.
    pub(super) fn refresh(&mut self, qp: &Snapshot, distrusted: bool, ports: &Arc<Ports>) {
        let (primary, migration) = (primary_path(qp), migration(qp, distrusted));
        let moved = primary != self.primary;
        let other_ports = !Arc::ptr_eq(ports, &self.ports);
        if !moved && !other_ports && migration == self.migration {
            return;
        }
        self.advance();
        if moved {
            // Hardware may have been faster than the order; the wish was there all the same.
            self.movement = match self.movement {
                Movement::Leaves => Movement::Left,
                Movement::None | Movement::Left => Movement::None,
            };
            self.primary = primary;
            self.primary_changed = self.sequence;
        }
        if other_ports {
            self.ports = Arc::clone(ports);
            self.ports_changed = self.sequence;
        }
        self.migration = migration;
    }

    /// This end is about to leave its primary, though that works; or is not.
    pub(super) fn set_leaves(&mut self, leaves: bool) {
        match (leaves, self.movement) {
            (true, Movement::None | Movement::Left) => {
                self.movement = Movement::Leaves;
                self.tell_again_that_it_leaves();
            }
            (false, Movement::Leaves) => {
                self.movement = Movement::None;
                self.advance();
            }
            _ => {}
        }
    }

    pub(super) fn leaves(&self) -> bool {
        self.movement == Movement::Leaves
    }

    /// Its answer says how the peer is now.
    pub(super) fn tell_again_that_it_leaves(&mut self) {
        self.advance();
        self.leaves_since = self.sequence;
    }

    /// Whether the peer has answered that.
    pub(super) fn has_told_that_it_leaves(&self) -> bool {
        self.leaves() && !self.is_untold(self.leaves_since)
    }

    /// What is said from now on is later than all before, though nothing has changed.
    pub(super) fn advance(&mut self) {
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// The peer is to be told how this end is, though it may know.
    pub(super) fn repeat(&mut self) {
        self.advance();
        self.ports_changed = self.sequence;
    }

    pub(super) fn sequence(&self) -> u32 {
        self.sequence
    }

    pub(super) fn state(&self) -> State {
        State {
            sequence: self.sequence,
            primary: self.primary,
            migration: self.migration,
            movement: self.movement,
            ports: *self.ports,
        }
    }

    /// A new association: the peer may be a daemon that knows nothing.
    pub(super) fn forgotten(&mut self) {
        self.told = None;
    }

    /// The peer has got the state with this number.
    pub(super) fn told(&mut self, sequence: u32) {
        if self.is_untold(sequence) {
            self.told = Some(sequence);
        }
    }

    fn is_untold(&self, sequence: u32) -> bool {
        self.told.is_none_or(|told| is_later(sequence, told))
    }

    /// Whether the peer has to be told something that it does not find out by itself.
    pub(super) fn is_news_to(&self, peer: &Peer, primary: &Path) -> bool {
        self.is_untold(self.ports_changed)
            // A peer that has moved first is not told that we have followed.
            || (self.is_untold(self.primary_changed) && !peer.is_on(primary))
            || (self.leaves() && self.is_untold(self.leaves_since))
    }
}

/// Sequence numbers wrap, hence the signed difference (RFC 1982).
fn is_later(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

fn primary_path(qp: &Snapshot) -> PrimaryPath {
    let Path {
        port, slid, dlid, ..
    } = qp.primary;
    PrimaryPath {
        port,
        local: slid,
        remote: dlid,
    }
}

fn migration(qp: &Snapshot, distrusted: bool) -> MigrationState {
    match qp.alternate.filter(|_| !distrusted) {
        // Without an alternate it cannot be more, whatever a driver says; with one that is no good it is not.
        None => MigrationState::Migrated,
        Some(_) => qp.migration,
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
            drained: false,
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

    fn ports(second: bool) -> Arc<Ports> {
        Arc::new(Ports::new([port(1, true), port(2, second)]))
    }

    #[test]
    fn an_older_state_changes_nothing() {
        let mut own = OwnState::new(&qp(1), ports(true));
        let first = own.state();
        own.refresh(&qp(1), false, &ports(false));
        let second = own.state();
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
        own.refresh(&qp(1), false, &ports(false));
        assert!(own.is_news_to(&peer, &qp(1).primary));
        own.told(1);
        assert!(own.is_news_to(&peer, &qp(1).primary), "a late answer");
        own.told(2);
        assert!(!own.is_news_to(&peer, &qp(1).primary));
    }

    #[test]
    fn a_peer_that_moved_first_is_not_told_that_we_followed() {
        let ports = ports(true);
        let mut own = OwnState::new(&qp(1), Arc::clone(&ports));
        own.told(1);
        own.refresh(&qp(2), false, &ports);
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
