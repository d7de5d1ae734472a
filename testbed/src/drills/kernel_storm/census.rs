// SPDX-License-Identifier: MIT OR Apache-2.0
//! All queue pairs, looked at from time to time: none that was in Error is in RTS afterwards.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::Moment;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::program::Program;

const PERIOD: Duration = Duration::from_secs(1);

/// What `rdma resource show qp` said.
pub(super) struct Census {
    look: Option<Program>,
    dead: BTreeSet<String>,
    most: usize,
    next: Moment,
}

impl Census {
    pub(super) fn new() -> Self {
        Self {
            look: None,
            dead: BTreeSet::new(),
            most: 0,
            next: Moment::now(),
        }
    }

    /// The most RC queue pairs that were there at a time.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Looks, if it is time to. That may take a while: nobody waits for it.
    pub(super) fn go_on(&mut self) -> Result<(), Failure> {
        if let Some(look) = &mut self.look {
            let Some(status) = look.ended()? else {
                return Ok(());
            };
            let lines = look.lines();
            ensure(status.success(), || {
                format!("rdma: {status}: {}", look.last_line())
            })?;
            self.look = None;
            return self.take(lines.iter().map(|line| line.text.as_str()));
        }
        if Moment::now() > self.next {
            self.next = Moment::now() + PERIOD;
            let words = ["rdma", "resource", "show", "qp"];
            self.look = Some(Program::start("rdma", Host::A, &words)?);
        }
        Ok(())
    }

    fn take<'a>(&mut self, lines: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
        let all: Vec<_> = lines.filter_map(read).collect();
        self.most = self.most.max(all.len());
        let mut dead = BTreeSet::new();
        for (name, state) in all {
            let is_new = !self.dead.contains(&name);
            ensure(is_new || state != "RTS", || {
                format!("revived: {name} was in Error, and is in {state}")
            })?;
            if state == "ERR" {
                dead.insert(name);
            }
        }
        self.dead = dead;
        Ok(())
    }
}

/// Of the line of an RC queue pair which it is, with its owner, and its state.
fn read(line: &str) -> Option<(String, &str)> {
    let words: Vec<_> = line.split_whitespace().collect();
    let after = |key: &str| {
        let at = words.iter().position(|word| *word == key)?;
        words.get(at + 1).copied()
    };
    let device = after("link")?.split('/').next()?;
    let owner = after("pid").or_else(|| after("comm"))?;
    (after("type")? == "RC").then_some(())?;
    let name = format!("queue pair {} of {device}, {owner}", after("lqpn")?);
    Some((name, after("state")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(state: &str, pid: u32) -> String {
        format!(
            "link shca0/1 lqpn 77 rqpn 78 type RC state {state} rq-psn 0 sq-psn 0 path-mig-state MIGRATED pdn 1 pid {pid} comm x\n"
        )
    }

    #[test]
    fn one_that_comes_back_from_error_is_seen() {
        let mut census = Census::new();
        census.take(line("RTS", 5).lines()).expect("alive");
        census.take(line("ERR", 5).lines()).expect("dead");
        census.take(line("ERR", 5).lines()).expect("still dead");
        census
            .take(line("RTS", 6).lines())
            .expect("somebody else's");
        census.take(line("ERR", 6).lines()).expect("dead");
        let failure = census.take(line("RTS", 6).lines()).expect_err("revived");
        assert!(failure.to_string().contains("queue pair 77 of shca0, 6"));
        assert_eq!(census.most(), 1);
    }

    #[test]
    fn other_kinds_do_not_count() {
        let line = "link shca0/1 lqpn 1 type GSI state RTS sq-psn 0 comm [ib_core]";
        assert_eq!(read(line), None);
    }
}
