// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the figures are judged by.
//!
//! The goal is about what each server can be brought to serve by the same client over the same
//! connections. ibacm takes one request at a time on each, and a second one costs it the connection;
//! apmd takes more, and programs with much to ask may use that. With one request under way on each,
//! the client and the two system calls for a message have most of the time, whoever serves: these
//! ratios, and how near they come to those of the bare server, are shown beside it and not judged.

use super::PIPELINE;
use super::figures::Cell;

/// What apmd is to serve at least, by what ibacm serves.
const AT_LEAST: f64 = 3.0;

/// The verdict on all cells.
pub(super) struct Verdict {
    cells: usize,
    missed: Vec<String>,
    served: Least,
    one_by_one: Least,
    one_by_one_met: usize,
    of_bare: Least,
}

/// The least of a figure, and where that is.
struct Least {
    figure: f64,
    cell: String,
}

impl Least {
    fn of(cells: &[Cell], figure: impl Fn(&Cell) -> f64) -> Self {
        let figures = cells.iter().map(|cell| (figure(cell), cell));
        let least = figures.min_by(|(a, _), (b, _)| a.total_cmp(b));
        let (figure, cell) = least.map_or((f64::NAN, String::new()), |(figure, cell)| {
            (figure, cell.name())
        });
        Self { figure, cell }
    }

    fn json(&self) -> String {
        // JSON has no word for a figure that is none.
        let figure = match self.figure.is_finite() {
            true => format!("{:.2}", self.figure),
            false => "null".to_owned(),
        };
        format!("{{\"least\":{figure},\"in\":\"{}\"}}", self.cell)
    }
}

impl Verdict {
    pub(super) fn on(cells: &[Cell]) -> Self {
        let missed = cells.iter().filter(|cell| is_missed(cell.served()));
        let missed = missed.map(|cell| {
            let (name, served) = (cell.name(), cell.served());
            format!("{name}: {served:.2} times ibacm's requests/s, goal {AT_LEAST}")
        });
        let met = cells.iter().filter(|cell| !is_missed(cell.one_by_one()));
        Self {
            cells: cells.len(),
            missed: missed.collect(),
            served: Least::of(cells, Cell::served),
            one_by_one: Least::of(cells, Cell::one_by_one),
            one_by_one_met: met.count(),
            of_bare: Least::of(cells, Cell::of_bare),
        }
    }

    /// Where the goal is missed, in words.
    pub(super) fn missed(&self) -> &[String] {
        &self.missed
    }

    pub(super) fn text(&self) -> String {
        let Self {
            cells,
            served,
            one_by_one,
            of_bare,
            ..
        } = self;
        let met = cells - self.missed.len();
        format!(
            "goal: {AT_LEAST} times ibacm's requests/s over the same connections, one under way on each \
             or {PIPELINE}: met in {met} of {cells} lines, least {:.2} ({})\n\
             not judged: one under way on each: {AT_LEAST} times ibacm's in {} of {cells} lines, least \
             {:.2} ({}); of bare, least {:.0}% ({})",
            served.figure,
            served.cell,
            self.one_by_one_met,
            one_by_one.figure,
            one_by_one.cell,
            100.0 * of_bare.figure,
            of_bare.cell,
        )
    }

    pub(super) fn json(&self) -> String {
        let missed: Vec<String> = self.missed.iter().map(|one| format!("\"{one}\"")).collect();
        format!(
            "{{\"bench\":\"acm\",\"goals\":{{\"served_ratio\":{{\"at_least\":{AT_LEAST},\"cells\":{},\
             \"missed\":[{}],\"lowest\":{}}}}},\"not_judged\":{{\"ratio\":{{\"cells_at_goal\":{},\
             \"lowest\":{}}},\"of_bare\":{{\"lowest\":{}}}}}}}",
            self.cells,
            missed.join(","),
            self.served.json(),
            self.one_by_one_met,
            self.one_by_one.json(),
            self.of_bare.json(),
        )
    }
}

/// A figure that is none, for want of answers, is a miss too.
fn is_missed(ratio: f64) -> bool {
    ratio.is_nan() || ratio < AT_LEAST
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acm_bench::figures::{Rounds, Side};
    use crate::acm_bench::question::Kind;
    use crate::acm_bench::server::Transport;

    /// A server with so many answers a millisecond.
    fn side(answers: u64) -> Side {
        let mut rounds = Rounds::NONE;
        rounds.add_plain(answers);
        rounds.figures()
    }

    fn cell(connections: usize, rates: [u64; 4]) -> Cell {
        let [ibacm, apmd, pipelined, bare] = rates.map(side);
        Cell {
            transport: Transport::Unix,
            kind: Kind::Ip,
            connections,
            ibacm,
            apmd,
            pipelined,
            bare,
        }
    }

    #[test]
    fn the_better_of_one_and_many_under_way_is_judged() {
        let met = [cell(1, [10, 30, 20, 40]), cell(4, [10, 20, 80, 40])];
        let verdict = Verdict::on(&met);
        assert!(verdict.missed().is_empty());
        assert!(verdict.text().contains("met in 2 of 2 lines, least 3.00"));
        assert!(
            verdict
                .text()
                .contains("3 times ibacm's in 1 of 2 lines, least 2.00")
        );
        let json: serde_json::Value = serde_json::from_str(&verdict.json()).expect("json");
        assert_eq!(json["not_judged"]["of_bare"]["lowest"]["least"], 0.5);
    }

    #[test]
    fn a_missed_goal_names_its_cell() {
        for rates in [[10, 29, 28, 40], [10, 0, 0, 40], [0, 0, 0, 0]] {
            let verdict = Verdict::on(&[cell(1, [10, 30, 20, 40]), cell(16, rates)]);
            let [missed] = verdict.missed() else {
                panic!("{:?}", verdict.missed());
            };
            assert!(
                missed.starts_with("unix, by ip, connections: 16: "),
                "{missed}"
            );
            let json: serde_json::Value = serde_json::from_str(&verdict.json()).expect("json");
            assert_eq!(json["goals"]["served_ratio"]["missed"][0], **missed);
        }
    }
}
