// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one end of a connection knows of the other, and what it has told it of itself.

use alloc::sync::Arc;
use alloc::vec::Vec;

use cm_msgs::association::{MAX_PORTS, Movement, PeerPort, Ports, PrimaryPath, State};
use cm_msgs::control::{MigrationState, Snapshot};
use cm_msgs::path::{Path, PortAddress};
use cm_msgs::{Gid, Lid};

use crate::guard::guard;
use crate::shared_values::SharedValues;

/// What the peer said of itself. Nothing is kept here before the handshake with it is complete:
/// whoever names both communication IDs, of which ours was sent only to where the QP leads, is the
/// daemon there.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Peer {
    /// Its ports, and those that path sources led to; LID 0 for those out of service.
    pub(super) ports: Arc<Vec<PortAddress>>,
    /// Its ports as it reported them last.
    reported: Arc<Vec<PortAddress>>,
    sequence: u32,
    /// Where its QP is, unless our own has moved since.
    position: Option<Position>,
    /// How its QP is, unless our own has moved since.
    migration: Option<MigrationState>,
    /// Which of `ports` are drained: the first in bit 0.
    drained: u8,
    /// Its QP can be moved while it waits for traffic.
    moves_idle: bool,
    /// It has said since the handshake that its ports are others.
    has_other_ports: bool,
}

/// The path that a peer's QP is on. One value, so that none takes no more room: there is one for each connection.
#[derive(Clone, Copy, Debug)]
struct Position {
    primary: PrimaryPath,
    /// Place of its port among the peer's ports, from 1; 0 if it is not known.
    place: u8,
    movement: Movement,
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
        self.position = Some(Position {
            primary: state.primary,
            place: state.place,
            movement: state.movement,
        });
        self.migration = Some(state.migration);
        self.moves_idle = state.moves_idle;
        let told = state.ports.as_slice();
        let ports: Vec<PortAddress> = told.iter().map(address).collect();
        let bits = told.iter().rev();
        let drained = bits.fold(0, |bits, port| bits << 1 | u8::from(port.drained));
        if *self.reported == ports && self.drained == drained {
            // What path sources led to meanwhile is no news of the peer's, and of its own ports it knows better.
            self.ports = Arc::clone(&self.reported);
            return News::State;
        }
        self.ports = Arc::new(ports);
        self.reported = Arc::clone(&self.ports);
        self.drained = drained;
        self.has_other_ports = true;
        News::Ports
    }

    /// Keeps its ports where other connections to the same host have the same.
    pub(super) fn share_ports(&mut self, lists: &mut SharedValues<Vec<PortAddress>>) {
        // A list that only this peer has, twice, is to look like one that is not shared.
        let is_own =
            Arc::ptr_eq(&self.ports, &self.reported) && Arc::strong_count(&self.ports) == 2;
        if is_own {
            self.reported = Arc::default();
        }
        lists.share(&mut self.ports);
        if is_own || !Arc::ptr_eq(&self.ports, &self.reported) && self.ports == self.reported {
            self.reported = Arc::clone(&self.ports);
        }
    }

    /// Its ports as it reported them last, LID 0 for those out of service.
    pub(super) fn reported(&self) -> &Arc<Vec<PortAddress>> {
        &self.reported
    }

    /// The GID of the port with this GUID, as the peer reported it last, if it is still in service with this LID. The
    /// peer says a prefix once, when it changes: what a path source says with another one is out of date, or will be
    /// said by the peer.
    pub(super) fn reported_gid(&self, gid: Gid, lid: Lid) -> Option<Gid> {
        let is_it =
            |port: &&PortAddress| port.lid == lid && port.gid.interface_id() == gid.interface_id();
        self.reported.iter().find(is_it).map(|port| port.gid)
    }

    /// Whether it reported the port at the far end of this path last as in service with another LID: a path source is
    /// out of date that says otherwise, or the peer will report the LID.
    pub(super) fn reported_elsewhere(&self, path: &Path, lmc: u8) -> bool {
        let guid = path.dgid.interface_id();
        let is_elsewhere = |port: &PortAddress| {
            port.gid.interface_id() == guid
                && port.lid != Lid(0)
                && !port.lid.is_one_port_with(path.dlid, lmc)
        };
        self.reported.iter().any(is_elsewhere)
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
            self.position = None;
        }
    }

    /// Whether its QP is known to be Armed.
    pub(super) fn is_armed(&self) -> bool {
        self.migration == Some(MigrationState::Armed)
    }

    /// Whether its end can be given another primary while it waits for traffic.
    pub(super) fn moves_idle(&self) -> bool {
        self.moves_idle
    }

    /// Whether the peer is known to be on this path of ours. In two subnets with equal LIDs it may be on
    /// another as well, if nothing tells of its port: see [`Self::prefers`].
    pub(super) fn is_on(&self, path: &Path) -> bool {
        self.fit(path).is_possible()
    }

    /// Whether the peer is on `to`, by what it says of its path, and not on `from`.
    pub(super) fn prefers(&self, to: &Path, from: &Path) -> bool {
        self.fit(to).excludes(self.fit(from))
    }

    /// The GID of the peer's port that the primary leads to, where no LID tells which that is: a QP that has no
    /// alternate, and whose peer's has none, is on the path that the peer is on; so is one whose peer is not on
    /// the `alternate`.
    pub(super) fn far_gid_of(&self, primary: &Path, alternate: Option<&Path>) -> Option<Gid> {
        let agrees = match alternate {
            None => self.migration == Some(MigrationState::Migrated),
            Some(alternate) => !self.is_on(alternate),
        };
        let index = usize::from(self.position?.place).checked_sub(1)?;
        let port = self.ports.get(index).filter(|_| agrees)?;
        (self.fit(primary) == Fit::Lids).then_some(port.gid)
    }

    fn fit(&self, path: &Path) -> Fit {
        let gids = self.ports.iter().map(|port| port.gid);
        self.position.map_or(Fit::OtherLids, |position| {
            fit(path, &position.primary, position.place, gids)
        })
    }

    /// Whether the peer is known to be armed, with this path of ours as its primary.
    pub(super) fn is_armed_on(&self, path: &Path) -> bool {
        self.migration == Some(MigrationState::Armed) && self.is_on(path)
    }

    /// Whether the peer is known to wait for traffic, with this path of ours as its primary.
    pub(super) fn waits_on(&self, path: &Path) -> bool {
        self.migration == Some(MigrationState::Rearm) && self.is_on(path)
    }

    /// Whether it is on the peer's wish that the QP has left `from` for `to`.
    pub(super) fn wants_move(&self, from: &Path, to: &Path) -> bool {
        match self.position.map(|position| position.movement) {
            None | Some(Movement::None) => false,
            Some(Movement::Leaves) => self.is_on(from) && !self.prefers(to, from),
            Some(Movement::Left) => self.is_on(to) && !self.prefers(from, to),
        }
    }

    /// Whether the peer's operator wants paths off this port of the peer's.
    pub(super) fn drains(&self, gid: Gid) -> bool {
        let mut ports = self.ports.iter().take(MAX_PORTS).enumerate();
        ports.any(|(place, port)| port.gid == gid && self.drained >> place & 1 == 1)
    }

    /// The GIDs of its ports that it drains.
    pub(super) fn drained(&self) -> impl Iterator<Item = Gid> {
        let gids = self.ports.iter().map(|port| port.gid);
        gids.filter(|&gid| self.drains(gid))
    }

    /// Whether the peer says that the port at the far end of this path is out of service, or has another LID than the
    /// path leads to. That LID may be another host's by now, which answers probes.
    pub(super) fn lacks_port_of(&self, path: &Path, lmc: u8) -> bool {
        let guid = path.dgid.interface_id();
        let has_left = |port: &PortAddress| {
            port.gid.interface_id() == guid && !port.lid.is_one_port_with(path.dlid, lmc)
        };
        !path.dgid.is_unspecified() && self.ports.iter().any(has_left)
    }
}

fn address(port: &PeerPort) -> PortAddress {
    PortAddress {
        gid: port.gid,
        lid: if port.up { port.lid } else { Lid(0) },
    }
}

/// This end's state, as it is announced to the peer.
pub(super) struct OwnEnd<'a> {
    pub(super) qp: &'a Snapshot,
    /// Its alternate was rejected by its HCA or by the peer.
    pub(super) distrusted: bool,
    /// It can be moved while it waits for traffic.
    pub(super) moves_idle: bool,
    /// Place of its primary's port among `ports`, from 1.
    pub(super) place: u8,
    pub(super) ports: &'a Arc<Ports>,
}

/// This end as it is told to the peer.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct OwnState {
    /// Counts up with every change; wraps.
    sequence: u32,
    primary: PrimaryPath,
    /// Place of its port among `ports`, from 1.
    place: u8,
    migration: MigrationState,
    movement: Movement,
    /// It can be moved while it waits for traffic.
    moves_idle: bool,
    /// All connections of a device share them.
    ports: Arc<Ports>,
    /// Sequence numbers of the last changes of the primary and of the ports.
    primary_changed: u32,
    ports_changed: u32,
    /// And of the last time that it is to be told that this end leaves its primary, or does not; 0: never.
    leaves_since: u32,
    /// The last that the peer is known to have.
    told: u32,
    /// It may know of nothing.
    is_forgotten: bool,
}

impl OwnState {
    pub(super) fn new(end: &OwnEnd<'_>) -> Self {
        Self {
            sequence: 1,
            primary: primary_path(end.qp),
            place: end.place,
            migration: migration(end.qp, end.distrusted),
            movement: Movement::None,
            moves_idle: end.moves_idle,
            ports: Arc::clone(end.ports),
            primary_changed: 1,
            ports_changed: 1,
            leaves_since: 0,
            told: 0,
            is_forgotten: true,
        }
    }

    /// Takes over this end's present state. Returns whether its ability to be moved while idle has changed.
    pub(super) fn refresh(&mut self, end: &OwnEnd<'_>) -> bool {
        self.place = end.place;
        let primary = primary_path(end.qp);
        let migration = migration(end.qp, end.distrusted);
        let moved = primary != self.primary;
        let other_ports = !Arc::ptr_eq(end.ports, &self.ports);
        let other_ability = end.moves_idle != self.moves_idle;
        if !moved && !other_ports && !other_ability && migration == self.migration {
            return false;
        }
        self.moves_idle = end.moves_idle;
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
        if other_ports || other_ability {
            self.ports = Arc::clone(end.ports);
            self.ports_changed = self.sequence;
        }
        self.migration = migration;
        other_ability
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

    /// This end does not leave its primary. A peer that was notified of the opposite is notified of this: otherwise a
    /// later migration would look like an operator's order.
    pub(super) fn withdraw_leaving(&mut self) {
        if self.leaves() {
            self.movement = Movement::None;
            self.tell_again_that_it_leaves();
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
            place: self.place,
            migration: self.migration,
            movement: self.movement,
            moves_idle: self.moves_idle,
            ports: *self.ports,
        }
    }

    /// A new association: the peer may be a daemon that knows nothing.
    pub(super) fn forgotten(&mut self) {
        self.is_forgotten = true;
    }

    /// The peer has got the state with this number.
    pub(super) fn told(&mut self, sequence: u32) {
        if self.is_untold(sequence) {
            self.told = sequence;
            self.is_forgotten = false;
        }
    }

    fn is_untold(&self, sequence: u32) -> bool {
        self.is_forgotten || is_later(sequence, self.told)
    }

    /// Whether what was said last of leaving still has to be told. A migration tells more.
    fn tells_leaving(&self) -> bool {
        self.movement != Movement::Left && self.leaves_since != 0
    }

    /// Whether the peer has to be told something that it does not find out by itself.
    pub(super) fn is_news_to(&self, peer: &Peer, primary: &Path) -> bool {
        self.is_untold(self.ports_changed)
            // A peer that has moved first is not told that we have followed.
            || (self.is_untold(self.primary_changed) && !peer.is_on(primary))
            || (self.tells_leaving() && self.is_untold(self.leaves_since))
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

/// How well what a peer says of its primary fits a path of ours, from its other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fit {
    /// It is another path.
    OtherLids,
    /// The LIDs are the path's, and the peer's port is another than the path leads to.
    OtherPort,
    /// The LIDs are the path's; which port of the peer's they are is not known.
    Lids,
    /// The port is the one that the path leads to as well. One port is in one subnet, where a LID is given once:
    /// it can be no other path.
    Port,
}

impl Fit {
    /// Whether it may be the path.
    fn is_possible(self) -> bool {
        matches!(self, Self::Lids | Self::Port)
    }

    /// Whether it is the path, and so not the one that `other` is about. Equal LIDs tell nothing without the port.
    fn excludes(self, other: Self) -> bool {
        match self {
            Self::Port => other != Self::Port,
            Self::Lids => other == Self::OtherLids,
            Self::OtherPort | Self::OtherLids => false,
        }
    }
}

/// `place`, from 1, and `gids` say which port the peer's path leaves from.
fn fit(ours: &Path, theirs: &PrimaryPath, place: u8, mut gids: impl Iterator<Item = Gid>) -> Fit {
    if ours.slid != theirs.remote || ours.dlid != theirs.local {
        return Fit::OtherLids;
    }
    // By its GUID: the prefix may be another than when the path was made.
    let guid = ours.dgid.interface_id();
    let at = gids.position(|gid| gid.interface_id() == guid);
    match (at.filter(|_| !ours.dgid.is_unspecified()), place.into()) {
        (None, _) | (_, 0) => Fit::Lids,
        (Some(at), place) if at + 1 == place => Fit::Port,
        _ => Fit::OtherPort,
    }
}

/// Whether a path of ours is, from its other end, the primary that the peer's state names.
pub(super) fn is_primary_of(ours: &Path, state: &State) -> bool {
    fit_of(ours, state).is_possible()
}

/// Whether a peer is on `to`, by what its state says of its primary, and not on `from`.
pub(super) fn prefers(state: &State, to: &Path, from: &Path) -> bool {
    fit_of(to, state).excludes(fit_of(from, state))
}

fn fit_of(ours: &Path, state: &State) -> Fit {
    let gids = state.ports.as_slice().iter().map(|port| port.gid);
    fit(ours, &state.primary, state.place, gids)
}

#[cfg(test)]
mod tests;
