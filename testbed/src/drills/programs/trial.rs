// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program is run in a column, and faults are put in while it moves data.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use crate::clock::{Millis, Moment};
use crate::failure::Failure;
use crate::host::Host;
use crate::link::Link;
use crate::observe::{self, Pair};

use super::super::Context;
use super::outcome::Cell;
use super::row::{Amount, Column, Family, Fault, Row};
use super::running::{Running, State};
use super::spines;

/// How long a program should run: all faults have to find room.
const RUN: Duration = Duration::from_secs(45);

/// What of it a fault needs, with all that is waited for before and after it.
const FAULT: Duration = Duration::from_secs(10);

/// How long traffic may be gone before the program counts as standing still for ever.
const WATCH: Duration = Duration::from_secs(100);

/// After this a fault is taken out under the kernel's own connections, which it makes anew: how long
/// that takes belongs to the stall. SCSI, which waits longest, begins to recover after some 30 s.
const OUTAGE: Duration = Duration::from_secs(45);

/// Bound for connections to be armed: of those that the daemons know, and for them to know any.
const ARMED: Duration = Duration::from_secs(60);
const KNOWN: Duration = Duration::from_secs(10);

/// What is not armed after that, while others are, has no traffic to arm it: UCX makes a QP for each
/// port, and uses one.
const IDLE: Duration = Duration::from_secs(5);

/// How often QPs in error are looked for.
const QP_LOOK: Duration = Duration::from_secs(1);

const LOOK: Duration = Duration::from_millis(20);

/// What a program whose connection broke is given to say so.
const GRACE: Duration = Duration::from_secs(2);

/// How long a row's program is to run. The kernel's must outlast one fault and the recovery from it,
/// or nothing is left to be seen flowing again.
fn duration(row: &Row) -> Duration {
    if row.is_of_the_kernel() {
        RUN + OUTAGE + WATCH
    } else {
        RUN
    }
}

/// A row in a column.
pub(super) struct Trial<'a, 'b> {
    pub(super) context: &'a mut Context<'b>,
    pub(super) row: &'static Row,
    pub(super) column: Column,
    pub(super) amount: u64,
    /// How often a program that was done before its fault is run again.
    pub(super) repeats: u32,
}

/// How much of a row's work takes about as long as a run with so many faults should; `Err` in the result is why it does
/// not run.
pub(super) fn measure(
    row: &'static Row,
    hosts: [Host; 2],
    faults: u32,
) -> Result<Result<u64, String>, Failure> {
    const LONG_ENOUGH: Duration = Duration::from_secs(5);
    let Amount::Units(mut few, most) = row.amount else {
        return Ok(Ok(duration(row).as_secs()));
    };
    loop {
        let mut running = match Running::start(row, Column::Plain, few, hosts)? {
            Ok(running) => running,
            Err(why) => return Ok(Err(why)),
        };
        if let Err(why) = running.finish(duration(running.row))? {
            return Ok(Err(format!("undisturbed: {why}")));
        }
        let took = running.took();
        if took >= LONG_ENOUGH || few >= most {
            let run = RUN.min(FAULT * (faults + 1));
            let scaled = few as f64 * run.as_secs_f64() / took.as_secs_f64();
            return Ok(Ok((scaled.ceil() as u64).min(most)));
        }
        few = (few * 4).min(most);
    }
}

impl Trial<'_, '_> {
    /// What comes of each fault. Where the program does not survive one, it is started again for
    /// those that come after.
    pub(super) fn run(&mut self, faults: &[Fault]) -> Result<Vec<Cell>, Failure> {
        let mut cells: Vec<Cell> = Vec::new();
        while cells.len() < faults.len() {
            let next = &faults[cells.len()..];
            // The other cable is the one to which the traffic has moved.
            let moved = cells.last().is_some_and(Cell::has_survived);
            if next[0] == Fault::OtherCable && !moved {
                cells.push(Cell::NotReached);
                continue;
            }
            let Some(came) = self.run_once(next)? else {
                self.note("done before the fault: once more");
                continue;
            };
            for (fault, cell) in next.iter().zip(&came) {
                self.note(&format!("{}: {}", fault.name(), cell.short()));
                if let Some(why) = cell.why() {
                    self.note(&why);
                }
            }
            cells.extend(came);
        }
        Ok(cells)
    }

    fn note(&self, what: &str) {
        let text = format!("{} {}: {what}", self.row.name, self.column.name());
        self.context.timeline.note("drill", text);
    }

    /// One run of the program, with as many of the faults as it survives, and at least one. `None` if
    /// it was done before, and is to be run again.
    fn run_once(&mut self, faults: &[Fault]) -> Result<Option<Vec<Cell>>, Failure> {
        let hosts = self.context.world.hosts();
        let mut running = match Running::start(self.row, self.column, self.amount, hosts)? {
            Ok(running) => running,
            Err(why) => return Ok(Some(vec![Cell::not_run(why)])),
        };
        let mut cells = Vec::new();
        let mut left_in = None;
        for (number, fault) in (1..).zip(faults) {
            match running.wait_steady()? {
                State::Flows => {}
                State::Ended => break,
                State::Nothing => {
                    let why = format!("no traffic: {}", running.fates()?);
                    cells.push(Cell::not_run(why));
                    return Ok(Some(cells));
                }
            }
            let unarmed = self.wait_armed(&mut running, *fault)?;
            if number == 1 {
                self.note_states()?;
            }
            if running.has_ended()? {
                break;
            }
            let lasts = number == faults.len() && self.last_fault_lasts();
            let Some((cell, link)) = self.break_it(&mut running, *fault, unarmed, lasts)? else {
                break;
            };
            left_in = link.map(|link| (*fault, link));
            let survived = cell.has_survived();
            cells.push(cell);
            if !survived {
                drop(running);
                self.context.world.mend()?;
                return Ok(Some(cells));
            }
        }
        running.tell_to_end()?;
        let ending = running.finish(duration(running.row))?;
        if let Some((fault, link)) = left_in {
            self.note("ended while the last fault was there");
            self.take_out(fault, link)?;
        }
        match ending {
            Ok(()) if cells.is_empty() && self.may_repeat() => return Ok(None),
            Ok(()) if cells.is_empty() => cells.push(Cell::not_run("ends before the fault")),
            Err(why) if cells.is_empty() => {
                cells.push(Cell::not_run(format!("ends before the fault: {why}")));
            }
            Err(why) => cells.fill(Cell::broke(format!("ended badly: {why}"))),
            Ok(()) => {}
        }
        Ok(Some(cells))
    }

    /// Whether the last fault is there until the program has ended. perftest says so over a connection of its own (`-R`),
    /// which is silent while data is moved.
    fn last_fault_lasts(&self) -> bool {
        self.row.family == Family::Perftest && self.column != Column::Plain
    }

    /// How the connections are that are about to be broken: those without traffic are armed only if they had their
    /// alternate before they fell silent.
    fn note_states(&self) -> Result<(), Failure> {
        if self.column == Column::Plain {
            return Ok(());
        }
        let found = observe::connections(self.context.world.hosts()[0])?;
        let mut states = BTreeMap::new();
        for one in &found {
            *states.entry(one.protection.as_str()).or_insert(0) += 1;
        }
        let states = states
            .iter()
            .map(|(state, count)| format!("{count} {state}"));
        self.note(&format!(
            "connections: {}",
            states.collect::<Vec<_>>().join(", ")
        ));
        Ok(())
    }

    /// Whether there is another try, with more to do where that can be said: how fast a program is
    /// changes with what else the machine does.
    fn may_repeat(&mut self) -> bool {
        if let Amount::Units(_, most) = self.row.amount {
            self.amount = (self.amount * 3).min(most);
        }
        let more = self.repeats > 0;
        self.repeats = self.repeats.saturating_sub(1);
        more
    }

    /// Waits until the connections that have traffic are armed over separate ports; says what they are
    /// otherwise.
    fn wait_armed(
        &mut self,
        running: &mut Running,
        fault: Fault,
    ) -> Result<Option<String>, Failure> {
        if self.column == Column::Plain {
            return Ok(None);
        }
        let since = Moment::now();
        loop {
            let pairs = self.context.world.pairs()?;
            let waited = Moment::now().since(since);
            let armed = pairs
                .iter()
                .filter(|pair| is_armed_for(pair, fault))
                .count();
            let all = armed == pairs.len() || waited > IDLE;
            if armed >= self.row.connections && all {
                return Ok(None);
            }
            let bound = if pairs.is_empty() { KNOWN } else { ARMED };
            if waited > bound || running.has_ended()? {
                let seen = pairs.first().map_or_else(String::new, Pair::state);
                return Ok(Some(format!("{} connections known {seen}", pairs.len())));
            }
            thread::sleep(LOOK * 10);
        }
    }

    /// Puts the fault in, watches, and takes it out, unless it `lasts` and traffic has resumed: then its link comes with
    /// the result. `None` if the program was at its end just then.
    fn break_it(
        &mut self,
        running: &mut Running,
        fault: Fault,
        unarmed: Option<String>,
        lasts: bool,
    ) -> Result<Option<(Cell, Option<Link>)>, Failure> {
        let usual = running.flow.usual();
        let (link, at) = self.put_in(running, fault)?;
        let broken = Broken {
            at,
            since: Moment::now(),
            usual,
        };
        let remade = self.row.is_of_the_kernel();
        let patience = if remade { OUTAGE } else { WATCH };
        let mut seen = watch(running, &broken, at + patience)?;
        let left_in = (lasts && matches!(seen, Seen::Resumed(_))).then_some(link);
        if left_in.is_none() {
            self.take_out(fault, link)?;
        }
        if remade && matches!(seen, Seen::StandsStill(_)) {
            seen = watch(running, &broken, at + OUTAGE + WATCH)?;
        }
        let cell = match (seen, unarmed) {
            (Seen::Resumed(stall), _) => Cell::of_stall(stall, self.row.tolerates),
            (Seen::Finished, _) => return Ok(None),
            (Seen::Broke(why) | Seen::StandsStill(why), None) => Cell::broke(why),
            (Seen::Broke(why) | Seen::StandsStill(why), Some(state)) => {
                Cell::broke(format!("not armed ({state}): {why}"))
            }
        };
        Ok(Some((cell, left_in)))
    }

    fn put_in(&mut self, running: &Running, fault: Fault) -> Result<(Link, Moment), Failure> {
        let world = &mut *self.context.world;
        let [local, peer] = world.hosts();
        let link = match fault {
            Fault::PeerCable => Link::Port(running.flow.carrying(peer)),
            Fault::Spine => spines::carrying()?,
            _ => Link::Port(running.flow.carrying(local)),
        };
        if fault == Fault::Spine {
            world.stop_subnet_manager()?;
        }
        let at = match fault {
            Fault::BlackHole | Fault::Spine => world.blackhole(link)?,
            _ => world.pull(link)?,
        };
        Ok((link, at))
    }

    fn take_out(&mut self, fault: Fault, link: Link) -> Result<(), Failure> {
        let world = &mut *self.context.world;
        match (fault, link) {
            (Fault::Spine, _) => {
                world.heal(link)?;
                world.start_subnet_manager()
            }
            (Fault::BlackHole, _) => world.heal(link),
            (_, Link::Port(port)) => world.plug(port),
            (_, link) => world.restore(link),
        }
    }
}

/// Whether it has another way around the fault.
fn is_armed_for(pair: &Pair, fault: Fault) -> bool {
    match fault {
        Fault::Spine => pair.shares_nothing(),
        _ => pair.is_disjoint(),
    }
}

/// When a program's traffic was broken.
struct Broken {
    /// When the fault was ordered: no stall begins before.
    at: Moment,
    /// From when on it was there: what came before that has not resumed.
    since: Moment,
    /// What came in a while before.
    usual: u64,
}

/// How a program is seen to take a fault.
enum Seen {
    /// Traffic flows again, after so long.
    Resumed(Millis),
    /// It came to its end, which is good.
    Finished,
    Broke(String),
    /// It has not ended, and nothing flows.
    StandsStill(String),
}

/// Watches until traffic flows again, or is seen not to, at `until` at last.
fn watch(running: &mut Running, broken: &Broken, until: Moment) -> Result<Seen, Failure> {
    let mut qp_look = broken.since;
    loop {
        if running.flow.has_resumed(broken.since, broken.usual) {
            let stall = running.flow.longest_stall(broken.at, broken.usual);
            return Ok(Seen::Resumed(stall));
        }
        if running.has_ended()? {
            return Ok(match running.finish(duration(running.row))? {
                Ok(()) => Seen::Finished,
                Err(why) => Seen::Broke(why),
            });
        }
        let now = Moment::now();
        if now.since(qp_look) > QP_LOOK {
            qp_look = now;
            if !running.row.is_of_the_kernel() && running.a_qp_is_in_error()? {
                thread::sleep(GRACE);
                return Ok(Seen::Broke(format!("QP in error, {}", running.fates()?)));
            }
        }
        if now > until {
            let text = format!("no traffic for {} s", now.since(broken.at).as_secs());
            return Ok(Seen::StandsStill(format!("{text}, {}", running.fates()?)));
        }
        thread::sleep(LOOK);
    }
}
