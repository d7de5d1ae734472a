// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table as text: for a terminal, and as Markdown.

use std::fmt::Write;

use super::outcome::{Cell, Outcome};
use super::row::{Column, Fault};

/// The faults that any of the rows was tried with.
fn faults(outcomes: &[Outcome]) -> &[Fault] {
    outcomes.first().map_or(&[], |outcome| &outcome.faults)
}

/// What came of a row's fault: `plain / protected`.
fn cell(outcome: &Outcome, index: usize) -> String {
    let short = |cells: &[Cell]| cells.get(index).map_or("?".to_owned(), Cell::short);
    format!("{} / {}", short(&outcome.plain), short(&outcome.protected))
}

/// What each program did that did not survive.
fn reasons(outcomes: &[Outcome]) -> Vec<String> {
    let mut lines = Vec::new();
    for outcome in outcomes {
        let protected = (Column::Protected(outcome.by), &outcome.protected);
        for (column, cells) in [(Column::Plain, &outcome.plain), protected] {
            for (fault, cell) in outcome.faults.iter().zip(cells) {
                let place = [outcome.name.as_str(), column.name(), fault.name()].join(", ");
                lines.extend(cell.why().map(|why| format!("{place}: {why}")));
            }
        }
    }
    lines
}

/// For a terminal.
pub(super) fn text(outcomes: &[Outcome]) -> String {
    let mut text = format!("{:<18} {:<7}", "PROGRAM", "BY");
    for fault in faults(outcomes) {
        // Writing to a String does not fail, here and below.
        let _ = write!(text, " {:<18}", fault.name().to_uppercase());
    }
    text.push_str(" VERDICT (plain / protected: longest stall, or breaks)\n");
    for outcome in outcomes {
        let _ = write!(text, "{:<18} {:<7}", outcome.name, outcome.by.name());
        for index in 0..outcome.faults.len() {
            let _ = write!(text, " {:<18}", cell(outcome, index));
        }
        let _ = writeln!(text, " {}", outcome.verdict.text());
    }
    for line in reasons(outcomes) {
        let _ = writeln!(text, "  {line}");
    }
    text
}

/// As a Markdown file.
pub(super) fn markdown(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "# Programs under faults\n\n\
         Each cell says what came of the fault plain / protected: the longest stall where the \
         program went on and ended with its own success, `breaks` where it did not, `-` where the \
         fault before had broken it.\n\n",
    );
    let mut header = String::from("| family | program | by | data |");
    let mut rule = String::from("|---|---|---|---|");
    for fault in faults(outcomes) {
        let _ = write!(header, " {} |", fault.name());
        rule.push_str("---|");
    }
    let _ = writeln!(text, "{header} verdict |\n{rule}---|");
    for outcome in outcomes {
        let (family, by) = (outcome.family.name(), outcome.by.name());
        let _ = write!(
            text,
            "| {family} | {} | {by} | {} |",
            outcome.name, outcome.data
        );
        for index in 0..outcome.faults.len() {
            let _ = write!(text, " {} |", cell(outcome, index));
        }
        let verdict = outcome.verdict.text().replace('|', "\\|");
        let _ = writeln!(text, " {verdict} |");
    }
    text.push_str("\n## What went wrong\n");
    for line in reasons(outcomes) {
        let _ = writeln!(text, "- {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Millis;
    use crate::drills::programs::known::Known;
    use crate::drills::programs::outcome::Cell;
    use crate::drills::programs::row::{Family, Row};
    use crate::drills::programs::way::Way;

    #[test]
    fn rows_have_a_line_with_both_columns() {
        let row = Row::new(Family::RdmaCm, "rping", "", "");
        let known = Known::parse("").expect("empty");
        let cells = [
            vec![Cell::broke("QP in error"), Cell::NotReached],
            vec![
                Cell::survived(Millis(61.0)),
                Cell::survived(Millis(17_400.0)),
            ],
        ];
        let faults = [Fault::LocalCable, Fault::OtherCable];
        let outcome = Outcome::new(&row, Way::Library, &faults, &known, cells);
        let expected =
            "| rdma_cm | rping | library | not checked | breaks / 61 ms | - / 17 s | protected |";
        let markdown = markdown(std::slice::from_ref(&outcome));
        assert!(markdown.lines().any(|line| line == expected), "{markdown}");
        let why = "- rping, plain, local cable: QP in error";
        assert_eq!(markdown.lines().last(), Some(why));
        assert!(text(&[outcome]).contains("breaks / 61 ms"));
    }
}
