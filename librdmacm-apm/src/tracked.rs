// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection as the commit thread follows it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cm_msgs::Gid;
use cm_msgs::control::{
    Cause, Load, Migrate, MigrationState, PeerPort, QpState, Register, Report, Role, Snapshot,
    Stand,
};
use cm_msgs::path::Path;
use nix::errno::Errno;

use crate::connection::{Connection, Protection};
use crate::order;
use crate::peers::FarPort;
use crate::queue_pair::{Identity, KnownGids, QueuePair};
use crate::roles;
use crate::standing::StandingOrder;

/// The first look at a QP that was set to ReArm; each next one takes twice as long.
const FIRST_LOOK: Duration = Duration::from_millis(2);
/// An idle connection may stay in ReArm for ever: it is not looked at more often than this.
const SLOWEST_LOOK: Duration = Duration::from_secs(1);
/// No event tells that a completion error has put a QP into state error.
const PATROL: Duration = Duration::from_secs(30);

/// So long a connection may take to get its first alternate path before it counts as unprotected.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// A connection, what was last seen of it, and when to look again.
pub(crate) struct Tracked {
    pub(crate) connection: Arc<Connection>,
    /// The daemon will not manage it.
    pub(crate) refused: bool,
    role: Role,
    identity: Identity,
    gids: KnownGids,
    /// The primary path when it was taken up.
    first: Path,
    since: Instant,
    /// It has had an alternate path since it was last refused, to which the peer's program must have agreed.
    had_alternate: bool,
    /// What was last told of it to those to come.
    verdict: Option<bool>,
    last: Snapshot,
    standing: Option<StandingOrder>,
    watch: Option<Watch>,
}

/// When a QP is looked at for what no event tells: that it became Armed, or died.
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
    /// `None`: the QP is gone, cannot be read, or leads back to the device where it begins.
    pub(crate) fn new(connection: Arc<Connection>, now: Instant) -> Option<Self> {
        let mut gids = KnownGids::default();
        let (identity, last) =
            connection.with_qp(|qp| read_first(qp, &mut gids, connection.peer_gid))??;
        let by_address = || roles::by_address(&last.primary, identity.qpn, identity.peer_qpn);
        let role = connection.role.unwrap_or_else(by_address);
        let mut tracked = Self {
            connection,
            refused: false,
            role,
            identity,
            gids,
            first: last.primary,
            since: now,
            had_alternate: false,
            verdict: None,
            last,
            standing: None,
            watch: None,
        };
        tracked.saw(last, now);
        Some(tracked)
    }

    /// The connection for the daemon, as last seen.
    pub(crate) fn registration(&self) -> Register {
        Register {
            role: self.role,
            opted_in: self.connection.opted_in(),
            node_guid: self.identity.node_guid,
            qpn: self.identity.qpn,
            peer_qpn: self.identity.peer_qpn,
            policy: self.connection.policy(),
            snapshot: self.last,
        }
    }

    /// As last seen.
    pub(crate) fn last(&self) -> &Snapshot {
        &self.last
    }

    /// Where it led when it was taken up.
    pub(crate) fn far(&self) -> FarPort {
        FarPort {
            port: PeerPort {
                node_guid: self.identity.node_guid,
                port: self.first.port,
                lid: self.first.dlid,
            },
            pkey: self.first.pkey,
        }
    }

    /// The daemon will not manage it. What it had until now tells nothing of what comes after.
    pub(crate) fn refuse(&mut self) {
        self.refused = true;
        self.had_alternate = false;
        self.connection.set_protection(Protection::Unmanaged);
    }

    /// Whether the peer's program takes part. `None`: it is too early to say, or was said already. An old
    /// connection must not repeat itself: a newer one may have shown something else since. One that only receives
    /// is refused wherever it leads.
    pub(crate) fn verdict(&mut self, now: Instant) -> Option<bool> {
        if self.connection.only_receives {
            return None;
        }
        let settled = self.refused || now.saturating_duration_since(self.since) >= SETTLED_AFTER;
        let protected = self.had_alternate;
        if !(protected || settled) || self.verdict == Some(protected) {
            return None;
        }
        self.verdict = Some(protected);
        self.verdict
    }

    /// When to look again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.watch.map(|watch| watch.at)
    }

    /// Looks at the QP. `seen`: an asynchronous event says that there is something to see.
    /// Returns what the daemon should know.
    pub(crate) fn look(&mut self, now: Instant, seen: Option<Cause>) -> Option<Report> {
        self.connection.resume();
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
        let named =
            |&cause: &Cause| matches!(cause, Cause::PathMigrationError | Cause::StandingOrder);
        let news = seen
            .filter(named)
            .or_else(|| order::news(&self.last, &snapshot));
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
        Some(self.carried_out(now, token, result))
    }

    /// Carries out an order to leave the primary though there is no traffic; `None`: the QP is gone. What the QP was told
    /// before of migrating by itself was for that primary.
    pub(crate) fn move_idle(&mut self, now: Instant, order: &Migrate) -> Option<Report> {
        let result = self.connection.move_idle(&self.gids, order)?;
        let report = self.carried_out(now, order.token, result);
        if !report.snapshot.primary.same_way(&order.primary) {
            self.standing = None;
        }
        Some(report)
    }

    fn carried_out(&mut self, now: Instant, token: u32, result: Result<Report, Errno>) -> Report {
        let report = result.unwrap_or_else(|errno| Report {
            cause: order::failed(token, errno),
            snapshot: self.last,
        });
        self.watch = None;
        self.saw(report.snapshot, now);
        report
    }

    /// Carries out a load order; `None`: the QP is gone. What the QP was told before of migrating by
    /// itself ends with it, however it ends.
    pub(crate) fn load(&mut self, now: Instant, order: &Load) -> Option<Report> {
        self.learn(&order.alternate);
        self.standing = None;
        let report = self.carry_out(now, order.token, |qp, gids| order::load(qp, gids, order))?;
        if order.standing && matches!(report.cause, Cause::Done { .. }) {
            self.give_standing_order(&order.primary);
        }
        Some(report)
    }

    /// A load order came too late to be carried out. It ends what the QP was told before of migrating by itself, as
    /// one does that is carried out.
    pub(crate) fn load_late(&mut self, now: Instant, order: &Load) -> Option<Report> {
        self.standing = None;
        let token = order.token;
        self.carry_out(now, token, |qp, gids| order::late(qp, gids, token))
    }

    /// It may, or may no longer, migrate by itself.
    pub(crate) fn stand(&mut self, order: &Stand) {
        self.standing = None;
        if order.allowed {
            self.give_standing_order(&order.primary);
        }
    }

    fn give_standing_order(&mut self, primary: &Path) {
        let order = self
            .connection
            .with_qp(|qp| StandingOrder::for_qp(qp, &self.gids, primary));
        self.standing = order.and_then(|order| {
            order.unwrap_or_else(|errno| {
                crate::log::debug(&format_args!(
                    "connection {}: no standing order: {errno}",
                    self.connection.number
                ));
                None
            })
        });
    }

    /// The standing order, if there is one.
    pub(crate) fn standing(&self) -> Option<&StandingOrder> {
        self.standing.as_ref()
    }

    /// Migrates the QP by its standing order. Whether that was done; if so, it has none any more.
    pub(crate) fn migrate_by_itself(&mut self) -> bool {
        let Some(order) = self.standing else {
            return false;
        };
        let result = self.connection.with_qp(|qp| order.carry_out(qp));
        match result {
            Some(Ok(true)) => {
                self.standing = None;
                true
            }
            Some(Err(errno)) => {
                crate::log::debug(&format_args!(
                    "connection {}: standing order failed: {errno}",
                    self.connection.number
                ));
                false
            }
            Some(Ok(false)) | None => false,
        }
    }

    /// The peer's GID on a path that the daemon named.
    fn learn(&mut self, path: &Path) {
        self.gids.learn(path.port, path.dlid, path.dgid);
    }

    fn saw(&mut self, snapshot: Snapshot, now: Instant) {
        self.last = snapshot;
        self.connection
            .set_moved(!snapshot.primary.same_way(&self.first));
        let migrated = snapshot.migration == MigrationState::Migrated;
        self.had_alternate |= !migrated && !self.refused;
        if migrated || !order::is_open(&snapshot) {
            self.standing = None;
        }
        if !self.refused {
            self.connection.set_protection(Protection::from(&snapshot));
        }
        let pending = self.watch.filter(|watch| watch.interval < PATROL);
        let soon = || match pending {
            Some(pending) if pending.at > now => pending,
            Some(past) => Watch::after(now, (past.interval * 2).min(SLOWEST_LOOK)),
            None => Watch::after(now, FIRST_LOOK),
        };
        self.watch = match (snapshot.qp_state, snapshot.migration) {
            (QpState::Rts, MigrationState::Rearm) => Some(soon()),
            (QpState::Sqd, _) if self.connection.is_suspended() => Some(soon()),
            // No event tells that the application lets its send queue go on.
            (QpState::Sqd, _) => Some(Watch::after(now, SLOWEST_LOOK)),
            (QpState::Rts, _) => Some(Watch::after(now, PATROL)),
            _ => None,
        };
    }
}

/// The QP as it is found, with the peer's GID that the connection manager knows; `None` if it leads back to its own
/// device.
fn read_first(
    qp: &dyn QueuePair,
    gids: &mut KnownGids,
    peer_gid: Gid,
) -> Option<(Identity, Snapshot)> {
    let (identity, mut snapshot) = qp.introduce(gids).ok()?;
    let primary = &mut snapshot.primary;
    gids.learn(primary.port, primary.dlid, peer_gid);
    if primary.dgid.is_unspecified() {
        primary.dgid = gids.get(primary.port, primary.dlid).unwrap_or_default();
    }
    (!qp.leads_back(primary)).then_some((identity, snapshot))
}

#[cfg(test)]
mod tests {
    use cm_msgs::Lid;
    use cm_msgs::control::PolicyOverride;

    use super::*;
    use crate::connection::{ContextKey, Description, QpKey};
    use crate::tests::model::{Model, path};

    fn description(model: &Model, role: Option<Role>) -> Description {
        Description {
            role,
            id: None,
            qp_key: QpKey(1),
            context: ContextKey {
                address: 1,
                async_fd: -1,
            },
            peer_gid: path(1).dgid,
            opted_in: false,
            policy: PolicyOverride::default(),
            answer_came_late: false,
            only_receives: false,
            qp: Arc::new(model.clone()),
        }
    }

    fn connection(model: &Model, role: Option<Role>) -> Arc<Connection> {
        Arc::new(Connection::new(1, description(model, role)))
    }

    #[test]
    fn a_qp_that_dies_in_silence_is_found_dead() {
        let model = Model::new(path(1));
        model.arm(path(2));
        let now = Instant::now();
        let mut tracked = Tracked::new(connection(&model, None), now).expect("it can be read");
        assert_eq!(tracked.due(), Some(now + PATROL));
        assert_eq!(tracked.look(now + PATROL, None), None, "nothing is new");
        model.set(|qp| qp.qp_state = QpState::Error);
        let report = tracked.look(now + PATROL * 2, None);
        assert_eq!(report.map(|report| report.cause), Some(Cause::Broken));
        assert_eq!(tracked.due(), None, "it does not come back");
    }

    #[test]
    fn a_qp_that_leaves_sqd_is_reported_within_a_second() {
        let model = Model::new(path(1));
        model.arm(path(2));
        let mut now = Instant::now();
        let mut tracked = Tracked::new(connection(&model, None), now).expect("it can be read");
        model.set(|qp| qp.qp_state = QpState::Sqd);
        let migrate = Migrate {
            token: 7,
            primary: path(1),
        };
        let report = tracked.carry_out(now, 7, |qp, gids| order::migrate(qp, gids, &migrate));
        let report = report.expect("it is there");
        assert_eq!(report.cause, Cause::Stale { token: 7 });
        assert_eq!(report.snapshot.qp_state, QpState::Sqd);
        now += SLOWEST_LOOK;
        assert!(tracked.due().is_some_and(|due| due <= now));
        assert_eq!(tracked.look(now, None), None, "it is there still");
        model.set(|qp| qp.qp_state = QpState::Rts);
        now += SLOWEST_LOOK;
        assert!(tracked.due().is_some_and(|due| due <= now));
        let report = tracked.look(now, None).expect("news");
        let snapshot = &report.snapshot;
        assert_eq!(
            (report.cause, snapshot.qp_state),
            (Cause::Changed, QpState::Rts)
        );
        assert_eq!(tracked.due(), Some(now + PATROL));
    }

    /// A QP that waits for traffic, on a device that does not let it leave SQD before its send queue is drained, which it
    /// never is: it stays in SQD after an order to move.
    fn stuck_in_sqd() -> (Model, Tracked, Instant) {
        let model = Model::new(path(1));
        model.set(|qp| {
            qp.migration = MigrationState::Rearm;
            qp.alternate = Some(path(2));
        });
        model.never_drains(true);
        model.resumes_drained_only();
        let now = Instant::now();
        let mut tracked = Tracked::new(connection(&model, None), now).expect("it can be read");
        let order = Migrate {
            token: 7,
            primary: path(1),
        };
        let report = tracked.move_idle(now, &order).expect("it is there");
        assert!(matches!(report.cause, Cause::Failed { .. }));
        assert_eq!(model.snapshot().qp_state, QpState::Sqd);
        (model, tracked, now)
    }

    #[test]
    fn a_qp_that_a_move_has_left_in_sqd_is_let_go_on_later() {
        let (model, mut tracked, now) = stuck_in_sqd();
        assert_eq!(tracked.due(), Some(now + FIRST_LOOK));
        let now = now + FIRST_LOOK;
        tracked.look(now, None);
        assert_eq!(
            tracked.due(),
            Some(now + FIRST_LOOK * 2),
            "ever more rarely"
        );
        model.never_drains(false);
        let now = now + FIRST_LOOK * 2;
        let report = tracked.look(now, None).expect("news");
        assert_eq!(report.snapshot.qp_state, QpState::Rts);
        assert_eq!(report.snapshot.primary, path(1));
    }

    #[test]
    fn a_qp_that_the_application_has_put_into_sqd_meanwhile_stays_there() {
        let (model, mut tracked, now) = stuck_in_sqd();
        assert_eq!(tracked.connection.change_by_owner(true, || 0), 0);
        model.never_drains(false);
        tracked.look(now + FIRST_LOOK, None);
        assert_eq!(model.snapshot().qp_state, QpState::Sqd);
    }

    #[test]
    fn a_qp_that_becomes_armed_is_looked_at_slowly_from_then_on() {
        let model = Model::new(path(1));
        model.set(|qp| {
            qp.migration = MigrationState::Rearm;
            qp.alternate = Some(path(2));
        });
        let now = Instant::now();
        let mut tracked = Tracked::new(connection(&model, None), now).expect("it can be read");
        assert_eq!(tracked.due(), Some(now + FIRST_LOOK));
        model.arm(path(2));
        let now = now + FIRST_LOOK;
        let report = tracked.look(now, None);
        assert_eq!(report.map(|report| report.cause), Some(Cause::Armed));
        assert_eq!(tracked.due(), Some(now + PATROL));
    }

    #[test]
    fn a_connection_without_an_alternate_for_long_is_unprotected() {
        let model = Model::new(path(1));
        let now = Instant::now();
        let mut tracked = Tracked::new(connection(&model, None), now).expect("it can be read");
        let far = tracked.far();
        assert_eq!((far.port.port, far.port.lid), (1, path(1).dlid));
        assert_eq!(tracked.verdict(now), None);
        assert_eq!(tracked.verdict(now + SETTLED_AFTER), Some(false));
        model.arm(path(2));
        tracked.look(now, None);
        assert_eq!(tracked.verdict(now), Some(true));
        model.set(|qp| qp.migration = MigrationState::Migrated);
        model.set(|qp| qp.primary = path(2));
        tracked.look(now + SETTLED_AFTER, None);
        assert_eq!(tracked.verdict(now + SETTLED_AFTER), None, "nothing is new");
        assert_eq!(tracked.far(), far, "as the next one is connected");
    }

    #[test]
    fn a_refused_connection_is_unprotected_whatever_it_had() {
        let model = Model::new(path(1));
        let now = Instant::now();
        let mut tracked = Tracked::new(connection(&model, None), now).expect("it can be read");
        model.arm(path(2));
        tracked.look(now, None);
        assert_eq!(tracked.verdict(now), Some(true));
        tracked.refuse();
        assert_eq!(tracked.verdict(now), Some(false), "at once");
        tracked.look(now, None);
        assert_eq!(tracked.verdict(now), None, "nothing is new");
        model.set(|qp| qp.migration = MigrationState::Migrated);
        // The daemon thinks better of it, or is another.
        tracked.refused = false;
        tracked.look(now, None);
        assert_eq!(tracked.verdict(now + SETTLED_AFTER), None, "no alternate");
        model.arm(path(2));
        tracked.look(now, None);
        assert_eq!(tracked.verdict(now), Some(true));
    }

    #[test]
    fn one_that_only_receives_tells_nothing_of_those_to_come() {
        let model = Model::new(path(1));
        model.set(|qp| qp.qp_state = QpState::Rtr);
        let now = Instant::now();
        let receiver = Connection::new(
            1,
            Description {
                only_receives: true,
                ..description(&model, None)
            },
        );
        let mut tracked = Tracked::new(Arc::new(receiver), now).expect("it can be read");
        assert_eq!(tracked.registration().snapshot.qp_state, QpState::Rtr);
        tracked.refuse();
        assert_eq!(tracked.verdict(now + SETTLED_AFTER), None);
    }

    #[test]
    fn addresses_decide_where_no_cm_says_who_connected() {
        let role = |role| {
            let tracked = Tracked::new(connection(&Model::new(path(1)), role), Instant::now());
            tracked.expect("it can be read").registration().role
        };
        assert_eq!(role(None), Role::Active, "LID 0x11 is lower than 0x21");
        assert_eq!(role(Some(Role::Passive)), Role::Passive);
    }

    #[test]
    fn a_qp_that_leads_back_is_left_alone() {
        let model = Model::new(Path {
            dlid: Lid(0x12),
            ..path(1)
        });
        assert!(Tracked::new(connection(&model, None), Instant::now()).is_none());
    }
}
