// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection as the commit thread follows it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cm_msgs::control::{Cause, MigrationState, QpState, Register, Report, Snapshot};
use nix::errno::Errno;

use crate::connection::{Connection, Protection};
use crate::order;
use crate::queue_pair::{Identity, KnownGids, QueuePair};

/// The first look at a QP that was set to ReArm; each next one takes twice as long.
const FIRST_LOOK: Duration = Duration::from_millis(2);
/// An idle connection may stay in ReArm for ever: it is not looked at more often than this.
const SLOWEST_LOOK: Duration = Duration::from_secs(1);

/// A connection, what was last seen of it, and when to look again.
pub(crate) struct Tracked {
    pub(crate) connection: Arc<Connection>,
    /// The daemon will not look after it.
    pub(crate) refused: bool,
    identity: Identity,
    gids: KnownGids,
    last: Snapshot,
    watch: Option<Watch>,
}

/// No event tells that a QP became Armed.
#[derive(Clone, Copy)]
struct Watch {
    at: Instant,
    interval: Duration,
}

impl Watch {
    fn after(now: Instant, interval: Duration) -> Self {
        Self {
            at: now + interval,
            interval,
        }
    }
}

impl Tracked {
    /// `None`: the QP is gone or cannot be read.
    pub(crate) fn new(connection: Arc<Connection>, now: Instant) -> Option<Self> {
        let mut gids = KnownGids::default();
        let (identity, mut last) = connection.with_qp(|qp| read_first(qp, &gids))?.ok()?;
        gids.learn(last.primary.dlid, connection.peer_gid);
        if last.primary.dgid.is_unspecified() {
            last.primary.dgid = gids.get(last.primary.dlid).unwrap_or_default();
        }
        let mut tracked = Self {
            connection,
            refused: false,
            identity,
            gids,
            last,
            watch: None,
        };
        tracked.saw(last, now);
        Some(tracked)
    }

    /// The connection for the daemon, as last seen.
    pub(crate) fn registration(&self) -> Register {
        Register {
            role: self.connection.role,
            opted_in: self.connection.opted_in(),
            node_guid: self.identity.node_guid,
            qpn: self.identity.qpn,
            peer_qpn: self.identity.peer_qpn,
            snapshot: self.last,
        }
    }

    /// As last seen.
    pub(crate) fn last(&self) -> &Snapshot {
        &self.last
    }

    /// When to look again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.watch.map(|watch| watch.at)
    }

    /// Looks at the QP. `seen`: an asynchronous event says that there is something to see.
    /// Returns what the daemon should know.
    pub(crate) fn look(&mut self, now: Instant, seen: Option<Cause>) -> Option<Report> {
        let snapshot = match self.connection.with_qp(|qp| qp.read(&self.gids))? {
            Ok(snapshot) => snapshot,
            Err(errno) => {
                crate::log::debug(&format_args!(
                    "connection {}: {errno}",
                    self.connection.number
                ));
                self.watch = None;
                return None;
            }
        };
        let error = seen.filter(|&cause| cause == Cause::PathMigrationError);
        let news = error.or_else(|| order::news(&self.last, &snapshot));
        self.saw(snapshot, now);
        news.map(|cause| Report { cause, snapshot })
    }

    /// Carries out an order; `None`: the QP is gone.
    pub(crate) fn carry_out(
        &mut self,
        now: Instant,
        token: u32,
        order: impl FnOnce(&dyn QueuePair, &KnownGids) -> Result<Report, Errno>,
    ) -> Option<Report> {
        let result = self.connection.with_qp(|qp| order(qp, &self.gids))?;
        let report = result.unwrap_or_else(|errno| Report {
            cause: order::failed(token, errno),
            snapshot: self.last,
        });
        self.watch = None;
        self.saw(report.snapshot, now);
        Some(report)
    }

    /// The peer's GID on a path that the daemon named.
    pub(crate) fn learn(&mut self, path: &cm_msgs::path::Path) {
        self.gids.learn(path.dlid, path.dgid);
    }

    fn saw(&mut self, snapshot: Snapshot, now: Instant) {
        self.last = snapshot;
        if !self.refused {
            self.connection.set_protection(Protection::from(&snapshot));
        }
        let rearming =
            snapshot.migration == MigrationState::Rearm && snapshot.qp_state == QpState::Rts;
        self.watch = rearming.then(|| match self.watch {
            Some(pending) if pending.at > now => pending,
            Some(past) => Watch::after(now, (past.interval * 2).min(SLOWEST_LOOK)),
            None => Watch::after(now, FIRST_LOOK),
        });
    }
}

fn read_first(qp: &dyn QueuePair, gids: &KnownGids) -> Result<(Identity, Snapshot), Errno> {
    Ok((qp.identity()?, qp.read(gids)?))
}
