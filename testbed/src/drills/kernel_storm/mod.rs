// SPDX-License-Identifier: MIT OR Apache-2.0
//! A storm about the kernel module `apm`: connections that come and go by the thousand and are killed, SRP
//! logins, orders and nonsense, flapping cables, the module unloaded and loaded. Nothing may be left of it.
//!
//! - [`churn`], [`logins`]: who connects. [`killed`]: who is to end, and has got right data until then.
//! - [`orders`], [`turns`]: what the module is told while it is there, and when it comes and goes.
//! - [`running`]: how programs are run. [`cables`]: what flaps.
//! - [`census`]: no queue pair comes back from Error; `dead_qps` looks closer.
//! - [`leftovers`]: what must be as before.

mod cables;
mod census;
mod churn;
mod killed;
mod leftovers;
mod logins;
mod orders;
mod running;
mod turns;

use std::thread;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;

use crate::clock::Moment;
use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::ibsim::Dice;
use crate::kernel_module::KernelModule;
use crate::narration::Narration;
use crate::patience;
use crate::program::Program;
use crate::stream::{Options, Streams};
use crate::timeline::Timeline;
use crate::wait::{self, Seen};
use crate::world::Kind;

use self::cables::Cables;
use self::census::Census;
use self::churn::Churn;
use self::leftovers::Before;
use self::logins::Logins;
use self::running::{NICE, SECONDS};
use self::turns::{Told, Turns};
use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "kernel-storm",
    about: "the module apm while 1,000 QPs come, go and are killed, under orders and flaps",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// How long it lasts, and how long the module stays each time, in seconds: at least, and how much longer at most.
struct Length {
    storm: Duration,
    stay: [Duration; 2],
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

const SHORT: Length = Length {
    storm: seconds(20),
    stay: [seconds(6), seconds(3)],
};

const LONG: Length = Length {
    storm: seconds(30 * 60),
    stay: [seconds(10), seconds(40)],
};

/// Queue pairs that have come and gone in the end, however long that takes.
const QUEUE_PAIRS: u64 = 1000;

/// On a very slow machine.
const SLOW: Duration = seconds(600);

/// Between two looks at all that goes on.
const TICK: Duration = Duration::from_millis(50);

/// For what ends.
const LIMIT: Duration = seconds(120);

/// Longer than a cable is out, also where the machine has other things to do.
const ACK_TIMEOUT: u8 = 17;

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    let (length, seed) = (length(context), seed(context)?);
    let text = format!("seed {seed}, {} s", length.storm.as_secs());
    context.timeline.note("drill", text);
    context.report.set("seed", seed);

    command::run(&["one-namespace"])?;
    let logins = Logins::prepare()?;
    let before = Before::look()?;
    let module = KernelModule::load()?;
    let (objects, _) = leftovers::objects()?;
    ensure(objects > 0, || {
        "nobody knows who allocated what: the kernel is to be booted with slub_debug".to_owned()
    })?;
    module.unload()?;
    context.world.start_daemons(Policy {
        log: "error",
        ..Policy::default()
    })?;
    let mut storm = Storm::begin(context, logins, seed, length.stay)?;
    storm.rage(length.storm)?;
    storm.end(objects)?;
    before.compare()?;
    before.judge()
}

fn length(context: &Context<'_>) -> Length {
    match (context.options.minutes, context.options.short) {
        (Some(minutes), _) => Length {
            storm: seconds(60 * u64::from(minutes)),
            ..LONG
        },
        (None, true) => SHORT,
        (None, false) => LONG,
    }
}

/// The choices are the same for the same seed; the moments are not.
fn seed(context: &Context<'_>) -> Result<u64, Failure> {
    if let Some(seed) = context.options.seed {
        return Ok(seed);
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map(|now| u64::from(now.subsec_nanos()))
        .map_err(|error| Failure::not_shown(error.to_string()))
}

/// All that goes on.
struct Storm<'a, 'b> {
    context: &'a mut Context<'b>,
    dice: Dice,
    stream: Streams,
    dead: Program,
    churn: Churn,
    logins: Logins,
    turns: Turns,
    cables: Cables,
    census: Census,
}

impl<'a, 'b> Storm<'a, 'b> {
    fn begin(
        context: &'a mut Context<'b>,
        logins: Logins,
        seed: u64,
        stay: [Duration; 2],
    ) -> Result<Self, Failure> {
        let options = Options {
            interval_us: 20_000,
            ack_timeout: ACK_TIMEOUT,
            ..Options::default()
        };
        // What it is told of each flap would fill the timeline.
        let stream = Streams::start(&Timeline::new(Narration::SILENT), options)?;
        context.world.wait_disjoint(1)?;
        let seed_of_dead = seed.to_string();
        let words = [&NICE[..], &["dead_qps", SECONDS, &seed_of_dead]].concat();
        Ok(Self {
            cables: Cables::new(stream.pids()),
            dead: Program::start("dead_qps", Host::A, &words)?,
            context,
            dice: Dice::new(seed),
            stream,
            churn: Churn::default(),
            logins,
            turns: Turns::new(stay),
            census: Census::new(),
        })
    }

    /// At least so long, until enough has come and gone, and the module has gone last.
    fn rage(&mut self, at_least: Duration) -> Result<(), Failure> {
        let began = Moment::now();
        loop {
            self.go_on()?;
            let time = Moment::now().since(began);
            let tally = self.turns.tally();
            let (ended, moved) = (tally.ended(), tally.moved_idle());
            let enough = ended >= QUEUE_PAIRS && moved > 0 && self.turns.counts().0 > 1;
            if time > at_least && enough && self.turns.is_absent() {
                return Ok(());
            }
            ensure(enough || time < at_least + patience::limit(SLOW), || {
                let time = time.as_secs();
                format!("only {ended} queue pairs in {time} s, {moved} moves of idle ones")
            })?;
            thread::sleep(TICK);
        }
    }

    fn go_on(&mut self) -> Result<(), Failure> {
        self.stream.ensure_healthy()?;
        self.dead.ensure_running()?;
        self.churn.go_on(&mut self.dice)?;
        self.logins.go_on(&mut self.dice)?;
        self.cables.go_on(&self.context.timeline, &mut self.dice)?;
        self.census.go_on()?;
        match self.turns.go_on(&mut self.dice)? {
            Told::Nothing => Ok(()),
            Told::Leaves => self.logins.interrupt(),
            Told::LeavesAtOnce => {
                self.logins.interrupt()?;
                self.churn.kill_all()
            }
            Told::Gone => {
                let text = "module unloaded while connections come and go";
                self.context.timeline.note("drill", text);
                Ok(())
            }
        }
    }

    /// When things are calm the stream is armed again, and all that was there for the storm goes; also, before
    /// the module, what that had of it.
    fn end(mut self, objects: u64) -> Result<(), Failure> {
        let module = KernelModule::load()?;
        self.logins.interrupt()?;
        self.churn.kill_all()?;
        wait::until(
            "programs that were killed and the last fault end",
            LIMIT,
            || {
                let gone =
                    self.churn.are_gone()? & self.logins.are_gone()? & self.cables.is_calm()?;
                Ok(Seen::when(gone, || "some are there".to_owned()))
            },
        )?;
        self.context.world.mend()?;
        self.logins.begin_last()?;
        wait::until("the last login ends", LIMIT, || {
            let gone = self.logins.are_gone()?;
            Ok(Seen::when(gone, || "it is there".to_owned()))
        })?;
        wait::until("the stream is armed again", LIMIT, || {
            self.stream.ensure_healthy()?;
            let pair = self.cables.pair()?;
            let armed = pair.as_ref().is_some_and(|pair| pair.is_disjoint());
            Ok(Seen::when(armed, || {
                pair.map_or_else(|| "not known".to_owned(), |pair| pair.state())
            }))
        })?;
        self.dead.signal(Signal::SIGTERM)?;
        let status = self.dead.wait(LIMIT)?;
        let said: Vec<_> = self
            .dead
            .lines()
            .into_iter()
            .map(|line| line.text)
            .collect();
        ensure(status.success(), || {
            format!("dead_qps: {}", said.join("; "))
        })?;
        self.context.timeline.note("dead_qps", said.join("; "));
        self.tell();
        let Self {
            context, stream, ..
        } = self;
        context.finish(stream)?;
        context.world.stop_daemons()?;
        leftovers::wait_for_objects(objects)?;
        module.unload()
    }

    /// The figures.
    fn tell(&mut self) {
        let report = &mut *self.context.report;
        self.turns.tally().report(report);
        let (programs, kills) = self.churn.counts();
        let (flaps, under_the_stream) = self.cables.counts();
        let (unloads, busy) = self.turns.counts();
        let figures = [
            ("qps_at_once", self.census.most() as u64),
            ("programs", programs),
            ("kills", kills),
            ("logins", self.logins.count()),
            ("flaps", flaps),
            ("flaps_under_the_stream", under_the_stream),
            ("unloads", unloads),
            ("unloads_refused", busy),
        ];
        for (key, count) in figures {
            report.set(key, count);
        }
        let all: Vec<_> = report
            .more
            .iter()
            .map(|(key, value)| format!("{key} {value}"))
            .collect();
        self.context.timeline.note("drill", all.join(", "));
    }
}
