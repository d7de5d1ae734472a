// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real programs from Debian between the two hosts, plain and protected, with a fault at a time.
//!
//! - [`way`]: by what they are protected.
//! - [`row`]: what a row is; [`table`]: all of them, as data.
//! - [`running`]: a client and a server; [`flow`]: whether they move data; [`trial`]: the faults.
//! - [`spines`]: which spine carries the traffic, where the fabric has spines.
//! - [`outcome`]: what it means; [`known`]: what is known to break; [`sheet`]: how it is shown.

mod flow;
mod known;
mod outcome;
mod row;
mod running;
mod sheet;
mod spines;
mod table;
mod trial;
mod way;

use serde_json::{Value, json};

use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::file;
use crate::host::Host;
use crate::kernel_module::KernelModule;
use crate::world::Kind;

use self::known::Known;
use self::outcome::{Cell, Outcome, Verdict};
use self::row::{Column, Fault, Row};
use self::trial::{Trial, measure};
use self::way::Way;
use super::{Context, Drill, Options, Part};

pub(crate) use self::table::names;
pub use self::way::By;

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "programs",
    about: "real programs, plain and protected, with one fault after the other",
    parts: &[
        Part {
            world: Kind::Flat,
            run: |context| run(context, Kind::Flat),
        },
        Part {
            world: Kind::Netns,
            run: |context| run_last(context, Kind::Netns),
        },
    ],
};

/// Where the table is left as a Markdown file, for whoever started the VM.
const SHEET: &str = "/out/programs.md";

/// How often a program that is done before its fault is run again in a column.
const REPEATS: u32 = 3;

/// The rows of one world.
fn run(context: &mut Context<'_>, kind: Kind) -> Result<(), Failure> {
    let known = Known::read()?;
    let short = context.options.short;
    let ways = ways(context.options);
    let spines = spines::has_fabric()?;
    let faults = Fault::of_run(short, spines);
    if spines {
        context.world.move_to(Host::ONE_PORT)?;
    }
    let mut outcomes = Vec::new();
    for row in table::chosen(&context.options.only, short) {
        // The kernel's have their hosts in their own scripts.
        if row.world == kind && !(spines && row.is_of_the_kernel()) {
            let mut ways = ways.to_vec();
            ways.retain(|way| row.ways.contains(way));
            if !ways.is_empty() {
                outcomes.extend(try_row(context, row, &ways, faults, &known)?);
            }
        }
    }
    keep(context, &outcomes);
    Ok(())
}

/// The rows of the last world; then all that came is shown, and judged.
fn run_last(context: &mut Context<'_>, kind: Kind) -> Result<(), Failure> {
    run(context, kind)?;
    let outcomes = kept(context)?;
    file::write(SHEET, &sheet::markdown(&outcomes))?;
    context.timeline.say(sheet::text(&outcomes).trim_end());
    judge(&outcomes)
}

/// What protects the rows of this run. The short form's own rows are few enough for both.
fn ways(options: &Options) -> &'static [Way] {
    let few = options.short && options.only.is_empty();
    let usual = if few { By::Both } else { By::Kernel };
    options.by.unwrap_or(usual).ways()
}

/// A row plain, and by each of these ways. What breaks in the drill itself is the row's failure, not the
/// table's.
fn try_row(
    context: &mut Context<'_>,
    row: &'static Row,
    ways: &[Way],
    faults: &[Fault],
    known: &Known,
) -> Result<Vec<Outcome>, Failure> {
    context.timeline.note("drill", format!("{} ...", row.name));
    let control = match control(context, row, faults) {
        Ok(control) => control,
        Err(failure) => Err(recover(context, faults, &failure)?),
    };
    let mut outcomes = Vec::new();
    for by in ways {
        let outcome = match &control {
            Err(why) => Outcome::of_no_run(row, *by, faults, known, why),
            Ok(control) => {
                let protected = match protected(context, row, *by, control.amount, faults) {
                    Ok(cells) => cells,
                    Err(failure) => {
                        let why = recover(context, faults, &failure)?;
                        faults.iter().map(|_| Cell::not_run(&why)).collect()
                    }
                };
                let cells = [control.cells.clone(), protected];
                Outcome::new(row, *by, faults, known, cells)
            }
        };
        let text = format!(
            "{} by the {}: {}",
            row.name,
            by.name(),
            outcome.verdict.text()
        );
        context.timeline.note("drill", text);
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// Puts everything back after a failure of the drill itself, in whatever it was; its text.
fn recover(
    context: &mut Context<'_>,
    faults: &[Fault],
    failure: &Failure,
) -> Result<String, Failure> {
    context.world.stop_daemons()?;
    if faults.contains(&Fault::Spine) {
        context.world.start_subnet_manager()?;
    }
    context.world.mend()?;
    Ok(failure.to_string())
}

/// A row without protection.
struct Control {
    /// How much it has to do to run long enough.
    amount: u64,
    cells: Vec<Cell>,
}

/// `Err` in the result is why it does not run.
fn control(
    context: &mut Context<'_>,
    row: &'static Row,
    faults: &[Fault],
) -> Result<Result<Control, String>, Failure> {
    let amount = match measure(row, context.world.hosts(), faults.len() as u32)? {
        Ok(amount) => amount,
        Err(why) => return Ok(Err(why)),
    };
    let mut trial = Trial {
        context,
        row,
        column: Column::Plain,
        amount,
        repeats: REPEATS,
    };
    let cells = trial.run(faults)?;
    Ok(Ok(Control {
        amount: trial.amount,
        cells,
    }))
}

fn protected(
    context: &mut Context<'_>,
    row: &'static Row,
    by: Way,
    amount: u64,
    faults: &[Fault],
) -> Result<Vec<Cell>, Failure> {
    let module = match by {
        Way::Kernel => Some(KernelModule::load()?),
        Way::Library => None,
    };
    context.world.start_daemons(policy(faults))?;
    let mut trial = Trial {
        context,
        row,
        column: Column::Protected(by),
        amount,
        repeats: REPEATS,
    };
    let cells = trial.run(faults)?;
    context.world.stop_daemons()?;
    module.map(KernelModule::unload).transpose()?;
    Ok(cells)
}

/// To which spine a path goes the daemons know only from the fabric's own data.
fn policy(faults: &[Fault]) -> Policy {
    if faults.contains(&Fault::Spine) {
        Policy::LIVE
    } else {
        Policy::NORMAL
    }
}

/// The key of the report that has the rows.
const ROWS: &str = "rows";

/// Puts the rows into the report, after those of other worlds.
fn keep(context: &mut Context<'_>, outcomes: &[Outcome]) {
    let rows = context.report.more.entry(ROWS.to_owned());
    if let Value::Array(rows) = rows.or_insert_with(|| json!([])) {
        rows.extend(outcomes.iter().map(|outcome| json!(outcome)));
    }
}

/// All rows of the report.
fn kept(context: &Context<'_>) -> Result<Vec<Outcome>, Failure> {
    let rows = context.report.more.get(ROWS).cloned().unwrap_or_default();
    serde_json::from_value(rows).map_err(|error| Failure::Output {
        source_name: "rows of the report".to_owned(),
        problem: error.to_string(),
    })
}

fn judge(outcomes: &[Outcome]) -> Result<(), Failure> {
    ensure(!outcomes.is_empty(), || {
        "no row: none of them can be protected that way, or not in this fabric".to_owned()
    })?;
    let failed: Vec<_> = outcomes
        .iter()
        .filter_map(|outcome| match &outcome.verdict {
            Verdict::Fails(why) => Some(format!(
                "{} by the {} ({why})",
                outcome.name,
                outcome.by.name()
            )),
            _ => None,
        })
        .collect();
    ensure(failed.is_empty(), || {
        format!(
            "not protected, and not in known.toml: {}",
            failed.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_protects_if_nothing_is_said_and_in_the_short_form_both_do() {
        let chosen = |short, only: &[&str], by| {
            let only = only.iter().map(ToString::to_string).collect();
            ways(&Options {
                short,
                only,
                by,
                ..Options::default()
            })
        };
        assert_eq!(chosen(false, &[], None), [Way::Kernel]);
        assert_eq!(chosen(true, &["rping"], None), [Way::Kernel]);
        assert_eq!(chosen(true, &[], None), Way::ALL);
        assert_eq!(chosen(true, &[], Some(By::Library)), [Way::Library]);
        assert_eq!(chosen(false, &["rping"], Some(By::Both)), Way::ALL);
    }

    #[test]
    fn a_run_of_no_row_is_no_success() {
        assert!(judge(&[]).is_err());
    }
}
