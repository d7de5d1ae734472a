// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apm-drill`: the command line, and which part of which drill runs when.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use serde_json::json;

use crate::clock::Moment;
use crate::command;
use crate::drills::{self, Context, Drill, Options};
use crate::failure::Failure;
use crate::narration::Narration;
use crate::report::Report;
use crate::timeline::Timeline;
use crate::world::{Kind, World};

/// Exit status for a command line that makes no sense.
const USAGE: u8 = 2;

/// Lines of each daemon's log that a failure shows.
const LOG_LINES: usize = 40;

/// Breaks things in the VM while programs run, and judges whether they noticed.
///
/// Ends with `NAME: ok` or `NAME: FAILED: why` for each drill. With --json stdout has nothing but an
/// object for each drill, when it has ended; the rest is on stderr. Exit status: 0 all ok, 1 otherwise,
/// 2 usage.
#[derive(Parser)]
#[command(name = "apm-drill", version)]
struct Arguments {
    /// Drills to run
    #[arg(value_name = "NAME", default_value = drills::DEFAULT, value_parser = find)]
    names: Vec<&'static str>,
    /// List the drills
    #[arg(long)]
    list: bool,
    /// One JSON object a drill on stdout, what happens on stderr
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

fn find(name: &str) -> Result<&'static str, String> {
    Drill::find(name).map(|drill| drill.name).ok_or_else(|| {
        let names: Vec<_> = drills::ALL.iter().map(|drill| drill.name).collect();
        format!("no such drill; there are: {}", names.join(", "))
    })
}

/// The program: everything but the process's exit.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nothing is left to do if the terminal is gone.
            drop(error.print());
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    if arguments.list {
        print!("{}", list(arguments.json));
        return ExitCode::SUCCESS;
    }
    let chosen: Vec<_> = arguments
        .names
        .iter()
        .filter_map(|name| Drill::find(name))
        .collect();
    let narration = Narration::new(arguments.json, arguments.options.quiet);
    let reports = run(&chosen, &arguments.options, narration, |report| {
        if arguments.json {
            let json = report.json();
            println!("{}", json.unwrap_or_else(|error| error.to_string()));
        }
    });
    for report in &reports {
        narration.say(report.verdict());
    }
    if reports.iter().all(|report| report.ok) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn list(json: bool) -> String {
    let line = |drill: &Drill| {
        let worlds = drill.worlds();
        if json {
            json!({"drill": drill.name, "world": worlds, "about": drill.about}).to_string() + "\n"
        } else {
            format!("{:<16} {worlds:<10} {}\n", drill.name, drill.about)
        }
    };
    drills::ALL.iter().map(line).collect()
}

/// A drill under way.
struct Run<'a> {
    drill: &'static Drill,
    options: &'a Options,
    narration: Narration,
    timeline: Timeline,
    report: Report,
    seconds: f64,
    failure: Option<Failure>,
}

impl<'a> Run<'a> {
    fn new(drill: &'static Drill, options: &'a Options, narration: Narration) -> Self {
        let report = Report {
            drill: drill.name.to_owned(),
            world: drill.worlds(),
            ..Report::default()
        };
        Self {
            drill,
            options,
            narration,
            timeline: Timeline::new(narration),
            report,
            seconds: 0.0,
            failure: None,
        }
    }

    /// Runs its part for `kind`, if it has one and has not failed before.
    fn run(&mut self, kind: Kind) {
        let Some(part) = self.drill.part(kind) else {
            return;
        };
        if self.failure.is_some() {
            return;
        }
        let title = format!("== {} ({})", self.drill.name, kind.name());
        self.narration
            .say(format_args!("{title}: {}", self.drill.about));
        let mut world = match World::prepare(kind, &self.timeline) {
            Ok(world) => world,
            Err(failure) => {
                self.failure = Some(failure);
                return;
            }
        };
        let mut context = Context {
            world: &mut world,
            timeline: self.timeline.clone(),
            options: self.options,
            report: &mut self.report,
        };
        let began = Moment::now();
        let result = (part.run)(&mut context);
        let time = Moment::now().since(began).as_secs_f64();
        self.seconds += time;
        self.narration.say(format_args!("{title}: {time:.0} s"));
        if let Err(failure) = result {
            explain(self.narration, &failure, &world);
            self.failure = Some(failure);
        }
    }

    fn finish(mut self) -> Report {
        self.report.ok = self.failure.is_none();
        if let Some(failure) = &self.failure {
            self.report.set("why", failure.to_string());
        }
        self.report.set("seconds", self.seconds.round());
        self.report.timeline = self.timeline.entries();
        self.report
    }
}

/// Runs the drills' parts, by their worlds, hands a report to `done` after each drill's last part, and
/// returns them in the drills' order.
fn run(
    chosen: &[&'static Drill],
    options: &Options,
    narration: Narration,
    mut done: impl FnMut(&Report),
) -> Vec<Report> {
    let mut runs: Vec<Option<Run<'_>>> = chosen.iter().map(|_| None).collect();
    let mut reports: Vec<Option<Report>> = chosen.iter().map(|_| None).collect();
    for kind in Kind::ALL {
        for ((slot, report), drill) in runs.iter_mut().zip(&mut reports).zip(chosen) {
            if drill.part(kind).is_none() {
                continue;
            }
            slot.get_or_insert_with(|| Run::new(drill, options, narration))
                .run(kind);
            if drill.last_world() == Some(kind)
                && let Some(run) = slot.take()
            {
                done(report.insert(run.finish()));
            }
        }
    }
    reports.into_iter().flatten().collect()
}

/// Whether OpenSM runs, where its threads wait, and what it said last.
const OPENSM: &str = "for pid in $(pidof opensm); do \
     echo \"opensm $pid\"; cat /proc/$pid/task/*/wchan | tr '\\0' ' '; echo; done; \
     tail -n 30 /var/log/opensm.log";

/// Says what helps to see why a drill failed.
fn explain(narration: Narration, failure: &Failure, world: &World) {
    let show = |words: &[&str]| show(narration, words);
    narration.say(format_args!("-- {failure}"));
    for host in world.hosts() {
        narration.say(format_args!("-- the end of {host}'s log"));
        for line in world.log_tail(host, LOG_LINES) {
            narration.say(line);
        }
        show(&[host.name(), "apmctl", "conn", "show"]);
        show(&[host.name(), "apmctl", "port", "show"]);
        show(&[host.name(), "ip", "addr"]);
        show(&[host.name(), "ip", "route"]);
        show(&[host.name(), "ip", "neigh"]);
        show(&[host.name(), "rdma", "res", "show", "qp"]);
        show(&[host.name(), "rdma", "res", "show", "cm_id"]);
    }
    show(&["cable", "show"]);
    show(&["sh", "-c", OPENSM]);
}

/// Says what a command says.
fn show(narration: Narration, words: &[&str]) {
    narration.say(format_args!("-- {}", words.join(" ")));
    match command::attempt(words) {
        Ok(output) => {
            for said in [output.stdout, output.stderr] {
                narration.say(String::from_utf8_lossy(&said).trim_end());
            }
        }
        Err(failure) => narration.say(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(std::iter::once(&"apm-drill").chain(words))
    }

    #[test]
    fn cable_pull_is_the_default() {
        let names = parse(&[])
            .map(|arguments| arguments.names)
            .unwrap_or_default();
        assert_eq!(names, ["cable-pull"]);
    }

    #[test]
    fn names_are_checked() {
        let arguments = parse(&["--json", "no-daemon", "blackhole"]).expect("both exist");
        assert!(arguments.json);
        assert_eq!(arguments.names, ["no-daemon", "blackhole"]);
        let error = parse(&["cable-pul"])
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(
            error.contains("no such drill; there are: cable-pull, "),
            "{error}"
        );
    }

    #[test]
    fn the_list_has_a_line_a_drill() {
        let text = list(false);
        assert_eq!(text.lines().count(), drills::ALL.len());
        assert!(text.starts_with("cable-pull       flat       "), "{text}");
        for line in list(true).lines() {
            let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert!(object["drill"].is_string() && object["about"].is_string());
        }
    }
}
