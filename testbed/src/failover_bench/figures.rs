// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was measured, and what it is judged by.

use serde_json::json;

use super::ack_timeout::AckTimeout;
use super::ways::Way;
use crate::bench::Conclusion;
use crate::clock::{Millis, median};

/// How long connections stood still that were moved in one way.
pub(super) struct Row {
    way: Way,
    timeout: AckTimeout,
    /// The shortest first.
    stalls: Vec<Millis>,
}

impl Row {
    pub(super) const HEAD: &str =
        "ACK timeout  moved by         pulls  median ms  shortest ms  longest ms";

    pub(super) fn new(way: Way, timeout: AckTimeout, mut stalls: Vec<Millis>) -> Self {
        stalls.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self {
            way,
            timeout,
            stalls,
        }
    }

    fn median(&self) -> f64 {
        median(self.stalls.iter().copied()).0
    }

    fn ends(&self) -> [f64; 2] {
        [self.stalls.first(), self.stalls.last()].map(|end| end.map_or(f64::NAN, |stall| stall.0))
    }

    pub(super) fn text(&self) -> String {
        let [shortest, longest] = self.ends();
        format!(
            "{:11}  {:15}  {:5}  {:9.1}  {:11.1}  {:10.1}",
            self.timeout.name(),
            self.way.name(),
            self.stalls.len(),
            self.median(),
            shortest,
            longest,
        )
    }

    pub(super) fn json(&self) -> String {
        let [shortest, longest] = self.ends().map(|end| Millis(end).rounded());
        json!({
            "bench": "failover",
            "ack_timeout": self.timeout.name(),
            "moved_by": self.way.name(),
            "pulls": self.stalls.len(),
            "median_ms": Millis(self.median()).rounded(),
            "shortest_ms": shortest,
            "longest_ms": longest,
        })
        .to_string()
    }
}

/// What hardware's retries take, by what a standing order takes, at least.
const GOALS: [(AckTimeout, f64); 2] = [(AckTimeout::Default, 20.0), (AckTimeout::Fourteen, 5.0)];

/// How a goal was met.
struct Judged {
    timeout: AckTimeout,
    goal: f64,
    /// Median against median.
    ratio: f64,
}

impl Judged {
    /// A figure that is none is a miss, too.
    fn is_missed(&self) -> bool {
        self.ratio.is_nan() || self.ratio < self.goal
    }
}

/// The verdict on all rows.
pub(super) struct Verdict(Vec<Judged>);

impl Verdict {
    pub(super) fn on(rows: &[Row]) -> Self {
        let median = |way, timeout| {
            let mut rows = rows.iter();
            let row = rows.find(|row| row.way == way && row.timeout == timeout);
            row.map_or(f64::NAN, Row::median)
        };
        let judge = |(timeout, goal)| Judged {
            timeout,
            goal,
            ratio: median(Way::ByHand, timeout) / median(Way::Standing, timeout),
        };
        Self(GOALS.map(judge).into())
    }
}

impl Conclusion for Verdict {
    fn json(&self) -> String {
        let goal = |judged: &Judged| {
            json!({
                "ack_timeout": judged.timeout.name(),
                "at_least": judged.goal,
                "ratio": (judged.ratio * 10.0).round() / 10.0,
                "met": !judged.is_missed(),
            })
        };
        let goals: Vec<_> = self.0.iter().map(goal).collect();
        json!({"bench": "failover", "goals": goals}).to_string()
    }

    fn text(&self) -> String {
        let line = |judged: &Judged| {
            format!(
                "goal: at ACK timeout {}, hardware armed by hand stands still {} times as long as a standing \
                 order's connection, at least: {:.1}, {}",
                judged.timeout.name(),
                judged.goal,
                judged.ratio,
                if judged.is_missed() { "MISSED" } else { "met" },
            )
        };
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn is_missed(&self) -> bool {
        self.0.iter().any(Judged::is_missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(way: Way, timeout: AckTimeout, stalls: &[f64]) -> Row {
        let stalls = stalls.iter().copied().map(Millis).collect();
        Row::new(way, timeout, stalls)
    }

    #[test]
    fn medians_are_judged_and_what_was_not_measured_is_missed() {
        let fast = row(Way::Standing, AckTimeout::Fourteen, &[500.0, 50.0, 60.0]);
        let slow = row(Way::ByHand, AckTimeout::Fourteen, &[540.0, 600.0, 100.0]);
        let other = row(Way::Standing, AckTimeout::Default, &[60.0]);
        let verdict = Verdict::on(&[fast, slow, other]);
        assert!(!verdict.0[1].is_missed(), "{}", verdict.text());
        assert!(verdict.0[0].is_missed());
        assert!(verdict.is_missed());
        assert!(
            verdict.json().contains(r#""ratio":9.0"#),
            "{}",
            verdict.json()
        );
    }

    #[test]
    fn a_row_has_its_median_and_ends() {
        let row = row(Way::Reconnect, AckTimeout::Default, &[3.0, 1.0, 2.0]);
        let json: serde_json::Value = serde_json::from_str(&row.json()).expect("json");
        let figures = ["median_ms", "shortest_ms", "longest_ms"].map(|name| json[name].as_f64());
        assert_eq!(figures, [Some(2.0), Some(1.0), Some(3.0)]);
    }
}
