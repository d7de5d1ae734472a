// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machines' states and what leads from one to the next, as seen while they run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use cm_msgs::control::{Cause, Role};
use statemachine::view::ConnectionView;
use statemachine::{ConnId, Engine, Input, Time};

/// What of a connection has states.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Machine {
    Association,
    Protection,
}

const MACHINES: [Machine; 2] = [Machine::Association, Machine::Protection];

/// One side's machine.
type Part = (bool, Machine);

/// From a state to another.
type Step = (String, String);

/// Steps that machines made, and upon what.
#[derive(Clone, Default, Debug)]
pub struct Transitions(BTreeMap<Part, BTreeMap<Step, BTreeSet<String>>>);

/// A host's connections at a moment.
pub(super) struct Before(Vec<ConnectionView>);

impl Before {
    pub(super) fn new(engine: &Engine, now: Time) -> Self {
        Self(engine.connections(now).collect())
    }

    fn of(&self, id: ConnId) -> Option<&ConnectionView> {
        self.0.iter().find(|view| view.id == id)
    }
}

impl Transitions {
    /// What became of a host's connections by one input.
    pub(super) fn note(&mut self, before: &Before, upon: &str, engine: &Engine, now: Time) {
        for after in engine.connections(now) {
            let before = before.of(after.id).filter(|view| view.role == after.role);
            for machine in MACHINES {
                let from = before.map_or("[*]".to_owned(), |view| state(machine, view));
                let to = state(machine, &after);
                if from != to {
                    let part = (after.role == Role::Active, machine);
                    let steps = self.0.entry(part).or_default();
                    let causes = steps.entry((from, to)).or_default();
                    causes.insert(upon.to_owned());
                }
            }
        }
    }

    /// These as well.
    pub fn add(&mut self, others: Self) {
        for (part, steps) in others.0 {
            let mine = self.0.entry(part).or_default();
            for (step, causes) in steps {
                mine.entry(step).or_default().extend(causes);
            }
        }
    }

    /// Those that the text of a page does not show.
    pub fn missing_in(&self, page: &str) -> Vec<String> {
        let mut missing = Vec::new();
        for (&part, steps) in &self.0 {
            let section = page
                .split_once(&*heading(part))
                .map_or("", |(_, rest)| rest);
            let (diagram, _) = section.split_once("```\n").unwrap_or((section, ""));
            let edges = steps.iter().map(Edge::new);
            let edges = edges.filter(|edge| !edge.is_in(diagram));
            missing.extend(edges.map(|edge| edge.to_string()));
        }
        missing
    }
}

fn heading((active, machine): Part) -> String {
    let side = if active { "Active" } else { "Passive" };
    let what = match machine {
        Machine::Association => "the association",
        Machine::Protection => "protection",
    };
    format!("### {side} side: {what}\n\n```mermaid\nstateDiagram-v2\n")
}

fn state(machine: Machine, view: &ConnectionView) -> String {
    match machine {
        Machine::Association => view.association.state.to_string(),
        // A word of Mermaid's has no brackets.
        Machine::Protection => view
            .protection
            .to_string()
            .replace(" (", "_")
            .replace(')', ""),
    }
}

struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    causes: &'a BTreeSet<String>,
}

impl<'a> Edge<'a> {
    fn new(((from, to), causes): (&'a Step, &'a BTreeSet<String>)) -> Self {
        Self { from, to, causes }
    }

    fn prefix(&self) -> String {
        format!("{} --> {}: ", self.from, self.to)
    }

    /// Whether a diagram has it, with all that it came upon.
    fn is_in(&self, diagram: &str) -> bool {
        let prefix = self.prefix();
        let mut lines = diagram.lines();
        let causes = lines.find_map(|line| line.trim().strip_prefix(&*prefix));
        causes.is_some_and(|causes| {
            let causes: Vec<&str> = causes.split(", ").collect();
            self.causes.iter().all(|cause| causes.contains(&&**cause))
        })
    }
}

impl fmt::Display for Edge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causes: Vec<&str> = self.causes.iter().map(|cause| &**cause).collect();
        write!(f, "{}{}", self.prefix(), causes.join(", "))
    }
}

/// Mermaid, in Markdown.
impl fmt::Display for Transitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (&part, steps) in self.0.iter().rev() {
            f.write_str(&heading(part))?;
            for edge in steps.iter().map(Edge::new) {
                writeln!(f, "    {edge}")?;
            }
            writeln!(f, "```\n")?;
        }
        Ok(())
    }
}

/// What happened, in a word or two.
pub(super) fn word(input: &Input) -> String {
    match input {
        Input::Timeout => "time",
        Input::Port(..) => "port",
        Input::Register(..) => "registered",
        Input::Refused(..) => "refused",
        Input::Close(_) | Input::Disconnect(_) | Input::ClientGone(_) => "closed",
        Input::Mad(_, message) => message.name(),
        Input::Paths { result: Ok(_), .. } => "paths",
        Input::Paths { .. } => "no path",
        Input::Crowded(_) => "crowded port",
        Input::Probed(..) => "probe",
        Input::MovesIdle(_) => "moves idle",
        Input::Assessed { .. } => "assessed",
        Input::FabricChanged => "fabric",
        Input::Notice(..) => "notice",
        Input::Policy(..) => "policy",
        Input::Command(..) => "operator",
        Input::Drain(..) => "drain",
        Input::Report(_, report) => match report.cause {
            Cause::Query { .. } => "queried",
            Cause::Changed => "QP changed",
            Cause::PathMigrated => "PATH_MIG",
            Cause::PathMigrationError => "PATH_MIG_ERR",
            Cause::Armed => "QP armed",
            Cause::Done { .. } => "order done",
            Cause::Stale { .. } => "order stale",
            Cause::Failed { .. } => "order failed",
            Cause::Broken => "QP broken",
            Cause::StandingOrder => "standing order",
        },
    }
    .to_owned()
}
