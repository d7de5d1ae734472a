// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cases, what was measured of each, and its goal.

use serde_json::{Value, json};
use testbed::sim::fabric::Failure;
use testbed::sim::world::rearm::{
    NeverArmed, Policy, Trial, Which, time_without_protection, times_of_many,
};

use crate::yes_no;

/// Hosts that one host has connections to, where there are many: more paths than it can probe each second.
const MANY: usize = 433;

/// Between two probes of a path.
const PROBE_INTERVAL_MS: f64 = 1_000.0;

/// One failure, and the weather in which it comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    side: usize,
    which: Which,
    failure: Failure,
    /// MADs lost, of a thousand.
    loss: u32,
    peers: usize,
}

impl Case {
    /// Either side, primary or alternate, pulled or black-holed, clean and with every tenth MAD lost.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for loss in [0, 100] {
            for failure in [Failure::Dead, Failure::BlackHole] {
                for side in [0, 1] {
                    for which in [Which::Primary, Which::Alternate] {
                        all.push(Self {
                            side,
                            which,
                            failure,
                            loss,
                            peers: 1,
                        });
                    }
                }
            }
        }
        all
    }

    /// Black holes again, where one host has connections to many.
    pub(crate) fn of_many() -> impl Iterator<Item = Self> {
        let all = Self::all().into_iter();
        let holes = all.filter(|case| case.failure == Failure::BlackHole && case.loss == 0);
        holes.map(|case| Self {
            peers: MANY,
            ..case
        })
    }

    /// A port event tells of a pulled cable. Of a black hole only probing can, which may take an
    /// interval.
    fn goal_ms(self) -> f64 {
        match (self.failure, self.loss) {
            (Failure::Dead, 0) => 100.0,
            (Failure::Dead, _) => 1_000.0,
            _ => PROBE_INTERVAL_MS + 1_000.0,
        }
    }

    fn name(self) -> String {
        let side = ["active", "passive"][self.side];
        let which = match self.which {
            Which::Primary => "primary",
            Which::Alternate => "alternate",
        };
        let failure = match self.failure {
            Failure::Dead => "pulled",
            _ => "black-holed",
        };
        match self.peers {
            1 => format!("{side}'s {which} {failure}"),
            peers => format!("{side}'s {which}, {peers} peers"),
        }
    }

    fn trial(self, policy: Policy, seed: u64) -> Trial {
        let Self {
            side,
            which,
            failure,
            loss,
            peers,
        } = self;
        Trial {
            policy,
            seed,
            side,
            which,
            failure,
            loss,
            peers,
        }
    }
}

/// What was measured.
pub(crate) struct Figures {
    case: Case,
    seeds: u64,
    /// In order. `None`: never again, and last.
    times: Vec<Option<f64>>,
}

impl Figures {
    pub(crate) const HEAD: &'static str = "CASE                              LOSS   P50 ms   P99 ms  NEVER  GOAL ms  MET   UEK P50  UEK P99  NEVER";

    pub(crate) fn measure(case: Case, policy: Policy, seeds: u64) -> Result<Self, NeverArmed> {
        let mut times = Vec::new();
        for seed in 0..seeds {
            let time = match time_without_protection(&case.trial(policy, seed)) {
                // A lost APR is enough: the repeated LAP is rejected as known, and nobody asks again.
                Err(_) if policy == Policy::Uek => None,
                time => time?,
            };
            times.push(time.map(|us| us as f64 / 1e3));
        }
        Ok(Self::new(case, seeds, times))
    }

    /// The same of a case with many peers. With the active side's port many connections lose their path at once.
    pub(crate) fn measure_many(case: Case, seeds: u64) -> Result<Self, NeverArmed> {
        let seeds = seeds.div_ceil(if case.side == 0 { 60 } else { 10 });
        let mut times = Vec::new();
        for seed in 0..seeds {
            let all = times_of_many(&case.trial(Policy::Apmd, seed))?;
            times.extend(all.into_iter().map(|time| time.map(|us| us as f64 / 1e3)));
        }
        Ok(Self::new(case, seeds, times))
    }

    fn new(case: Case, seeds: u64, mut times: Vec<Option<f64>>) -> Self {
        times.sort_by(|a, b| {
            let value = |time: &Option<f64>| time.unwrap_or(f64::INFINITY);
            value(a).total_cmp(&value(b))
        });
        Self { case, seeds, times }
    }

    /// The time that so many of a hundred do not exceed, by the nearest rank.
    fn percentile(&self, percent: usize) -> Option<f64> {
        let rank = (self.times.len() * percent).div_ceil(100).max(1);
        self.times.get(rank - 1).copied().flatten()
    }

    fn never(&self) -> usize {
        self.times.iter().filter(|time| time.is_none()).count()
    }

    pub(crate) fn met(&self) -> bool {
        self.percentile(99)
            .is_some_and(|p99| p99 < self.case.goal_ms())
    }

    /// `beside`: of UEK's schedule.
    pub(crate) fn json(&self, beside: Option<&Self>) -> Value {
        let uek = beside.map(|beside| {
            json!({
                "p50_ms": beside.percentile(50), "p99_ms": beside.percentile(99), "never": beside.never(),
            })
        });
        json!({
            "case": self.case.name(), "mad_loss_percent": self.case.loss / 10, "seeds": self.seeds,
            "p50_ms": self.percentile(50), "p99_ms": self.percentile(99), "never": self.never(),
            "goal_ms": self.case.goal_ms(), "met": self.met(), "uek": uek,
        })
    }

    pub(crate) fn line(&self, beside: Option<&Self>) -> String {
        let uek = beside.map(|beside| {
            format!(
                "{:>8} {:>8} {:>6}",
                shown(beside.percentile(50)),
                shown(beside.percentile(99)),
                beside.never()
            )
        });
        format!(
            "{:<32} {:>4} % {:>8} {:>8} {:>6} {:>8.0}  {:<4} {}",
            self.case.name(),
            self.case.loss / 10,
            shown(self.percentile(50)),
            shown(self.percentile(99)),
            self.never(),
            self.case.goal_ms(),
            yes_no(self.met()),
            uek.unwrap_or_default(),
        )
    }
}

fn shown(time: Option<f64>) -> String {
    time.map_or_else(|| "never".to_owned(), |time| format!("{time:.0}"))
}
