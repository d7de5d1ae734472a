// SPDX-License-Identifier: MIT OR Apache-2.0
//! Model checking: two real engines, and every order of what can happen between them within bounds.
//!
//! A state is the two engines, two QPs with IBA's rules, the orders and reports under way in both hosts,
//! the MADs under way between them, and what may still go wrong. Each host has a clock of its own that
//! moves when a timer runs out, so that all relations between timeouts occur. Where more than the rules of
//! `rules.rs` are to hold, it is looked at what every state comes to in the end (`calm.rs`).
//!
//! `MODEL_FAULTS=n` adds `n` to every bound of what may go wrong, `MODEL_DEPTH=n` sets how long traces are,
//! `MODEL_SETTING=name` searches one setting, `MODEL_SHOW=1` shows what breaks a rule step by step.

mod calm;
mod fingerprint;
mod forger;
mod guards;
mod host;
mod network;
#[allow(dead_code, reason = "the scenarios use more of it")]
#[path = "../../tests/scenarios/pair/qp.rs"]
mod qp;
mod rules;
mod settings;
mod world;

use std::io::Write as _;
use std::string::String;
use std::time::Instant;
use std::vec;
use std::vec::Vec;

use stateright::{Checker, HasDiscoveries, Model, Property};

use self::network::is_reverse;
use self::rules::Rule;
use self::settings::Setting;
use self::world::{Action, World};
use crate::guard::Guard;

/// A setting, perhaps with a check left out.
#[derive(Clone, Debug)]
struct Checked {
    setting: Setting,
    removed: Option<Guard>,
}

fn keeps<const RULE: usize>(_: &Checked, world: &World) -> bool {
    world.broken != Some(Rule::ALL[RULE])
}

fn becomes_armed(_: &Checked, world: &World) -> bool {
    world.broken.is_some() || world.clone().run_calmly().is_ok()
}

fn becomes_true(_: &Checked, world: &World) -> bool {
    world.broken.is_some() || world.clone().run_to_truth().is_ok()
}

impl Model for Checked {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.setting.world(self.removed)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_none() {
            world.actions(actions);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut world = world.clone();
        world.happen(action);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let keeps: [fn(&Self, &World) -> bool; Rule::ALL.len()] = [
            keeps::<0>,
            keeps::<1>,
            keeps::<2>,
            keeps::<3>,
            keeps::<4>,
            keeps::<5>,
            keeps::<6>,
            keeps::<7>,
            keeps::<8>,
            keeps::<9>,
            keeps::<10>,
            keeps::<11>,
            keeps::<12>,
        ];
        let rules = Rule::ALL.iter().zip(keeps);
        let mut properties: Vec<_> = rules
            .map(|(rule, keeps)| Property::always(rule.name(), keeps))
            .collect();
        properties.push(Property::always(
            "1, 4, 7: in a calm both ends become armed, or forget what was closed",
            becomes_armed,
        ));
        properties.push(Property::always(
            "1: in a calm no end is shown as armed that is not",
            becomes_true,
        ));
        properties
    }
}

/// What a search came to.
struct Outcome {
    states: usize,
    steps: usize,
    depth: usize,
    /// The rule that was broken, and how.
    broken: Option<(&'static str, Vec<Action>, World)>,
}

fn search(setting: &Setting, removed: Option<Guard>) -> Outcome {
    let checked = Checked {
        setting: setting.clone(),
        removed,
    };
    let checker = checked
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures);
    // The first state is at depth 1.
    let checker = checker.target_max_depth(setting.depth + 1);
    // Breadth first: what is found is as short as can be.
    let checker = checker.spawn_bfs().join();
    let mut found: Vec<_> = checker.discoveries().into_iter().collect();
    found.sort_by_key(|(name, path)| (path.clone().into_actions().len(), *name));
    let broken = found.into_iter().next().map(|(name, path)| {
        let world = path.last_state().clone();
        (name, path.into_actions(), world)
    });
    Outcome {
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        broken,
    }
}

/// Past the test harness, which keeps what passing tests print to itself.
fn say(text: &str) {
    let line = std::format!("{text}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Says step by step what happens, and what is under way then.
fn show(setting: &Setting, removed: Option<Guard>, actions: &[Action]) {
    let mut world = setting.world(removed);
    for &action in actions {
        let mads: Vec<_> = world
            .mads
            .iter()
            .map(|mad| (mad.to, mad.message.name()))
            .collect();
        say(&std::format!("{mads:?}\n  {action:?}"));
        world.happen(action);
    }
}

fn describe(
    setting: &Setting,
    removed: Option<Guard>,
    broken: &(&'static str, Vec<Action>, World),
) -> String {
    let (name, actions, world) = broken;
    if std::env::var_os("MODEL_SHOW").is_some() {
        show(setting, removed, actions);
    }
    let ends = [world.clone().run_calmly(), world.clone().run_to_truth()];
    let mut end = world.clone();
    let _ = if ends[0].is_err() {
        end.run_calmly()
    } else {
        end.run_to_truth()
    };
    let ends_as = end.hosts.each_ref().map(|host| {
        let path = |path: cm_msgs::path::Path| (path.slid.0, path.dlid.0);
        let views: Vec<_> = host.engine.connections(host.now).collect();
        let views = views
            .iter()
            .map(|view| (view.protection, view.reason, view.association.state));
        let views: Vec<_> = views.collect();
        (
            host.qp.migration,
            path(host.qp.primary),
            host.qp.alternate.map(path),
            views,
        )
    });
    let rule = end.broken.map(Rule::name);
    std::format!(
        "broken: {name}\n  by {actions:?}\n  in a calm: {ends:?}, {rule:?}\n  {ends_as:#x?}"
    )
}

#[test]
fn every_invariant_holds_in_every_setting() {
    let mut states = 0;
    let begun = Instant::now();
    let only = std::env::var("MODEL_SETTING").ok();
    for setting in Setting::all() {
        if only.as_ref().is_some_and(|only| only != setting.name) {
            continue;
        }
        let start = Instant::now();
        let outcome = search(&setting, None);
        states += outcome.states;
        say(&std::format!(
            "model: {:<24} {:>8} states, {:>9} steps, depth {:>2}, {:.1} s",
            setting.name,
            outcome.states,
            outcome.steps,
            outcome.depth,
            start.elapsed().as_secs_f64(),
        ));
        if let Some(broken) = &outcome.broken {
            panic!("{}: {}", setting.name, describe(&setting, None, broken));
        }
        assert!(
            outcome.states > 100,
            "{}: hardly anything happens",
            setting.name
        );
    }
    say(&std::format!(
        "model: {states} states in all, {:.1} s; every invariant holds",
        begun.elapsed().as_secs_f64()
    ));
}
