// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was measured, and what it is judged by.

use serde_json::{Value, json};

use crate::bench::Conclusion;
use crate::clock::{Millis, median};
use crate::cmtime::{CONNECT, Run};

/// What connecting may cost under `apmctl run` at most, by what it costs without.
const AT_MOST: f64 = 1.2;

/// A figure of a run, and its name.
type Figure = (&'static str, fn(&Run) -> Millis);

const FIGURES: [Figure; 3] = [
    ("steps", Run::all),
    ("connect", |run| run.step(CONNECT)),
    ("program", |run| run.program),
];

/// Two runs, one after the other.
pub(super) struct Pair {
    pub(super) plain: Run,
    pub(super) protected: Run,
}

impl Pair {
    pub(super) const HEAD: &'static str = "ms  steps: plain protected ratio  connect: plain protected ratio  program: plain protected ratio";

    pub(super) fn row(&self) -> String {
        let [steps, connect, program] = FIGURES.map(|(_, figure)| {
            let [plain, protected] = [figure(&self.plain).0, figure(&self.protected).0];
            [plain, protected, protected / plain]
        });
        format!(
            "{:16.0}{:10.0}{:6.2}{:16.0}{:10.0}{:6.2}{:16.0}{:10.0}{:6.2}",
            steps[0],
            steps[1],
            steps[2],
            connect[0],
            connect[1],
            connect[2],
            program[0],
            program[1],
            program[2]
        )
    }

    pub(super) fn json(&self) -> String {
        let side = |run: &Run| {
            let figures = FIGURES.map(|(name, figure)| {
                let name = format!("{name}_ms");
                (name, Value::from(figure(run).rounded()))
            });
            Value::Object(figures.into_iter().collect())
        };
        json!({
            "bench": "connect",
            "plain": side(&self.plain),
            "protected": side(&self.protected),
        })
        .to_string()
    }
}

/// The medians of a figure on both sides.
struct Medians {
    name: &'static str,
    plain: Millis,
    protected: Millis,
}

impl Medians {
    fn ratio(&self) -> f64 {
        self.protected.0 / self.plain.0
    }

    fn text(&self) -> String {
        format!(
            "{} {:.2} ({:.0} ms, {:.0} ms plain)",
            self.name,
            self.ratio(),
            self.protected.0,
            self.plain.0
        )
    }

    fn json(&self) -> Value {
        json!({
            "plain_ms": self.plain.rounded(),
            "protected_ms": self.protected.rounded(),
            "ratio": (self.ratio() * 100.0).round() / 100.0,
        })
    }
}

/// The verdict on all pairs.
pub(super) struct Verdict {
    pairs: usize,
    medians: [Medians; 3],
}

impl Verdict {
    pub(super) fn on(pairs: &[Pair]) -> Self {
        let medians = FIGURES.map(|(name, figure)| Medians {
            name,
            plain: median(pairs.iter().map(|pair| figure(&pair.plain))),
            protected: median(pairs.iter().map(|pair| figure(&pair.protected))),
        });
        Self {
            pairs: pairs.len(),
            medians,
        }
    }
}

impl Conclusion for Verdict {
    fn json(&self) -> String {
        let [steps, connect, program] = &self.medians;
        json!({
            "bench": "connect",
            "pairs": self.pairs,
            "goal": {"at_most": AT_MOST, "met": !self.is_missed(), "steps": steps.json()},
            "not_judged": {"connect": connect.json(), "program": program.json()},
        })
        .to_string()
    }

    fn text(&self) -> String {
        let [steps, connect, program] = &self.medians;
        format!(
            "goal: all steps under apmctl run at most {AT_MOST} times as long as without, medians of {} \
             pairs: {}, {}\nnot judged: {}, {}",
            self.pairs,
            if self.is_missed() { "MISSED" } else { "met" },
            steps.text(),
            connect.text(),
            program.text(),
        )
    }

    /// Whether the goal is missed. A figure that is none is a miss, too.
    fn is_missed(&self) -> bool {
        let ratio = self.medians[0].ratio();
        ratio.is_nan() || ratio > AT_MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(plain: f64, protected: f64) -> Pair {
        let step = |name: &str, ms: f64| (name.to_owned(), Millis(ms));
        let run = |steps: f64| Run {
            steps: vec![step(CONNECT, steps / 2.0), step("destroy", steps / 2.0)],
            program: Millis(steps + 100.0),
        };
        Pair {
            plain: run(plain),
            protected: run(protected),
        }
    }

    #[test]
    fn medians_are_judged() {
        let pairs = [pair(100.0, 120.0), pair(90.0, 900.0), pair(500.0, 110.0)];
        let verdict = Verdict::on(&pairs);
        assert!(!verdict.is_missed(), "{}", verdict.text());
        let json: Value = serde_json::from_str(&verdict.json()).expect("json");
        assert_eq!(json["goal"]["steps"]["ratio"], 1.2);
        assert_eq!(json["not_judged"]["program"]["protected_ms"], 220.0);
        assert!(Verdict::on(&[pair(100.0, 121.0)]).is_missed());
        assert!(Verdict::on(&[]).is_missed());
    }

    #[test]
    fn a_pair_is_a_row_or_an_object() {
        let pair = pair(100.0, 150.0);
        assert_eq!(pair.row().matches("1.50").count(), 2);
        let json: Value = serde_json::from_str(&pair.json()).expect("json");
        assert_eq!(json["protected"]["steps_ms"], 150.0);
    }
}
