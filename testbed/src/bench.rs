// SPDX-License-Identifier: MIT OR Apache-2.0
//! What benches in the VM have in common: in which form they print, and how they end.

use std::process::ExitCode;

use clap::Args;

use crate::failure::Failure;

/// How to print, and whether to judge.
#[derive(Args, Clone, Copy, Debug)]
pub struct Form {
    /// One JSON object a line instead of a table
    #[arg(long)]
    pub json: bool,
    /// Measure only: a missed goal is no failure. For short runs, which show whether all is done rightly
    /// and not how fast
    #[arg(long)]
    pub no_goals: bool,
}

impl Form {
    /// Prints what stands above a table.
    pub fn head(self, head: &str) {
        if !self.json {
            println!("{head}");
        }
    }

    /// Prints something in this form.
    pub fn print(self, json: &str, text: &str) {
        println!("{}", if self.json { json } else { text });
    }
}

/// Of all figures, whether they are as they should be.
pub trait Conclusion {
    /// One object.
    fn json(&self) -> String;

    /// In words, with each goal.
    fn text(&self) -> String;

    /// Whether a goal is missed.
    fn is_missed(&self) -> bool;
}

/// Ends `program`: a verdict is printed and is the exit status, if it is asked for.
pub fn end(program: &str, form: Form, verdict: Result<impl Conclusion, Failure>) -> ExitCode {
    match verdict {
        Ok(_) if form.no_goals => ExitCode::SUCCESS,
        Ok(verdict) => {
            form.print(&verdict.json(), &verdict.text());
            ExitCode::from(u8::from(verdict.is_missed()))
        }
        Err(failure) => {
            eprintln!("{program}: {failure}");
            ExitCode::FAILURE
        }
    }
}
