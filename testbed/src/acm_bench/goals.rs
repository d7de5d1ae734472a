// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the figures are judged by.
//!
//! The goal is about what each server can be brought to serve by the same client over the same
//! connections. ibacm takes one request at a time on each, and a second one costs it the connection;
//! apmd takes more, and programs with much to ask may use that. With one request under way on each,
//! the client and the two system calls for a message have most of the time, whoever serves: there
//! apmd is to be no slower. How near it comes to the bare server is shown beside it and not judged.

use super::PIPELINE;
use super::figures::Cell;
use crate::bench::Conclusion;

/// What apmd is to serve at least, by what ibacm serves: with many requests under way on each
/// connection, and with one.
const AT_LEAST: f64 = 3.0;
const ONE_BY_ONE_AT_LEAST: f64 = 1.0;

/// The verdict on all cells.
pub(super) struct Verdict {
    cells: usize,
    missed: Vec<String>,
    served: Least,
    one_by_one: Least,
    one_by_one_met: usize,
    served_met: usize,
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
        let missed = cells.iter().flat_map(|cell| {
            let name = cell.name();
            let goals = [
                (cell.served(), AT_LEAST, PIPELINE),
                (cell.one_by_one(), ONE_BY_ONE_AT_LEAST, 1),
            ];
            let missed = goals
                .into_iter()
                .filter(|(ratio, goal, _)| is_missed(*ratio, *goal));
            let words = missed.map(|(ratio, goal, under_way)| {
                format!(
                    "{name}: {ratio:.2} times ibacm's requests/s with {under_way} under way, goal {goal}"
                )
            });
            words.collect::<Vec<_>>()
        });
        let met = |figure: fn(&Cell) -> f64, goal| {
            let met = cells
                .iter()
                .filter(move |cell| !is_missed(figure(cell), goal));
            met.count()
        };
        Self {
            cells: cells.len(),
            missed: missed.collect(),
            served: Least::of(cells, Cell::served),
            one_by_one: Least::of(cells, Cell::one_by_one),
            one_by_one_met: met(Cell::one_by_one, ONE_BY_ONE_AT_LEAST),
            served_met: met(Cell::served, AT_LEAST),
            of_bare: Least::of(cells, Cell::of_bare),
        }
    }
}

impl Conclusion for Verdict {
    fn json(&self) -> String {
        let missed: Vec<String> = self.missed.iter().map(|one| format!("\"{one}\"")).collect();
        format!(
            "{{\"bench\":\"acm\",\"goals\":{{\"missed\":[{}],\"served_ratio\":{{\"at_least\":{AT_LEAST},\
             \"cells\":{},\"met\":{},\"lowest\":{}}},\"one_by_one_ratio\":{{\"at_least\":\
             {ONE_BY_ONE_AT_LEAST},\"cells\":{},\"met\":{},\"lowest\":{}}}}},\"not_judged\":\
             {{\"of_bare\":{{\"lowest\":{}}}}}}}",
            missed.join(","),
            self.cells,
            self.served_met,
            self.served.json(),
            self.cells,
            self.one_by_one_met,
            self.one_by_one.json(),
            self.of_bare.json(),
        )
    }

    fn text(&self) -> String {
        let Self {
            cells,
            served,
            one_by_one,
            of_bare,
            ..
        } = self;
        let missed: String = self
            .missed
            .iter()
            .map(|one| format!("\nmissed: {one}"))
            .collect();
        format!(
            "goal: {AT_LEAST} times ibacm's requests/s over the same connections, one under way on each \
             or {PIPELINE}: met in {} of {cells} lines, least {:.2} ({})\n\
             goal: {ONE_BY_ONE_AT_LEAST} times ibacm's, one under way on each: met in {} of {cells} \
             lines, least {:.2} ({})\n\
             not judged: of bare, least {:.0}% ({}){missed}",
            self.served_met,
            served.figure,
            served.cell,
            self.one_by_one_met,
            one_by_one.figure,
            one_by_one.cell,
            100.0 * of_bare.figure,
            of_bare.cell,
        )
    }

    fn is_missed(&self) -> bool {
        !self.missed.is_empty()
    }
}

/// A figure that is none, for want of answers, is a miss too.
fn is_missed(ratio: f64, goal: f64) -> bool {
    ratio.is_nan() || ratio < goal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acm_bench::figures::{Rounds, Side};
    use crate::acm_bench::question::Kind;
    use crate::acm_bench::server::Transport;
    use crate::bench::Conclusion;

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
        assert!(verdict.missed.is_empty());
        assert!(verdict.text().contains("met in 2 of 2 lines, least 3.00"));
        assert!(
            verdict.text().contains(
                "1 times ibacm's, one under way on each: met in 2 of 2 lines, least 2.00"
            )
        );
        let json: serde_json::Value = serde_json::from_str(&verdict.json()).expect("json");
        assert_eq!(json["not_judged"]["of_bare"]["lowest"]["least"], 0.5);
    }

    #[test]
    fn a_missed_goal_names_its_cell() {
        for (rates, missed) in [
            ([10, 29, 28, 40], &["2.90 times"][..]),
            ([10, 9, 40, 40], &["0.90 times"]),
            ([10, 0, 0, 40], &["", ""]),
            ([0, 0, 0, 0], &["", ""]),
        ] {
            let verdict = Verdict::on(&[cell(1, [10, 30, 20, 40]), cell(16, rates)]);
            assert_eq!(verdict.missed.len(), missed.len(), "{rates:?}");
            let json: serde_json::Value = serde_json::from_str(&verdict.json()).expect("json");
            for (index, (told, part)) in verdict.missed.iter().zip(missed).enumerate() {
                assert!(told.starts_with("unix, by ip, connections: 16: "), "{told}");
                assert!(told.contains(part), "{told}");
                assert_eq!(json["goals"]["missed"][index], **told);
            }
        }
    }
}
