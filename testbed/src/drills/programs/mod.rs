// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real programs from Debian between the two hosts, plain and protected, with a fault at a time.
//!
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

use serde_json::{Value, json};

use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::file;
use crate::host::Host;
use crate::kernel_module::KernelModule;
use crate::world::Kind;

use self::known::Known;
use self::outcome::{Outcome, Verdict};
use self::row::{Column, Fault, Row};
use self::trial::{Trial, measure};
use super::{Context, Drill, Part};

pub(crate) use self::table::names;

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
    let spines = spines::has_fabric()?;
    let faults = Fault::of_run(short, spines);
    if spines {
        context.world.move_to(Host::ONE_PORT)?;
    }
    let mut outcomes = Vec::new();
    for row in table::chosen(&context.options.only, short) {
        // The kernel's have their hosts in their own scripts.
        if row.world == kind && !(spines && row.is_of_the_kernel()) {
            outcomes.push(try_row(context, row, faults, &known)?);
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
    print!("{}", sheet::text(&outcomes));
    judge(&outcomes)
}

/// A row in both columns. What breaks in the drill itself is the row's failure, not the table's.
fn try_row(
    context: &mut Context<'_>,
    row: &'static Row,
    faults: &[Fault],
    known: &Known,
) -> Result<Outcome, Failure> {
    context.timeline.note("drill", format!("{} ...", row.name));
    let outcome = match both_columns(context, row, faults, known) {
        Ok(outcome) => outcome,
        Err(failure) => {
            context.world.stop_daemons()?;
            if faults.contains(&Fault::Spine) {
                context.world.start_subnet_manager()?;
            }
            context.world.mend()?;
            Outcome::of_no_run(row, faults, known, &failure.to_string())
        }
    };
    let text = format!("{}: {}", row.name, outcome.verdict.text());
    context.timeline.note("drill", text);
    Ok(outcome)
}

fn both_columns(
    context: &mut Context<'_>,
    row: &'static Row,
    faults: &[Fault],
    known: &Known,
) -> Result<Outcome, Failure> {
    let amount = match measure(row, context.world.hosts())? {
        Ok(amount) => amount,
        Err(why) => return Ok(Outcome::of_no_run(row, faults, known, &why)),
    };
    let mut trial = Trial {
        context,
        row,
        column: Column::Plain,
        amount,
        repeats: REPEATS,
    };
    let plain = trial.run(faults)?;
    trial.column = Column::Protected;
    trial.repeats = REPEATS;
    // Nothing can be preloaded into the kernel.
    let module = row
        .is_of_the_kernel()
        .then(KernelModule::load)
        .transpose()?;
    trial.context.world.start_daemons(policy(faults))?;
    let protected = trial.run(faults)?;
    trial.context.world.stop_daemons()?;
    module.map(KernelModule::unload).transpose()?;
    Ok(Outcome::new(row, faults, known, [plain, protected]))
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
    let failed: Vec<_> = outcomes
        .iter()
        .filter_map(|outcome| match &outcome.verdict {
            Verdict::Fails(why) => Some(format!("{} ({why})", outcome.name)),
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
