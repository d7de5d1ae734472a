// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that are to end: some have been killed, others have lost their peer.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::clock::Moment;
use crate::command;
use crate::failure::{Failure, ensure};
use crate::patience;
use crate::program::Program;

/// How long one may go on that has lost its peer: what it waits for may never come.
const GRACE: Duration = Duration::from_secs(3);

/// One that has not ended by then, killed with -9, hangs in the kernel.
const LIMIT: Duration = Duration::from_secs(60);

/// Programs on their way out.
#[derive(Default)]
pub(super) struct Killed {
    killed: Vec<(Program, Moment)>,
    bereaved: Vec<(Program, Moment)>,
    count: u64,
}

impl Killed {
    /// How many were killed.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Kills it as `kill -9` does.
    pub(super) fn kill(&mut self, mut program: Program) -> Result<(), Failure> {
        if program.ended()?.is_some() {
            return verify(&program);
        }
        program.signal(Signal::SIGKILL)?;
        self.count += 1;
        self.killed.push((program, Moment::now()));
        Ok(())
    }

    /// It ends by itself, or is killed a little later.
    pub(super) fn leave_alone(&mut self, program: Program) {
        self.bereaved.push((program, Moment::now()));
    }

    /// Looks who has ended.
    pub(super) fn look(&mut self) -> Result<(), Failure> {
        for (mut program, since) in std::mem::take(&mut self.bereaved) {
            if program.ended()?.is_some() {
                verify(&program)?;
            } else if Moment::now().since(since) > GRACE {
                self.kill(program)?;
            } else {
                self.bereaved.push((program, since));
            }
        }
        for (mut program, since) in std::mem::take(&mut self.killed) {
            if program.ended()?.is_some() {
                verify(&program)?;
            } else if Moment::now().since(since) > patience::limit(LIMIT) {
                return Err(hangs(program));
            } else {
                self.killed.push((program, since));
            }
        }
        Ok(())
    }

    /// Whether all have ended.
    pub(super) fn is_empty(&self) -> bool {
        self.killed.is_empty() && self.bereaved.is_empty()
    }
}

/// Whatever happened to its queue pair, a program has got right data or none.
pub(super) fn verify(program: &Program) -> Result<(), Failure> {
    // cm_peers and block_writer say so.
    let is_wrong = |text: &str| text.contains("or altered") || text.contains(" read for ");
    let lines = program.lines();
    let wrong = lines.iter().find(|line| is_wrong(&line.text));
    ensure(wrong.is_none(), || {
        let text = wrong.map_or("", |line| &line.text);
        format!("wrong data: {}: {text}", program.name())
    })
}

fn hangs(program: Program) -> Failure {
    let path = format!("/proc/{}/stack", program.pid());
    let stack = command::run(&["cat", &path]).unwrap_or_default();
    let text = format!("{} does not end though killed: {stack}", program.name());
    // Whoever drops it waits for its end.
    std::mem::forget(program);
    Failure::not_shown(text)
}
