// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was measured, and what it is judged by.
//!
//! Each round has a figure of each state, so a round has a ratio: what the machine did meanwhile meets both.
//! Of all ratios the median is shown, and between which two of them the true one is, with 95 %: so many
//! of either end can be left out, and no more, that a coin thrown once for each round would fall on one side
//! as rarely (a sign test). Nothing is supposed of how the noise is distributed. The goal is missed if the
//! true ratio is above it so surely, met if it is below, and in between the run cannot say.

use serde_json::{Value, json};

use super::state::State;
use crate::bench::Conclusion;
use crate::clock::{Millis, median};

/// What anything may take with the module at most, by what it takes without.
const AT_MOST: f64 = 1.03;

/// How rarely the true ratio may be outside of the interval.
const DOUBT: f64 = 0.05;

/// What is measured, as a time: less is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Measure {
    /// cmtime's steps from the first id made to the last one destroyed, in ms.
    All,
    /// Its step `connect`, in ms.
    Connect,
    /// A message's way, in us.
    Latency,
    /// Of the bandwidth: us for a MiB.
    Transfer,
}

impl Measure {
    pub(super) const ALL: [Self; 4] = [Self::All, Self::Connect, Self::Latency, Self::Transfer];

    fn name(self) -> &'static str {
        match self {
            Self::All => "connect and disconnect",
            Self::Connect => "connect",
            Self::Latency => "latency",
            Self::Transfer => "transfer",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::All | Self::Connect => "ms",
            Self::Latency | Self::Transfer => "us",
        }
    }
}

/// What was measured in one state of a round, in the order of [`Measure::ALL`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Sample(pub(super) [f64; 4]);

impl Sample {
    fn of(&self, measure: Measure) -> f64 {
        let at = Measure::ALL.iter().position(|one| *one == measure);
        at.map_or(f64::NAN, |at| self.0[at])
    }
}

/// A sample of each state, in the order of [`State::ROUND`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Round(pub(super) [Sample; 4]);

impl Round {
    fn of(&self, state: State) -> Sample {
        let at = State::ROUND.iter().position(|one| *one == state);
        self.0[at.unwrap_or(0)]
    }

    fn ratio(&self, state: State, measure: Measure) -> f64 {
        self.of(state).of(measure) / self.of(State::Bare).of(measure)
    }

    pub(super) fn text(&self) -> String {
        let sample = |state: State| {
            let figures = Measure::ALL.map(|measure| {
                let figure = self.of(state).of(measure);
                format!("{} {figure:.1} {}", measure.name(), measure.unit())
            });
            format!("{:17} {}", state.name(), figures.join(", "))
        };
        State::ROUND.map(sample).join("\n")
    }

    pub(super) fn json(&self) -> String {
        let sample = |state: State| {
            let figures = Measure::ALL.map(|measure| {
                let name = format!("{}_{}", measure.name().replace(' ', "_"), measure.unit());
                let figure = Millis(self.of(state).of(measure)).rounded();
                (name, Value::from(figure))
            });
            let figures = Value::Object(figures.into_iter().collect());
            (state.name().to_owned(), figures)
        };
        let states: serde_json::Map<_, _> = State::ROUND.map(sample).into_iter().collect();
        json!({"bench": "overhead", "round": states}).to_string()
    }
}

/// What can be said of a ratio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Met,
    Missed,
    /// The spread is too wide for either.
    Undecided,
}

impl Said {
    fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::Undecided => "undecided: the ratios spread too wide",
        }
    }
}

/// The ratios of all rounds, of one state and measure.
struct Judged {
    state: State,
    measure: Measure,
    median: f64,
    /// Where the true ratio is; without end where there were too few rounds.
    interval: [f64; 2],
}

impl Judged {
    fn on(rounds: &[Round], state: State, measure: Measure) -> Self {
        let mut ratios: Vec<_> = rounds
            .iter()
            .map(|round| round.ratio(state, measure))
            .collect();
        ratios.sort_by(f64::total_cmp);
        let interval = match left_out(ratios.len()) {
            Some(count) => [ratios[count], ratios[ratios.len() - 1 - count]],
            None => [0.0, f64::INFINITY],
        };
        Self {
            state,
            measure,
            median: median(ratios.into_iter().map(Millis)).0,
            interval,
        }
    }

    fn said(&self) -> Said {
        let [low, high] = self.interval;
        if low > AT_MOST || self.median.is_nan() {
            Said::Missed
        } else if high <= AT_MOST {
            Said::Met
        } else {
            Said::Undecided
        }
    }

    /// Of the control, whose two sides are the same: that they differ is the run's own doing.
    fn is_disturbed(&self) -> bool {
        let [low, high] = self.interval;
        self.state == State::Control && (low > AT_MOST || high < 1.0 / AT_MOST)
    }

    fn text(&self) -> String {
        let [low, high] = self.interval;
        let said = match self.state {
            State::Control if self.is_disturbed() => "control: DISTURBED, the run says nothing",
            State::Control => "control",
            _ => self.said().word(),
        };
        format!(
            "{:17} {:22} {:.3} ({low:.3} to {high:.3})  {said}",
            self.state.name(),
            self.measure.name(),
            self.median
        )
    }

    fn json(&self) -> Value {
        let rounded = |ratio: f64| (ratio * 1000.0).round() / 1000.0;
        let said = match (self.state, self.said()) {
            (State::Control, _) if self.is_disturbed() => "disturbed",
            (State::Control, _) => "control",
            (_, Said::Met) => "met",
            (_, Said::Missed) => "missed",
            (_, Said::Undecided) => "undecided",
        };
        json!({
            "state": self.state.name(),
            "measure": self.measure.name(),
            "ratio": rounded(self.median),
            "between": self.interval.map(rounded),
            "said": said,
        })
    }
}

/// How many of either end can be left out of so many ratios, sorted; none if there are too few for any
/// interval.
fn left_out(rounds: usize) -> Option<usize> {
    // Of all 2^n ways in which the ratios may be above or below the true one, the share of those with at most
    // k above: that is the doubt on either side.
    let mut ways = 0.5_f64.powi(i32::try_from(rounds).unwrap_or(i32::MAX));
    let mut doubt = 0.0;
    let mut count = None;
    for above in 0..rounds / 2 {
        doubt += ways;
        if 2.0 * doubt > DOUBT {
            break;
        }
        count = Some(above);
        ways *= (rounds - above) as f64 / (above + 1) as f64;
    }
    count
}

/// The verdict on all rounds.
pub(super) struct Verdict {
    rounds: usize,
    judged: Vec<Judged>,
}

impl Verdict {
    pub(super) fn on(rounds: &[Round]) -> Self {
        let states = State::ROUND.into_iter().filter(|it| *it != State::Bare);
        let of = |state| Measure::ALL.map(|measure| Judged::on(rounds, state, measure));
        Self {
            rounds: rounds.len(),
            judged: states.flat_map(of).collect(),
        }
    }
}

impl Conclusion for Verdict {
    fn json(&self) -> String {
        let goals: Vec<_> = self.judged.iter().map(Judged::json).collect();
        json!({
            "bench": "overhead",
            "rounds": self.rounds,
            "at_most": AT_MOST,
            "goals": goals,
        })
        .to_string()
    }

    fn text(&self) -> String {
        let lines: Vec<_> = self.judged.iter().map(Judged::text).collect();
        format!(
            "goal: at most {AT_MOST} times what it takes where the module is not loaded; median of {} rounds \
             (where the true ratio is, with 95 %)\n{}",
            self.rounds,
            lines.join("\n")
        )
    }

    /// Whether the run says that the module costs too much, or can say nothing.
    fn is_missed(&self) -> bool {
        self.judged.iter().any(|it| match it.state {
            State::Control => it.is_disturbed(),
            _ => it.said() == Said::Missed,
        })
    }
}

#[cfg(test)]
mod tests {
    use statemachine::Random;

    use super::*;

    /// Rounds in which the module takes so much longer, and everything has this noise.
    fn rounds(count: usize, cost: f64, noise: impl Fn(usize) -> f64) -> Vec<Round> {
        let sample = |round: usize, at: usize, cost: f64| {
            Sample([100.0, 10.0, 30.0, 8.0].map(|it| it * cost * noise(4 * round + at)))
        };
        let round = |round: usize| {
            Round([
                sample(round, 0, 1.0),
                sample(round, 1, cost),
                sample(round, 2, cost),
                sample(round, 3, 1.0),
            ])
        };
        (0..count).map(round).collect()
    }

    /// Up to so much more, by no rule that a round follows.
    fn spread(by: f64) -> impl Fn(usize) -> f64 {
        move |at| {
            let mut seed = [0; 32];
            seed[..8].copy_from_slice(&at.to_le_bytes());
            1.0 + by * f64::from(Random::new(seed).below(1000)) / 1000.0
        }
    }

    fn said(rounds: &[Round]) -> Vec<Said> {
        let verdict = Verdict::on(rounds);
        let judged = verdict.judged.iter();
        let judged = judged.filter(|it| it.state != State::Control);
        judged.map(Judged::said).collect()
    }

    #[test]
    fn a_quiet_run_tells_two_percent_from_five() {
        assert_eq!(said(&rounds(12, 1.02, spread(0.005))), [Said::Met; 8]);
        assert_eq!(said(&rounds(12, 1.05, spread(0.005))), [Said::Missed; 8]);
        assert!(Verdict::on(&rounds(12, 1.05, spread(0.005))).is_missed());
    }

    #[test]
    fn a_noisy_run_says_so_unless_the_cost_is_above_its_noise() {
        let verdict = Verdict::on(&rounds(12, 1.0, spread(0.5)));
        assert!(!verdict.is_missed(), "{}", verdict.text());
        assert_eq!(said(&rounds(12, 1.0, spread(0.5))), [Said::Undecided; 8]);
        assert_eq!(said(&rounds(12, 3.0, spread(0.5))), [Said::Missed; 8]);
    }

    #[test]
    fn few_rounds_say_nothing() {
        assert_eq!(left_out(5), None);
        assert_eq!(said(&rounds(5, 3.0, |_| 1.0)), [Said::Undecided; 8]);
        // As in tables of the sign test.
        assert_eq!(
            [6, 8, 9, 12, 15, 20].map(left_out),
            [0, 0, 1, 2, 3, 5].map(Some)
        );
    }

    #[test]
    fn a_run_whose_two_same_sides_differ_is_none() {
        let mut rounds = rounds(12, 1.0, |_| 1.0);
        assert!(!Verdict::on(&rounds).is_missed());
        for round in &mut rounds {
            round.0[3].0[0] *= 1.1;
        }
        let verdict = Verdict::on(&rounds);
        assert!(verdict.is_missed());
        assert!(verdict.json().contains(r#""said":"disturbed""#));
        assert!(Verdict::on(&[]).is_missed());
    }

    #[test]
    fn a_round_is_lines_or_an_object() {
        let round = rounds(1, 1.5, |_| 1.0)[0];
        assert!(round.text().contains("connect 15.0 ms"), "{}", round.text());
        let json: Value = serde_json::from_str(&round.json()).expect("json");
        assert_eq!(json["round"]["module"]["connect_ms"], 15.0);
    }
}
