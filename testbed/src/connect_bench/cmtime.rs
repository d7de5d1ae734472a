// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server of cmtime's on host B, and clients on host A.

use std::time::Duration;

use crate::clock::{Millis, Moment};
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::program::{Line, Program};
use crate::wait::{self, Seen};

use super::figures::Run;

/// Bound for a run of a client, which tries again where it is not answered.
const LIMIT: Duration = Duration::from_secs(60);

/// With what both ends are run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Plain,
    Protected,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Protected => "protected",
        }
    }

    /// The servers of both sides are there at the same time.
    fn port(self) -> &'static str {
        match self {
            Self::Plain => "7470",
            Self::Protected => "7471",
        }
    }

    fn words<'a>(self, cmtime: &[&'a str]) -> Vec<&'a str> {
        let run: &[&str] = match self {
            Self::Plain => &[],
            Self::Protected => &["apmctl", "run", "--"],
        };
        [run, cmtime].concat()
    }
}

/// It serves one client after the other.
pub(super) struct Server {
    side: Side,
    connections: String,
    _program: Program,
}

impl Server {
    pub(super) fn start(side: Side, connections: u32) -> Result<Self, Failure> {
        let connections = connections.to_string();
        let words = side.words(&["cmtime", "-b", "10.0.1.2", "-p", side.port()]);
        let mut program = Program::start(&format!("{} server", side.name()), Host::B, &words)?;
        wait::until("cmtime listens", LIMIT, || {
            program.ensure_running()?;
            let ids = crate::command::run_as(Host::B, &["rdma", "res", "show", "cm_id"])?;
            let address = format!("10.0.1.2:{}", side.port());
            let listens = |line: &str| line.contains("LISTEN") && line.contains(&address);
            Ok(Seen::when(ids.lines().any(listens), || ids.clone()))
        })?;
        Ok(Self {
            side,
            connections,
            _program: program,
        })
    }

    /// Lets a client make all connections and take them down.
    pub(super) fn connect(&self) -> Result<Run, Failure> {
        let words = self.side.words(&[
            "cmtime",
            "-b",
            "10.0.1.1",
            "-s",
            "10.0.1.2",
            "-p",
            self.side.port(),
            "-c",
            &self.connections,
        ]);
        let name = format!("{} client", self.side.name());
        let started = Moment::now();
        let mut client = Program::start(&name, Host::A, &words)?;
        let status = client.wait(LIMIT)?;
        let program = Moment::now().since(started);
        let lines = client.lines();
        ensure(status.success(), || {
            format!("{name}: {status}: {}", client.last_line())
        })?;
        parse(&name, &lines, program)
    }
}

/// What cmtime says of its steps, if all went well: its exit status does not tell.
fn parse(name: &str, lines: &[Line], program: Duration) -> Result<Run, Failure> {
    let complaint = lines
        .iter()
        .find(|line| line.text.contains("error") || line.text.contains("failure"));
    if let Some(complaint) = complaint {
        return Err(Failure::not_shown(format!("{name}: {}", complaint.text)));
    }
    let steps: Vec<_> = lines.iter().filter_map(|line| step(&line.text)).collect();
    let connect = steps.iter().find(|(name, _)| *name == "connect");
    let Some((_, connect)) = connect else {
        return Err(Failure::Output {
            source_name: name.to_owned(),
            problem: "it does not say how long it took to connect".to_owned(),
        });
    };
    Ok(Run {
        steps: Millis(steps.iter().map(|(_, total)| total.0).sum()),
        connect: *connect,
        program: Millis::from(program),
    })
}

/// A step, and how long all connections together took for it.
fn step(line: &str) -> Option<(&str, Millis)> {
    let (name, figures) = line.split_once(':')?;
    let figures: Result<Vec<f64>, _> = figures.split_whitespace().map(str::parse).collect();
    match figures.ok()?.as_slice() {
        [total, _, _, _] => Some((name.trim(), Millis(*total))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<Line> {
        let line = |text: &str| Line {
            at: Moment::from_ms(0.0),
            text: text.to_owned(),
        };
        text.lines().map(line).collect()
    }

    const TABLE: &str = "creating id\nconnecting\n\
        step              total ms     max ms     min us  us / conn\n\
        create id    :       20.50       1.00      71.00     102.50\n\
        connect      :      700.25     600.00    2000.00    3501.25\n\
        destroy      :        9.25       0.50      30.00      46.25\n";

    #[test]
    fn the_steps_are_added_up() {
        let run = parse("client", &lines(TABLE), Duration::from_secs(1)).expect("a table");
        assert_eq!(run.steps, Millis(730.0));
        assert_eq!(run.connect, Millis(700.25));
        assert_eq!(run.program, Millis(1000.0));
    }

    #[test]
    fn a_connection_that_fails_is_no_figure() {
        let text = format!("event: RDMA_CM_EVENT_REJECTED, error: 8\n{TABLE}");
        let failure = parse("client", &lines(&text), Duration::ZERO).expect_err("rejected");
        assert!(failure.to_string().contains("REJECTED"), "{failure}");
        assert!(parse("client", &lines("connecting\n"), Duration::ZERO).is_err());
    }
}
