// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths from the fabric as data, and what they share. The fabric comes from a snapshot, from
//! subnet administration, or from both; here is decided when it is looked at again. No I/O and no
//! heavy work: [`Ssa::poll_job`] says what is to be done elsewhere.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cm_msgs::Gid;
use cm_msgs::path::Path;
use cm_msgs::sa::PathRecord;
use pathdb::Fabric;
use statemachine::{Assess, Backoff, Overlap, PathQuery, PortId, QueryError, Time};

use crate::fabric::{self, Interest, Job, Outcome, PortsDown, Progress, Reading, Task};

/// First pause after a reading that failed; doubles with every failure in a row.
const RETRY: Duration = Duration::from_secs(1);
/// The longest such pause.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// How long forwarding tables are not asked for while ports are in state Init. OpenSM's sweep of
/// 12,000 hosts takes half a minute; a port that nobody routes to stays so for ever.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest pause before it is seen whether they still are.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// Times that the fabric is read once more after a report: a switch reports a change before the
/// subnet manager has done anything about it, and nobody reports when it has.
const LATER_LOOKS: u32 = 2;
/// Each of them comes after so many times the pause before.
const LATER: u32 = 4;

/// What an operator chose about the fabric as data.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// File of the snapshot: read at start and when it has changed, replaced after each change if the
    /// fabric is read live.
    pub snapshot: Option<PathBuf>,
    /// File of shared-risk groups, read with the fabric.
    pub risks: Option<PathBuf>,
    /// Read the fabric from subnet administration.
    pub live: bool,
    /// How often it is looked at again although nothing was reported.
    pub reread: Duration,
    /// Pause after a report of a change, before the fabric is read: more changes may follow.
    pub settle: Duration,
    /// Requests under way at the same time while the fabric is read.
    pub in_flight: usize,
    /// Service level of all paths, instead of what the reading learned.
    pub sl: Option<u8>,
    /// The key that makes subnet administration show partition tables; 0 for none.
    pub sm_key: u64,
    /// Read SL-to-VL tables, too.
    pub sl2vl: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            snapshot: None,
            risks: None,
            live: false,
            reread: Duration::from_secs(300),
            settle: Duration::from_secs(1),
            in_flight: 4,
            sl: None,
            sm_key: 0,
            sl2vl: false,
        }
    }
}

/// Where the fabric came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FabricFrom {
    /// The snapshot.
    Snapshot,
    /// Subnet administration.
    Live,
}

/// The fabric, with its history.
#[derive(Clone, Debug)]
pub struct KnownFabric {
    /// The fabric.
    pub fabric: Arc<Fabric>,
    /// Where it came from.
    pub from: FabricFrom,
    /// When it was last seen to be so.
    pub confirmed: Time,
    /// When it last became another.
    pub changed: Time,
}

/// What is under way.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Running {
    from: FabricFrom,
    interest: Interest,
    /// It takes no notice of ports in state Init, and says nothing of them.
    unrouted: bool,
    /// Something was reported meanwhile: it must be read once more.
    stale: bool,
}

/// The fabric as a path source.
#[derive(Debug)]
pub struct Ssa {
    settings: Settings,
    known: Option<KnownFabric>,
    /// Of the host's own ports.
    down: PortsDown,
    interest: Interest,
    running: Option<Running>,
    progress: Option<Progress>,
    /// When to look at the snapshot, and when to read from subnet administration.
    load_at: Option<Time>,
    read_at: Option<Time>,
    later_looks: u32,
    /// Since when ports have been in state Init.
    unrouted_since: Option<Time>,
    retries: Backoff,
    last_error: Option<String>,
}

impl Ssa {
    /// Nothing known yet.
    pub fn new(settings: Settings) -> Self {
        let mut ssa = Self {
            settings: Settings::default(),
            known: None,
            down: PortsDown::default(),
            interest: Interest::default(),
            running: None,
            progress: None,
            load_at: None,
            read_at: None,
            later_looks: 0,
            unrouted_since: None,
            retries: Backoff::new(RETRY, RETRY_MAX),
            last_error: None,
        };
        ssa.set_settings(Time(0), settings);
        ssa
    }

    /// Other settings; everything is looked at again.
    pub fn set_settings(&mut self, now: Time, settings: Settings) {
        self.load_at = settings.snapshot.as_ref().map(|_| now);
        self.read_at = settings.live.then_some(now);
        self.retries.reset();
        self.settings = settings;
    }

    /// The paths that fit a query, the best first.
    ///
    /// # Errors
    /// [`QueryError::NoPath`] if the fabric has none, [`QueryError::Unreachable`] if there is no
    /// fabric, or no service level that is safe on all paths.
    pub fn paths(&self, query: &PathQuery) -> Result<Vec<PathRecord>, QueryError> {
        match (&self.known, self.sl()) {
            (Some(known), Some(sl)) => fabric::records(&known.fabric, query, sl),
            _ => Err(QueryError::Unreachable),
        }
    }

    /// The service level of all paths, if there is one. Forwarding tables say nothing about it, and
    /// a wrong one can lock up the fabric of engines that use it against credit loops.
    pub fn sl(&self) -> Option<u8> {
        let learned = || self.known.as_ref()?.fabric.terms().service_level;
        self.settings.sl.or_else(learned)
    }

    /// What each of some paths shares with a primary, as far as known.
    pub fn assess(&mut self, assess: &Assess) -> Vec<Option<Overlap>> {
        self.interest.add(assess.primary.sgid, assess.primary.dgid);
        for path in &assess.paths {
            self.interest.add(path.sgid, path.dgid);
        }
        match &self.known {
            Some(known) => fabric::assess(&known.fabric, &self.down, assess),
            None => vec![None; assess.paths.len()],
        }
    }

    /// What an alternate shares with a primary, by name. `None`: not known.
    pub fn common(&self, primary: &Path, alternate: &Path) -> Option<Vec<fabric::Common>> {
        let known = self.known.as_ref()?;
        fabric::common(&known.fabric, &self.down, primary, alternate)
    }

    /// The fabric, if it is known.
    pub fn known(&self) -> Option<&KnownFabric> {
        self.known.as_ref()
    }

    /// The last error, while it is not over.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Of the reading that is under way.
    pub fn progress(&self) -> Option<Progress> {
        self.progress
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Something happened in the fabric.
    pub fn handle_report(&mut self, now: Time) {
        if !self.settings.live {
            return;
        }
        self.later_looks = LATER_LOOKS;
        self.retries.reset();
        if self.is_out_of_patience(now) {
            // The subnet manager is at work again.
            self.unrouted_since = None;
        }
        match &mut self.running {
            Some(running) => running.stale = true,
            None => self.read_by(now + self.settings.settle),
        }
    }

    /// A local port came up, went down or away, or has another subnet manager. Whether connections
    /// have to look again at what their paths share: what the fabric says of the port may be out of
    /// date, and what goes by it is no choice while it is down.
    pub fn handle_port(&mut self, now: Time, port: PortId, active: bool) -> bool {
        let news = self.down.set(port, active);
        self.read_after_port(now);
        news && self.known.is_some() && !self.interest.is_empty()
    }

    fn read_after_port(&mut self, now: Time) {
        if self.known.is_some() {
            self.handle_report(now);
        } else if self.settings.live && self.running.is_none() {
            self.read_by(now + self.settings.settle);
        }
    }

    fn is_out_of_patience(&self, now: Time) -> bool {
        self.unrouted_since.is_some_and(|at| at + PATIENCE <= now)
    }

    fn read_by(&mut self, at: Time) {
        self.read_at = Some(self.read_at.map_or(at, |other| other.min(at)));
    }

    /// How far a reading is.
    pub fn handle_progress(&mut self, progress: Progress) {
        self.progress = Some(progress);
    }

    /// When the next job is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let due = [self.load_at, self.read_at];
        let due = due.into_iter().flatten().min();
        due.filter(|_| self.running.is_none())
    }

    /// The next job, if one is due. `ports` are the local ports that can reach a subnet manager,
    /// with their GIDs; after a failure the next one is used.
    pub fn poll_job(&mut self, now: Time, ports: &[(PortId, Gid)]) -> Option<Job> {
        if self.running.is_some() {
            return None;
        }
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        let unrouted = self.is_out_of_patience(now);
        let (from, task) = if due(self.load_at) {
            self.load_at = None;
            (
                FabricFrom::Snapshot,
                Task::Load(self.settings.snapshot.clone()?),
            )
        } else if due(self.read_at) {
            let Some(&(port, sgid)) =
                ports.get(self.retries.failures() as usize % ports.len().max(1))
            else {
                // Until `handle_port`.
                self.read_at = None;
                return None;
            };
            self.read_at = None;
            let reading = Reading {
                port,
                sgid,
                in_flight: self.settings.in_flight,
                sm_key: self.settings.sm_key,
                sl2vl: self.settings.sl2vl,
                unrouted,
            };
            let snapshot = self.settings.snapshot.clone();
            (FabricFrom::Live, Task::Read(reading, snapshot))
        } else {
            return None;
        };
        self.running = Some(Running {
            from,
            interest: self.interest.clone(),
            unrouted,
            stale: false,
        });
        Some(Job {
            task,
            risks: self.settings.risks.clone(),
            known: self.known.as_ref().map(|known| known.fabric.clone()),
            interest: self.interest.clone(),
        })
    }

    /// A job is done. Whether connections have to look again at what their paths share.
    pub fn handle_outcome(&mut self, now: Time, outcome: Outcome) -> bool {
        let Some(running) = self.running.take() else {
            return false;
        };
        self.progress = None;
        let failed = matches!(outcome, Outcome::Failed(_));
        if matches!(outcome, Outcome::Unrouted(_)) {
            self.unrouted_since.get_or_insert(now);
        } else if running.from == FabricFrom::Live && !failed && !running.unrouted {
            self.unrouted_since = None;
        }
        let changed = self.take(now, &running, outcome);
        match running.from {
            FabricFrom::Snapshot if self.settings.live => {}
            FabricFrom::Snapshot => self.load_at = Some(now + self.settings.reread),
            FabricFrom::Live => self.schedule(now, failed, running.stale),
        }
        changed
    }

    fn take(&mut self, now: Time, running: &Running, outcome: Outcome) -> bool {
        match outcome {
            Outcome::New(fabric, matters) => {
                self.known = Some(KnownFabric {
                    fabric,
                    from: running.from,
                    confirmed: now,
                    changed: now,
                });
                self.last_error = None;
                // Who asked during the job was answered from the old fabric.
                let matters = matters || self.interest != running.interest;
                if matters {
                    // All will ask again.
                    self.interest = Interest::default();
                }
                matters
            }
            Outcome::Same => {
                if let Some(known) = &mut self.known {
                    known.confirmed = now;
                    known.from = running.from;
                }
                self.last_error = None;
                false
            }
            Outcome::NoSnapshot => false,
            Outcome::Unrouted(error) | Outcome::Failed(error) => {
                self.last_error = Some(error);
                false
            }
        }
    }

    fn schedule(&mut self, now: Time, failed: bool, stale: bool) {
        let settle = self.settings.settle;
        let waiting = self
            .unrouted_since
            .filter(|_| !self.is_out_of_patience(now));
        let pause = if stale {
            settle
        } else if let Some(since) = waiting {
            ((now - since) / 2).min(LOOK_MAX).max(settle)
        } else if failed {
            self.retries.next_delay()
        } else if self.later_looks > 0 {
            let done = LATER_LOOKS - self.later_looks + 1;
            self.later_looks -= 1;
            settle
                .saturating_mul(LATER.pow(done))
                .min(self.settings.reread)
        } else {
            self.settings.reread
        };
        if !failed {
            self.retries.reset();
        }
        self.read_by(now + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_fabrics::two_rails::{self, Shape, gid, port, way};

    const LIVE_PORTS: [(PortId, Gid); 2] = [(port_id(1), Gid([1; 16])), (port_id(2), Gid([2; 16]))];

    const fn port_id(port: u8) -> PortId {
        PortId {
            node_guid: cm_msgs::Guid(1),
            port,
        }
    }

    fn second(second: u64) -> Time {
        Time(second * 1_000_000)
    }

    fn ssa(live: bool) -> Ssa {
        Ssa::new(Settings {
            live,
            snapshot: Some("fabric".into()),
            ..Settings::default()
        })
    }

    fn new(sl: Option<u8>) -> Outcome {
        let fabric = two_rails::fabric(Shape {
            sl,
            ..Shape::default()
        });
        Outcome::New(Arc::new(fabric), false)
    }

    /// When the fabric is read, if each reading takes no time and ends as `outcome` says.
    fn readings(ssa: &mut Ssa, count: usize, outcome: &Outcome) -> Vec<(u64, u8)> {
        let mut readings = Vec::new();
        while readings.len() < count {
            let now = ssa.poll_timeout().unwrap();
            let job = ssa.poll_job(now, &LIVE_PORTS).unwrap();
            if let Task::Read(reading, _) = &job.task {
                readings.push((now.0 / 1_000_000, reading.port.port));
            }
            ssa.handle_outcome(now, outcome.clone());
        }
        readings
    }

    fn query(dgid: Gid) -> PathQuery {
        PathQuery {
            query: 1,
            port: port(1),
            sgid: gid(11),
            dgid,
            slid: None,
            dlid: None,
            pkey: cm_msgs::PKey(0xffff),
        }
    }

    #[test]
    fn the_snapshot_first_then_live_again_and_again() {
        let mut ssa = ssa(true);
        let job = ssa.poll_job(second(0), &LIVE_PORTS).unwrap();
        assert_eq!(job.task, Task::Load("fabric".into()));
        assert!(
            ssa.poll_job(second(0), &LIVE_PORTS).is_none(),
            "one at a time"
        );
        ssa.handle_outcome(second(0), Outcome::NoSnapshot);
        let times = readings(&mut ssa, 3, &Outcome::Same);
        assert_eq!(times, [(0, 1), (300, 1), (600, 1)]);
    }

    #[test]
    fn a_snapshot_alone_is_looked_at_again() {
        let mut ssa = ssa(false);
        ssa.poll_job(second(0), &[]).unwrap();
        ssa.handle_outcome(second(0), new(Some(0)));
        assert_eq!(ssa.poll_timeout(), Some(second(300)));
        ssa.handle_report(second(1));
        assert_eq!(
            ssa.poll_timeout(),
            Some(second(300)),
            "nobody else reads it"
        );
        assert!(matches!(
            ssa.poll_job(second(300), &[]).unwrap().task,
            Task::Load(_)
        ));
    }

    #[test]
    fn after_a_report_it_is_read_soon_and_twice_later() {
        let mut ssa = ssa(true);
        readings(&mut ssa, 1, &new(Some(0)));
        ssa.handle_report(second(10));
        ssa.handle_report(Time(10_500_000));
        let times = readings(&mut ssa, 4, &Outcome::Same);
        assert_eq!(times, [(11, 1), (15, 1), (31, 1), (331, 1)]);
    }

    #[test]
    fn a_report_during_a_reading_makes_it_stale() {
        let mut ssa = ssa(true);
        readings(&mut ssa, 1, &new(Some(0)));
        ssa.poll_job(second(300), &LIVE_PORTS).unwrap();
        ssa.handle_report(second(301));
        assert_eq!(ssa.poll_timeout(), None);
        ssa.handle_outcome(second(302), Outcome::Same);
        assert_eq!(ssa.poll_timeout(), Some(second(303)));
    }

    /// When the fabric is read, and whether in spite of ports in state Init.
    fn looks(ssa: &mut Ssa, count: usize, outcome: &Outcome) -> Vec<(u64, bool)> {
        let looks = (0..count).map(|_| {
            let now = ssa.poll_timeout().unwrap();
            let job = ssa.poll_job(now, &LIVE_PORTS).unwrap();
            ssa.handle_outcome(now, outcome.clone());
            match job.task {
                Task::Read(reading, _) => (now.0 / 1_000_000, reading.unrouted),
                Task::Load(_) => panic!("no snapshot is due"),
            }
        });
        looks.collect()
    }

    #[test]
    fn the_subnet_manager_is_waited_for_and_a_port_that_nobody_routes_to_is_not() {
        let mut ssa = ssa(true);
        readings(&mut ssa, 1, &new(None));
        let unrouted = Outcome::Unrouted("port 9 of lid 2 is in state init".to_owned());
        ssa.handle_report(second(10));
        let times = looks(&mut ssa, 4, &unrouted);
        assert_eq!(times, [(11, false), (12, false), (13, false), (14, false)]);
        assert!(ssa.last_error().unwrap().contains("state init"));
        let times = looks(&mut ssa, 3, &Outcome::Same);
        assert_eq!(times, [(15, false), (19, false), (35, false)]);
        assert_eq!(ssa.last_error(), None);

        ssa.handle_report(second(100));
        let times = looks(&mut ssa, 20, &unrouted);
        let patient = times.iter().filter(|(_, unrouted)| !unrouted);
        assert!(patient.clone().all(|(at, _)| (101..161).contains(at)));
        assert!((5..20).contains(&patient.count()), "{times:?}");
        assert!(times.last().unwrap().1, "read all the same");
        assert!(looks(&mut ssa, 1, &Outcome::Same)[0].1, "and again");
        ssa.handle_report(second(10_000));
        assert!(!looks(&mut ssa, 1, &Outcome::Same)[0].1, "but not then");
    }

    #[test]
    fn a_reading_that_waited_and_ends_late_ends_the_waiting() {
        let mut ssa = ssa(true);
        readings(&mut ssa, 1, &new(None));
        ssa.handle_report(second(100));
        looks(&mut ssa, 1, &Outcome::Unrouted(String::new()));
        let job = ssa.poll_job(second(150), &LIVE_PORTS).unwrap();
        assert!(matches!(job.task, Task::Read(reading, _) if !reading.unrouted));
        ssa.handle_outcome(second(170), Outcome::Same);
        assert!(!looks(&mut ssa, 1, &Outcome::Same)[0].1);
    }

    #[test]
    fn a_failure_is_tried_again_from_another_port() {
        let mut ssa = ssa(true);
        let times = readings(&mut ssa, 4, &Outcome::Failed("no answer".to_owned()));
        assert_eq!(times, [(0, 1), (1, 2), (3, 1), (7, 2)]);
        assert_eq!(ssa.last_error(), Some("no answer"));
        readings(&mut ssa, 1, &new(None));
        assert_eq!(ssa.last_error(), None);
    }

    #[test]
    fn without_a_port_it_waits_for_one() {
        let mut ssa = ssa(true);
        ssa.poll_job(second(0), &[]).unwrap();
        ssa.handle_outcome(second(0), Outcome::NoSnapshot);
        assert!(ssa.poll_job(second(0), &[]).is_none());
        assert_eq!(ssa.poll_timeout(), None);
        assert!(!ssa.handle_port(second(5), LIVE_PORTS[0].0, true));
        assert_eq!(ssa.poll_timeout(), Some(second(6)));
    }

    #[test]
    fn no_fabric_no_answer_and_no_service_level_none_either() {
        let mut ssa = ssa(true);
        let unreachable = Err(QueryError::Unreachable);
        assert_eq!(ssa.paths(&query(gid(21))), unreachable);
        readings(&mut ssa, 1, &new(None));
        assert_eq!(ssa.paths(&query(gid(21))), unreachable, "levels differ");
        let given = Settings {
            sl: Some(3),
            ..ssa.settings().clone()
        };
        ssa.set_settings(second(0), given);
        assert_eq!(ssa.paths(&query(gid(21))).unwrap()[0].sl, 3);
        readings(&mut ssa, 1, &new(Some(2)));
        assert_eq!(
            ssa.paths(&query(gid(21))).unwrap()[0].sl,
            3,
            "as configured"
        );
        assert_eq!(ssa.paths(&query(gid(99))), Err(QueryError::NoPath));
    }

    #[test]
    fn an_own_port_that_is_down_is_no_choice_whatever_the_fabric_says() {
        let mut ssa = ssa(false);
        let question = two_rails::assess([way(11, 22)]);
        assert!(!ssa.handle_port(second(0), port(2), false), "nobody asked");
        assert!(!ssa.handle_port(second(0), port(2), true));
        ssa.poll_job(second(0), &[]).unwrap();
        ssa.handle_outcome(second(0), new(None));
        let shared = |ssa: &mut Ssa| {
            let overlap = ssa.assess(&question)[0].unwrap();
            (overlap.switches, overlap.links)
        };
        assert_eq!(shared(&mut ssa), (1, 1), "port 2 could do better");

        assert!(ssa.handle_port(second(1), port(2), false), "look again");
        assert_eq!(shared(&mut ssa), (0, 0), "there is only port 1");
        assert!(!ssa.handle_port(second(2), port(2), false), "no news");
        let alternate = Path {
            dlid: cm_msgs::Lid(5),
            dgid: gid(22),
            ..question.primary
        };
        let common = ssa.common(&question.primary, &alternate).unwrap();
        assert!(!common.is_empty() && common.iter().all(|common| !common.avoidable));

        ssa.poll_job(second(300), &[]).unwrap();
        ssa.handle_outcome(second(301), new(None));
        assert_eq!(shared(&mut ssa), (0, 0), "nor does another snapshot");
        let other = PortId {
            node_guid: cm_msgs::Guid(3),
            port: 2,
        };
        ssa.handle_port(second(302), other, true);
        assert_eq!(shared(&mut ssa), (0, 0), "the port of another device");
        assert!(ssa.handle_port(second(303), port(2), true), "look again");
        assert_eq!(shared(&mut ssa), (1, 1));
    }

    #[test]
    fn who_asked_too_early_is_told_when_the_fabric_is_known() {
        let mut ssa = ssa(true);
        assert_eq!(ssa.assess(&two_rails::assess([way(12, 22)])), [None]);
        let job = ssa.poll_job(second(0), &LIVE_PORTS).unwrap();
        assert!(job.interest.remote.contains(&cm_msgs::Guid(22)));
        ssa.assess(&two_rails::assess([way(12, 23)]));
        assert!(ssa.handle_outcome(second(1), new(None)), "asked meanwhile");
        assert_eq!(
            ssa.assess(&two_rails::assess([way(12, 22)])),
            [Some(Overlap::default())]
        );
        let job = ssa.poll_job(second(1), &LIVE_PORTS).unwrap();
        assert!(
            !job.interest.remote.contains(&cm_msgs::Guid(23)),
            "asked anew"
        );
        assert!(!ssa.handle_outcome(second(1), new(None)), "as the job says");
    }
}
