// SPDX-License-Identifier: MIT OR Apache-2.0
//! A QP has left a path: why, how long it had stalled, and what is recorded of it.

use cm_msgs::control::AppEvent;
use cm_msgs::path::Path;

use super::orders::Abandoned;
use super::qp::Core;
use crate::context::Context;
use crate::trace::{MigratedBy, PathLids, What};
use crate::view::{MoveCause, Stall, Transition};

impl Core {
    /// Why the QP has left `path`. Nothing else of what is known has changed yet.
    pub(super) fn cause(&mut self, cx: &Context, path: &Path, by: MigratedBy) -> MoveCause {
        let ordered = by != MigratedBy::Hardware;
        let chosen = self.failback.take_choice() && ordered;
        let (now, to) = (cx.now, &self.qp.primary);
        if by == MigratedBy::StandingOrder {
            // The library may see its port's loss before this daemon does.
            MoveCause::StandingOrder
        } else if self.has_lost_port(cx, path) {
            MoveCause::PortLost
        } else if self.peer_lacks_port_of(cx, path) {
            MoveCause::PeerPortLost
        } else if self.own.leaves() && self.departure.is_ordered(now) {
            MoveCause::Operator
        } else if self.own.leaves() {
            MoveCause::Drained
        } else if self.peer.wants_move(path, to) {
            MoveCause::PeerOperator
        } else if self.is_suspect(cx, path) {
            MoveCause::PathSuspect
        } else if chosen {
            MoveCause::Policy
        } else if ordered && !self.peer.prefers(to, path) {
            MoveCause::Ordered
        } else if ordered {
            MoveCause::PeerMoved
        } else {
            MoveCause::Hardware
        }
    }

    /// For how long its port had been lost, or at most nothing had come by the `path` that it left for this `cause`.
    fn stall(&self, cx: &Context, path: &Path, cause: MoveCause) -> Option<Stall> {
        let since = match cause {
            MoveCause::PortLost | MoveCause::StandingOrder => {
                // A library may see that before this daemon does.
                let lost = self.has_lost_port(cx, path);
                let port = cx.ports.of_path(self.node_guid, path.port)?;
                port.lost_at().filter(|_| lost)
            }
            MoveCause::PeerPortLost => cx.probes.asked(&self.probe_path(path)?),
            MoveCause::PathSuspect | MoveCause::PeerMoved | MoveCause::Hardware => {
                // Hardware may have given up what carries probes, such as a path that loses large packets.
                let path = self.probe_path(path)?;
                let lost = cx.probes.loses(cx.now, &path);
                cx.probes.asked(&path).filter(|_| lost)
            }
            MoveCause::Policy
            | MoveCause::Operator
            | MoveCause::Drained
            | MoveCause::PeerOperator
            | MoveCause::Ordered => None,
        };
        since.map(|since| Stall::new(cx.now - since))
    }

    pub(super) fn abandoned(
        &mut self,
        cx: &mut Context,
        path: Path,
        by: MigratedBy,
        cause: MoveCause,
    ) -> Abandoned {
        let ordered = by != MigratedBy::Hardware;
        // An HCA has used up its retries though both ends' ports are fine: something between them
        // drops packets, and would again. The peer's may have, and we have followed.
        let suspect = matches!(
            cause,
            MoveCause::PathSuspect | MoveCause::Hardware | MoveCause::PeerMoved
        );
        let stall = self.stall(cx, &path, cause);
        self.history.push(
            cx.now,
            Transition::Migrated {
                from: path.port,
                to: self.qp.primary.port,
                cause,
                stall,
            },
        );
        self.counters.migrations += 1;
        self.counters.ordered_migrations += u32::from(ordered);
        self.counters.standing_migrations += u32::from(by == MigratedBy::StandingOrder);
        self.counters.idle_moves += u32::from(by == MigratedBy::IdleMove);
        cx.counters.migrations += 1;
        cx.counters.moves.count(cause);
        let (from, to) = (PathLids::from(&path), PathLids::from(&self.qp.primary));
        cx.trace(
            self.id,
            What::Migrated {
                from,
                to,
                by,
                cause,
                suspect,
                stall,
            },
        );
        self.event(cx, AppEvent::PathMigrated, 0);
        Abandoned {
            path,
            suspect,
            chosen: matches!(cause, MoveCause::Policy | MoveCause::Operator),
        }
    }
}
