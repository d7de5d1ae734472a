// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of a row, and what that means.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Millis;

use super::known::Known;
use super::row::{Family, Fault, Row};
use super::way::Way;

/// What came of one fault in one column.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub(super) enum Cell {
    /// The program went on, and ended with its own success and the right data.
    Survived { stall_ms: f64 },
    /// It went on, but had stood still for longer than it may.
    TooLong { stall_ms: f64 },
    /// It did not go on.
    Broke { why: String },
    /// It did not come to the fault.
    NotRun { why: String },
    /// It had not survived the fault that comes before.
    NotReached,
}

impl Cell {
    pub(super) fn survived(stall: Millis) -> Self {
        Self::Survived {
            stall_ms: stall.rounded(),
        }
    }

    /// Of a program that goes on after `stall`, and may stand still for `tolerates`.
    pub(super) fn of_stall(stall: Millis, tolerates: Duration) -> Self {
        if stall > Millis::from(tolerates) {
            return Self::TooLong {
                stall_ms: stall.rounded(),
            };
        }
        Self::survived(stall)
    }

    pub(super) fn not_run(why: impl Into<String>) -> Self {
        Self::NotRun { why: why.into() }
    }

    pub(super) fn broke(why: impl Into<String>) -> Self {
        Self::Broke { why: why.into() }
    }

    pub(super) fn has_survived(&self) -> bool {
        matches!(self, Self::Survived { .. })
    }

    /// What went wrong, if anything did.
    pub(super) fn why(&self) -> Option<String> {
        match self {
            Self::Survived { .. } | Self::NotReached => None,
            Self::TooLong { .. } => Some(format!("stood still for {}", self.short())),
            Self::Broke { why } => Some(why.clone()),
            Self::NotRun { why } => Some(format!("does not run: {why}")),
        }
    }

    /// In a word or two.
    pub(super) fn short(&self) -> String {
        match self {
            Self::Survived { stall_ms } if *stall_ms < 10_000.0 => format!("{stall_ms:.0} ms"),
            Self::Survived { stall_ms } => format!("{:.0} s", stall_ms / 1000.0),
            Self::TooLong { stall_ms } => format!("{:.0} s, too long", stall_ms / 1000.0),
            Self::Broke { .. } => "breaks".to_owned(),
            Self::NotRun { .. } => "no run".to_owned(),
            Self::NotReached => "-".to_owned(),
        }
    }
}

/// What came of a row with one way of protection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) family: Family,
    pub(super) name: String,
    pub(super) by: Way,
    pub(super) data: String,
    pub(super) faults: Vec<Fault>,
    pub(super) plain: Vec<Cell>,
    pub(super) protected: Vec<Cell>,
    pub(super) verdict: Verdict,
}

/// What that means.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is", content = "why")]
pub(super) enum Verdict {
    /// It survives what it does not survive unprotected.
    Protected,
    /// It survives, but these faults it survives unprotected as well.
    ShowsNothing(String),
    /// It does not, and known.toml says why.
    Known(String),
    /// It survives although known.toml says that it does not.
    NoLongerKnown,
    /// It does not survive.
    Fails(String),
}

impl Verdict {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Protected => "protected".to_owned(),
            Self::ShowsNothing(faults) => format!("shows nothing: survives {faults} unprotected"),
            Self::Known(reason) => format!("known: {reason}"),
            Self::NoLongerKnown => "protected now: take it off known.toml".to_owned(),
            Self::Fails(why) => format!("FAILS: {why}"),
        }
    }
}

impl Outcome {
    /// `cells` are those of the plain run, and of the protected one.
    pub(super) fn new(
        row: &Row,
        by: Way,
        faults: &[Fault],
        known: &Known,
        cells: [Vec<Cell>; 2],
    ) -> Self {
        let [plain, protected] = cells;
        let verdict = judge(row, faults, known, &plain, &protected);
        Self {
            family: row.family,
            name: row.name.to_owned(),
            by,
            data: row.data.name().to_owned(),
            faults: faults.to_vec(),
            plain,
            protected,
            verdict,
        }
    }

    /// A row of which not even the undisturbed run was good.
    pub(super) fn of_no_run(
        row: &Row,
        by: Way,
        faults: &[Fault],
        known: &Known,
        why: &str,
    ) -> Self {
        let cells: Vec<_> = faults.iter().map(|_| Cell::not_run(why)).collect();
        Self::new(row, by, faults, known, [cells.clone(), cells])
    }
}

fn judge(
    row: &Row,
    faults: &[Fault],
    known: &Known,
    plain: &[Cell],
    protected: &[Cell],
) -> Verdict {
    // A control that does not even run controls nothing.
    let no_run = |cell: &&Cell| matches!(cell, Cell::NotRun { .. });
    if let Some(why) = plain.iter().find(no_run).and_then(Cell::why) {
        return Verdict::Fails(format!("plain: {why}"));
    }
    let mut cells = faults.iter().zip(protected);
    let broken = cells.find_map(|(fault, cell)| Some((fault, cell.why()?)));
    let reason = known.reason(row.name);
    match (broken, reason) {
        (Some(_), Some(reason)) => return Verdict::Known(reason.to_owned()),
        (Some((fault, why)), None) => {
            return Verdict::Fails(format!("{}: {why}", fault.name()));
        }
        (None, _) => {}
    }
    let survived: Vec<_> = faults
        .iter()
        .zip(plain)
        .filter(|(_, cell)| cell.has_survived())
        .map(|(fault, _)| fault.name())
        .collect();
    if reason.is_some() {
        Verdict::NoLongerKnown
    } else if survived.is_empty() {
        Verdict::Protected
    } else {
        Verdict::ShowsNothing(survived.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULTS: &[Fault] = &[Fault::LocalCable, Fault::BlackHole];

    fn judged(known: &str, plain: [bool; 2], protected: [bool; 2]) -> Verdict {
        let row = Row::new(Family::RdmaCm, "rping", "", "");
        let known = Known::parse(known).expect("well formed");
        let cell = |survived| {
            if survived {
                Cell::survived(Millis(50.0))
            } else {
                Cell::broke("QP in error")
            }
        };
        let cells = [plain.map(cell).to_vec(), protected.map(cell).to_vec()];
        Outcome::new(&row, Way::Kernel, FAULTS, &known, cells).verdict
    }

    #[test]
    fn a_row_is_judged_by_both_columns_and_by_what_is_known() {
        const KNOWN: &str = "[rping]\nreason = \"seen by nobody\"\n";
        let (yes, no) = ([true; 2], [false; 2]);
        assert_eq!(judged("", no, yes), Verdict::Protected);
        assert_eq!(
            judged("", [false, true], yes),
            Verdict::ShowsNothing("black hole".to_owned())
        );
        assert_eq!(
            judged("", no, [true, false]),
            Verdict::Fails("black hole: QP in error".to_owned())
        );
        assert_eq!(
            judged(KNOWN, no, [true, false]),
            Verdict::Known("seen by nobody".to_owned())
        );
        assert_eq!(judged(KNOWN, no, yes), Verdict::NoLongerKnown);
    }

    #[test]
    fn what_is_known_excuses_no_control_that_does_not_run() {
        let row = Row::new(Family::RdmaCm, "rping", "", "");
        let known = Known::parse("[rping]\nreason = \"seen by nobody\"\n").expect("well formed");
        let outcome = Outcome::of_no_run(&row, Way::Library, FAULTS, &known, "no such file");
        let why = "plain: does not run: no such file";
        assert_eq!(outcome.verdict, Verdict::Fails(why.to_owned()));
    }

    #[test]
    fn a_stall_that_is_too_long_is_no_survival() {
        let cell = Cell::of_stall(Millis(71_000.0), Duration::from_secs(10));
        assert!(!cell.has_survived());
        assert_eq!(
            cell.why().as_deref(),
            Some("stood still for 71 s, too long")
        );
        assert!(Cell::of_stall(Millis(600.0), Duration::from_secs(10)).has_survived());
    }
}
