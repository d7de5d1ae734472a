// SPDX-License-Identifier: MIT OR Apache-2.0
//! The invariants, checked with whatever happens.

use cm_msgs::cm::Message;
use cm_msgs::control::{MigrationState, QpState};
use cm_msgs::path::Path;

use super::host::Sent;
use super::network::{port_at, port_of};
use super::world::World;
use crate::input::Input;
use crate::output::{Order, Transmit};
use crate::view::AssociationState;

/// A rule of the protocol that was broken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Rule {
    /// Invariant 2: an alternate is not the primary.
    AlternateIsPrimary,
    /// Invariant 2: no alternate on a port that is known to be down.
    AlternatePortDown,
    /// Invariant 3: Migrated from Armed in RTS only, paths in RTS only.
    ForbiddenModify,
    /// Invariant 3: orders name the QP as it is, so there is one at a time.
    SecondOrder,
    /// Invariant 4: nobody is moved but for a lost port, or after the peer.
    MovedForNothing,
    /// Invariant 5: one LAP outstanding.
    SecondLap,
    /// Invariant 5: one SAP outstanding.
    SecondSap,
    /// Invariant 5: MADs in proportion to inputs.
    Traffic,
    /// Invariant 6: nobody is moved to where nothing gets through.
    MovedToDeadPort,
    /// Invariant 6: without traffic nobody is moved unless the peer can follow.
    LeftBehind,
    /// Invariant 8: an association is open with the peer's daemon.
    StrangersAssociation,
    /// Invariant 8: communication IDs are for the peer.
    TellsStranger,
    /// Invariant 8: what leads to a stranger is no alternate.
    AlternateAtStranger,
}

impl Rule {
    pub(super) const ALL: [Self; 13] = [
        Self::AlternateIsPrimary,
        Self::AlternatePortDown,
        Self::ForbiddenModify,
        Self::SecondOrder,
        Self::MovedForNothing,
        Self::SecondLap,
        Self::SecondSap,
        Self::Traffic,
        Self::MovedToDeadPort,
        Self::LeftBehind,
        Self::StrangersAssociation,
        Self::TellsStranger,
        Self::AlternateAtStranger,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AlternateIsPrimary => "2: an alternate is never the primary",
            Self::AlternatePortDown => "2: an alternate is never on a port known to be down",
            Self::ForbiddenModify => "3: no modify that IBA forbids is ordered",
            Self::SecondOrder => "3: one order at a time",
            Self::MovedForNothing => "4: nobody is moved but for a lost port, or after the peer",
            Self::SecondLap => "5: one LAP outstanding",
            Self::SecondSap => "5: one SAP outstanding",
            Self::Traffic => "5: MADs in proportion to inputs",
            Self::LeftBehind => "6: without traffic nobody is moved unless the peer can follow",
            Self::MovedToDeadPort => "6: nobody is moved to a dead port",
            Self::StrangersAssociation => "8: associations are with the peer",
            Self::TellsStranger => "8: communication IDs are for the peer",
            Self::AlternateAtStranger => "8: alternates end at the peer",
        }
    }
}

/// Copies of a MAD before it is given up.
const COPIES: u8 = 6;

impl World {
    /// An order leaves an engine.
    pub(super) fn check_order(&mut self, host: usize, order: &Order) {
        let here = &self.hosts[host];
        let told = here.told;
        let token = match order {
            Order::Load(load) => {
                self.check_alternate(host, &load.primary, &load.alternate);
                if told.qp_state != QpState::Rts {
                    self.breaks(Rule::ForbiddenModify);
                }
                load.token
            }
            Order::Migrate(migrate) => {
                self.check_migrate(host);
                if (told.qp_state, told.migration) != (QpState::Rts, MigrationState::Armed) {
                    self.breaks(Rule::ForbiddenModify);
                }
                migrate.token
            }
            Order::MoveIdle(migrate) => {
                self.check_migrate(host);
                let waits =
                    (told.qp_state, told.migration) == (QpState::Rts, MigrationState::Rearm);
                if !waits || !self.left.movable[host] {
                    self.breaks(Rule::ForbiddenModify);
                }
                self.check_that_peer_follows(host);
                migrate.token
            }
            // How the QP is may be asked at any time.
            Order::Query(_)
            | Order::Refuse(_)
            | Order::Event(..)
            | Order::Stand(_)
            | Order::Disconnected => return,
        };
        if self.host(host).unanswered.replace(token).is_some() {
            self.breaks(Rule::SecondOrder);
        }
    }

    fn check_alternate(&mut self, host: usize, primary: &Path, alternate: &Path) {
        if alternate.slid == primary.slid && alternate.dlid == primary.dlid {
            self.breaks(Rule::AlternateIsPrimary);
        }
        if !self.is_up(host, alternate.port) {
            self.breaks(Rule::AlternatePortDown);
        }
        if port_at(alternate.dlid).is_none_or(|(at, _)| at == host) {
            self.breaks(Rule::AlternateAtStranger);
        }
    }

    fn check_migrate(&mut self, host: usize) {
        let here = &self.hosts[host];
        let Some(alternate) = here.told.alternate else {
            return self.breaks(Rule::ForbiddenModify);
        };
        let primary_up = self.is_up(host, here.told.primary.port);
        if primary_up && !here.peer_was_there {
            self.breaks(Rule::MovedForNothing);
        }
        if !self.is_up(host, alternate.port) {
            self.breaks(Rule::MovedToDeadPort);
        }
    }

    /// An end that waits for traffic is moved to where the other is, or can be brought.
    fn check_that_peer_follows(&mut self, host: usize) {
        let [here, there] = [host, 1 - host].map(|host| &self.hosts[host]);
        let follows = self.left.movable[1 - host] || there.qp.migration == MigrationState::Armed;
        if !follows && !here.peer_was_there {
            self.breaks(Rule::LeftBehind);
        }
    }

    /// A MAD leaves an engine.
    pub(super) fn check_mad(&mut self, host: usize, mad: &Transmit) {
        let own = match &mad.message {
            Message::Req(req) => {
                self.issue(host, req.local_comm_id);
                req.local_comm_id
            }
            Message::Rep(rep) => {
                self.issue(host, rep.local_comm_id);
                rep.local_comm_id
            }
            Message::Rtu(rtu) => rtu.local_comm_id,
            Message::Lap(lap) => {
                self.check_lap(host, mad.transaction_id, lap);
                lap.local_comm_id
            }
            Message::Apr(apr) => apr.local_comm_id,
            Message::Sap(sap) => {
                self.check_sap(host, mad.transaction_id);
                sap.local_comm_id
            }
            Message::Spr(spr) => spr.local_comm_id,
            Message::Dreq(dreq) => dreq.local_comm_id,
            _ => 0,
        };
        let here = &self.hosts[host];
        if port_at(mad.lid).is_none() && here.issued.contains(&own) {
            self.breaks(Rule::TellsStranger);
        }
    }

    fn issue(&mut self, host: usize, id: u32) {
        if !self.hosts[host].issued.contains(&id) {
            self.host(host).issued.push(id);
        }
    }

    fn check_lap(&mut self, host: usize, transaction: u32, lap: &cm_msgs::cm::Lap) {
        let ends = &lap.alternate;
        if ends.local_port_lid.0 == 0 {
            return;
        }
        let primary = self.hosts[host].told.primary;
        if (ends.local_port_lid, ends.remote_port_lid) == (primary.slid, primary.dlid) {
            self.breaks(Rule::AlternateIsPrimary);
        }
        if port_of(ends.local_port_gid).is_some_and(|(host, port)| !self.is_up(host, port)) {
            self.breaks(Rule::AlternatePortDown);
        }
        let (lap, second) = outstanding(self.hosts[host].lap, transaction);
        self.host(host).lap = lap;
        if second {
            self.breaks(Rule::SecondLap);
        }
    }

    fn check_sap(&mut self, host: usize, transaction: u32) {
        let (sap, second) = outstanding(self.hosts[host].sap, transaction);
        self.host(host).sap = sap;
        if second {
            self.breaks(Rule::SecondSap);
        }
    }

    /// An engine is told something that may end what is outstanding.
    pub(super) fn note_input(&mut self, host: usize, input: &Input) {
        let here = &self.hosts[host];
        let ends = |last: Option<Sent>, transaction| {
            last.is_some_and(|last| last.transaction == transaction)
        };
        let (lap, sap) = match input {
            // A path that is proposed may have lost its sense.
            Input::Port(..)
            | Input::Report(..)
            | Input::Register(..)
            | Input::Refused(..)
            | Input::Close(_) => (true, false),
            Input::Mad(source, message) => match message {
                Message::Spr(_) => (false, ends(here.sap, source.transaction_id)),
                // The peer may say that the far port is down.
                Message::Apr(_) | Message::Sap(_) => (true, false),
                Message::Req(_) | Message::Rep(_) | Message::Rej(_) => (true, true),
                Message::Rtu(_) | Message::Dreq(_) | Message::Lap(_) => (false, true),
                _ => (false, false),
            },
            _ => (false, false),
        };
        if let Some(last) = self.host(host).lap.as_mut().filter(|_| lap) {
            last.may_be_over = true;
        }
        if let Some(last) = self.host(host).sap.as_mut().filter(|_| sap) {
            last.may_be_over = true;
        }
    }

    /// What holds after every input.
    pub(super) fn check(&mut self, host: usize) {
        let here = &self.hosts[host];
        let issued = &self.hosts[1 - host].issued;
        let strange = here.engine.connections(here.now).any(|view| {
            let with = view.association.remote_comm_id;
            view.association.state == AssociationState::Established
                && with.is_none_or(|id| !issued.contains(&id))
        });
        if strange {
            self.breaks(Rule::StrangersAssociation);
        }
    }
}

/// A copy with this transaction ID leaves. Whether something else was outstanding.
fn outstanding(last: Option<Sent>, transaction: u32) -> (Option<Sent>, bool) {
    let again = last.filter(|last| last.transaction == transaction);
    let sent = Sent {
        transaction,
        copies: again.map_or(0, |last| last.copies) + 1,
        may_be_over: false,
    };
    let second = |last: Sent| !last.may_be_over && last.copies < COPIES;
    (Some(sent), again.is_none() && last.is_some_and(second))
}
